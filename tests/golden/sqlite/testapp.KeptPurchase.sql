-- history, and steps

-- poll
SELECT (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_crashes" = $6) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($7, $8, $9, $10) AND "testapp_keptpurchase"."state_crashes" < $11 AND "testapp_keptpurchase"."state_crashes" > $12 AND "testapp_keptpurchase"."state_crashes" >= $13 AND "testapp_keptpurchase"."state_crashes" < $14) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($15, $16, $17, $18) AND "testapp_keptpurchase"."state_crashes" < $19 AND "testapp_keptpurchase"."state_crashes" > $20 AND "testapp_keptpurchase"."state_crashes" >= $21 AND "testapp_keptpurchase"."state_crashes" < $22) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($23, $24, $25, $26) AND "testapp_keptpurchase"."state_crashes" < $27 AND "testapp_keptpurchase"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($28, $29, $30, $31) AND "testapp_keptpurchase"."state_crashes" < $32 AND "testapp_keptpurchase"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state" IN ($33, $34, $35, $36, $37) AND "testapp_keptpurchase"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $38))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_keptpurchase"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($39) AND "testapp_keptpurchase"."state_crashes" < $40 AND "testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_keptpurchase"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $41))) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_keptpurchase"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($42) AND "testapp_keptpurchase"."state_crashes" < $43 AND "testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_keptpurchase"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $44))) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_keptpurchase"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($45) AND "testapp_keptpurchase"."state_crashes" < $46 AND "testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_keptpurchase"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $47))) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_keptpurchase"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($48) AND "testapp_keptpurchase"."state_crashes" < $49 AND "testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_keptpurchase"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $50))) ORDER BY "testapp_keptpurchase"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $51)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND NOT "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_keptpurchase" SET "state_ready" = $1 WHERE "testapp_keptpurchase"."id" IN ($2)

-- claim
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_crashes" = $6) ORDER BY COALESCE("testapp_keptpurchase"."state_next_attempt", "testapp_keptpurchase"."state_changed") ASC, "testapp_keptpurchase"."id" ASC LIMIT 100

-- claim
UPDATE "testapp_keptpurchase" SET "state_claim" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_keptpurchase"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_keptpurchase"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_keptpurchase"."state_attempts" ELSE ("testapp_keptpurchase"."state_attempts" + $4) END WHERE ("testapp_keptpurchase"."id" IN ($5) AND "testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready")

-- claim
SELECT "testapp_keptpurchase"."id" AS "id", "testapp_keptpurchase"."state_ready" AS "state_ready", "testapp_keptpurchase"."state_changed" AS "state_changed", "testapp_keptpurchase"."state_attempted" AS "state_attempted", "testapp_keptpurchase"."state_locked_until" AS "state_locked_until", "testapp_keptpurchase"."state_next_attempt" AS "state_next_attempt", "testapp_keptpurchase"."state_attempts" AS "state_attempts", "testapp_keptpurchase"."state_failures" AS "state_failures", "testapp_keptpurchase"."state_crashes" AS "state_crashes", "testapp_keptpurchase"."state_version" AS "state_version", "testapp_keptpurchase"."state_claim" AS "state_claim", "testapp_keptpurchase"."state_life" AS "state_life", "testapp_keptpurchase"."state_visit" AS "state_visit", "testapp_keptpurchase"."state" AS "state", "testapp_keptpurchase"."script" AS "script" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."id" IN ($1) AND "testapp_keptpurchase"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NULL AND "testapp_keptpurchase"."state_ready" AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4) AND "testapp_keptpurchase"."state_crashes" < $5 AND "testapp_keptpurchase"."state_crashes" > $6 AND "testapp_keptpurchase"."state_crashes" >= $7 AND "testapp_keptpurchase"."state_crashes" < $8) ORDER BY COALESCE("testapp_keptpurchase"."state_next_attempt", "testapp_keptpurchase"."state_changed") ASC, 1 ASC LIMIT 100

-- record heaped to done
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."id" IN ($1) AND "testapp_keptpurchase"."state" = $2 AND "testapp_keptpurchase"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record heaped to done
SELECT "testapp_keptpurchase"."id" AS "pk", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_keptpurchase"."state_changed")) * 86400000) AS INTEGER) * 1000 AS "elapsed1" FROM "testapp_keptpurchase" WHERE "testapp_keptpurchase"."id" IN ($1)

-- record heaped to done
UPDATE "testapp_keptpurchase" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_keptpurchase"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_keptpurchase"."id" IN ($7)

-- record heaped to done
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record heaped to done
INSERT INTO "stator_history" ("model_label", "object_pk", "at", "version", "kind", "source", "to", "actor", "reason", "worker", "claimed", "duration", "stay", "attempts", "error", "fingerprint", "log") VALUES ($1, $2, STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING "stator_history"."id", "stator_history"."at"

-- record heaped, attempted again
UPDATE "testapp_keptpurchase" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_keptpurchase"."id" IN ($5)

-- record heaped, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record heaped, released
UPDATE "testapp_keptpurchase" SET "state_ready" = $1, "state_attempts" = ("testapp_keptpurchase"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_keptpurchase"."id" IN ($3)

-- renew
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."id" IN ($1) AND "testapp_keptpurchase"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_keptpurchase" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_keptpurchase"."id" IN ($2)

-- extend
UPDATE "testapp_keptpurchase" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_keptpurchase"."id" = $2 AND "testapp_keptpurchase"."state" = $3 AND "testapp_keptpurchase"."state_claim" = $4)

-- undo a claim
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" = $1 AND "testapp_keptpurchase"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_keptpurchase"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_keptpurchase"."id" AS "pk" FROM "testapp_keptpurchase" WHERE ("testapp_keptpurchase"."state_claim" IS NOT NULL AND "testapp_keptpurchase"."state" IN ($1, $2, $3, $4, $5) AND "testapp_keptpurchase"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $6))) ORDER BY "testapp_keptpurchase"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_keptpurchase"."id" AS "pk", "testapp_keptpurchase"."state_claim" AS "state_claim" FROM "testapp_keptpurchase" WHERE "testapp_keptpurchase"."id" IN ($1)
