-- two tables, by inheritance

-- poll
SELECT (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_crashes" = $4) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($5, $6) AND "testapp_heir"."state_crashes" < $7 AND "testapp_heir"."state_crashes" > $8 AND "testapp_heir"."state_crashes" >= $9 AND "testapp_heir"."state_crashes" < $10) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($11, $12) AND "testapp_heir"."state_crashes" < $13 AND "testapp_heir"."state_crashes" > $14 AND "testapp_heir"."state_crashes" >= $15 AND "testapp_heir"."state_crashes" < $16) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($17, $18) AND "testapp_heir"."state_crashes" < $19 AND "testapp_heir"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($20, $21) AND "testapp_heir"."state_crashes" < $22 AND "testapp_heir"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state" IN ($23, $24, $25) AND "testapp_heir"."state_locked_until" > (STATEMENT_TIMESTAMP() + $26)) LIMIT 1)), (SELECT ("testapp_heir"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($27) AND "testapp_heir"."state_crashes" < $28 AND "testapp_heir"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_heir"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $29)) ORDER BY "testapp_heir"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_heir"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($30) AND "testapp_heir"."state_crashes" < $31 AND "testapp_heir"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_heir"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $32)) ORDER BY "testapp_heir"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $33)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- mark ready
UPDATE "testapp_heir" SET "state_ready" = $1 WHERE "testapp_heir"."plain_ptr_id" IN ($2)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_crashes" = $4) ORDER BY COALESCE("testapp_heir"."state_next_attempt", "testapp_heir"."state_changed") ASC, "testapp_heir"."plain_ptr_id" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- claim
UPDATE "testapp_heir" SET "state_claim" = CAST(CASE WHEN ("testapp_heir"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $1 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $2) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_heir"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_heir"."state_attempts" ELSE ("testapp_heir"."state_attempts" + $4) END WHERE ("testapp_heir"."plain_ptr_id" IN ($5) AND "testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready")

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_crashes" > $4 AND "testapp_heir"."state_crashes" >= $5 AND "testapp_heir"."state_crashes" < $6) ORDER BY COALESCE("testapp_heir"."state_next_attempt", "testapp_heir"."state_changed") ASC, 1 ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- record first to second
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_heir" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."plain_ptr_id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_heir" SET "state" = $7, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $8, "state_next_attempt" = NULL, "state_attempts" = $9, "state_failures" = $10, "state_crashes" = $11, "state_version" = ("testapp_heir"."state_version" + $12), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_heir".ctid = v.found AND "testapp_heir"."plain_ptr_id" IS NOT DISTINCT FROM v.pk
    AND "testapp_heir".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_heir".state = $13
  RETURNING "testapp_heir"."plain_ptr_id" AS pk, v.failed, "testapp_heir".state_changed - v.entered AS stayed),
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

-- record first to second
SELECT "testapp_heir"."plain_ptr_id" AS "pk", "testapp_heir"."state_claim" AS "state_claim", "testapp_heir"."state" AS "state" FROM "testapp_heir" WHERE "testapp_heir"."plain_ptr_id" IN ($1)

-- record first, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_heir" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."plain_ptr_id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_heir" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_heir".ctid = v.found AND "testapp_heir"."plain_ptr_id" IS NOT DISTINCT FROM v.pk
    AND "testapp_heir".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_heir".state = $9
  RETURNING "testapp_heir"."plain_ptr_id" AS pk, v.failed, "testapp_heir".state_changed - v.entered AS stayed),
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

-- record first, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_heir" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."plain_ptr_id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_heir" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_heir"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_heir"."state_next_attempt") FROM mine v
  WHERE "testapp_heir".ctid = v.found AND "testapp_heir"."plain_ptr_id" IS NOT DISTINCT FROM v.pk
    AND "testapp_heir".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_heir".state = $8
  RETURNING "testapp_heir"."plain_ptr_id" AS pk, v.failed, "testapp_heir".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."plain_ptr_id" IN ($1) AND "testapp_heir"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- renew
UPDATE "testapp_heir" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_heir"."plain_ptr_id" IN ($2)

-- extend
UPDATE "testapp_heir" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_heir"."plain_ptr_id" = $2 AND "testapp_heir"."state" = $3 AND "testapp_heir"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_heir"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- undo a claim
UPDATE "testapp_heir" SET "state_ready" = $1, "state_attempts" = ("testapp_heir"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_heir"."plain_ptr_id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_heir"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state" IN ($1, $2, $3) AND "testapp_heir"."state_locked_until" > (STATEMENT_TIMESTAMP() + $4)) ORDER BY "testapp_heir"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_heir" SKIP LOCKED

-- reap
SELECT "testapp_heir"."plain_ptr_id" AS "pk", "testapp_heir"."state_claim" AS "state_claim" FROM "testapp_heir" WHERE "testapp_heir"."plain_ptr_id" IN ($1)
