-- publish
INSERT INTO "tasks_task" ("action", "data", "key", "priority", "metadata", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "exclusive_value", "elsewhere_only", "state", "queue_id")
SELECT CAST(%s AS text), CAST(%s AS jsonb), CAST(NULL AS text), CAST(%s AS bigint), CAST('{}'::jsonb AS jsonb), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST('[]'::jsonb AS jsonb), CAST(1 AS integer), CAST(NULL AS text), CAST(false AS boolean), CAST('pending' AS text), CAST(%s AS bigint)
WHERE EXISTS (SELECT "tasks_queue"."id" AS "pk" FROM "tasks_queue" WHERE ("tasks_queue"."actions_elsewhere" AND "tasks_queue"."exclusive_key" = '' AND "tasks_queue"."invisible_for" IS NULL AND "tasks_queue"."kind" = 'simple' AND "tasks_queue"."max_attempts" = %s AND "tasks_queue"."name" = %s AND "tasks_queue"."id" = %s AND NOT "tasks_queue"."publish_paused") LIMIT 1)
ON CONFLICT DO NOTHING
RETURNING "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state"

-- publish with a key
INSERT INTO "tasks_task" ("action", "data", "key", "priority", "metadata", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "exclusive_value", "elsewhere_only", "state", "queue_id")
SELECT CAST(%s AS text), CAST(%s AS jsonb), CAST(%s AS text), CAST(%s AS bigint), CAST('{}'::jsonb AS jsonb), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST('[]'::jsonb AS jsonb), CAST(1 AS integer), CAST(NULL AS text), CAST(false AS boolean), CAST('pending' AS text), CAST(%s AS bigint)
WHERE EXISTS (SELECT "tasks_queue"."id" AS "pk" FROM "tasks_queue" WHERE ("tasks_queue"."actions_elsewhere" AND "tasks_queue"."exclusive_key" = '' AND "tasks_queue"."invisible_for" IS NULL AND "tasks_queue"."kind" = 'simple' AND "tasks_queue"."max_attempts" = %s AND "tasks_queue"."name" = %s AND "tasks_queue"."id" = %s AND NOT "tasks_queue"."publish_paused") LIMIT 1)
ON CONFLICT DO NOTHING
RETURNING "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state"

-- publish with that key again
INSERT INTO "tasks_task" ("action", "data", "key", "priority", "metadata", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "exclusive_value", "elsewhere_only", "state", "queue_id")
SELECT CAST(%s AS text), CAST(%s AS jsonb), CAST(%s AS text), CAST(%s AS bigint), CAST('{}'::jsonb AS jsonb), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST('[]'::jsonb AS jsonb), CAST(1 AS integer), CAST(NULL AS text), CAST(false AS boolean), CAST('pending' AS text), CAST(%s AS bigint)
WHERE EXISTS (SELECT "tasks_queue"."id" AS "pk" FROM "tasks_queue" WHERE ("tasks_queue"."actions_elsewhere" AND "tasks_queue"."exclusive_key" = '' AND "tasks_queue"."invisible_for" IS NULL AND "tasks_queue"."kind" = 'simple' AND "tasks_queue"."max_attempts" = %s AND "tasks_queue"."name" = %s AND "tasks_queue"."id" = %s AND NOT "tasks_queue"."publish_paused") LIMIT 1)
ON CONFLICT DO NOTHING
RETURNING "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state"

-- publish with that key again
SELECT "tasks_queue"."id", "tasks_queue"."name", "tasks_queue"."kind", "tasks_queue"."exclusive_key", "tasks_queue"."spread", "tasks_queue"."lease", "tasks_queue"."timeout", "tasks_queue"."invisible_for", "tasks_queue"."max_attempts", "tasks_queue"."retention", "tasks_queue"."failed_retention", "tasks_queue"."same_worker_again", "tasks_queue"."worker_retries", "tasks_queue"."one_per_worker", "tasks_queue"."actions_elsewhere", "tasks_queue"."http_actions", "tasks_queue"."publish_paused", "tasks_queue"."claim_paused", "tasks_queue"."pause_reason", "tasks_queue"."pause_author", "tasks_queue"."pause_until", "tasks_queue"."created", STATEMENT_TIMESTAMP() AS "read_at" FROM "tasks_queue" WHERE "tasks_queue"."id" = %s ORDER BY "tasks_queue"."id" ASC LIMIT 1

-- publish with that key again
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE ("tasks_task"."key" IN (%s) AND "tasks_task"."queue_id" = %s) ORDER BY "tasks_task"."id" ASC

-- publish with that key again
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE "tasks_task"."whole_id" IN (%s)

-- publish many
INSERT INTO "tasks_task" ("action", "key", "metadata", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "exclusive_value", "elsewhere_only", "state", "queue_id", "data", "priority")
SELECT CAST(%s AS text), CAST(NULL AS text), CAST('{}'::jsonb AS jsonb), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST('[]'::jsonb AS jsonb), CAST(1 AS integer), CAST(NULL AS text), CAST(false AS boolean), CAST('pending' AS text), CAST(%s AS bigint), given."data", given."priority"
FROM ROWS FROM (json_to_recordset(%s::json) AS ("data" jsonb, "priority" bigint))
 WITH ORDINALITY AS given ("data", "priority", stator_place)
WHERE EXISTS (SELECT "tasks_queue"."id" AS "pk" FROM "tasks_queue" WHERE ("tasks_queue"."actions_elsewhere" AND "tasks_queue"."exclusive_key" = '' AND "tasks_queue"."invisible_for" IS NULL AND "tasks_queue"."kind" = 'simple' AND "tasks_queue"."max_attempts" = %s AND "tasks_queue"."name" = %s AND "tasks_queue"."id" = %s AND NOT "tasks_queue"."publish_paused") LIMIT 1) ORDER BY given.stator_place
ON CONFLICT DO NOTHING
RETURNING "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state"

-- claim
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; 
WITH picked AS MATERIALIZED (SELECT "tasks_task"."id" AS "pk", ("tasks_task"."whole_id" IS NOT NULL OR "tasks_task"."action" IN ('single', 'twice')) AS "stator_odd", (SELECT U0."id" AS "pk" FROM "tasks_claimant" U0 WHERE (U0."queue_id" = %s AND U0."seen" > (STATEMENT_TIMESTAMP() +  -10.0 * interval '1 second') AND U0."worker" = %s) LIMIT 1) IS NOT NULL AS "stator_flag" FROM "tasks_task" WHERE ("tasks_task"."state_claim" IS NULL AND "tasks_task"."state_ready" AND "tasks_task"."state" IN ('pending') AND "tasks_task"."state_crashes" < 3 AND (SELECT U0."id" AS "pk" FROM "tasks_task" U0 WHERE (U0."state_claim" IS NULL AND NOT U0."state_ready" AND U0."state" IN ('pending') AND U0."state_crashes" < 3 AND U0."state_next_attempt" <= (STATEMENT_TIMESTAMP())) LIMIT 1) IS NULL AND (SELECT U0."id" AS "pk" FROM "tasks_task" U0 WHERE (U0."state_claim" IS NULL AND NOT U0."state_ready" AND U0."state" IN ('pending') AND U0."state_crashes" < 3 AND U0."state_next_attempt" IS NULL) LIMIT 1) IS NULL AND (SELECT U0."id" AS "pk" FROM "tasks_task" U0 WHERE (U0."state_claim" IS NOT NULL AND U0."state_locked_until" <= (STATEMENT_TIMESTAMP())) LIMIT 1) IS NULL AND (SELECT U0."id" AS "pk" FROM "tasks_task" U0 WHERE (U0."state_claim" IS NOT NULL AND U0."state" IN ('canceled', 'completed', 'errored', 'pending', 'shared') AND U0."state_locked_until" > (STATEMENT_TIMESTAMP() + '1:00:05'::interval)) LIMIT 1) IS NULL AND (SELECT U0."id" AS "pk" FROM "stator_pause" U0 WHERE ((U0."until" IS NULL OR U0."until" > (STATEMENT_TIMESTAMP())) AND U0."model_label" = 'tasks.task') LIMIT 1) IS NULL AND (SELECT U0."id" AS "pk" FROM "tasks_queue" U0 WHERE (NOT U0."claim_paused" AND U0."kind" = 'simple' AND U0."lease" IS NULL AND U0."max_attempts" = %s AND U0."name" = %s AND NOT U0."one_per_worker" AND U0."id" = %s AND NOT U0."same_worker_again" AND U0."timeout" IS NULL AND U0."worker_retries" IS NULL) LIMIT 1) IS NOT NULL AND "tasks_task"."state_attempts" < (COALESCE("tasks_task"."max_attempts", %s, 5)) AND ("tasks_task"."worker_ids" = '[]'::jsonb OR ("tasks_task"."worker_ids" ? %s)) AND ("tasks_task"."state_attempts" = 0 OR NOT ((SELECT U0."id" AS "pk" FROM "tasks_run" U0 WHERE (U0."task_id" = ("tasks_task"."id") AND U0."worker" = %s AND U0."version" = ("tasks_task"."state_version") AND NOT (U0."outcome" IN ('waited', 'canceled'))) LIMIT 1) IS NOT NULL)) AND ("tasks_task"."whole_id" IS NULL OR NOT ((SELECT U0."id" AS "pk" FROM "tasks_run" U0 INNER JOIN "tasks_task" U1 ON (U0."task_id" = U1."id") WHERE (((U0."outcome" = 'succeeded' AND U1."state" = 'completed') OR U1."state_claim" = (U0."token") OR (U0."version" = (U1."state_version") AND NOT (U0."outcome" IN ('waited', 'canceled')))) AND U1."shard" = ("tasks_task"."shard") AND U1."whole_id" = ("tasks_task"."whole_id") AND U0."worker" = %s) LIMIT 1) IS NOT NULL)) AND "tasks_task"."queue_id" = %s) ORDER BY "tasks_task"."priority" ASC, CASE WHEN "tasks_task"."worker_ids" = '[]'::jsonb THEN 1 ELSE 0 END ASC, 1 ASC LIMIT 1 FOR NO KEY UPDATE OF "tasks_task" SKIP LOCKED),
done AS (
  UPDATE "tasks_task" SET "state_claim" = CAST(CASE WHEN ("tasks_task"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE %s END AS uuid), "state_locked_until" = CASE WHEN ("tasks_task"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN NULL ELSE (STATEMENT_TIMESTAMP() + LEAST(COALESCE("tasks_task"."lease", NULL, 60.0), COALESCE("tasks_task"."timeout", NULL, 3153600000.0), 3600.0) * interval '1 second') END, "state_ready" = false, "state_attempted" = CASE WHEN ("tasks_task"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "tasks_task"."state_attempted" ELSE STATEMENT_TIMESTAMP() END, "state_attempts" = CASE WHEN ("tasks_task"."state_next_attempt" > (STATEMENT_TIMESTAMP())) THEN "tasks_task"."state_attempts" ELSE ("tasks_task"."state_attempts" + 1) END, "state_crashes" = 0 FROM picked WHERE "tasks_task"."id" = picked."pk" AND NOT EXISTS (SELECT FROM picked WHERE stator_odd)
  RETURNING "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state"),
noted AS (
  INSERT INTO tasks_run (task_id, shard, version, claimed, lease_until, token, worker, lease, outcome, reason)
  SELECT id, shard, state_version, state_attempted, state_locked_until, state_claim, %s::text, %s::float8, '', ''
  FROM done WHERE state_claim IS NOT NULL)
SELECT done.*, (SELECT bool_and(stator_flag) FROM picked) FROM done WHERE state_claim IS NOT NULL

-- verify
SELECT %s AS "a" FROM "tasks_task" WHERE ("tasks_task"."id" = %s AND "tasks_task"."state" = %s AND "tasks_task"."state_claim" IS NOT DISTINCT FROM %s AND "tasks_task"."state_locked_until" > (STATEMENT_TIMESTAMP())) LIMIT 1

-- heartbeat
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; WITH done AS (UPDATE "tasks_task" SET "state_locked_until" = LEAST((STATEMENT_TIMESTAMP() + LEAST(COALESCE((SELECT U0."lease" AS "lease" FROM "tasks_run" U0 WHERE (U0."task_id" = ("tasks_task"."id") AND U0."token" = ("tasks_task"."state_claim")) LIMIT 1), COALESCE("tasks_task"."lease", (SELECT U0."lease" AS "lease" FROM "tasks_queue" U0 WHERE U0."id" = ("tasks_task"."queue_id") LIMIT 1), 60.0)), 3600.0) * interval '1 second'), ("tasks_task"."state_attempted" + COALESCE("tasks_task"."timeout", (SELECT U0."timeout" AS "timeout" FROM "tasks_queue" U0 WHERE U0."id" = ("tasks_task"."queue_id") LIMIT 1), 3153600000.0) * interval '1 second')) WHERE ("tasks_task"."id" = %s AND "tasks_task"."state_claim" IS NOT DISTINCT FROM %s AND "tasks_task"."state_locked_until" > (STATEMENT_TIMESTAMP()) AND ("tasks_task"."worker_ids" = '[]'::jsonb OR ("tasks_task"."worker_ids" ? %s))) RETURNING "id" AS pk, state_claim, "state_locked_until", "heartbeat_interval", "max_unexpected_retries"),
noted AS (
  UPDATE tasks_run SET lease_until = done.state_locked_until FROM done
  WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.state_claim) SELECT statement_timestamp(), "state_locked_until", "heartbeat_interval", "max_unexpected_retries" FROM done

-- release
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, (%s::uuid[])[nth] AS claim, delay, failed
  FROM unnest(%s::bigint[], %s::int[], %s::float8[], %s::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.state_attempts AS run_attempt, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "tasks_task" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s AND t."id" = v.pk AND t.state_locked_until > statement_timestamp() FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "tasks_task" SET "state_ready" = (v.delay <= 0), "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = %s, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "tasks_task".ctid = v.found AND "tasks_task"."id" IS NOT DISTINCT FROM v.pk AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v) AND EXISTS (SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" INNER JOIN "tasks_queue" ON ("tasks_task"."queue_id" = "tasks_queue"."id") WHERE ("tasks_task"."state_attempts" < (COALESCE("tasks_task"."max_attempts", "tasks_queue"."max_attempts", 5)) AND "tasks_task"."id" = %s) LIMIT 1)
    AND "tasks_task".state_claim IS NOT DISTINCT FROM v.claim AND "tasks_task".state = %s
  RETURNING "tasks_task"."id" AS pk, v.failed, v.claim, v.run_attempt, "tasks_task".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
noted AS (
  UPDATE tasks_run SET ended = statement_timestamp(), outcome = %s::text,
    reason = %s::text
  FROM done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)
SELECT pk, statement_timestamp() FROM done

-- resolve
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, (%s::uuid[])[nth] AS claim, delay, failed, saves, value0
  FROM unnest(%s::bigint[], %s::int[], %s::float8[], %s::bool[], %s::bool[], %s::jsonb[])
    AS v(pk, nth, delay, failed, saves, value0)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, v.saves, v.value0, t.state_attempts AS run_attempt, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "tasks_task" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s AND t."id" = v.pk AND t.state_locked_until > statement_timestamp() FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "tasks_task" SET "state" = %s, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("tasks_task"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL, "result" = CASE WHEN v.saves THEN v.value0 ELSE "tasks_task"."result" END FROM mine v
  WHERE "tasks_task".ctid = v.found AND "tasks_task"."id" IS NOT DISTINCT FROM v.pk AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)
    AND "tasks_task".state_claim IS NOT DISTINCT FROM v.claim AND "tasks_task".state = %s
  RETURNING "tasks_task"."id" AS pk, v.failed, v.claim, v.run_attempt, v.value0, "tasks_task".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
noted AS (
  UPDATE tasks_run SET ended = statement_timestamp(), outcome = %s::text,
    reason = %s::text, result = done.value0,
    attempt = done.run_attempt, "to" = %s::text, stay = greatest(date_part('epoch', done.stayed), 0)
  FROM done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)
SELECT pk, statement_timestamp() FROM done

-- fail
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, (%s::uuid[])[nth] AS claim, delay, failed
  FROM unnest(%s::bigint[], %s::int[], %s::float8[], %s::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.state_attempts AS run_attempt, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "tasks_task" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s AND t."id" = v.pk AND t.state_locked_until > statement_timestamp() FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "tasks_task" SET "state_ready" = (v.delay <= 0), "state_next_attempt" = (STATEMENT_TIMESTAMP() + (v.delay * interval '1 second')), "state_failures" = (CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END), "state_crashes" = %s, "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "tasks_task".ctid = v.found AND "tasks_task"."id" IS NOT DISTINCT FROM v.pk AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v) AND EXISTS (SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" INNER JOIN "tasks_queue" ON ("tasks_task"."queue_id" = "tasks_queue"."id") WHERE ("tasks_task"."state_attempts" < (COALESCE("tasks_task"."max_attempts", "tasks_queue"."max_attempts", 5)) AND "tasks_task"."id" = %s) LIMIT 1)
    AND "tasks_task".state_claim IS NOT DISTINCT FROM v.claim AND "tasks_task".state = %s
  RETURNING "tasks_task"."id" AS pk, v.failed, v.claim, v.run_attempt, "tasks_task".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
reported AS (
  INSERT INTO stator_report AS report (model_label, object_pk, state, at, error, message, traceback, fingerprint,
    times, worker)
  SELECT %s, pk::text, %s, statement_timestamp(), %s, %s, %s,
    %s, 1, %s FROM done
  ON CONFLICT (model_label, object_pk) DO UPDATE
  SET state = excluded.state, at = excluded.at, error = excluded.error, message = excluded.message,
    traceback = excluded.traceback, fingerprint = excluded.fingerprint, worker = excluded.worker,
    log = NULL, times = CASE WHEN (report.state, report.error, report.message)
      = (excluded.state, excluded.error, excluded.message) THEN report.times + 1 ELSE 1 END),
noted AS (
  UPDATE tasks_run SET ended = statement_timestamp(), outcome = %s::text,
    reason = %s::text,
    attempt = done.run_attempt, error = %s::text, fingerprint = %s::text, "to" = ''
  FROM done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)
SELECT pk, statement_timestamp() FROM done

-- cancel
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; 
WITH v AS (
  SELECT pk, (%s::uuid[])[nth] AS claim, delay, failed
  FROM unnest(%s::bigint[], %s::int[], %s::float8[], %s::bool[])
    AS v(pk, nth, delay, failed)),
mine AS MATERIALIZED (
  SELECT v.pk, v.claim, v.delay, v.failed, t.state_attempts AS run_attempt, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN "tasks_task" t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s AND t."id" = v.pk AND t.state_locked_until > statement_timestamp() FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE "tasks_task" SET "state" = %s, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("tasks_task"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL FROM mine v
  WHERE "tasks_task".ctid = v.found AND "tasks_task"."id" IS NOT DISTINCT FROM v.pk AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)
    AND "tasks_task".state_claim IS NOT DISTINCT FROM v.claim AND "tasks_task".state = %s
  RETURNING "tasks_task"."id" AS pk, v.failed, v.claim, v.run_attempt, "tasks_task".state_changed - v.entered AS stayed),
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest)),
noted AS (
  UPDATE tasks_run SET ended = statement_timestamp(), outcome = %s::text,
    reason = %s::text,
    attempt = done.run_attempt, "to" = %s::text, stay = greatest(date_part('epoch', done.stayed), 0)
  FROM done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)
SELECT pk, statement_timestamp() FROM done
