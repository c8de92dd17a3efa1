-- events

-- poll
SELECT (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_crashes" = $3) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($4) AND "testapp_expense"."state_crashes" < $5 AND "testapp_expense"."state_crashes" > $6 AND "testapp_expense"."state_crashes" >= $7 AND "testapp_expense"."state_crashes" < $8) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($9) AND "testapp_expense"."state_crashes" < $10 AND "testapp_expense"."state_crashes" > $11 AND "testapp_expense"."state_crashes" >= $12 AND "testapp_expense"."state_crashes" < $13) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($14) AND "testapp_expense"."state_crashes" < $15 AND "testapp_expense"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($16) AND "testapp_expense"."state_crashes" < $17 AND "testapp_expense"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state" IN ($18, $19, $20, $21, $22, $23) AND "testapp_expense"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $24))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_expense"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($25) AND "testapp_expense"."state_crashes" < $26 AND "testapp_expense"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_expense"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $27))) ORDER BY "testapp_expense"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $28)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_expense" SET "state_ready" = $1 WHERE "testapp_expense"."id" IN ($2)

-- claim
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_crashes" = $3) ORDER BY COALESCE("testapp_expense"."state_next_attempt", "testapp_expense"."state_changed") ASC, "testapp_expense"."id" ASC LIMIT 100

-- claim
UPDATE "testapp_expense" SET "state_claim" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_expense"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_expense"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_expense"."state_attempts" ELSE ("testapp_expense"."state_attempts" + $4) END WHERE ("testapp_expense"."id" IN ($5) AND "testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready")

-- claim
SELECT "testapp_expense"."id" AS "id", "testapp_expense"."state_ready" AS "state_ready", "testapp_expense"."state_changed" AS "state_changed", "testapp_expense"."state_attempted" AS "state_attempted", "testapp_expense"."state_locked_until" AS "state_locked_until", "testapp_expense"."state_next_attempt" AS "state_next_attempt", "testapp_expense"."state_attempts" AS "state_attempts", "testapp_expense"."state_failures" AS "state_failures", "testapp_expense"."state_crashes" AS "state_crashes", "testapp_expense"."state_version" AS "state_version", "testapp_expense"."state_claim" AS "state_claim", "testapp_expense"."state_life" AS "state_life", "testapp_expense"."state_visit" AS "state_visit", "testapp_expense"."state" AS "state", "testapp_expense"."submitter" AS "submitter", "testapp_expense"."waits" AS "waits", "testapp_expense"."seen" AS "seen" FROM "testapp_expense" WHERE ("testapp_expense"."id" IN ($1) AND "testapp_expense"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND "testapp_expense"."state_ready" AND "testapp_expense"."state" IN ($1) AND "testapp_expense"."state_crashes" < $2 AND "testapp_expense"."state_crashes" > $3 AND "testapp_expense"."state_crashes" >= $4 AND "testapp_expense"."state_crashes" < $5) ORDER BY COALESCE("testapp_expense"."state_next_attempt", "testapp_expense"."state_changed") ASC, 1 ASC LIMIT 100

-- record approved to paid
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."id" IN ($1) AND "testapp_expense"."state" = $2 AND "testapp_expense"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record approved to paid
SELECT "testapp_expense"."id" AS "pk", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_expense"."state_changed")) * 86400000) AS INTEGER) * 1000 AS "elapsed1" FROM "testapp_expense" WHERE "testapp_expense"."id" IN ($1)

-- record approved to paid
UPDATE "testapp_expense" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_expense"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_expense"."id" IN ($7)

-- record approved to paid
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record approved to paid
INSERT INTO "stator_history" ("model_label", "object_pk", "at", "version", "kind", "source", "to", "actor", "reason", "worker", "claimed", "duration", "stay", "attempts", "error", "fingerprint", "log") VALUES ($1, $2, STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING "stator_history"."id", "stator_history"."at"

-- record approved to paid
SELECT "stator_event"."id", "stator_event"."model_label", "stator_event"."object_pk", "stator_event"."name", "stator_event"."payload", "stator_event"."sender", "stator_event"."at", "stator_event"."version", "stator_event"."until", "stator_event"."source", "stator_event"."to", "stator_event"."key", "stator_event"."voter", "stator_event"."life" FROM "stator_event" WHERE (NOT ("stator_event"."version" = $1 AND "stator_event"."version" IS NOT NULL) AND "stator_event"."model_label" = $2 AND "stator_event"."name" IN ($3) AND "stator_event"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "stator_event"."version" IS NULL AND "stator_event"."object_pk" IN ($4) AND "stator_event"."id" > $5) ORDER BY "stator_event"."id" ASC LIMIT 1000

-- record approved, attempted again
UPDATE "testapp_expense" SET "state_next_attempt" = CASE WHEN ("testapp_expense"."state_ready") THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) END, "state_failures" = $2, "state_crashes" = $3, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_expense"."id" IN ($4)

-- record approved, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record approved, released
UPDATE "testapp_expense" SET "state_ready" = $1, "state_attempts" = ("testapp_expense"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_expense"."id" IN ($3)

-- renew
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."id" IN ($1) AND "testapp_expense"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_expense" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_expense"."id" IN ($2)

-- extend
UPDATE "testapp_expense" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_expense"."id" = $2 AND "testapp_expense"."state" = $3 AND "testapp_expense"."state_claim" = $4)

-- undo a claim
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" = $1 AND "testapp_expense"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_expense"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NOT NULL AND "testapp_expense"."state" IN ($1, $2, $3, $4, $5, $6) AND "testapp_expense"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $7))) ORDER BY "testapp_expense"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_expense"."id" AS "pk", "testapp_expense"."state_claim" AS "state_claim" FROM "testapp_expense" WHERE "testapp_expense"."id" IN ($1)

-- time out
SELECT "testapp_expense"."id" AS "pk" FROM "testapp_expense" WHERE ("testapp_expense"."state_claim" IS NULL AND NOT "testapp_expense"."state_ready" AND "testapp_expense"."state" = $1 AND "testapp_expense"."state_changed" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2))) LIMIT 100

-- time out
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_expense"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_expense"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_expense" WHERE "testapp_expense"."id" IN ($1)

-- time out
INSERT INTO "stator_history" ("at", "actor", "claimed", "duration", "attempts", "error", "fingerprint", "log", "model_label", "to", "reason", "worker", "kind", "object_pk", "source", "version", "stay") SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') AS "stator_at", $1 AS "stator_actor", NULL AS "stator_claimed", NULL AS "stator_duration", $2 AS "stator_attempts", $3 AS "stator_error", $4 AS "stator_fingerprint", NULL AS "stator_log", $5 AS "stator_model_label", $6 AS "stator_to", $7 AS "stator_reason", $8 AS "stator_worker", $9 AS "stator_kind", CAST("testapp_expense"."id" AS varchar(255)) AS "stator_object_pk", "testapp_expense"."state" AS "stator_source", ("testapp_expense"."state_version" + $10) AS "stator_version", (CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_expense"."state_changed")) * 86400000) AS INTEGER) * 1000) / 1000000.0 AS "stator_stay" FROM "testapp_expense" WHERE "testapp_expense"."id" = $11
