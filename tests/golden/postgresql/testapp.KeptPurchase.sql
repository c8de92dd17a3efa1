-- history, and steps

-- poll
SELECT (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_crashes" = $6) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($7, $8, $9, $10) AND "testapp_keptpurchase"."state_crashes" < $11 AND "testapp_keptpurchase"."state_crashes" > $12 AND "testapp_keptpurchase"."state_crashes" >= $13 AND "testapp_keptpurchase"."state_crashes" < $14) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($15, $16, $17, $18) AND "testapp_keptpurchase"."state_crashes" < $19 AND "testapp_keptpurchase"."state_crashes" > $20 AND "testapp_keptpurchase"."state_crashes" >= $21 AND "testapp_keptpurchase"."state_crashes" < $22) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($23, $24, $25, $26) AND "testapp_keptpurchase"."state_crashes" < $27 AND "testapp_keptpurchase"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($28, $29, $30, $31) AND "testapp_keptpurchase"."state_crashes" < $32 AND "testapp_keptpurchase"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state" IN ($33, $34, $35, $36, $37) AND "testapp_keptpurchase"."state_locked_until" > (STATEMENT_TIMESTAMP() + $38)) LIMIT 1)), (SELECT ("testapp_keptpurchase"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($39) AND "testapp_keptpurchase"."state_crashes" < $40 AND "testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_keptpurchase"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $41)) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_keptpurchase"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($42) AND "testapp_keptpurchase"."state_crashes" < $43 AND "testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_keptpurchase"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $44)) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_keptpurchase"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($45) AND "testapp_keptpurchase"."state_crashes" < $46 AND "testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_keptpurchase"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $47)) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_keptpurchase"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($48) AND "testapp_keptpurchase"."state_crashes" < $49 AND "testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_keptpurchase"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $50)) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $51)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_keptpurchase" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_keptpurchase" SKIP LOCKED

-- mark ready
UPDATE "testapp_keptpurchase" SET "state_ready" = $1 WHERE "testapp_keptpurchase"."id" IN ($2)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_keptpurchase"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_keptpurchase"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_keptpurchase" SET "state_claim" = CAST(CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $4) END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_keptpurchase"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_keptpurchase"."state_attempts" ELSE ("testapp_keptpurchase"."state_attempts" + $6) END FROM picked
WHERE "testapp_keptpurchase".ctid = picked.place AND "testapp_keptpurchase"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_keptpurchase"."id", "testapp_keptpurchase"."state_ready", "testapp_keptpurchase"."state_changed", "testapp_keptpurchase"."state_attempted", "testapp_keptpurchase"."state_locked_until", "testapp_keptpurchase"."state_next_attempt", "testapp_keptpurchase"."state_attempts", "testapp_keptpurchase"."state_failures", "testapp_keptpurchase"."state_crashes", "testapp_keptpurchase"."state_version", "testapp_keptpurchase"."state_claim", "testapp_keptpurchase"."state_life", "testapp_keptpurchase"."state_visit", "testapp_keptpurchase"."state", "testapp_keptpurchase"."script"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_keptpurchase"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0 AND (COALESCE(state_next_attempt, state_changed), "id") > ($2, $3)
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_keptpurchase"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_keptpurchase" SET "state_claim" = CAST(CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_keptpurchase"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_keptpurchase"."state_attempts" ELSE ("testapp_keptpurchase"."state_attempts" + $8) END FROM picked
WHERE "testapp_keptpurchase".ctid = picked.place AND "testapp_keptpurchase"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_keptpurchase"."id", "testapp_keptpurchase"."state_ready", "testapp_keptpurchase"."state_changed", "testapp_keptpurchase"."state_attempted", "testapp_keptpurchase"."state_locked_until", "testapp_keptpurchase"."state_next_attempt", "testapp_keptpurchase"."state_attempts", "testapp_keptpurchase"."state_failures", "testapp_keptpurchase"."state_crashes", "testapp_keptpurchase"."state_version", "testapp_keptpurchase"."state_claim", "testapp_keptpurchase"."state_life", "testapp_keptpurchase"."state_visit", "testapp_keptpurchase"."state", "testapp_keptpurchase"."script"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_keptpurchase"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_keptpurchase"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_keptpurchase" SET "state_claim" = CAST(CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_keptpurchase"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_keptpurchase"."state_attempts" ELSE ("testapp_keptpurchase"."state_attempts" + $8) END FROM picked
WHERE "testapp_keptpurchase".ctid = picked.place AND "testapp_keptpurchase"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_keptpurchase"."id", "testapp_keptpurchase"."state_ready", "testapp_keptpurchase"."state_changed", "testapp_keptpurchase"."state_attempted", "testapp_keptpurchase"."state_locked_until", "testapp_keptpurchase"."state_next_attempt", "testapp_keptpurchase"."state_attempts", "testapp_keptpurchase"."state_failures", "testapp_keptpurchase"."state_crashes", "testapp_keptpurchase"."state_version", "testapp_keptpurchase"."state_claim", "testapp_keptpurchase"."state_life", "testapp_keptpurchase"."state_visit", "testapp_keptpurchase"."state", "testapp_keptpurchase"."script"

-- record heaped to done
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_keptpurchase" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_keptpurchase" SET "state" = $8, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $9, "state_next_attempt" = NULL, "state_attempts" = $10, "state_failures" = $11, "state_crashes" = $12, "state_version" = ("testapp_keptpurchase"."state_version" + $13), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_keptpurchase".ctid = v.found AND "testapp_keptpurchase"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_keptpurchase".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_keptpurchase".state = $14
  RETURNING "testapp_keptpurchase"."id" AS pk, v.failed, "testapp_keptpurchase".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_keptpurchase".state_changed - v.entered AS stayed),
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

-- record heaped to done
SELECT "testapp_keptpurchase"."id" AS "pk", "testapp_keptpurchase"."state_claim" AS "state_claim", "testapp_keptpurchase"."state" AS "state" FROM "testapp_keptpurchase" WHERE "testapp_keptpurchase"."id" IN ($1)

-- record heaped, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_keptpurchase" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_keptpurchase" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_keptpurchase".ctid = v.found AND "testapp_keptpurchase"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_keptpurchase".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_keptpurchase".state = $9
  RETURNING "testapp_keptpurchase"."id" AS pk, v.failed, "testapp_keptpurchase".state_changed - v.entered AS stayed),
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

-- record heaped, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_keptpurchase" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_keptpurchase" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_keptpurchase"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_keptpurchase"."state_next_attempt") FROM mine v
  WHERE "testapp_keptpurchase".ctid = v.found AND "testapp_keptpurchase"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_keptpurchase".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_keptpurchase".state = $8
  RETURNING "testapp_keptpurchase"."id" AS pk, v.failed, "testapp_keptpurchase".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."id" IN ($1) AND "testapp_keptpurchase"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_keptpurchase" SKIP LOCKED

-- renew
UPDATE "testapp_keptpurchase" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_keptpurchase"."id" IN ($2)

-- extend
UPDATE "testapp_keptpurchase" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_keptpurchase"."id" = $2 AND "testapp_keptpurchase"."state" = $3 AND "testapp_keptpurchase"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_keptpurchase"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_keptpurchase" SKIP LOCKED

-- undo a claim
UPDATE "testapp_keptpurchase" SET "state_ready" = $1, "state_attempts" = ("testapp_keptpurchase"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_keptpurchase"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_keptpurchase"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_keptpurchase" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4, $5) AND "testapp_keptpurchase"."state_locked_until" > (STATEMENT_TIMESTAMP() + $6)) ORDER BY "testapp_keptpurchase"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_keptpurchase" SKIP LOCKED

-- reap
SELECT "testapp_keptpurchase"."id" AS "pk", "testapp_keptpurchase"."state_claim" AS "state_claim" FROM "testapp_keptpurchase" WHERE "testapp_keptpurchase"."id" IN ($1)
