-- a priority, and limits of states

-- poll
SELECT (EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($1, $2) AND "testapp_ticket"."state_crashes" < $3 AND "testapp_ticket"."state_crashes" = $4) LIMIT 1)), (EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($5, $6) AND "testapp_ticket"."state_crashes" < $7 AND "testapp_ticket"."state_crashes" > $8 AND "testapp_ticket"."state_crashes" >= $9 AND "testapp_ticket"."state_crashes" < $10) LIMIT 1)), (EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($11, $12) AND "testapp_ticket"."state_crashes" < $13 AND "testapp_ticket"."state_crashes" > $14 AND "testapp_ticket"."state_crashes" >= $15 AND "testapp_ticket"."state_crashes" < $16) LIMIT 1)), (EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND NOT "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($17, $18) AND "testapp_ticket"."state_crashes" < $19 AND "testapp_ticket"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND NOT "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($20, $21) AND "testapp_ticket"."state_crashes" < $22 AND "testapp_ticket"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NOT NULL AND "testapp_ticket"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NOT NULL AND "testapp_ticket"."state" IN ($23, $24, $25) AND "testapp_ticket"."state_locked_until" > (STATEMENT_TIMESTAMP() + $26)) LIMIT 1)), (SELECT ("testapp_ticket"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND NOT "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($27) AND "testapp_ticket"."state_crashes" < $28 AND "testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_ticket"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $29)) ORDER BY "testapp_ticket"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_ticket"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND NOT "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($30) AND "testapp_ticket"."state_crashes" < $31 AND "testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_ticket"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $32)) ORDER BY "testapp_ticket"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $33)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND NOT "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($1, $2) AND "testapp_ticket"."state_crashes" < $3 AND "testapp_ticket"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_ticket" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NULL AND NOT "testapp_ticket"."state_ready" AND "testapp_ticket"."state" IN ($1, $2) AND "testapp_ticket"."state_crashes" < $3 AND "testapp_ticket"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_ticket" SKIP LOCKED

-- mark ready
UPDATE "testapp_ticket" SET "state_ready" = $1 WHERE "testapp_ticket"."id" IN ($2)

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) ORDER BY "stator_limit"."id" ASC LIMIT 1 FOR UPDATE

-- claim
INSERT INTO "stator_limit" ("model_label", "state") VALUES ($1, $2) ON CONFLICT DO NOTHING

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) LIMIT 21 FOR UPDATE

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_ticket"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY "testapp_ticket"."place", COALESCE(state_next_attempt, state_changed), "testapp_ticket"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_ticket" SET "state_claim" = CAST(CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $4) END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_ticket"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_ticket"."state_attempts" ELSE ("testapp_ticket"."state_attempts" + $6) END FROM picked
WHERE "testapp_ticket".ctid = picked.place AND "testapp_ticket"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_ticket"."id", "testapp_ticket"."state_ready", "testapp_ticket"."state_changed", "testapp_ticket"."state_attempted", "testapp_ticket"."state_locked_until", "testapp_ticket"."state_next_attempt", "testapp_ticket"."state_attempts", "testapp_ticket"."state_failures", "testapp_ticket"."state_crashes", "testapp_ticket"."state_version", "testapp_ticket"."state_claim", "testapp_ticket"."state_life", "testapp_ticket"."state_visit", "testapp_ticket"."state", "testapp_ticket"."place"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_ticket"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_ticket"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_ticket" SET "state_claim" = CAST(CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $4) END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_ticket"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_ticket"."state_attempts" ELSE ("testapp_ticket"."state_attempts" + $6) END FROM picked
WHERE "testapp_ticket".ctid = picked.place AND "testapp_ticket"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_ticket"."id", "testapp_ticket"."state_ready", "testapp_ticket"."state_changed", "testapp_ticket"."state_attempted", "testapp_ticket"."state_locked_until", "testapp_ticket"."state_next_attempt", "testapp_ticket"."state_attempts", "testapp_ticket"."state_failures", "testapp_ticket"."state_crashes", "testapp_ticket"."state_version", "testapp_ticket"."state_claim", "testapp_ticket"."state_life", "testapp_ticket"."state_visit", "testapp_ticket"."state", "testapp_ticket"."place"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_ticket"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_ticket"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_ticket" SET "state_claim" = CAST(CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_ticket"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_ticket"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_ticket"."state_attempts" ELSE ("testapp_ticket"."state_attempts" + $8) END FROM picked
WHERE "testapp_ticket".ctid = picked.place AND "testapp_ticket"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_ticket"."id", "testapp_ticket"."state_ready", "testapp_ticket"."state_changed", "testapp_ticket"."state_attempted", "testapp_ticket"."state_locked_until", "testapp_ticket"."state_next_attempt", "testapp_ticket"."state_attempts", "testapp_ticket"."state_failures", "testapp_ticket"."state_crashes", "testapp_ticket"."state_version", "testapp_ticket"."state_claim", "testapp_ticket"."state_life", "testapp_ticket"."state_visit", "testapp_ticket"."state", "testapp_ticket"."place"

-- record narrow to done
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_ticket" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_ticket" SET "state" = $7, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $8, "state_next_attempt" = NULL, "state_attempts" = $9, "state_failures" = $10, "state_crashes" = $11, "state_version" = ("testapp_ticket"."state_version" + $12), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_ticket".ctid = v.found AND "testapp_ticket"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_ticket".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_ticket".state = $13
  RETURNING "testapp_ticket"."id" AS pk, v.failed, "testapp_ticket".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $14, date_trunc('hour', statement_timestamp(), 'UTC'), $15, $16, $17::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT pk FROM done

-- record narrow to done
SELECT "testapp_ticket"."id" AS "pk", "testapp_ticket"."state_claim" AS "state_claim", "testapp_ticket"."state" AS "state" FROM "testapp_ticket" WHERE "testapp_ticket"."id" IN ($1)

-- record narrow, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_ticket" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_ticket" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_ticket".ctid = v.found AND "testapp_ticket"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_ticket".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_ticket".state = $9
  RETURNING "testapp_ticket"."id" AS pk, v.failed, "testapp_ticket".state_changed - v.entered AS stayed),
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

-- record narrow, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_ticket" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_ticket" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_ticket"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_ticket"."state_next_attempt") FROM mine v
  WHERE "testapp_ticket".ctid = v.found AND "testapp_ticket"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_ticket".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_ticket".state = $8
  RETURNING "testapp_ticket"."id" AS pk, v.failed, "testapp_ticket".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."id" IN ($1) AND "testapp_ticket"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_ticket" SKIP LOCKED

-- renew
UPDATE "testapp_ticket" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_ticket"."id" IN ($2)

-- extend
UPDATE "testapp_ticket" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_ticket"."id" = $2 AND "testapp_ticket"."state" = $3 AND "testapp_ticket"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_ticket"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_ticket" SKIP LOCKED

-- undo a claim
UPDATE "testapp_ticket" SET "state_ready" = $1, "state_attempts" = ("testapp_ticket"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_ticket"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NOT NULL AND "testapp_ticket"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_ticket"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_ticket" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_ticket"."id" AS "pk" FROM "testapp_ticket" WHERE ("testapp_ticket"."state_claim" IS NOT NULL AND "testapp_ticket"."state" IN ($1, $2, $3) AND "testapp_ticket"."state_locked_until" > (STATEMENT_TIMESTAMP() + $4)) ORDER BY "testapp_ticket"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_ticket" SKIP LOCKED

-- reap
SELECT "testapp_ticket"."id" AS "pk", "testapp_ticket"."state_claim" AS "state_claim" FROM "testapp_ticket" WHERE "testapp_ticket"."id" IN ($1)
