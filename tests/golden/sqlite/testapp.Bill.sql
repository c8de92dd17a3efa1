-- a divided table

-- poll
SELECT (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3, $4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_crashes" = $6) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($7, $8, $9, $10) AND "testapp_bill"."state_crashes" < $11 AND "testapp_bill"."state_crashes" > $12 AND "testapp_bill"."state_crashes" >= $13 AND "testapp_bill"."state_crashes" < $14) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($15, $16, $17, $18) AND "testapp_bill"."state_crashes" < $19 AND "testapp_bill"."state_crashes" > $20 AND "testapp_bill"."state_crashes" >= $21 AND "testapp_bill"."state_crashes" < $22) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($23, $24, $25, $26) AND "testapp_bill"."state_crashes" < $27 AND "testapp_bill"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($28, $29, $30, $31) AND "testapp_bill"."state_crashes" < $32 AND "testapp_bill"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state" IN ($33, $34, $35, $36, $37, $38, $39) AND "testapp_bill"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $40))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_bill"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($41) AND "testapp_bill"."state_crashes" < $42 AND "testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_bill"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $43))) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_bill"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($44) AND "testapp_bill"."state_crashes" < $45 AND "testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_bill"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $46))) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_bill"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($47) AND "testapp_bill"."state_crashes" < $48 AND "testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_bill"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $49))) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_bill"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($50) AND "testapp_bill"."state_crashes" < $51 AND "testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_bill"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $52))) ORDER BY "testapp_bill"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $53)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3, $4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3, $4) AND "testapp_bill"."state_crashes" < $5 AND "testapp_bill"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_bill" SET "state_ready" = $1 WHERE "testapp_bill"."id" IN ($2)

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) ORDER BY "stator_limit"."id" ASC LIMIT 1

-- claim
INSERT OR IGNORE INTO "stator_limit" ("model_label", "state") VALUES ($1, $2)

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) LIMIT 21

-- claim
SELECT "testapp_bill"."tenant_id" AS "tenant" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3) AND "testapp_bill"."state_crashes" < $4 AND "testapp_bill"."state_crashes" = $5) ORDER BY 1 ASC, COALESCE("testapp_bill"."state_next_attempt", "testapp_bill"."state_changed") ASC, "testapp_bill"."id" ASC LIMIT 1

-- claim rows with few lost leases
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready" AND "testapp_bill"."state" IN ($1, $2, $3) AND "testapp_bill"."state_crashes" < $4 AND "testapp_bill"."state_crashes" > $5 AND "testapp_bill"."state_crashes" >= $6 AND "testapp_bill"."state_crashes" < $7) ORDER BY COALESCE("testapp_bill"."state_next_attempt", "testapp_bill"."state_changed") ASC, 1 ASC LIMIT 100

-- claim rows with few lost leases
UPDATE "testapp_bill" SET "state_claim" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_bill"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_bill"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_bill"."state_attempts" ELSE ("testapp_bill"."state_attempts" + $4) END WHERE ("testapp_bill"."id" IN ($5) AND "testapp_bill"."state_claim" IS NULL AND "testapp_bill"."state_ready")

-- claim rows with few lost leases
SELECT "testapp_bill"."id" AS "id", "testapp_bill"."state_ready" AS "state_ready", "testapp_bill"."state_changed" AS "state_changed", "testapp_bill"."state_attempted" AS "state_attempted", "testapp_bill"."state_locked_until" AS "state_locked_until", "testapp_bill"."state_next_attempt" AS "state_next_attempt", "testapp_bill"."state_attempts" AS "state_attempts", "testapp_bill"."state_failures" AS "state_failures", "testapp_bill"."state_crashes" AS "state_crashes", "testapp_bill"."state_version" AS "state_version", "testapp_bill"."state_claim" AS "state_claim", "testapp_bill"."state_life" AS "state_life", "testapp_bill"."state_visit" AS "state_visit", "testapp_bill"."tenant_id" AS "tenant_id", "testapp_bill"."state" AS "state" FROM "testapp_bill" WHERE ("testapp_bill"."id" IN ($1) AND "testapp_bill"."state_claim" = $2)

-- record narrow to done
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."id" IN ($1) AND "testapp_bill"."state" = $2 AND "testapp_bill"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record narrow to done
SELECT "testapp_bill"."id" AS "pk", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_bill"."state_changed")) * 86400000) AS INTEGER) * 1000 AS "elapsed1" FROM "testapp_bill" WHERE "testapp_bill"."id" IN ($1)

-- record narrow to done
UPDATE "testapp_bill" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_bill"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_bill"."id" IN ($7)

-- record narrow to done
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record narrow to done
INSERT INTO "stator_history" ("model_label", "object_pk", "at", "version", "kind", "source", "to", "actor", "reason", "worker", "claimed", "duration", "stay", "attempts", "error", "fingerprint", "log") VALUES ($1, $2, STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING "stator_history"."id", "stator_history"."at"

-- record narrow, attempted again
UPDATE "testapp_bill" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_bill"."id" IN ($5)

-- record narrow, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record narrow, released
UPDATE "testapp_bill" SET "state_ready" = $1, "state_attempts" = ("testapp_bill"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_bill"."id" IN ($3)

-- renew
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."id" IN ($1) AND "testapp_bill"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_bill" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_bill"."id" IN ($2)

-- extend
UPDATE "testapp_bill" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_bill"."id" = $2 AND "testapp_bill"."state" = $3 AND "testapp_bill"."state_claim" = $4)

-- undo a claim
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" = $1 AND "testapp_bill"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_bill"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NOT NULL AND "testapp_bill"."state" IN ($1, $2, $3, $4, $5, $6, $7) AND "testapp_bill"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $8))) ORDER BY "testapp_bill"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_bill"."id" AS "pk", "testapp_bill"."state_claim" AS "state_claim" FROM "testapp_bill" WHERE "testapp_bill"."id" IN ($1)

-- time out
SELECT "testapp_bill"."id" AS "pk" FROM "testapp_bill" WHERE ("testapp_bill"."state_claim" IS NULL AND NOT "testapp_bill"."state_ready" AND "testapp_bill"."state" = $1 AND "testapp_bill"."state_changed" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2))) LIMIT 100

-- time out
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_bill"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_bill"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_bill" WHERE "testapp_bill"."id" IN ($1)

-- time out
INSERT INTO "stator_history" ("at", "actor", "claimed", "duration", "attempts", "error", "fingerprint", "log", "model_label", "to", "reason", "worker", "kind", "object_pk", "source", "version", "stay") SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') AS "stator_at", $1 AS "stator_actor", NULL AS "stator_claimed", NULL AS "stator_duration", $2 AS "stator_attempts", $3 AS "stator_error", $4 AS "stator_fingerprint", NULL AS "stator_log", $5 AS "stator_model_label", $6 AS "stator_to", $7 AS "stator_reason", $8 AS "stator_worker", $9 AS "stator_kind", CAST("testapp_bill"."id" AS varchar(255)) AS "stator_object_pk", "testapp_bill"."state" AS "stator_source", ("testapp_bill"."state_version" + $10) AS "stator_version", (CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_bill"."state_changed")) * 86400000) AS INTEGER) * 1000) / 1000000.0 AS "stator_stay" FROM "testapp_bill" WHERE "testapp_bill"."id" = $11
