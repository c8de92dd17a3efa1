-- timeouts by dates, of a column and of an expression

-- poll
SELECT (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $1 AND "testapp_watch"."state_claim" IS NULL AND "testapp_watch"."alert_after" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $2 AND "testapp_watch"."state_claim" IS NULL AND timezone('UTC', timezone('UTC', timezone('UTC', timezone('UTC', "testapp_watch"."alert_after") + ("testapp_watch"."kept_for"))) + ($3)) <= (STATEMENT_TIMESTAMP())) LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1) OR EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) OR EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state" IN ($4, $5, $6) AND "testapp_watch"."state_locked_until" > (STATEMENT_TIMESTAMP() + $7)) LIMIT 1)), (SELECT ("testapp_watch"."alert_after" - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $8 AND "testapp_watch"."state_claim" IS NULL AND "testapp_watch"."alert_after" <= (STATEMENT_TIMESTAMP() + $9) AND "testapp_watch"."alert_after" > (STATEMENT_TIMESTAMP())) ORDER BY "testapp_watch"."alert_after" ASC LIMIT 1), (SELECT (timezone('UTC', timezone('UTC', timezone('UTC', timezone('UTC', "testapp_watch"."alert_after") + ("testapp_watch"."kept_for"))) + ($10)) - STATEMENT_TIMESTAMP()) AS "left" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $11 AND "testapp_watch"."state_claim" IS NULL AND timezone('UTC', timezone('UTC', timezone('UTC', timezone('UTC', "testapp_watch"."alert_after") + ("testapp_watch"."kept_for"))) + ($12)) <= (STATEMENT_TIMESTAMP() + $13) AND timezone('UTC', timezone('UTC', timezone('UTC', timezone('UTC', "testapp_watch"."alert_after") + ("testapp_watch"."kept_for"))) + ($14)) > (STATEMENT_TIMESTAMP())) ORDER BY timezone('UTC', timezone('UTC', timezone('UTC', timezone('UTC', "testapp_watch"."alert_after") + ("testapp_watch"."kept_for"))) + ($15)) ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $16)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STATEMENT_TIMESTAMP())))

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 100 FOR NO KEY UPDATE OF "testapp_watch" SKIP LOCKED

-- mark ready
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 99 FOR NO KEY UPDATE OF "testapp_watch" SKIP LOCKED

-- mark ready
UPDATE "testapp_watch" SET "state_ready" = $1 WHERE "testapp_watch"."id" IN ($2)

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state_locked_until" <= (STATEMENT_TIMESTAMP())) ORDER BY "testapp_watch"."state_locked_until" ASC LIMIT 100 FOR NO KEY UPDATE OF "testapp_watch" SKIP LOCKED

-- reap
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state" IN ($1, $2, $3) AND "testapp_watch"."state_locked_until" > (STATEMENT_TIMESTAMP() + $4)) ORDER BY "testapp_watch"."state_locked_until" ASC LIMIT 99 FOR NO KEY UPDATE OF "testapp_watch" SKIP LOCKED

-- reap
SELECT "testapp_watch"."id" AS "pk", "testapp_watch"."state_claim" AS "state_claim" FROM "testapp_watch" WHERE "testapp_watch"."id" IN ($1)

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_watch"."id" AS "pk", "testapp_watch"."state_changed" AS "stator_entered", ("testapp_watch".ctid) AS "stator_place" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $1 AND "testapp_watch"."state_claim" IS NULL AND "testapp_watch"."alert_after" <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_watch" SKIP LOCKED),
done AS (
  UPDATE "testapp_watch" SET "state" = $2, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $3, "state_next_attempt" = NULL, "state_attempts" = $4, "state_failures" = $5, "state_crashes" = $6, "state_version" = ("testapp_watch"."state_version" + $7), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_watch".ctid = picked.stator_place AND "testapp_watch"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_watch"."id" AS pk, "testapp_watch".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_watch".state_changed - picked.stator_entered AS stayed, $8 AS worker),
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

-- time out
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH picked AS MATERIALIZED (SELECT "testapp_watch"."id" AS "pk", "testapp_watch"."state_changed" AS "stator_entered", ("testapp_watch".ctid) AS "stator_place" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $1 AND "testapp_watch"."state_claim" IS NULL AND timezone('UTC', timezone('UTC', timezone('UTC', timezone('UTC', "testapp_watch"."alert_after") + ("testapp_watch"."kept_for"))) + ($2)) <= (STATEMENT_TIMESTAMP())) LIMIT 100 FOR NO KEY UPDATE OF "testapp_watch" SKIP LOCKED),
done AS (
  UPDATE "testapp_watch" SET "state" = $3, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = $4, "state_next_attempt" = NULL, "state_attempts" = $5, "state_failures" = $6, "state_crashes" = $7, "state_version" = ("testapp_watch"."state_version" + $8), "state_claim" = NULL, "state_locked_until" = NULL FROM picked
  WHERE "testapp_watch".ctid = picked.stator_place AND "testapp_watch"."id" IS NOT DISTINCT FROM picked."pk"
  RETURNING "testapp_watch"."id" AS pk, "testapp_watch".state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    "testapp_watch".state_changed - picked.stator_entered AS stayed, $9 AS worker),
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
