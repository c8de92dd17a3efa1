-- create a row
INSERT INTO "testapp_basket" ("state_ready", "state_next_attempt", "state") VALUES (%s, %s, %s) RETURNING "testapp_basket"."id"

-- move a row by hand
SELECT DISTINCT "testapp_basket"."id" AS "pk" FROM "testapp_basket" WHERE "testapp_basket"."id" = %s ORDER BY "testapp_basket"."id" ASC LIMIT 1000

-- move a row by hand
SELECT "testapp_basket"."id" AS "pk", "testapp_basket"."state" AS "state", "testapp_basket"."state_attempts" AS "state_attempts", "testapp_basket"."state_version" AS "state_version", "testapp_basket"."state_life" AS "state_life", "testapp_basket"."state_visit" AS "state_visit" FROM "testapp_basket" WHERE ("testapp_basket"."id" = ANY(%s)) ORDER BY 1 ASC FOR NO KEY UPDATE

-- move a row by hand
SELECT "testapp_basket"."id" AS "pk" FROM "testapp_basket" WHERE ("testapp_basket"."id" = %s AND ("testapp_basket"."id" = ANY(%s)))

-- move a row by hand
INSERT INTO "stator_history" ("at", "worker", "duration", "error", "fingerprint", "log", "model_label", "to", "actor", "reason", "kind", "object_pk", "source", "version", "stay", "attempts", "claimed") SELECT STATEMENT_TIMESTAMP() AS "stator_at", %s AS "stator_worker", NULL AS "stator_duration", %s AS "stator_error", %s AS "stator_fingerprint", NULL AS "stator_log", %s AS "stator_model_label", %s AS "stator_to", %s AS "stator_actor", %s AS "stator_reason", %s AS "stator_kind", ("testapp_basket"."id")::varchar(255) AS "stator_object_pk", "testapp_basket"."state" AS "stator_source", ("testapp_basket"."state_version" + %s) AS "stator_version", EXTRACT(EPOCH FROM (STATEMENT_TIMESTAMP() - "testapp_basket"."state_changed")) AS "stator_stay", "testapp_basket"."state_attempts" AS "stator_attempts", "testapp_basket"."state_attempted" AS "stator_claimed" FROM "testapp_basket" WHERE "testapp_basket"."id" = %s

-- move a row by hand
UPDATE "testapp_basket" SET "state" = %s, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("testapp_basket"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL WHERE ("testapp_basket"."id" = ANY(%s))

-- move a row by hand
SELECT "testapp_basket"."id" AS "pk", "testapp_basket"."state" AS "state", "testapp_basket"."state_attempts" AS "state_attempts", "testapp_basket"."state_version" AS "state_version", "testapp_basket"."state_life" AS "state_life", "testapp_basket"."state_visit" AS "state_visit" FROM "testapp_basket" WHERE (NOT (EXISTS(SELECT %s AS "a" FROM "testapp_basket" U0 LEFT OUTER JOIN "testapp_item" U1 ON (U0."id" = U1."basket_id") WHERE (U0."id" = ("testapp_basket"."id") AND U1."state" IN (%s, %s, %s) AND U1."state" IS NOT NULL) LIMIT 1)) AND NOT (EXISTS(SELECT %s AS "a" FROM "testapp_basket" U0 LEFT OUTER JOIN "testapp_item" U1 ON (U0."id" = U1."basket_id") WHERE (U0."id" = ("testapp_basket"."id") AND NOT (U1."state" IN (%s)) AND U1."state" IS NOT NULL) LIMIT 1)) AND EXISTS(SELECT %s AS "a" FROM "testapp_basket" U0 LEFT OUTER JOIN "testapp_item" U1 ON (U0."id" = U1."basket_id") WHERE (U0."id" = ("testapp_basket"."id") AND U1."state" IS NOT NULL) LIMIT 1) AND "testapp_basket"."id" IN (%s) AND "testapp_basket"."state" = %s) ORDER BY 1 ASC

-- move a row by hand
SELECT "testapp_basket"."id" AS "pk", "testapp_basket"."state" AS "state", "testapp_basket"."state_attempts" AS "state_attempts", "testapp_basket"."state_version" AS "state_version", "testapp_basket"."state_life" AS "state_life", "testapp_basket"."state_visit" AS "state_visit" FROM "testapp_basket" WHERE (EXISTS(SELECT %s AS "a" FROM "testapp_basket" U0 LEFT OUTER JOIN "testapp_item" U1 ON (U0."id" = U1."basket_id") WHERE (U0."id" = ("testapp_basket"."id") AND U1."state" IN (%s) AND U1."state" IS NOT NULL) LIMIT 1) AND "testapp_basket"."id" IN (%s) AND "testapp_basket"."state" = %s) ORDER BY 1 ASC

-- move a row by hand
SELECT DISTINCT "testapp_basket"."id" AS "pk" FROM "testapp_basket" WHERE ("testapp_basket"."id" = %s AND "testapp_basket"."id" > %s) ORDER BY "testapp_basket"."id" ASC LIMIT 1000

-- move a row by hand
SELECT "testapp_basket"."id", "testapp_basket"."state_ready", "testapp_basket"."state_changed", "testapp_basket"."state_attempted", "testapp_basket"."state_locked_until", "testapp_basket"."state_next_attempt", "testapp_basket"."state_attempts", "testapp_basket"."state_failures", "testapp_basket"."state_crashes", "testapp_basket"."state_version", "testapp_basket"."state_claim", "testapp_basket"."state_life", "testapp_basket"."state_visit", "testapp_basket"."state" FROM "testapp_basket" WHERE "testapp_basket"."id" = %s LIMIT 21

-- an event to one row
SELECT "testapp_expense"."id", "testapp_expense"."state_ready", "testapp_expense"."state_changed", "testapp_expense"."state_attempted", "testapp_expense"."state_locked_until", "testapp_expense"."state_next_attempt", "testapp_expense"."state_attempts", "testapp_expense"."state_failures", "testapp_expense"."state_crashes", "testapp_expense"."state_version", "testapp_expense"."state_claim", "testapp_expense"."state_life", "testapp_expense"."state_visit", "testapp_expense"."state", "testapp_expense"."submitter", "testapp_expense"."waits", "testapp_expense"."seen" FROM "testapp_expense" WHERE "testapp_expense"."id" = %s LIMIT 21

-- an event to one row
SELECT DISTINCT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE "testapp_expense"."id" = %s ORDER BY "testapp_expense"."id" ASC LIMIT 1000

-- an event to one row
SELECT "testapp_expense"."id" AS "pk", "testapp_expense"."state" AS "state", "testapp_expense"."state_attempts" AS "state_attempts", "testapp_expense"."state_version" AS "state_version", "testapp_expense"."state_life" AS "state_life", "testapp_expense"."state_visit" AS "state_visit" FROM "testapp_expense" WHERE ("testapp_expense"."id" = ANY(%s)) ORDER BY 1 ASC FOR NO KEY UPDATE

-- an event to one row
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."id" = %s AND ("testapp_expense"."id" = ANY(%s)))

-- an event to one row
INSERT INTO "stator_event" ("model_label", "object_pk", "name", "payload", "sender", "at", "version", "until", "source", "to", "key", "voter", "life") VALUES (%s, %s, %s, %s, %s, STATEMENT_TIMESTAMP(), %s, %s, %s, %s, %s, %s, %s) RETURNING "stator_event"."id", "stator_event"."at", "stator_event"."life"

-- an event to one row
INSERT INTO "stator_history" ("at", "worker", "duration", "error", "fingerprint", "log", "model_label", "to", "actor", "reason", "kind", "object_pk", "source", "version", "stay", "attempts", "claimed") SELECT STATEMENT_TIMESTAMP() AS "stator_at", %s AS "stator_worker", NULL AS "stator_duration", %s AS "stator_error", %s AS "stator_fingerprint", NULL AS "stator_log", %s AS "stator_model_label", %s AS "stator_to", %s AS "stator_actor", %s AS "stator_reason", %s AS "stator_kind", ("testapp_expense"."id")::varchar(255) AS "stator_object_pk", "testapp_expense"."state" AS "stator_source", ("testapp_expense"."state_version" + %s) AS "stator_version", EXTRACT(EPOCH FROM (STATEMENT_TIMESTAMP() - "testapp_expense"."state_changed")) AS "stator_stay", "testapp_expense"."state_attempts" AS "stator_attempts", "testapp_expense"."state_attempted" AS "stator_claimed" FROM "testapp_expense" WHERE "testapp_expense"."id" = %s

-- an event to one row
UPDATE "testapp_expense" SET "state" = %s, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("testapp_expense"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL WHERE ("testapp_expense"."id" = ANY(%s))

-- an event to one row
SELECT DISTINCT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."id" = %s AND "testapp_expense"."id" > %s) ORDER BY "testapp_expense"."id" ASC LIMIT 1000

-- an event to one row
SELECT "testapp_expense"."id", "testapp_expense"."state_ready", "testapp_expense"."state_changed", "testapp_expense"."state_attempted", "testapp_expense"."state_locked_until", "testapp_expense"."state_next_attempt", "testapp_expense"."state_attempts", "testapp_expense"."state_failures", "testapp_expense"."state_crashes", "testapp_expense"."state_version", "testapp_expense"."state_claim", "testapp_expense"."state_life", "testapp_expense"."state_visit", "testapp_expense"."state" FROM "testapp_expense" WHERE "testapp_expense"."id" = %s LIMIT 21

-- publish a task into a new batch
INSERT INTO "tasks_batch" ("state_ready", "state_next_attempt", "queue_id", "key", "on_done", "on_failed", "on_first_failure", "first_failure", "over_http", "counted", "created", "state") VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, STATEMENT_TIMESTAMP(), %s) RETURNING "tasks_batch"."id", "tasks_batch"."over_http", "tasks_batch"."created"

-- publish a task into a new batch
INSERT INTO "tasks_task" ("action", "data", "key", "priority", "metadata", "lease", "timeout", "max_attempts", "retention", "heartbeat_interval", "max_unexpected_retries", "worker_ids", "worker_count", "exclusive_value", "elsewhere_only", "state", "batch_id", "queue_id")
SELECT CAST(%s AS text), CAST(%s AS jsonb), CAST(NULL AS text), CAST(%s AS bigint), CAST('{}'::jsonb AS jsonb), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST(NULL AS double precision), CAST(NULL AS double precision), CAST(NULL AS integer), CAST('[]'::jsonb AS jsonb), CAST(1 AS integer), CAST(NULL AS text), CAST(false AS boolean), CAST('pending' AS text), CAST(%s AS bigint), CAST(%s AS bigint)
WHERE EXISTS (SELECT "tasks_queue"."id" AS "pk" FROM "tasks_queue" WHERE ("tasks_queue"."actions_elsewhere" AND "tasks_queue"."exclusive_key" = '' AND "tasks_queue"."invisible_for" IS NULL AND "tasks_queue"."kind" = 'simple' AND "tasks_queue"."max_attempts" IS NULL AND "tasks_queue"."name" = %s AND "tasks_queue"."id" = %s AND NOT "tasks_queue"."publish_paused") LIMIT 1)
ON CONFLICT DO NOTHING
RETURNING "tasks_task"."id", "tasks_task"."state_ready", "tasks_task"."state_changed", "tasks_task"."state_attempted", "tasks_task"."state_locked_until", "tasks_task"."state_next_attempt", "tasks_task"."state_attempts", "tasks_task"."state_failures", "tasks_task"."state_crashes", "tasks_task"."state_version", "tasks_task"."state_claim", "tasks_task"."state_life", "tasks_task"."state_visit", "tasks_task"."queue_id", "tasks_task"."action", "tasks_task"."data", "tasks_task"."key", "tasks_task"."priority", "tasks_task"."metadata", "tasks_task"."exclusive_value", "tasks_task"."lease", "tasks_task"."timeout", "tasks_task"."max_attempts", "tasks_task"."retention", "tasks_task"."heartbeat_interval", "tasks_task"."max_unexpected_retries", "tasks_task"."worker_ids", "tasks_task"."worker_count", "tasks_task"."shard", "tasks_task"."elsewhere_only", "tasks_task"."whole_id", "tasks_task"."batch_id", "tasks_task"."result", "tasks_task"."created", "tasks_task"."begun", "tasks_task"."notice_due", "tasks_task"."state"

-- publish a task into a new batch
SELECT "tasks_batch"."state" AS "state" FROM "tasks_batch" WHERE "tasks_batch"."id" = %s ORDER BY "tasks_batch"."id" ASC LIMIT 1 FOR NO KEY UPDATE

-- publish a task into a new batch
SELECT DISTINCT "tasks_batch"."id" AS "pk" FROM "tasks_batch" WHERE ("tasks_batch"."id" = %s AND "tasks_batch"."state" = %s) ORDER BY "tasks_batch"."id" ASC LIMIT 1000

-- publish a task into a new batch
SELECT "tasks_batch"."id" AS "pk", "tasks_batch"."state" AS "state", "tasks_batch"."state_attempts" AS "state_attempts", "tasks_batch"."state_version" AS "state_version", "tasks_batch"."state_life" AS "state_life", "tasks_batch"."state_visit" AS "state_visit" FROM "tasks_batch" WHERE ("tasks_batch"."id" = ANY(%s)) ORDER BY 1 ASC FOR NO KEY UPDATE

-- publish a task into a new batch
SELECT "tasks_batch"."id" AS "pk" FROM "tasks_batch" WHERE ("tasks_batch"."id" = %s AND "tasks_batch"."state" = %s AND ("tasks_batch"."id" = ANY(%s)))

-- publish a task into a new batch
INSERT INTO "stator_history" ("at", "worker", "duration", "error", "fingerprint", "log", "model_label", "to", "actor", "reason", "kind", "object_pk", "source", "version", "stay", "attempts", "claimed") SELECT STATEMENT_TIMESTAMP() AS "stator_at", %s AS "stator_worker", NULL AS "stator_duration", %s AS "stator_error", %s AS "stator_fingerprint", NULL AS "stator_log", %s AS "stator_model_label", %s AS "stator_to", %s AS "stator_actor", %s AS "stator_reason", %s AS "stator_kind", ("tasks_batch"."id")::varchar(255) AS "stator_object_pk", "tasks_batch"."state" AS "stator_source", ("tasks_batch"."state_version" + %s) AS "stator_version", EXTRACT(EPOCH FROM (STATEMENT_TIMESTAMP() - "tasks_batch"."state_changed")) AS "stator_stay", "tasks_batch"."state_attempts" AS "stator_attempts", "tasks_batch"."state_attempted" AS "stator_claimed" FROM "tasks_batch" WHERE "tasks_batch"."id" = %s

-- publish a task into a new batch
UPDATE "tasks_batch" SET "state" = %s, "state_changed" = STATEMENT_TIMESTAMP(), "state_attempted" = NULL, "state_ready" = %s, "state_next_attempt" = NULL, "state_attempts" = %s, "state_failures" = %s, "state_crashes" = %s, "state_version" = ("tasks_batch"."state_version" + %s), "state_claim" = NULL, "state_locked_until" = NULL WHERE ("tasks_batch"."id" = ANY(%s))

-- publish a task into a new batch
SELECT "tasks_batch"."id" AS "pk", "tasks_batch"."state" AS "state", "tasks_batch"."state_attempts" AS "state_attempts", "tasks_batch"."state_version" AS "state_version", "tasks_batch"."state_life" AS "state_life", "tasks_batch"."state_visit" AS "state_visit" FROM "tasks_batch" WHERE (NOT (EXISTS(SELECT %s AS "a" FROM "tasks_batch" U0 LEFT OUTER JOIN "tasks_task" U1 ON (U0."id" = U1."batch_id") WHERE (U0."id" = ("tasks_batch"."id") AND U1."state" IN (%s, %s) AND U1."state" IS NOT NULL) LIMIT 1)) AND NOT (EXISTS(SELECT %s AS "a" FROM "tasks_batch" U0 LEFT OUTER JOIN "tasks_task" U1 ON (U0."id" = U1."batch_id") WHERE (U0."id" = ("tasks_batch"."id") AND NOT (U1."state" IN (%s, %s, %s)) AND U1."state" IS NOT NULL) LIMIT 1)) AND "tasks_batch"."id" IN (%s) AND "tasks_batch"."state" = %s) ORDER BY 1 ASC

-- publish a task into a new batch
SELECT DISTINCT "tasks_batch"."id" AS "pk" FROM "tasks_batch" WHERE ("tasks_batch"."id" = %s AND "tasks_batch"."state" = %s AND "tasks_batch"."id" > %s) ORDER BY "tasks_batch"."id" ASC LIMIT 1000

-- publish a task into a new batch
SELECT "tasks_batch"."id", "tasks_batch"."state_ready", "tasks_batch"."state_changed", "tasks_batch"."state_attempted", "tasks_batch"."state_locked_until", "tasks_batch"."state_next_attempt", "tasks_batch"."state_attempts", "tasks_batch"."state_failures", "tasks_batch"."state_crashes", "tasks_batch"."state_version", "tasks_batch"."state_claim", "tasks_batch"."state_life", "tasks_batch"."state_visit", "tasks_batch"."queue_id", "tasks_batch"."key", "tasks_batch"."on_done", "tasks_batch"."on_failed", "tasks_batch"."on_first_failure", "tasks_batch"."first_failure", "tasks_batch"."over_http", "tasks_batch"."counted", "tasks_batch"."created", "tasks_batch"."state" FROM "tasks_batch" WHERE "tasks_batch"."id" = %s LIMIT 21
