-- events

-- poll
SELECT (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_crashes" = $3) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($4) AND "testapp_expense"."state_crashes" < $5 AND "testapp_expense"."state_crashes" > $6 AND "testapp_expense"."state_crashes" >= $7 AND "testapp_expense"."state_crashes" < $8) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($9) AND "testapp_expense"."state_crashes" < $10 AND "testapp_expense"."state_crashes" > $11 AND "testapp_expense"."state_crashes" >= $12 AND "testapp_expense"."state_crashes" < $13) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($14) AND "testapp_expense"."state_crashes" < $15 AND "testapp_expense"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($16) AND "testapp_expense"."state_crashes" < $17 AND "testapp_expense"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state" IN ($18, $19, $20, $21, $22, $23) AND "testapp_expense"."state_locked_until" > (STATEMENT_TIMESTAMP() + $24)) LIMIT 1)), (SELECT ("testapp_expense"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($25) AND "testapp_expense"."state_crashes" < $26 AND "testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_expense"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $27)) ORDER BY "testapp_expense"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $28)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED

-- mark ready
UPDATE "testapp_expense" SET "state_ready" = $1 WHERE "testapp_expense"."id" IN ($2)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_expense"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_expense"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_expense" SET "state_claim" = CAST(CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $4) END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_expense"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_expense"."state_attempts" ELSE ("testapp_expense"."state_attempts" + $6) END FROM picked
WHERE "testapp_expense".ctid = picked.place AND "testapp_expense"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_expense"."id", "testapp_expense"."state_ready", "testapp_expense"."state_changed", "testapp_expense"."state_attempted", "testapp_expense"."state_locked_until", "testapp_expense"."state_next_attempt", "testapp_expense"."state_attempts", "testapp_expense"."state_failures", "testapp_expense"."state_crashes", "testapp_expense"."state_version", "testapp_expense"."state_claim", "testapp_expense"."state_life", "testapp_expense"."state_visit", "testapp_expense"."state", "testapp_expense"."submitter", "testapp_expense"."waits", "testapp_expense"."seen"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_expense"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0 AND (COALESCE(state_next_attempt, state_changed), "id") > ($2, $3)
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_expense"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_expense" SET "state_claim" = CAST(CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_expense"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_expense"."state_attempts" ELSE ("testapp_expense"."state_attempts" + $8) END FROM picked
WHERE "testapp_expense".ctid = picked.place AND "testapp_expense"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_expense"."id", "testapp_expense"."state_ready", "testapp_expense"."state_changed", "testapp_expense"."state_attempted", "testapp_expense"."state_locked_until", "testapp_expense"."state_next_attempt", "testapp_expense"."state_attempts", "testapp_expense"."state_failures", "testapp_expense"."state_crashes", "testapp_expense"."state_version", "testapp_expense"."state_claim", "testapp_expense"."state_life", "testapp_expense"."state_visit", "testapp_expense"."state", "testapp_expense"."submitter", "testapp_expense"."waits", "testapp_expense"."seen"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_expense"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_expense"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_expense" SET "state_claim" = CAST(CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_expense"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_expense"."state_attempts" ELSE ("testapp_expense"."state_attempts" + $8) END FROM picked
WHERE "testapp_expense".ctid = picked.place AND "testapp_expense"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_expense"."id", "testapp_expense"."state_ready", "testapp_expense"."state_changed", "testapp_expense"."state_attempted", "testapp_expense"."state_locked_until", "testapp_expense"."state_next_attempt", "testapp_expense"."state_attempts", "testapp_expense"."state_failures", "testapp_expense"."state_crashes", "testapp_expense"."state_version", "testapp_expense"."state_claim", "testapp_expense"."state_life", "testapp_expense"."state_visit", "testapp_expense"."state", "testapp_expense"."submitter", "testapp_expense"."waits", "testapp_expense"."seen"

-- record approved to paid
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_expense" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_expense" SET "state" = $8, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $9, "state_next_attempt" = NULL, "state_attempts" = $10, "state_failures" = $11, "state_crashes" = $12, "state_version" = ("testapp_expense"."state_version" + $13), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_expense".ctid = v.found AND "testapp_expense"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_expense".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_expense".state = $14
  RETURNING "testapp_expense"."id" AS pk, v.failed, "testapp_expense".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_expense".state_changed - v.entered AS stayed),
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

-- record approved to paid
SELECT "testapp_expense"."id" AS "pk", "testapp_expense"."state_claim" AS "state_claim", "testapp_expense"."state" AS "state" FROM "testapp_expense" WHERE "testapp_expense"."id" IN ($1)

-- record approved, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_expense" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_expense" SET "state_next_attempt" = CASE WHEN ("testapp_expense"."state_ready") THEN NULL ELSE (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')) END, "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $7, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_expense".ctid = v.found AND "testapp_expense"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_expense".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_expense".state = $8
  RETURNING "testapp_expense"."id" AS pk, v.failed, "testapp_expense".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $9, date_trunc('hour', statement_timestamp(), 'UTC'), $10, $11, $12::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT pk FROM done

-- record approved, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_expense" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_expense" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_expense"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_expense"."state_next_attempt") FROM mine v
  WHERE "testapp_expense".ctid = v.found AND "testapp_expense"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_expense".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_expense".state = $8
  RETURNING "testapp_expense"."id" AS pk, v.failed, "testapp_expense".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."id" IN ($1) AND "testapp_expense"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED

-- renew
UPDATE "testapp_expense" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_expense"."id" IN ($2)

-- extend
UPDATE "testapp_expense" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_expense"."id" = $2 AND "testapp_expense"."state" = $3 AND "testapp_expense"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_expense"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED

-- undo a claim
UPDATE "testapp_expense" SET "state_ready" = $1, "state_attempts" = ("testapp_expense"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_expense"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_expense"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state" IN ($1, $2, $3, $4, $5, $6) AND "testapp_expense"."state_locked_until" > (STATEMENT_TIMESTAMP() + $7)) ORDER BY "testapp_expense"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED

-- reap
SELECT "testapp_expense"."id" AS "pk", "testapp_expense"."state_claim" AS "state_claim" FROM "testapp_expense" WHERE "testapp_expense"."id" IN ($1)

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_expense"."id" AS "pk", "testapp_expense"."state_changed" AS "stator_entered", ("testapp_expense".ctid) AS "stator_place" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" = $1 AND "testapp_expense"."state_changed" <= (STATEMENT_TIMESTAMP() + $2)) LIMIT 100 FOR NO KEY UPDATE OF "testapp_expense" SKIP LOCKED),
done AS (
  UPDATE "testapp_expense" SET "state" = $3, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $4, "state_next_attempt" = NULL, "state_attempts" = $5, "state_failures" = $6, "state_crashes" = $7, "state_version" = ("testapp_expense"."state_version" + $8), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_expense".ctid = picked.stator_place AND "testapp_expense"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_expense"."id" AS pk, "testapp_expense".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_expense".state_changed - picked.stator_entered AS stayed, $9 AS worker),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $10, date_trunc('hour', statement_timestamp(), 'UTC'), $11, $12, $13::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT $14, pk::text, statement_timestamp(), version, 'move', $15, $16, '', $17, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
SELECT count(*) FROM done
