-- an ordinary model, with a timeout and a deletion

-- poll
SELECT (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_crashes" = $6) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($7, $8, $9, $10) AND "testapp_step"."state_crashes" < $11 AND "testapp_step"."state_crashes" > $12 AND "testapp_step"."state_crashes" >= $13 AND "testapp_step"."state_crashes" < $14) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($15, $16, $17, $18) AND "testapp_step"."state_crashes" < $19 AND "testapp_step"."state_crashes" > $20 AND "testapp_step"."state_crashes" >= $21 AND "testapp_step"."state_crashes" < $22) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($23, $24, $25, $26) AND "testapp_step"."state_crashes" < $27 AND "testapp_step"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($28, $29, $30, $31) AND "testapp_step"."state_crashes" < $32 AND "testapp_step"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state" IN ($33, $34, $35, $36, $37, $38, $39, $40) AND "testapp_step"."state_locked_until" > (STATEMENT_TIMESTAMP() + $41)) LIMIT 1)), (SELECT ("testapp_step"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($42) AND "testapp_step"."state_crashes" < $43 AND "testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_step"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $44)) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_step"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($45) AND "testapp_step"."state_crashes" < $46 AND "testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_step"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $47)) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_step"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($48) AND "testapp_step"."state_crashes" < $49 AND "testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_step"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $50)) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_step"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($51) AND "testapp_step"."state_crashes" < $52 AND "testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_step"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $53)) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $54)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED

-- mark ready
UPDATE "testapp_step" SET "state_ready" = $1 WHERE "testapp_step"."id" IN ($2)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_step"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_step"."id"
  LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_step" SET "state_claim" = CAST(CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $3 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE CASE WHEN ("testapp_step"."state" = $4) THEN (STATEMENT_TIMESTAMP() + $5) ELSE (STATEMENT_TIMESTAMP() + $6) END END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_step"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_step"."state_attempts" ELSE ("testapp_step"."state_attempts" + $8) END FROM picked
WHERE "testapp_step".ctid = picked.place AND "testapp_step"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_step"."id", "testapp_step"."state_ready", "testapp_step"."state_changed", "testapp_step"."state_attempted", "testapp_step"."state_locked_until", "testapp_step"."state_next_attempt", "testapp_step"."state_attempts", "testapp_step"."state_failures", "testapp_step"."state_crashes", "testapp_step"."state_version", "testapp_step"."state_claim", "testapp_step"."state_life", "testapp_step"."state_visit", "testapp_step"."state", "testapp_step"."name"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_step"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes = 0 AND (COALESCE(state_next_attempt, state_changed), "id") > ($2, $3)
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_step"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_step" SET "state_claim" = CAST(CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE CASE WHEN ("testapp_step"."state" = $6) THEN (STATEMENT_TIMESTAMP() + $7) ELSE (STATEMENT_TIMESTAMP() + $8) END END, "state_ready" = $9, "state_attempted" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_step"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_step"."state_attempts" ELSE ("testapp_step"."state_attempts" + $10) END FROM picked
WHERE "testapp_step".ctid = picked.place AND "testapp_step"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_step"."id", "testapp_step"."state_ready", "testapp_step"."state_changed", "testapp_step"."state_attempted", "testapp_step"."state_locked_until", "testapp_step"."state_next_attempt", "testapp_step"."state_attempts", "testapp_step"."state_failures", "testapp_step"."state_crashes", "testapp_step"."state_version", "testapp_step"."state_claim", "testapp_step"."state_life", "testapp_step"."state_visit", "testapp_step"."state", "testapp_step"."name"

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_step"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_step"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_step" SET "state_claim" = CAST(CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE CASE WHEN ("testapp_step"."state" = $6) THEN (STATEMENT_TIMESTAMP() + $7) ELSE (STATEMENT_TIMESTAMP() + $8) END END, "state_ready" = $9, "state_attempted" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_step"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_step"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_step"."state_attempts" ELSE ("testapp_step"."state_attempts" + $10) END FROM picked
WHERE "testapp_step".ctid = picked.place AND "testapp_step"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_step"."id", "testapp_step"."state_ready", "testapp_step"."state_changed", "testapp_step"."state_attempted", "testapp_step"."state_locked_until", "testapp_step"."state_next_attempt", "testapp_step"."state_attempts", "testapp_step"."state_failures", "testapp_step"."state_crashes", "testapp_step"."state_version", "testapp_step"."state_claim", "testapp_step"."state_life", "testapp_step"."state_visit", "testapp_step"."state", "testapp_step"."name"

-- record late to done
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_step" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state" = $7, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $8, "state_next_attempt" = NULL, "state_attempts" = $9, "state_failures" = $10, "state_crashes" = $11, "state_version" = ("testapp_step"."state_version" + $12), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_step".ctid = v.found AND "testapp_step"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_step".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_step".state = $13
  RETURNING "testapp_step"."id" AS pk, v.failed, "testapp_step".state_changed - v.entered AS stayed),
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

-- record late to done
SELECT "testapp_step"."id" AS "pk", "testapp_step"."state_claim" AS "state_claim", "testapp_step"."state" AS "state" FROM "testapp_step" WHERE "testapp_step"."id" IN ($1)

-- record late, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_step" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_step".ctid = v.found AND "testapp_step"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_step".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_step".state = $9
  RETURNING "testapp_step"."id" AS pk, v.failed, "testapp_step".state_changed - v.entered AS stayed),
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

-- record late, released
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_step" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_step"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_step"."state_next_attempt") FROM mine v
  WHERE "testapp_step".ctid = v.found AND "testapp_step"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_step".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_step".state = $8
  RETURNING "testapp_step"."id" AS pk, v.failed, "testapp_step".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- record new to failed
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_step" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_step"."state_visit" >> $7) = ("testapp_step"."state_version" & $8)) THEN ("testapp_step"."state_visit" & $9) ELSE $10 END < $11 AND "testapp_step"."state" = $12) THEN ((((("testapp_step"."state_version" + $13) & $14) * $15) + ((CASE WHEN (("testapp_step"."state_visit" >> $16) = ("testapp_step"."state_version" & $17)) THEN ("testapp_step"."state_visit" & $18) ELSE $19 END + $20) * $21)) + $22) ELSE NULL END, "state" = $23, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $24, "state_next_attempt" = NULL, "state_attempts" = $25, "state_failures" = $26, "state_crashes" = $27, "state_version" = ("testapp_step"."state_version" + $28), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_step".ctid = v.found AND "testapp_step"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_step".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_step".state = $29
  RETURNING "testapp_step"."id" AS pk, v.failed, "testapp_step".state_changed - v.entered AS stayed),
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

-- record new to late
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_step" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state" = $7, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $8, "state_next_attempt" = (STATEMENT_TIMESTAMP() + $9), "state_attempts" = $10, "state_failures" = $11, "state_crashes" = $12, "state_version" = ("testapp_step"."state_version" + $13), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_step".ctid = v.found AND "testapp_step"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_step".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_step".state = $14
  RETURNING "testapp_step"."id" AS pk, v.failed, "testapp_step".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $15, date_trunc('hour', statement_timestamp(), 'UTC'), $16, $17, $18::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."id" IN ($1) AND "testapp_step"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED

-- renew
UPDATE "testapp_step" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_step"."id" IN ($2)

-- extend
UPDATE "testapp_step" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_step"."id" = $2 AND "testapp_step"."state" = $3 AND "testapp_step"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_step"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED

-- undo a claim
UPDATE "testapp_step" SET "state_ready" = $1, "state_attempts" = ("testapp_step"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_step"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_step"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state" IN ($1, $2, $3, $4, $5, $6, $7, $8) AND "testapp_step"."state_locked_until" > (STATEMENT_TIMESTAMP() + $9)) ORDER BY "testapp_step"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED

-- reap
SELECT "testapp_step"."id" AS "pk", "testapp_step"."state_claim" AS "state_claim" FROM "testapp_step" WHERE "testapp_step"."id" IN ($1)

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_step"."id" AS "pk", "testapp_step"."state_changed" AS "stator_entered", ("testapp_step".ctid) AS "stator_place" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" = $1 AND "testapp_step"."state_changed" <= (STATEMENT_TIMESTAMP() + $2)) LIMIT 100 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state" = $3, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $4, "state_next_attempt" = (STATEMENT_TIMESTAMP() + $5), "state_attempts" = $6, "state_failures" = $7, "state_crashes" = $8, "state_version" = ("testapp_step"."state_version" + $9), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_step".ctid = picked.stator_place AND "testapp_step"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_step"."id" AS pk, "testapp_step".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_step".state_changed - picked.stator_entered AS stayed, $10 AS worker),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $11, date_trunc('hour', statement_timestamp(), 'UTC'), $12, $13, $14::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT count(*) FROM done

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_step"."id" AS "pk", "testapp_step"."state_changed" AS "stator_entered", ("testapp_step".ctid) AS "stator_place" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" = $1 AND "testapp_step"."state_changed" <= (STATEMENT_TIMESTAMP() + $2)) LIMIT 100 FOR NO KEY UPDATE OF "testapp_step" SKIP LOCKED),
done AS (
  UPDATE "testapp_step" SET "state" = $3, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $4, "state_next_attempt" = NULL, "state_attempts" = $5, "state_failures" = $6, "state_crashes" = $7, "state_version" = ("testapp_step"."state_version" + $8), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_step".ctid = picked.stator_place AND "testapp_step"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_step"."id" AS pk, "testapp_step".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_step".state_changed - picked.stator_entered AS stayed, $9 AS worker),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT $10, date_trunc('hour', statement_timestamp(), 'UTC'), $11, $12, $13::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
SELECT count(*) FROM done
