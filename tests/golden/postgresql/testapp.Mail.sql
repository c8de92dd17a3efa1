-- a column of the state with another name and numbers

-- poll
SELECT (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2, $3) AND "testapp_mail"."state_crashes" = $4) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $5 AND "testapp_mail"."status" IN ($6, $7) AND "testapp_mail"."state_crashes" > $8 AND "testapp_mail"."state_crashes" >= $9 AND "testapp_mail"."state_crashes" < $10) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $11 AND "testapp_mail"."status" IN ($12, $13) AND "testapp_mail"."state_crashes" > $14 AND "testapp_mail"."state_crashes" >= $15 AND "testapp_mail"."state_crashes" < $16) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $17 AND "testapp_mail"."status" IN ($18, $19) AND "testapp_mail"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $20 AND "testapp_mail"."status" IN ($21, $22) AND "testapp_mail"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" > (STATEMENT_TIMESTAMP() + $23) AND "testapp_mail"."status" IN ($24, $25, $26, $27, $28)) LIMIT 1)), (SELECT ("testapp_mail"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $29 AND "testapp_mail"."status" IN ($30) AND "testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_mail"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $31)) ORDER BY "testapp_mail"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_mail"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $32 AND "testapp_mail"."status" IN ($33) AND "testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_mail"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $34)) ORDER BY "testapp_mail"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $35)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2, $3) AND "testapp_mail"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2, $3) AND "testapp_mail"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED

-- mark ready
UPDATE "testapp_mail" SET "state_ready" = $1 WHERE "testapp_mail"."id" IN ($2)

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) ORDER BY "stator_limit"."id" ASC LIMIT 1 FOR UPDATE

-- claim
INSERT INTO "stator_limit" ("model_label", "state") VALUES ($1, $2) ON CONFLICT DO NOTHING

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) LIMIT 21 FOR UPDATE

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_mail"
  WHERE state_ready AND state_claim IS NULL AND "status" = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_mail"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_mail" SET "state_claim" = CAST(CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $4) END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_mail"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_mail"."state_attempts" ELSE ("testapp_mail"."state_attempts" + $6) END FROM picked
WHERE "testapp_mail".ctid = picked.place AND "testapp_mail"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_mail"."id", "testapp_mail"."state_ready", "testapp_mail"."state_changed", "testapp_mail"."state_attempted", "testapp_mail"."state_locked_until", "testapp_mail"."state_next_attempt", "testapp_mail"."state_attempts", "testapp_mail"."state_failures", "testapp_mail"."state_crashes", "testapp_mail"."state_version", "testapp_mail"."state_claim", "testapp_mail"."state_life", "testapp_mail"."state_visit", "testapp_mail"."address", "testapp_mail"."status"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_mail"
  WHERE state_ready AND state_claim IS NULL AND "status" = ANY($1) AND state_crashes = 0 AND (COALESCE(state_next_attempt, state_changed), "id") > ($2, $3)
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_mail"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_mail" SET "state_claim" = CAST(CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_mail"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_mail"."state_attempts" ELSE ("testapp_mail"."state_attempts" + $8) END FROM picked
WHERE "testapp_mail".ctid = picked.place AND "testapp_mail"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_mail"."id", "testapp_mail"."state_ready", "testapp_mail"."state_changed", "testapp_mail"."state_attempted", "testapp_mail"."state_locked_until", "testapp_mail"."state_next_attempt", "testapp_mail"."state_attempts", "testapp_mail"."state_failures", "testapp_mail"."state_crashes", "testapp_mail"."state_version", "testapp_mail"."state_claim", "testapp_mail"."state_life", "testapp_mail"."state_visit", "testapp_mail"."address", "testapp_mail"."status"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_mail"
  WHERE state_ready AND state_claim IS NULL AND "status" = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_mail"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_mail" SET "state_claim" = CAST(CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_mail"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_mail"."state_attempts" ELSE ("testapp_mail"."state_attempts" + $8) END FROM picked
WHERE "testapp_mail".ctid = picked.place AND "testapp_mail"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_mail"."id", "testapp_mail"."state_ready", "testapp_mail"."state_changed", "testapp_mail"."state_attempted", "testapp_mail"."state_locked_until", "testapp_mail"."state_next_attempt", "testapp_mail"."state_attempts", "testapp_mail"."state_failures", "testapp_mail"."state_crashes", "testapp_mail"."state_version", "testapp_mail"."state_claim", "testapp_mail"."state_life", "testapp_mail"."state_visit", "testapp_mail"."address", "testapp_mail"."status"

-- record queued to refused
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_mail" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t."status" = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_mail" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_mail"."state_visit" >> $8) = ("testapp_mail"."state_version" & $9)) THEN ("testapp_mail"."state_visit" & $10) ELSE $11 END < $12 AND "testapp_mail"."status" = $13) THEN ((((("testapp_mail"."state_version" + $14) & $15) * $16) + ((CASE WHEN (("testapp_mail"."state_visit" >> $17) = ("testapp_mail"."state_version" & $18)) THEN ("testapp_mail"."state_visit" & $19) ELSE $20 END + $21) * $22)) + $23) ELSE NULL END, "status" = $24, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $25, "state_next_attempt" = NULL, "state_attempts" = $26, "state_failures" = $27, "state_crashes" = $28, "state_version" = ("testapp_mail"."state_version" + $29), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_mail".ctid = v.found AND "testapp_mail"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_mail".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_mail"."status" = $30
  RETURNING "testapp_mail"."id" AS pk, v.failed, "testapp_mail".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_mail".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $31, date_trunc('hour', statement_timestamp(), 'UTC'), $32, $33, $34::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT $35, pk::text, statement_timestamp(), version, 'move', $36, $37, '', $38, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
SELECT pk FROM done

-- record queued to refused
SELECT "testapp_mail"."id" AS "pk", "testapp_mail"."state_claim" AS "state_claim", "testapp_mail"."status" AS "status" FROM "testapp_mail" WHERE "testapp_mail"."id" IN ($1)

-- record queued to sending
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_mail" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t."status" = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_mail" SET "status" = $8, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $9, "state_next_attempt" = NULL, "state_attempts" = $10, "state_failures" = $11, "state_crashes" = $12, "state_version" = ("testapp_mail"."state_version" + $13), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_mail".ctid = v.found AND "testapp_mail"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_mail".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_mail"."status" = $14
  RETURNING "testapp_mail"."id" AS pk, v.failed, "testapp_mail".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_mail".state_changed - v.entered AS stayed),
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

-- record queued, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_mail" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t."status" = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_mail" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_mail".ctid = v.found AND "testapp_mail"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_mail".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_mail"."status" = $9
  RETURNING "testapp_mail"."id" AS pk, v.failed, "testapp_mail".state_changed - v.entered AS stayed),
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
  FROM v CROSS JOIN "testapp_mail" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t."status" = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_mail" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_mail"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_mail"."state_next_attempt") FROM mine v
  WHERE "testapp_mail".ctid = v.found AND "testapp_mail"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_mail".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_mail"."status" = $8
  RETURNING "testapp_mail"."id" AS pk, v.failed, "testapp_mail".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."id" IN ($1) AND "testapp_mail"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED

-- renew
UPDATE "testapp_mail" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_mail"."id" IN ($2)

-- extend
UPDATE "testapp_mail" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_mail"."id" = $2 AND "testapp_mail"."state_claim" IS NOT DISTINCT FROM $3 AND "testapp_mail"."status" = $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_mail"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED

-- undo a claim
UPDATE "testapp_mail" SET "state_ready" = $1, "state_attempts" = ("testapp_mail"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_mail"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_mail"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" > (STATEMENT_TIMESTAMP() + $1) AND "testapp_mail"."status" IN ($2, $3, $4, $5, $6)) ORDER BY "testapp_mail"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED

-- reap
SELECT "testapp_mail"."id" AS "pk", "testapp_mail"."state_claim" AS "state_claim" FROM "testapp_mail" WHERE "testapp_mail"."id" IN ($1)

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_mail"."id" AS "pk", "testapp_mail"."state_changed" AS "stator_entered", ("testapp_mail".ctid) AS "stator_place" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."status" = $1 AND "testapp_mail"."state_changed" <= (STATEMENT_TIMESTAMP() + $2)) LIMIT 100 FOR NO KEY UPDATE OF "testapp_mail" SKIP LOCKED),
done AS (
  UPDATE "testapp_mail" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_mail"."state_visit" >> $3) = ("testapp_mail"."state_version" & $4)) THEN ("testapp_mail"."state_visit" & $5) ELSE $6 END < $7 AND "testapp_mail"."status" = $8) THEN ((((("testapp_mail"."state_version" + $9) & $10) * $11) + ((CASE WHEN (("testapp_mail"."state_visit" >> $12) = ("testapp_mail"."state_version" & $13)) THEN ("testapp_mail"."state_visit" & $14) ELSE $15 END + $16) * $17)) + $18) ELSE NULL END, "status" = $19, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $20, "state_next_attempt" = NULL, "state_attempts" = $21, "state_failures" = $22, "state_crashes" = $23, "state_version" = ("testapp_mail"."state_version" + $24), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_mail".ctid = picked.stator_place AND "testapp_mail"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_mail"."id" AS pk, "testapp_mail".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_mail".state_changed - picked.stator_entered AS stayed, $25 AS worker),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $26, date_trunc('hour', statement_timestamp(), 'UTC'), $27, $28, $29::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT $30, pk::text, statement_timestamp(), version, 'move', $31, $32, '', $33, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
SELECT count(*) FROM done
