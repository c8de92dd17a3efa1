-- attempts not before a date, of a column and of an expression

-- poll
SELECT (EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state" = $1 AND "testapp_circular"."state_claim" IS NULL AND "testapp_circular"."expires" <= (STATEMENT_TIMESTAMP())) LIMIT 1)), (EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($2, $3) AND "testapp_circular"."state_crashes" < $4 AND "testapp_circular"."state_crashes" = $5) LIMIT 1)), (EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($6, $7) AND "testapp_circular"."state_crashes" < $8 AND "testapp_circular"."state_crashes" > $9 AND "testapp_circular"."state_crashes" >= $10 AND "testapp_circular"."state_crashes" < $11) LIMIT 1)), (EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($12, $13) AND "testapp_circular"."state_crashes" < $14 AND "testapp_circular"."state_crashes" > $15 AND "testapp_circular"."state_crashes" >= $16 AND "testapp_circular"."state_crashes" < $17) LIMIT 1)), (EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($18, $19) AND "testapp_circular"."state_crashes" < $20 AND "testapp_circular"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $21 AND "testapp_circular"."state_crashes" < $22 AND "testapp_circular"."state_next_attempt" IS NULL AND "testapp_circular"."send_after" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $23 AND "testapp_circular"."state_crashes" < $24 AND "testapp_circular"."state_next_attempt" IS NULL AND "testapp_circular"."send_after" IS NULL) LIMIT 1) OR EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $25 AND "testapp_circular"."state_crashes" < $26 AND "testapp_circular"."state_next_attempt" IS NULL AND timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $27 AND "testapp_circular"."state_crashes" < $28 AND "testapp_circular"."state_next_attempt" IS NULL AND timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NOT NULL AND "testapp_circular"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NOT NULL AND "testapp_circular"."state" IN ($29, $30, $31, $32) AND "testapp_circular"."state_locked_until" > (STATEMENT_TIMESTAMP() + $33)) LIMIT 1)), (SELECT ("testapp_circular"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($34) AND "testapp_circular"."state_crashes" < $35 AND "testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $36)) ORDER BY "testapp_circular"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_circular"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($37) AND "testapp_circular"."state_crashes" < $38 AND "testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $39)) ORDER BY "testapp_circular"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_circular"."expires" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_circular" WHERE ("testapp_circular"."state" = $40 AND "testapp_circular"."state_claim" IS NULL AND "testapp_circular"."expires" <= (STATEMENT_TIMESTAMP() + $41) AND "testapp_circular"."expires" > (STATEMENT_TIMESTAMP())) ORDER BY "testapp_circular"."expires" ASC LIMIT 1), (SELECT ("testapp_circular"."send_after" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $42 AND "testapp_circular"."state_crashes" < $43 AND "testapp_circular"."state_next_attempt" IS NULL AND "testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."send_after" <= (STATEMENT_TIMESTAMP() + $44)) ORDER BY "testapp_circular"."state_next_attempt" ASC, "testapp_circular"."send_after" ASC LIMIT 1), (SELECT (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $45 AND "testapp_circular"."state_crashes" < $46 AND "testapp_circular"."state_next_attempt" IS NULL AND timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) <= (STATEMENT_TIMESTAMP() + $47)) ORDER BY "testapp_circular"."state_next_attempt" ASC, timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $48)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" IN ($1, $2) AND "testapp_circular"."state_crashes" < $3 AND "testapp_circular"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $1 AND "testapp_circular"."state_crashes" < $2 AND "testapp_circular"."state_next_attempt" IS NULL AND "testapp_circular"."send_after" <= (STATEMENT_TIMESTAMP())) LIMIT 99 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $1 AND "testapp_circular"."state_crashes" < $2 AND "testapp_circular"."state_next_attempt" IS NULL AND "testapp_circular"."send_after" IS NULL) LIMIT 98 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $1 AND "testapp_circular"."state_crashes" < $2 AND "testapp_circular"."state_next_attempt" IS NULL AND timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) <= (STATEMENT_TIMESTAMP())) LIMIT 97 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NULL AND NOT "testapp_circular"."state_ready" AND "testapp_circular"."state" = $1 AND "testapp_circular"."state_crashes" < $2 AND "testapp_circular"."state_next_attempt" IS NULL AND timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) IS NULL) LIMIT 96 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- mark ready
UPDATE "testapp_circular" SET "state_ready" = CASE WHEN (("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $1) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $2)) THEN $3 ELSE $4 END, "state_next_attempt" = CASE WHEN (("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $5) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $6)) THEN NULL ELSE COALESCE("testapp_circular"."state_next_attempt", CASE WHEN (NOT ("testapp_circular"."send_after" IS NULL) AND "testapp_circular"."state" = $7) THEN GREATEST("testapp_circular"."send_after", "testapp_circular"."state_changed") WHEN (NOT (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) IS NULL) AND "testapp_circular"."state" = $8) THEN GREATEST(timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")), "testapp_circular"."state_changed") ELSE NULL END, "testapp_circular"."state_changed") END WHERE "testapp_circular"."id" IN ($9)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_circular"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_circular"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_circular" SET "state_claim" = CAST(CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $3) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $4)) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $6) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $7)) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $8) END, "state_ready" = $9, "state_attempted" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $10) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $11)) THEN "testapp_circular"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $12) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $13)) THEN "testapp_circular"."state_attempts" ELSE ("testapp_circular"."state_attempts" + $14) END FROM picked
WHERE "testapp_circular".ctid = picked.place AND "testapp_circular"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_circular"."id", "testapp_circular"."state_ready", "testapp_circular"."state_changed", "testapp_circular"."state_attempted", "testapp_circular"."state_locked_until", "testapp_circular"."state_next_attempt", "testapp_circular"."state_attempts", "testapp_circular"."state_failures", "testapp_circular"."state_crashes", "testapp_circular"."state_version", "testapp_circular"."state_claim", "testapp_circular"."state_life", "testapp_circular"."state_visit", "testapp_circular"."name", "testapp_circular"."send_after", "testapp_circular"."expires", "testapp_circular"."patience", "testapp_circular"."state"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_circular"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0 AND (COALESCE(state_next_attempt, state_changed), "id") > ($2, $3)
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_circular"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_circular" SET "state_claim" = CAST(CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $5) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $6)) THEN NULL ELSE $7 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $8) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $9)) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $10) END, "state_ready" = $11, "state_attempted" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $12) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $13)) THEN "testapp_circular"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $14) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $15)) THEN "testapp_circular"."state_attempts" ELSE ("testapp_circular"."state_attempts" + $16) END FROM picked
WHERE "testapp_circular".ctid = picked.place AND "testapp_circular"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_circular"."id", "testapp_circular"."state_ready", "testapp_circular"."state_changed", "testapp_circular"."state_attempted", "testapp_circular"."state_locked_until", "testapp_circular"."state_next_attempt", "testapp_circular"."state_attempts", "testapp_circular"."state_failures", "testapp_circular"."state_crashes", "testapp_circular"."state_version", "testapp_circular"."state_claim", "testapp_circular"."state_life", "testapp_circular"."state_visit", "testapp_circular"."name", "testapp_circular"."send_after", "testapp_circular"."expires", "testapp_circular"."patience", "testapp_circular"."state"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_circular"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_circular"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_circular" SET "state_claim" = CAST(CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $5) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $6)) THEN NULL ELSE $7 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $8) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $9)) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $10) END, "state_ready" = $11, "state_attempted" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $12) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $13)) THEN "testapp_circular"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_circular"."state_next_attempt" > (STATEMENT_TIMESTAMP()) OR ("testapp_circular"."send_after" > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $14) OR (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) > (STATEMENT_TIMESTAMP()) AND "testapp_circular"."state" = $15)) THEN "testapp_circular"."state_attempts" ELSE ("testapp_circular"."state_attempts" + $16) END FROM picked
WHERE "testapp_circular".ctid = picked.place AND "testapp_circular"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_circular"."id", "testapp_circular"."state_ready", "testapp_circular"."state_changed", "testapp_circular"."state_attempted", "testapp_circular"."state_locked_until", "testapp_circular"."state_next_attempt", "testapp_circular"."state_attempts", "testapp_circular"."state_failures", "testapp_circular"."state_crashes", "testapp_circular"."state_version", "testapp_circular"."state_claim", "testapp_circular"."state_life", "testapp_circular"."state_visit", "testapp_circular"."name", "testapp_circular"."send_after", "testapp_circular"."expires", "testapp_circular"."patience", "testapp_circular"."state"

-- record queued to answered
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_circular" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_circular" SET "state" = $8, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $9, "state_next_attempt" = NULL, "state_attempts" = $10, "state_failures" = $11, "state_crashes" = $12, "state_version" = ("testapp_circular"."state_version" + $13), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_circular".ctid = v.found AND "testapp_circular"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_circular".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_circular".state = $14
  RETURNING "testapp_circular"."id" AS pk, v.failed, "testapp_circular".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_circular".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $15, date_trunc('hour', statement_timestamp(), 'UTC'), $16, $17, $18::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT $19, pk::text, statement_timestamp(), version, 'move', $20, $21, '', $22, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
SELECT pk FROM done

-- record queued to answered
SELECT "testapp_circular"."id" AS "pk", "testapp_circular"."state_claim" AS "state_claim", "testapp_circular"."state" AS "state" FROM "testapp_circular" WHERE "testapp_circular"."id" IN ($1)

-- record queued to reminding
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_circular" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_circular" SET "state" = $8, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = (timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) <= (STATEMENT_TIMESTAMP()) OR timezone('UTC', timezone('UTC', "testapp_circular"."send_after") + ("testapp_circular"."patience")) IS NULL), "state_next_attempt" = NULL, "state_attempts" = $9, "state_failures" = $10, "state_crashes" = $11, "state_version" = ("testapp_circular"."state_version" + $12), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_circular".ctid = v.found AND "testapp_circular"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_circular".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_circular".state = $13
  RETURNING "testapp_circular"."id" AS pk, v.failed, "testapp_circular".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_circular".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $14, date_trunc('hour', statement_timestamp(), 'UTC'), $15, $16, $17::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT $18, pk::text, statement_timestamp(), version, 'move', $19, $20, '', $21, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
SELECT pk FROM done

-- record queued, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_circular" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_circular" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_circular".ctid = v.found AND "testapp_circular"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_circular".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_circular".state = $9
  RETURNING "testapp_circular"."id" AS pk, v.failed, "testapp_circular".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $10, date_trunc('hour', statement_timestamp(), 'UTC'), $11, $12, $13::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT pk FROM done

-- record queued, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_circular" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_circular" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_circular"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_circular"."state_next_attempt") FROM mine v
  WHERE "testapp_circular".ctid = v.found AND "testapp_circular"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_circular".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_circular".state = $8
  RETURNING "testapp_circular"."id" AS pk, v.failed, "testapp_circular".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."id" IN ($1) AND "testapp_circular"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- renew
UPDATE "testapp_circular" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_circular"."id" IN ($2)

-- extend
UPDATE "testapp_circular" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_circular"."id" = $2 AND "testapp_circular"."state" = $3 AND "testapp_circular"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_circular"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- undo a claim
UPDATE "testapp_circular" SET "state_ready" = $1, "state_attempts" = ("testapp_circular"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_circular"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NOT NULL AND "testapp_circular"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_circular"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_circular"."id" AS "pk" FROM "testapp_circular" WHERE ("testapp_circular"."state_claim" IS NOT NULL AND "testapp_circular"."state" IN ($1, $2, $3, $4) AND "testapp_circular"."state_locked_until" > (STATEMENT_TIMESTAMP() + $5)) ORDER BY "testapp_circular"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED

-- reap
SELECT "testapp_circular"."id" AS "pk", "testapp_circular"."state_claim" AS "state_claim" FROM "testapp_circular" WHERE "testapp_circular"."id" IN ($1)

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_circular"."id" AS "pk", "testapp_circular"."state_changed" AS "stator_entered", ("testapp_circular".ctid) AS "stator_place" FROM "testapp_circular" WHERE ("testapp_circular"."state" = $1 AND "testapp_circular"."state_claim" IS NULL AND "testapp_circular"."expires" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_circular" SKIP LOCKED),
done AS (
  UPDATE "testapp_circular" SET "state" = $2, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $3, "state_next_attempt" = NULL, "state_attempts" = $4, "state_failures" = $5, "state_crashes" = $6, "state_version" = ("testapp_circular"."state_version" + $7), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_circular".ctid = picked.stator_place AND "testapp_circular"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_circular"."id" AS pk, "testapp_circular".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_circular".state_changed - picked.stator_entered AS stayed, $8 AS worker),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $9, date_trunc('hour', statement_timestamp(), 'UTC'), $10, $11, $12::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT $13, pk::text, statement_timestamp(), version, 'move', $14, $15, '', $16, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
SELECT count(*) FROM done
