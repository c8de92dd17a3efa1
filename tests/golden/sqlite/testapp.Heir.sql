-- two tables, by inheritance

-- poll
SELECT (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_crashes" = $4) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($5, $6) AND "testapp_heir"."state_crashes" < $7 AND "testapp_heir"."state_crashes" > $8 AND "testapp_heir"."state_crashes" >= $9 AND "testapp_heir"."state_crashes" < $10) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($11, $12) AND "testapp_heir"."state_crashes" < $13 AND "testapp_heir"."state_crashes" > $14 AND "testapp_heir"."state_crashes" >= $15 AND "testapp_heir"."state_crashes" < $16) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($17, $18) AND "testapp_heir"."state_crashes" < $19 AND "testapp_heir"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($20, $21) AND "testapp_heir"."state_crashes" < $22 AND "testapp_heir"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state" IN ($23, $24, $25) AND "testapp_heir"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $26))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_heir"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($27) AND "testapp_heir"."state_crashes" < $28 AND "testapp_heir"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_heir"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $29))) ORDER BY "testapp_heir"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_heir"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($30) AND "testapp_heir"."state_crashes" < $31 AND "testapp_heir"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_heir"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $32))) ORDER BY "testapp_heir"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $33)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND NOT "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_heir" SET "state_ready" = $1 WHERE "testapp_heir"."plain_ptr_id" IN ($2)

-- claim
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_crashes" = $4) ORDER BY COALESCE("testapp_heir"."state_next_attempt", "testapp_heir"."state_changed") ASC, "testapp_heir"."plain_ptr_id" ASC LIMIT 100

-- claim
UPDATE "testapp_heir" SET "state_claim" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_heir"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_heir"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_heir"."state_attempts" ELSE ("testapp_heir"."state_attempts" + $4) END WHERE ("testapp_heir"."plain_ptr_id" IN ($5) AND "testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready")

-- claim
SELECT "testapp_heir"."plain_ptr_id" AS "id", "testapp_plain"."title" AS "title", "testapp_heir"."plain_ptr_id" AS "plain_ptr_id", "testapp_heir"."state_ready" AS "state_ready", "testapp_heir"."state_changed" AS "state_changed", "testapp_heir"."state_attempted" AS "state_attempted", "testapp_heir"."state_locked_until" AS "state_locked_until", "testapp_heir"."state_next_attempt" AS "state_next_attempt", "testapp_heir"."state_attempts" AS "state_attempts", "testapp_heir"."state_failures" AS "state_failures", "testapp_heir"."state_crashes" AS "state_crashes", "testapp_heir"."state_version" AS "state_version", "testapp_heir"."state_claim" AS "state_claim", "testapp_heir"."state_life" AS "state_life", "testapp_heir"."state_visit" AS "state_visit", "testapp_heir"."state" AS "state", "testapp_heir"."note" AS "note" FROM "testapp_heir" INNER JOIN "testapp_plain" ON ("testapp_heir"."plain_ptr_id" = "testapp_plain"."id") WHERE ("testapp_heir"."plain_ptr_id" IN ($1) AND "testapp_heir"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NULL AND "testapp_heir"."state_ready" AND "testapp_heir"."state" IN ($1, $2) AND "testapp_heir"."state_crashes" < $3 AND "testapp_heir"."state_crashes" > $4 AND "testapp_heir"."state_crashes" >= $5 AND "testapp_heir"."state_crashes" < $6) ORDER BY COALESCE("testapp_heir"."state_next_attempt", "testapp_heir"."state_changed") ASC, 1 ASC LIMIT 100

-- record first to second
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."plain_ptr_id" IN ($1) AND "testapp_heir"."state" = $2 AND "testapp_heir"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record first to second
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_heir"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_heir"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_heir" WHERE "testapp_heir"."plain_ptr_id" IN ($1)

-- record first to second
UPDATE "testapp_heir" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_heir"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_heir"."plain_ptr_id" IN ($7)

-- record first to second
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record first, attempted again
UPDATE "testapp_heir" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_heir"."plain_ptr_id" IN ($5)

-- record first, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record first, released
UPDATE "testapp_heir" SET "state_ready" = $1, "state_attempts" = ("testapp_heir"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_heir"."plain_ptr_id" IN ($3)

-- renew
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."plain_ptr_id" IN ($1) AND "testapp_heir"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_heir" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_heir"."plain_ptr_id" IN ($2)

-- extend
UPDATE "testapp_heir" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_heir"."plain_ptr_id" = $2 AND "testapp_heir"."state" = $3 AND "testapp_heir"."state_claim" = $4)

-- undo a claim
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" = $1 AND "testapp_heir"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_heir"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_heir"."plain_ptr_id" AS "pk" FROM "testapp_heir" WHERE ("testapp_heir"."state_claim" IS NOT NULL AND "testapp_heir"."state" IN ($1, $2, $3) AND "testapp_heir"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $4))) ORDER BY "testapp_heir"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_heir"."plain_ptr_id" AS "pk", "testapp_heir"."state_claim" AS "state_claim" FROM "testapp_heir" WHERE "testapp_heir"."plain_ptr_id" IN ($1)
