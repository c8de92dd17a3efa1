-- fields that outcomes save

-- poll
SELECT (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_crashes" = $3) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($4) AND "testapp_measure"."state_crashes" < $5 AND "testapp_measure"."state_crashes" > $6 AND "testapp_measure"."state_crashes" >= $7 AND "testapp_measure"."state_crashes" < $8) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($9) AND "testapp_measure"."state_crashes" < $10 AND "testapp_measure"."state_crashes" > $11 AND "testapp_measure"."state_crashes" >= $12 AND "testapp_measure"."state_crashes" < $13) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($14) AND "testapp_measure"."state_crashes" < $15 AND "testapp_measure"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($16) AND "testapp_measure"."state_crashes" < $17 AND "testapp_measure"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state" IN ($18, $19, $20) AND "testapp_measure"."state_locked_until" > (STATEMENT_TIMESTAMP() + $21)) LIMIT 1)), (SELECT ("testapp_measure"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($22) AND "testapp_measure"."state_crashes" < $23 AND "testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_measure"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $24)) ORDER BY "testapp_measure"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $25)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_measure" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_measure" SKIP LOCKED

-- mark ready
UPDATE "testapp_measure" SET "state_ready" = $1 WHERE "testapp_measure"."id" IN ($2)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_measure"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_measure"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_measure" SET "state_claim" = CAST(CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $4) END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_measure"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_measure"."state_attempts" ELSE ("testapp_measure"."state_attempts" + $6) END FROM picked
WHERE "testapp_measure".ctid = picked.place AND "testapp_measure"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_measure"."id", "testapp_measure"."state_ready", "testapp_measure"."state_changed", "testapp_measure"."state_attempted", "testapp_measure"."state_locked_until", "testapp_measure"."state_next_attempt", "testapp_measure"."state_attempts", "testapp_measure"."state_failures", "testapp_measure"."state_crashes", "testapp_measure"."state_version", "testapp_measure"."state_claim", "testapp_measure"."state_life", "testapp_measure"."state_visit", "testapp_measure"."state", "testapp_measure"."deed", "testapp_measure"."size", "testapp_measure"."found", "testapp_measure"."label", "testapp_measure"."due", "testapp_measure"."twin_id", "testapp_measure"."not_saved"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_measure"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0 AND (COALESCE(state_next_attempt, state_changed), "id") > ($2, $3)
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_measure"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_measure" SET "state_claim" = CAST(CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_measure"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_measure"."state_attempts" ELSE ("testapp_measure"."state_attempts" + $8) END FROM picked
WHERE "testapp_measure".ctid = picked.place AND "testapp_measure"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_measure"."id", "testapp_measure"."state_ready", "testapp_measure"."state_changed", "testapp_measure"."state_attempted", "testapp_measure"."state_locked_until", "testapp_measure"."state_next_attempt", "testapp_measure"."state_attempts", "testapp_measure"."state_failures", "testapp_measure"."state_crashes", "testapp_measure"."state_version", "testapp_measure"."state_claim", "testapp_measure"."state_life", "testapp_measure"."state_visit", "testapp_measure"."state", "testapp_measure"."deed", "testapp_measure"."size", "testapp_measure"."found", "testapp_measure"."label", "testapp_measure"."due", "testapp_measure"."twin_id", "testapp_measure"."not_saved"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_measure"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_measure"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_measure" SET "state_claim" = CAST(CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_measure"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_measure"."state_attempts" ELSE ("testapp_measure"."state_attempts" + $8) END FROM picked
WHERE "testapp_measure".ctid = picked.place AND "testapp_measure"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_measure"."id", "testapp_measure"."state_ready", "testapp_measure"."state_changed", "testapp_measure"."state_attempted", "testapp_measure"."state_locked_until", "testapp_measure"."state_next_attempt", "testapp_measure"."state_attempts", "testapp_measure"."state_failures", "testapp_measure"."state_crashes", "testapp_measure"."state_version", "testapp_measure"."state_claim", "testapp_measure"."state_life", "testapp_measure"."state_visit", "testapp_measure"."state", "testapp_measure"."deed", "testapp_measure"."size", "testapp_measure"."found", "testapp_measure"."label", "testapp_measure"."due", "testapp_measure"."twin_id", "testapp_measure"."not_saved"

-- record new to done
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_measure" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_measure" SET "state" = $7, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $8, "state_next_attempt" = NULL, "state_attempts" = $9, "state_failures" = $10, "state_crashes" = $11, "state_version" = ("testapp_measure"."state_version" + $12), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_measure".ctid = v.found AND "testapp_measure"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_measure".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_measure".state = $13
  RETURNING "testapp_measure"."id" AS pk, v.failed, "testapp_measure".state_changed - v.entered AS stayed),
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

-- record new to done
SELECT "testapp_measure"."id" AS "pk", "testapp_measure"."state_claim" AS "state_claim", "testapp_measure"."state" AS "state" FROM "testapp_measure" WHERE "testapp_measure"."id" IN ($1)

-- record new to failed
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_measure" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_measure" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_measure"."state_visit" >> $7) = ("testapp_measure"."state_version" & $8)) THEN ("testapp_measure"."state_visit" & $9) ELSE $10 END < $11 AND "testapp_measure"."state" = $12) THEN ((((("testapp_measure"."state_version" + $13) & $14) * $15) + ((CASE WHEN (("testapp_measure"."state_visit" >> $16) = ("testapp_measure"."state_version" & $17)) THEN ("testapp_measure"."state_visit" & $18) ELSE $19 END + $20) * $21)) + $22) ELSE NULL END, "state" = $23, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $24, "state_next_attempt" = NULL, "state_attempts" = $25, "state_failures" = $26, "state_crashes" = $27, "state_version" = ("testapp_measure"."state_version" + $28), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_measure".ctid = v.found AND "testapp_measure"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_measure".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_measure".state = $29
  RETURNING "testapp_measure"."id" AS pk, v.failed, "testapp_measure".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $30, date_trunc('hour', statement_timestamp(), 'UTC'), $31, $32, $33::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT pk FROM done

-- record new, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_measure" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_measure" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_measure".ctid = v.found AND "testapp_measure"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_measure".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_measure".state = $9
  RETURNING "testapp_measure"."id" AS pk, v.failed, "testapp_measure".state_changed - v.entered AS stayed),
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

-- record new, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_measure" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_measure" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_measure"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_measure"."state_next_attempt") FROM mine v
  WHERE "testapp_measure".ctid = v.found AND "testapp_measure"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_measure".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_measure".state = $8
  RETURNING "testapp_measure"."id" AS pk, v.failed, "testapp_measure".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."id" IN ($1) AND "testapp_measure"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_measure" SKIP LOCKED

-- renew
UPDATE "testapp_measure" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_measure"."id" IN ($2)

-- extend
UPDATE "testapp_measure" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_measure"."id" = $2 AND "testapp_measure"."state" = $3 AND "testapp_measure"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_measure"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_measure" SKIP LOCKED

-- undo a claim
UPDATE "testapp_measure" SET "state_ready" = $1, "state_attempts" = ("testapp_measure"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_measure"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_measure"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_measure" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state" IN ($1, $2, $3) AND "testapp_measure"."state_locked_until" > (STATEMENT_TIMESTAMP() + $4)) ORDER BY "testapp_measure"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_measure" SKIP LOCKED

-- reap
SELECT "testapp_measure"."id" AS "pk", "testapp_measure"."state_claim" AS "state_claim" FROM "testapp_measure" WHERE "testapp_measure"."id" IN ($1)
