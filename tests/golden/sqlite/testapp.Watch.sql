-- timeouts by dates, of a column and of an expression

-- poll
SELECT (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $1 AND "testapp_watch"."state_claim" IS NULL AND "testapp_watch"."alert_after" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $2 AND "testapp_watch"."state_claim" IS NULL AND (django_format_dtdelta('+', (django_format_dtdelta('+', "testapp_watch"."alert_after", "testapp_watch"."kept_for")), 3600000000)) <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1) OR EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state" IN ($3, $4, $5) AND "testapp_watch"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $6))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_watch"."alert_after") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $7 AND "testapp_watch"."state_claim" IS NULL AND "testapp_watch"."alert_after" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $8)) AND "testapp_watch"."alert_after" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_watch"."alert_after" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY((django_format_dtdelta('+', (django_format_dtdelta('+', "testapp_watch"."alert_after", "testapp_watch"."kept_for")), 3600000000))) - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $9 AND "testapp_watch"."state_claim" IS NULL AND (django_format_dtdelta('+', (django_format_dtdelta('+', "testapp_watch"."alert_after", "testapp_watch"."kept_for")), 3600000000)) <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $10)) AND (django_format_dtdelta('+', (django_format_dtdelta('+', "testapp_watch"."alert_after", "testapp_watch"."kept_for")), 3600000000)) > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY (django_format_dtdelta('+', (django_format_dtdelta('+', "testapp_watch"."alert_after", "testapp_watch"."kept_for")), 3600000000)) ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $11)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
UPDATE "testapp_watch" SET "state_ready" = $1 WHERE "testapp_watch"."id" IN ($2)

-- reap
SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_watch"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state_claim" IS NOT NULL AND "testapp_watch"."state" IN ($1, $2, $3) AND "testapp_watch"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $4))) ORDER BY "testapp_watch"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_watch"."id" AS "pk", "testapp_watch"."state_claim" AS "state_claim" FROM "testapp_watch" WHERE "testapp_watch"."id" IN ($1)

-- time out
SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $1 AND "testapp_watch"."state_claim" IS NULL AND "testapp_watch"."alert_after" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- time out
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_watch"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_watch"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_watch" WHERE "testapp_watch"."id" IN ($1)

-- time out
INSERT INTO "stator_history" ("at", "actor", "claimed", "duration", "attempts", "error", "fingerprint", "log", "model_label", "to", "reason", "worker", "kind", "object_pk", "source", "version", "stay") SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') AS "stator_at", $1 AS "stator_actor", NULL AS "stator_claimed", NULL AS "stator_duration", $2 AS "stator_attempts", $3 AS "stator_error", $4 AS "stator_fingerprint", NULL AS "stator_log", $5 AS "stator_model_label", $6 AS "stator_to", $7 AS "stator_reason", $8 AS "stator_worker", $9 AS "stator_kind", CAST("testapp_watch"."id" AS varchar(255)) AS "stator_object_pk", "testapp_watch"."state" AS "stator_source", ("testapp_watch"."state_version" + $10) AS "stator_version", (CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_watch"."state_changed")) * 86400000) AS INTEGER) * 1000) / 1000000.0 AS "stator_stay" FROM "testapp_watch" WHERE "testapp_watch"."id" = $11

-- time out
UPDATE "testapp_watch" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_watch"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_watch"."id" IN ($7)

-- time out
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- time out
SELECT "testapp_watch"."id" AS "pk" FROM "testapp_watch" WHERE ("testapp_watch"."state" = $1 AND "testapp_watch"."state_claim" IS NULL AND (django_format_dtdelta('+', (django_format_dtdelta('+', "testapp_watch"."alert_after", "testapp_watch"."kept_for")), 3600000000)) <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100
