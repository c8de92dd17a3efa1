-- publish
SELECT "tasks_queue"."id", "tasks_queue"."name", "tasks_queue"."kind", "tasks_queue"."exclusive_key", "tasks_queue"."spread", "tasks_queue"."lease", "tasks_queue"."timeout", "tasks_queue"."invisible_for", "tasks_queue"."max_attempts", "tasks_queue"."retention", "tasks_queue"."failed_retention", "tasks_queue"."same_worker_again", "tasks_queue"."worker_retries", "tasks_queue"."one_per_worker", "tasks_queue"."actions_elsewhere", "tasks_queue"."http_actions", "tasks_queue"."publish_paused", "tasks_queue"."claim_paused", "tasks_queue"."pause_reason", "tasks_queue"."pause_author", "tasks_queue"."pause_until", "tasks_queue"."created", STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') AS "read_at" FROM "tasks_queue" WHERE "tasks_queue"."id" = %s ORDER BY "tasks_queue"."id" ASC LIMIT 1

-- publish
INSERT INTO "tasks_task" ("state_changed", "queue_id", "action", "data", "key", "priority", "metadata", "exclusive_value", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "shard", "elsewhere_only", "whole_id", "batch_id", "result", "created", "begun", "notice_due", "state") VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING "tasks_task"."id", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."created", "tasks_task"."notice_due"

-- publish
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE "tasks_task"."id" IN (%s)

-- publish with a key
SELECT "tasks_queue"."id", "tasks_queue"."name", "tasks_queue"."kind", "tasks_queue"."exclusive_key", "tasks_queue"."spread", "tasks_queue"."lease", "tasks_queue"."timeout", "tasks_queue"."invisible_for", "tasks_queue"."max_attempts", "tasks_queue"."retention", "tasks_queue"."failed_retention", "tasks_queue"."same_worker_again", "tasks_queue"."worker_retries", "tasks_queue"."one_per_worker", "tasks_queue"."actions_elsewhere", "tasks_queue"."http_actions", "tasks_queue"."publish_paused", "tasks_queue"."claim_paused", "tasks_queue"."pause_reason", "tasks_queue"."pause_author", "tasks_queue"."pause_until", "tasks_queue"."created", STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') AS "read_at" FROM "tasks_queue" WHERE "tasks_queue"."id" = %s ORDER BY "tasks_queue"."id" ASC LIMIT 1

-- publish with a key
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE ("tasks_task"."key" IN (%s) AND "tasks_task"."queue_id" = %s) ORDER BY "tasks_task"."id" ASC

-- publish with a key
INSERT INTO "tasks_task" ("state_changed", "queue_id", "action", "data", "key", "priority", "metadata", "exclusive_value", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "shard", "elsewhere_only", "whole_id", "batch_id", "result", "created", "begun", "notice_due", "state") VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING "tasks_task"."id", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."created", "tasks_task"."notice_due"

-- publish with a key
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE "tasks_task"."id" IN (%s)

-- publish with that key again
SELECT "tasks_queue"."id", "tasks_queue"."name", "tasks_queue"."kind", "tasks_queue"."exclusive_key", "tasks_queue"."spread", "tasks_queue"."lease", "tasks_queue"."timeout", "tasks_queue"."invisible_for", "tasks_queue"."max_attempts", "tasks_queue"."retention", "tasks_queue"."failed_retention", "tasks_queue"."same_worker_again", "tasks_queue"."worker_retries", "tasks_queue"."one_per_worker", "tasks_queue"."actions_elsewhere", "tasks_queue"."http_actions", "tasks_queue"."publish_paused", "tasks_queue"."claim_paused", "tasks_queue"."pause_reason", "tasks_queue"."pause_author", "tasks_queue"."pause_until", "tasks_queue"."created", STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') AS "read_at" FROM "tasks_queue" WHERE "tasks_queue"."id" = %s ORDER BY "tasks_queue"."id" ASC LIMIT 1

-- publish with that key again
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE ("tasks_task"."key" IN (%s) AND "tasks_task"."queue_id" = %s) ORDER BY "tasks_task"."id" ASC

-- publish with that key again
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE "tasks_task"."whole_id" IN (%s)

-- publish many
SELECT "tasks_queue"."id", "tasks_queue"."name", "tasks_queue"."kind", "tasks_queue"."exclusive_key", "tasks_queue"."spread", "tasks_queue"."lease", "tasks_queue"."timeout", "tasks_queue"."invisible_for", "tasks_queue"."max_attempts", "tasks_queue"."retention", "tasks_queue"."failed_retention", "tasks_queue"."same_worker_again", "tasks_queue"."worker_retries", "tasks_queue"."one_per_worker", "tasks_queue"."actions_elsewhere", "tasks_queue"."http_actions", "tasks_queue"."publish_paused", "tasks_queue"."claim_paused", "tasks_queue"."pause_reason", "tasks_queue"."pause_author", "tasks_queue"."pause_until", "tasks_queue"."created", STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') AS "read_at" FROM "tasks_queue" WHERE "tasks_queue"."id" = %s ORDER BY "tasks_queue"."id" ASC LIMIT 1

-- publish many
INSERT INTO "tasks_task" ("state_changed", "queue_id", "action", "data", "key", "priority", "metadata", "exclusive_value", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "shard", "elsewhere_only", "whole_id", "batch_id", "result", "created", "begun", "notice_due", "state") VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING "tasks_task"."id", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."created", "tasks_task"."notice_due"

-- publish many
SELECT "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state" FROM "tasks_task" WHERE "tasks_task"."id" IN (%s, %s, %s)

-- claim
SELECT "tasks_queue"."id", "tasks_queue"."name", "tasks_queue"."kind", "tasks_queue"."exclusive_key", "tasks_queue"."spread", "tasks_queue"."lease", "tasks_queue"."timeout", "tasks_queue"."invisible_for", "tasks_queue"."max_attempts", "tasks_queue"."retention", "tasks_queue"."failed_retention", "tasks_queue"."same_worker_again", "tasks_queue"."worker_retries", "tasks_queue"."one_per_worker", "tasks_queue"."actions_elsewhere", "tasks_queue"."http_actions", "tasks_queue"."publish_paused", "tasks_queue"."claim_paused", "tasks_queue"."pause_reason", "tasks_queue"."pause_author", "tasks_queue"."pause_until", "tasks_queue"."created", STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') AS "read_at", EXISTS(SELECT %s AS "a" FROM "tasks_claimant" U0 WHERE (U0."queue_id" = %s AND U0."seen" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), %s || ' seconds')) AND U0."worker" = %s) LIMIT 1) AS "noted" FROM "tasks_queue" WHERE "tasks_queue"."id" = %s ORDER BY "tasks_queue"."id" ASC LIMIT 1

-- claim
SELECT (EXISTS (SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."state_claim" IS NULL AND NOT "tasks_task"."state_ready" AND "tasks_task"."state" IN (%s) AND "tasks_task"."state_crashes" < %s AND "tasks_task"."state_next_attempt" <= (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."state_claim" IS NULL AND NOT "tasks_task"."state_ready" AND "tasks_task"."state" IN (%s) AND "tasks_task"."state_crashes" < %s AND "tasks_task"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."state_claim" IS NOT NULL AND "tasks_task"."state_locked_until" <= (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."state_claim" IS NOT NULL AND "tasks_task"."state" IN (%s, %s, %s, %s, %s) AND "tasks_task"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), %s))) LIMIT 1))

-- claim
SELECT "stator_pause"."id", "stator_pause"."model_label", "stator_pause"."state", "stator_pause"."where", "stator_pause"."reason", "stator_pause"."actor", "stator_pause"."created", "stator_pause"."until", "stator_pause"."action" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) ORDER BY "stator_pause"."id" ASC LIMIT 1000

-- claim
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."state_claim" IS NULL AND "tasks_task"."state_ready" AND "tasks_task"."state" IN (%s) AND "tasks_task"."state_crashes" < %s AND "tasks_task"."state_attempts" < (COALESCE("tasks_task"."max_attempts", %s, %s)) AND ("tasks_task"."worker_ids" = %s OR EXISTS (SELECT 1 FROM JSON_EACH("tasks_task"."worker_ids") WHERE value = (%s))) AND ("tasks_task"."state_attempts" = %s OR NOT ((SELECT U0."id" AS "pk" FROM "tasks_run" U0 WHERE (U0."task_id" = ("tasks_task"."id") AND U0."worker" = %s AND U0."version" = ("tasks_task"."state_version") AND NOT (U0."outcome" IN (%s, %s))) LIMIT 1) IS NOT NULL)) AND ("tasks_task"."whole_id" IS NULL OR NOT ((SELECT U0."id" AS "pk" FROM "tasks_run" U0 INNER JOIN "tasks_task" U1 ON (U0."task_id" = U1."id") WHERE (((U0."outcome" = %s AND U1."state" = %s) OR U1."state_claim" = (U0."token") OR (U0."version" = (U1."state_version") AND NOT (U0."outcome" IN (%s, %s)))) AND U1."shard" = ("tasks_task"."shard") AND U1."whole_id" = ("tasks_task"."whole_id") AND U0."worker" = %s) LIMIT 1) IS NOT NULL)) AND "tasks_task"."queue_id" = %s) ORDER BY "tasks_task"."priority" ASC, CASE WHEN "tasks_task"."worker_ids" = %s THEN %s ELSE %s END ASC, 1 ASC LIMIT 1

-- claim
UPDATE "tasks_task" SET "state_claim" = CASE WHEN ("tasks_task"."state_next_attempt" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) THEN NULL ELSE %s END, "state_locked_until" = CASE WHEN ("tasks_task"."state_next_attempt" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) THEN NULL ELSE STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), MIN(COALESCE("tasks_task"."lease", NULL, %s), COALESCE("tasks_task"."timeout", NULL, %s), %s) || ' seconds') END, "state_ready" = %s, "state_attempted" = CASE WHEN ("tasks_task"."state_next_attempt" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) THEN "tasks_task"."state_attempted" ELSE STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') END, "state_attempts" = CASE WHEN ("tasks_task"."state_next_attempt" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) THEN "tasks_task"."state_attempts" ELSE ("tasks_task"."state_attempts" + %s) END, "state_crashes" = %s WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state_claim" IS NULL AND "tasks_task"."state_ready")

-- claim
SELECT "tasks_task"."id" AS "id", "tasks_task"."state_ready" AS "state_ready", "tasks_task"."state_changed" AS "state_changed", "tasks_task"."state_attempted" AS "state_attempted", "tasks_task"."state_locked_until" AS "state_locked_until", "tasks_task"."state_next_attempt" AS "state_next_attempt", "tasks_task"."state_attempts" AS "state_attempts", "tasks_task"."state_failures" AS "state_failures", "tasks_task"."state_crashes" AS "state_crashes", "tasks_task"."state_version" AS "state_version", "tasks_task"."state_claim" AS "state_claim", "tasks_task"."state_life" AS "state_life", "tasks_task"."state_visit" AS "state_visit", "tasks_task"."queue_id" AS "queue_id", "tasks_task"."action" AS "action", "tasks_task"."data" AS "data", "tasks_task"."key" AS "key", "tasks_task"."priority" AS "priority", "tasks_task"."metadata" AS "metadata", "tasks_task"."exclusive_value" AS "exclusive_value", "tasks_task"."lease" AS "lease", "tasks_task"."timeout" AS "timeout", "tasks_task"."max_attempts" AS "max_attempts", "tasks_task"."retention" AS "retention", "tasks_task"."heartbeat_interval" AS "heartbeat_interval", "tasks_task"."max_unexpected_retries" AS "max_unexpected_retries", "tasks_task"."worker_ids" AS "worker_ids", "tasks_task"."worker_count" AS "worker_count", "tasks_task"."shard" AS "shard", "tasks_task"."elsewhere_only" AS "elsewhere_only", "tasks_task"."whole_id" AS "whole_id", "tasks_task"."batch_id" AS "batch_id", "tasks_task"."result" AS "result", "tasks_task"."created" AS "created", "tasks_task"."begun" AS "begun", "tasks_task"."notice_due" AS "notice_due", "tasks_task"."state" AS "state" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state_claim" = %s)

-- claim
INSERT INTO "tasks_run" ("task_id", "shard", "version", "claimed", "lease_until", "worker", "token", "lease", "outcome", "reason") SELECT "id", "shard", "state_version", "state_attempted", "state_locked_until", %s, %s, %s, %s, %s FROM "tasks_task" WHERE "id" IN (%s)

-- verify
SELECT %s AS "a" FROM "tasks_task" WHERE ("tasks_task"."id" = %s AND "tasks_task"."state" = %s AND "tasks_task"."state_claim" = %s AND "tasks_task"."state_locked_until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'))) LIMIT 1

-- heartbeat
UPDATE "tasks_task" SET "state_locked_until" = MIN(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), MIN(COALESCE((SELECT U0."lease" AS "lease" FROM "tasks_run" U0 WHERE (U0."task_id" = ("tasks_task"."id") AND U0."token" = ("tasks_task"."state_claim")) LIMIT 1), COALESCE("tasks_task"."lease", (SELECT U0."lease" AS "lease" FROM "tasks_queue" U0 WHERE U0."id" = ("tasks_task"."queue_id") LIMIT 1), %s)), %s) || ' seconds'), STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', "tasks_task"."state_attempted", COALESCE("tasks_task"."timeout", (SELECT U0."timeout" AS "timeout" FROM "tasks_queue" U0 WHERE U0."id" = ("tasks_task"."queue_id") LIMIT 1), %s) || ' seconds')) WHERE ("tasks_task"."id" = %s AND "tasks_task"."state_claim" = %s AND "tasks_task"."state_locked_until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) AND ("tasks_task"."worker_ids" = %s OR EXISTS (SELECT 1 FROM JSON_EACH("tasks_task"."worker_ids") WHERE value = (%s))))

-- heartbeat
UPDATE "tasks_run" SET "lease_until" = (SELECT U0."state_locked_until" AS "state_locked_until" FROM "tasks_task" U0 WHERE U0."id" = ("tasks_run"."task_id") LIMIT 1) WHERE ("tasks_run"."task_id" IN (%s) AND "tasks_run"."token" = %s)

-- heartbeat
SELECT STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW') AS "now1", "tasks_task"."state_locked_until" AS "state_locked_until", "tasks_task"."heartbeat_interval" AS "heartbeat_interval", "tasks_task"."max_unexpected_retries" AS "max_unexpected_retries" FROM "tasks_task" WHERE "tasks_task"."id" = %s LIMIT 21

-- release
SELECT "tasks_task"."state_claim" AS "state_claim", "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s) ORDER BY 2 ASC

-- release
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" INNER JOIN "tasks_queue" ON ("tasks_task"."queue_id" = "tasks_queue"."id") WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state_locked_until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) AND "tasks_task"."state_attempts" < (COALESCE("tasks_task"."max_attempts", "tasks_queue"."max_attempts", %s)))

-- release
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s AND "tasks_task"."state_claim" = %s) ORDER BY 1 ASC LIMIT 1

-- release
UPDATE "tasks_task" SET "state_ready" = %s, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), %s)), "state_failures" = %s, "state_crashes" = %s, "state_claim" = NULL, "state_locked_until" = NULL WHERE "tasks_task"."id" IN (%s)

-- release
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + %s), "failed" = ("stator_stats"."failed" + %s) WHERE ("stator_stats"."hour" = %s AND "stator_stats"."model_label" = %s AND "stator_stats"."shard" = %s AND "stator_stats"."source" = %s AND "stator_stats"."to" = %s)

-- release
INSERT OR IGNORE INTO "stator_stats" ("model_label", "hour", "source", "to", "shard", "handled", "failed", "seconds", "longest") VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- release
UPDATE "tasks_run" SET "ended" = STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), "outcome" = %s, "reason" = %s WHERE ("tasks_run"."task_id" IN (%s) AND "tasks_run"."token" = %s)

-- resolve
SELECT "tasks_task"."state_claim" AS "state_claim", "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s) ORDER BY 2 ASC

-- resolve
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state_locked_until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')))

-- resolve
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s AND "tasks_task"."state_claim" = %s) ORDER BY 1 ASC LIMIT 1

-- resolve
SELECT "tasks_task"."id" AS "pk", CAST(ROUND((JULIANDAY(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) - JULIANDAY("tasks_task"."state_changed")) * 86400000) AS INTEGER) * 1000 AS "elapsed1" FROM "tasks_task" WHERE "tasks_task"."id" IN (%s)

-- resolve
UPDATE "tasks_task" SET "state" = %s, "state_changed" = STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("tasks_task"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL, "result" = %s WHERE "tasks_task"."id" IN (%s)

-- resolve
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + %s), "failed" = ("stator_stats"."failed" + %s), "seconds" = ("stator_stats"."seconds" + %s), "longest" = MAX("stator_stats"."longest", %s) WHERE ("stator_stats"."hour" = %s AND "stator_stats"."model_label" = %s AND "stator_stats"."shard" = %s AND "stator_stats"."source" = %s AND "stator_stats"."to" = %s)

-- resolve
UPDATE "tasks_run" SET "ended" = STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), "outcome" = %s, "reason" = %s, "result" = (SELECT U0."result" AS "result" FROM "tasks_task" U0 WHERE U0."id" = ("tasks_run"."task_id") LIMIT 1), "attempt" = CASE WHEN ("tasks_run"."task_id" = %s) THEN %s ELSE NULL END, "stay" = CASE WHEN ("tasks_run"."task_id" = %s) THEN %s ELSE NULL END, "to" = %s WHERE ("tasks_run"."task_id" IN (%s) AND "tasks_run"."token" = %s)

-- fail
SELECT "tasks_task"."state_claim" AS "state_claim", "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s) ORDER BY 2 ASC

-- fail
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" INNER JOIN "tasks_queue" ON ("tasks_task"."queue_id" = "tasks_queue"."id") WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state_locked_until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) AND "tasks_task"."state_attempts" < (COALESCE("tasks_task"."max_attempts", "tasks_queue"."max_attempts", %s)))

-- fail
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s AND "tasks_task"."state_claim" = %s) ORDER BY 1 ASC LIMIT 1

-- fail
UPDATE "tasks_task" SET "state_ready" = %s, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), %s)), "state_failures" = ("tasks_task"."state_failures" + %s), "state_crashes" = %s, "state_claim" = NULL, "state_locked_until" = NULL WHERE "tasks_task"."id" IN (%s)

-- fail
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + %s), "failed" = ("stator_stats"."failed" + %s) WHERE ("stator_stats"."hour" = %s AND "stator_stats"."model_label" = %s AND "stator_stats"."shard" = %s AND "stator_stats"."source" = %s AND "stator_stats"."to" = %s)

-- fail
SELECT "stator_report"."object_pk" AS "object_pk", "stator_report"."state" AS "state", "stator_report"."error" AS "error", "stator_report"."message" AS "message", "stator_report"."times" AS "times" FROM "stator_report" WHERE ("stator_report"."model_label" = %s AND "stator_report"."object_pk" IN (%s))

-- fail
INSERT INTO "stator_report" ("model_label", "object_pk", "state", "at", "error", "message", "traceback", "fingerprint", "times", "worker", "log") VALUES (%s, %s, %s, STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), %s, %s, %s, %s, %s, %s, %s) ON CONFLICT("model_label", "object_pk") DO UPDATE SET "state" = EXCLUDED."state", "at" = EXCLUDED."at", "error" = EXCLUDED."error", "message" = EXCLUDED."message", "traceback" = EXCLUDED."traceback", "fingerprint" = EXCLUDED."fingerprint", "times" = EXCLUDED."times", "worker" = EXCLUDED."worker", "log" = EXCLUDED."log" RETURNING "stator_report"."id", "stator_report"."at"

-- fail
UPDATE "tasks_run" SET "ended" = STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), "outcome" = %s, "reason" = %s, "attempt" = CASE WHEN ("tasks_run"."task_id" = %s) THEN %s ELSE NULL END, "to" = %s, "error" = %s, "fingerprint" = %s WHERE ("tasks_run"."task_id" IN (%s) AND "tasks_run"."token" = %s)

-- cancel
SELECT "tasks_task"."state_claim" AS "state_claim", "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s) ORDER BY 2 ASC

-- cancel
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state_locked_until" > (STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')))

-- cancel
SELECT "tasks_task"."id" AS "pk" FROM "tasks_task" WHERE ("tasks_task"."id" IN (%s) AND "tasks_task"."state" = %s AND "tasks_task"."state_claim" = %s) ORDER BY 1 ASC LIMIT 1

-- cancel
SELECT "tasks_task"."id" AS "pk", CAST(ROUND((JULIANDAY(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')) - JULIANDAY("tasks_task"."state_changed")) * 86400000) AS INTEGER) * 1000 AS "elapsed1" FROM "tasks_task" WHERE "tasks_task"."id" IN (%s)

-- cancel
UPDATE "tasks_task" SET "state" = %s, "state_changed" = STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("tasks_task"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL WHERE "tasks_task"."id" IN (%s)

-- cancel
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + %s), "failed" = ("stator_stats"."failed" + %s), "seconds" = ("stator_stats"."seconds" + %s), "longest" = MAX("stator_stats"."longest", %s) WHERE ("stator_stats"."hour" = %s AND "stator_stats"."model_label" = %s AND "stator_stats"."shard" = %s AND "stator_stats"."source" = %s AND "stator_stats"."to" = %s)

-- cancel
INSERT OR IGNORE INTO "stator_stats" ("model_label", "hour", "source", "to", "shard", "handled", "failed", "seconds", "longest") VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- cancel
UPDATE "tasks_run" SET "ended" = STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW'), "outcome" = %s, "reason" = %s, "attempt" = CASE WHEN ("tasks_run"."task_id" = %s) THEN %s ELSE NULL END, "stay" = CASE WHEN ("tasks_run"."task_id" = %s) THEN %s ELSE NULL END, "to" = %s WHERE ("tasks_run"."task_id" IN (%s) AND "tasks_run"."token" = %s)
