-- a divided table

-- poll
SELECT (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3, $4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_crashes" = $6) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($7, $8, $9, $10) AND "testapp_bill"."state_crashes" < $11 AND "testapp_bill"."state_crashes" > $12 AND "testapp_bill"."state_crashes" >= $13 AND "testapp_bill"."state_crashes" < $14) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($15, $16, $17, $18) AND "testapp_bill"."state_crashes" < $19 AND "testapp_bill"."state_crashes" > $20 AND "testapp_bill"."state_crashes" >= $21 AND "testapp_bill"."state_crashes" < $22) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($23, $24, $25, $26) AND "testapp_bill"."state_crashes" < $27 AND "testapp_bill"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($28, $29, $30, $31) AND "testapp_bill"."state_crashes" < $32 AND "testapp_bill"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state" IN ($33, $34, $35, $36, $37, $38, $39) AND "testapp_bill"."state_locked_until" > (STATEMENT_TIMESTAMP() + $40)) LIMIT 1)), (SELECT ("testapp_bill"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($41) AND "testapp_bill"."state_crashes" < $42 AND "testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_bill"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $43)) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_bill"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($44) AND "testapp_bill"."state_crashes" < $45 AND "testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_bill"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $46)) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_bill"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($47) AND "testapp_bill"."state_crashes" < $48 AND "testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_bill"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $49)) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT ("testapp_bill"."state_next_attempt" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($50) AND "testapp_bill"."state_crashes" < $51 AND "testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP()) AND "testapp_bill"."state_next_attempt" <= (STATEMENT_TIMESTAMP() + $52)) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $53)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3, $4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3, $4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_next_attempt" IS NULL) LIMIT 99 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED

-- mark ready
UPDATE "testapp_bill" SET "state_ready" = $1 WHERE "testapp_bill"."id" IN ($2)

-- claim
SELECT COUNT(*) AS "__count" FROM "testapp_bill" WHERE ("testapp_bill"."state" = $1 AND "testapp_bill"."state_claim" IS NOT NULL)

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; 
WITH RECURSIVE found(value, n) AS (
  SELECT first.value, 1 FROM (SELECT "testapp_bill"."tenant_id" AS "tenant_id" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1) AND "testapp_bill"."state_crashes" < $2 AND "testapp_bill"."state_crashes" = $3) ORDER BY "testapp_bill"."tenant_id" ASC, COALESCE("testapp_bill"."state_next_attempt", "testapp_bill"."state_changed") ASC, "testapp_bill"."id" ASC LIMIT 1) AS first(value)
  UNION ALL
  SELECT next.value, n + 1 FROM found CROSS JOIN LATERAL (SELECT "testapp_bill"."tenant_id" AS "tenant_id" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_crashes" = $6 AND "testapp_bill"."tenant_id" > (found.value)) ORDER BY "testapp_bill"."tenant_id" ASC, COALESCE("testapp_bill"."state_next_attempt", "testapp_bill"."state_changed") ASC, "testapp_bill"."id" ASC LIMIT 1) AS next(value) WHERE n < 50)
SELECT value FROM found

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) ORDER BY "stator_limit"."id" ASC LIMIT 1 FOR UPDATE

-- claim
INSERT INTO "stator_limit" ("model_label", "state") VALUES ($1, $2) ON CONFLICT DO NOTHING

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) LIMIT 21 FOR UPDATE

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; 
WITH RECURSIVE found(value, n) AS (
  SELECT first.value, 1 FROM (SELECT "testapp_bill"."tenant_id" AS "tenant_id" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3) AND "testapp_bill"."state_crashes" < $4 AND "testapp_bill"."state_crashes" = $5) ORDER BY "testapp_bill"."tenant_id" ASC, COALESCE("testapp_bill"."state_next_attempt", "testapp_bill"."state_changed") ASC, "testapp_bill"."id" ASC LIMIT 1) AS first(value)
  UNION ALL
  SELECT next.value, n + 1 FROM found CROSS JOIN LATERAL (SELECT "testapp_bill"."tenant_id" AS "tenant_id" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($6, $7, $8) AND "testapp_bill"."state_crashes" < $9 AND "testapp_bill"."state_crashes" = $10 AND "testapp_bill"."tenant_id" > (found.value)) ORDER BY "testapp_bill"."tenant_id" ASC, COALESCE("testapp_bill"."state_next_attempt", "testapp_bill"."state_changed") ASC, "testapp_bill"."id" ASC LIMIT 1) AS next(value) WHERE n < 50)
SELECT value FROM found

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH RECURSIVE turns(key, n, lap) AS (
  SELECT $1::bigint, 0, 0
  UNION ALL
  SELECT next.key, turns.n + 1, next.lap FROM turns CROSS JOIN LATERAL (
    (SELECT "tenant_id" AS key, turns.lap AS lap FROM "testapp_bill" WHERE state_ready AND state_claim IS NULL AND state = ANY($2) AND state_crashes = 0 AND "tenant_id" > turns.key
     ORDER BY "testapp_bill"."tenant_id", COALESCE(state_next_attempt, state_changed), "testapp_bill"."id" LIMIT 1)
    UNION ALL
    (SELECT "tenant_id", 1 FROM "testapp_bill" WHERE state_ready AND state_claim IS NULL AND state = ANY($3) AND state_crashes = 0 AND turns.lap = 0 ORDER BY "testapp_bill"."tenant_id", COALESCE(state_next_attempt, state_changed), "testapp_bill"."id" LIMIT 1)
    LIMIT 1) next
  WHERE turns.n < $4 AND (next.lap = 1 AND next.key > $5) IS NOT TRUE),
picked AS MATERIALIZED (
  SELECT ready.pk, turns.n FROM turns CROSS JOIN LATERAL (
    SELECT first.pk FROM (
      SELECT "id" AS pk FROM "testapp_bill" WHERE state_ready AND state_claim IS NULL AND state = ANY($6) AND state_crashes = 0 AND "tenant_id" = turns.key
      ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_bill"."id" LIMIT $7 FOR NO KEY UPDATE SKIP LOCKED) first
    LIMIT (SELECT ($8 + max(n) - 1) / greatest(max(n), 1) FROM turns)) ready
  WHERE turns.n > 0 ORDER BY turns.n LIMIT $9),
more AS MATERIALIZED (
  SELECT ready.pk FROM (SELECT key FROM turns WHERE n > 0 ORDER BY hashtextextended(key::text, $10)) others
  CROSS JOIN LATERAL (
    SELECT "id" AS pk FROM "testapp_bill" WHERE state_ready AND state_claim IS NULL AND state = ANY($11) AND state_crashes = 0 AND "tenant_id" = others.key AND "id" NOT IN (SELECT pk FROM picked)
    ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_bill"."id" LIMIT $12 FOR NO KEY UPDATE SKIP LOCKED) ready
  LIMIT $13 - (SELECT count(*) FROM picked)),
chosen AS (SELECT pk, n FROM picked UNION ALL SELECT pk, 0 FROM more)
UPDATE "testapp_bill" SET "state_claim" = CAST(CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $14 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $15) END, "state_ready" = $16, "state_attempted" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_bill"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_bill"."state_attempts" ELSE ("testapp_bill"."state_attempts" + $17) END FROM chosen WHERE "testapp_bill"."id" = chosen.pk RETURNING "testapp_bill"."id", "testapp_bill"."state_ready", "testapp_bill"."state_changed", "testapp_bill"."state_attempted", "testapp_bill"."state_locked_until", "testapp_bill"."state_next_attempt", "testapp_bill"."state_attempts", "testapp_bill"."state_failures", "testapp_bill"."state_crashes", "testapp_bill"."state_version", "testapp_bill"."state_claim", "testapp_bill"."state_life", "testapp_bill"."state_visit", "testapp_bill"."tenant_id", "testapp_bill"."state", chosen.n

-- claim rows with few lost leases
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (
  SELECT "id" AS pk, ctid AS place FROM "testapp_bill"
  WHERE state_ready AND state_claim IS NULL AND state = ANY($1) AND state_crashes > 0 AND state_crashes >= $2 AND state_crashes < $3
  ORDER BY COALESCE(state_next_attempt, state_changed), "testapp_bill"."id"
  LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "testapp_bill" SET "state_claim" = CAST(CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE $5 END AS uuid), "state_locked_until" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + $6) END, "state_ready" = $7, "state_attempted" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_bill"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "testapp_bill"."state_attempts" ELSE ("testapp_bill"."state_attempts" + $8) END FROM picked
WHERE "testapp_bill".ctid = picked.place AND "testapp_bill"."id" IS NOT DISTINCT FROM picked.pk
RETURNING "testapp_bill"."id", "testapp_bill"."state_ready", "testapp_bill"."state_changed", "testapp_bill"."state_attempted", "testapp_bill"."state_locked_until", "testapp_bill"."state_next_attempt", "testapp_bill"."state_attempts", "testapp_bill"."state_failures", "testapp_bill"."state_crashes", "testapp_bill"."state_version", "testapp_bill"."state_claim", "testapp_bill"."state_life", "testapp_bill"."state_visit", "testapp_bill"."tenant_id", "testapp_bill"."state"

-- record narrow to done
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed, duration
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[], $6::float8[])
    AS v(pk, nth, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.duration, t.state_attempts AS attempts, t.state_attempted AS attempted, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_bill" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $7 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_bill" SET "state" = $8, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $9, "state_next_attempt" = NULL, "state_attempts" = $10, "state_failures" = $11, "state_crashes" = $12, "state_version" = ("testapp_bill"."state_version" + $13), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_bill".ctid = v.found AND "testapp_bill"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_bill".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_bill".state = $14
  RETURNING "testapp_bill"."id" AS pk, v.failed, "testapp_bill".state_version AS version, left(replace(v.claim::text, '-', ''), 12) AS worker, v.duration, v.attempts, v.attempted, "testapp_bill".state_changed - v.entered AS stayed),
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

-- record narrow to done
SELECT "testapp_bill"."id" AS "pk", "testapp_bill"."state_claim" AS "state_claim", "testapp_bill"."state" AS "state" FROM "testapp_bill" WHERE "testapp_bill"."id" IN ($1)

-- record narrow, attempted again
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, ($1::uuid[])[nth] AS claim, delay, failed
  FROM unnest($2::bigint[], $3::int[], $4::float8[], $5::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "testapp_bill" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_bill" SET "state_ready" = $7, "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = $8, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "testapp_bill".ctid = v.found AND "testapp_bill"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_bill".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_bill".state = $9
  RETURNING "testapp_bill"."id" AS pk, v.failed, "testapp_bill".state_changed - v.entered AS stayed),
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
  FROM v CROSS JOIN "testapp_bill" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = $6 AND t."id" = v.pk FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "testapp_bill" SET "state_ready" = (v.delay IS NULL), "state_attempts" = ("testapp_bill"."state_attempts" - $7), "state_claim" = NULL, "state_locked_until" = NULL, "state_next_attempt" = COALESCE((STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "testapp_bill"."state_next_attempt") FROM mine v
  WHERE "testapp_bill".ctid = v.found AND "testapp_bill"."id" IS NOT DISTINCT FROM v.pk
    AND "testapp_bill".state_claim IS NOT DISTINCT FROM v.claim AND "testapp_bill".state = $8
  RETURNING "testapp_bill"."id" AS pk, v.failed, "testapp_bill".state_changed - v.entered AS stayed)
SELECT pk FROM done

-- renew
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."id" IN ($1) AND "testapp_bill"."state_claim" IS NOT DISTINCT FROM $2) ORDER BY 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED

-- renew
UPDATE "testapp_bill" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE "testapp_bill"."id" IN ($2)

-- extend
UPDATE "testapp_bill" SET "state_locked_until" = (STATEMENT_TIMESTAMP() + $1) WHERE ("testapp_bill"."id" = $2 AND "testapp_bill"."state" = $3 AND "testapp_bill"."state_claim" IS NOT DISTINCT FROM $4)

-- undo a claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT DISTINCT FROM $1 AND "testapp_bill"."state_claim" IS NOT NULL) LIMIT 100000 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED

-- undo a claim
UPDATE "testapp_bill" SET "state_ready" = $1, "state_attempts" = ("testapp_bill"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_bill"."id" IN ($3)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_bill"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state" IN ($1, $2, $3, $4, $5, $6, $7) AND "testapp_bill"."state_locked_until" > (STATEMENT_TIMESTAMP() + $8)) ORDER BY "testapp_bill"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED

-- reap
SELECT "testapp_bill"."id" AS "pk", "testapp_bill"."state_claim" AS "state_claim" FROM "testapp_bill" WHERE "testapp_bill"."id" IN ($1)

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_bill"."id" AS "pk", "testapp_bill"."state_changed" AS "stator_entered", ("testapp_bill".ctid) AS "stator_place" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" = $1 AND "testapp_bill"."state_changed" <= (STATEMENT_TIMESTAMP() + $2)) LIMIT 100 FOR NO KEY UPDATE OF "testapp_bill" SKIP LOCKED),
done AS (
  UPDATE "testapp_bill" SET "state" = $3, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $4, "state_next_attempt" = NULL, "state_attempts" = $5, "state_failures" = $6, "state_crashes" = $7, "state_version" = ("testapp_bill"."state_version" + $8), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_bill".ctid = picked.stator_place AND "testapp_bill"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_bill"."id" AS pk, "testapp_bill".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_bill".state_changed - picked.stator_entered AS stayed, $9 AS worker),
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
