-- fields that outcomes save

-- poll
SELECT (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_crashes" = $3) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($4) AND "testapp_measure"."state_crashes" < $5 AND "testapp_measure"."state_crashes" > $6 AND "testapp_measure"."state_crashes" >= $7 AND "testapp_measure"."state_crashes" < $8) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($9) AND "testapp_measure"."state_crashes" < $10 AND "testapp_measure"."state_crashes" > $11 AND "testapp_measure"."state_crashes" >= $12 AND "testapp_measure"."state_crashes" < $13) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($14) AND "testapp_measure"."state_crashes" < $15 AND "testapp_measure"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($16) AND "testapp_measure"."state_crashes" < $17 AND "testapp_measure"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state" IN ($18, $19, $20) AND "testapp_measure"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $21))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_measure"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($22) AND "testapp_measure"."state_crashes" < $23 AND "testapp_measure"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_measure"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $24))) ORDER BY "testapp_measure"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $25)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND NOT "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_measure" SET "state_ready" = $1 WHERE "testapp_measure"."id" IN ($2)

-- claim
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_crashes" = $3) ORDER BY COALESCE("testapp_measure"."state_next_attempt", "testapp_measure"."state_changed") ASC, "testapp_measure"."id" ASC LIMIT 100

-- claim
UPDATE "testapp_measure" SET "state_claim" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_measure"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_measure"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_measure"."state_attempts" ELSE ("testapp_measure"."state_attempts" + $4) END WHERE ("testapp_measure"."id" IN ($5) AND "testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready")

-- claim
SELECT "testapp_measure"."id" AS "id", "testapp_measure"."state_ready" AS "state_ready", "testapp_measure"."state_changed" AS "state_changed", "testapp_measure"."state_attempted" AS "state_attempted", "testapp_measure"."state_locked_until" AS "state_locked_until", "testapp_measure"."state_next_attempt" AS "state_next_attempt", "testapp_measure"."state_attempts" AS "state_attempts", "testapp_measure"."state_failures" AS "state_failures", "testapp_measure"."state_crashes" AS "state_crashes", "testapp_measure"."state_version" AS "state_version", "testapp_measure"."state_claim" AS "state_claim", "testapp_measure"."state_life" AS "state_life", "testapp_measure"."state_visit" AS "state_visit", "testapp_measure"."state" AS "state", "testapp_measure"."deed" AS "deed", "testapp_measure"."size" AS "size", "testapp_measure"."found" AS "found", "testapp_measure"."label" AS "label", "testapp_measure"."due" AS "due", "testapp_measure"."twin_id" AS "twin_id", "testapp_measure"."not_saved" AS "not_saved" FROM "testapp_measure" WHERE ("testapp_measure"."id" IN ($1) AND "testapp_measure"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NULL AND "testapp_measure"."state_ready" AND "testapp_measure"."state" IN ($1) AND "testapp_measure"."state_crashes" < $2 AND "testapp_measure"."state_crashes" > $3 AND "testapp_measure"."state_crashes" >= $4 AND "testapp_measure"."state_crashes" < $5) ORDER BY COALESCE("testapp_measure"."state_next_attempt", "testapp_measure"."state_changed") ASC, 1 ASC LIMIT 100

-- record new to done
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."id" IN ($1) AND "testapp_measure"."state" = $2 AND "testapp_measure"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record new to done
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_measure"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_measure"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_measure" WHERE "testapp_measure"."id" IN ($1)

-- record new to done
UPDATE "testapp_measure" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_measure"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_measure"."id" IN ($7)

-- record new to done
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record new to failed
UPDATE "testapp_measure" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_measure"."state_visit" >> $1) = ("testapp_measure"."state_version" & $2)) THEN ("testapp_measure"."state_visit" & $3) ELSE $4 END < $5 AND "testapp_measure"."state" = $6) THEN ((((("testapp_measure"."state_version" + $7) & $8) * $9) + ((CASE WHEN (("testapp_measure"."state_visit" >> $10) = ("testapp_measure"."state_version" & $11)) THEN ("testapp_measure"."state_visit" & $12) ELSE $13 END + $14) * $15)) + $16) ELSE NULL END, "state" = $17, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $18, "state_next_attempt" = NULL, "state_attempts" = $19, "state_failures" = $20, "state_crashes" = $21, "state_version" = ("testapp_measure"."state_version" + $22), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_measure"."id" IN ($23)

-- record new, attempted again
UPDATE "testapp_measure" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_measure"."id" IN ($5)

-- record new, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record new, released
UPDATE "testapp_measure" SET "state_ready" = $1, "state_attempts" = ("testapp_measure"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_measure"."id" IN ($3)

-- renew
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."id" IN ($1) AND "testapp_measure"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_measure" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_measure"."id" IN ($2)

-- extend
UPDATE "testapp_measure" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_measure"."id" = $2 AND "testapp_measure"."state" = $3 AND "testapp_measure"."state_claim" = $4)

-- undo a claim
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" = $1 AND "testapp_measure"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_measure"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_measure"."id" AS "pk" FROM "testapp_measure" WHERE ("testapp_measure"."state_claim" IS NOT NULL AND "testapp_measure"."state" IN ($1, $2, $3) AND "testapp_measure"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $4))) ORDER BY "testapp_measure"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_measure"."id" AS "pk", "testapp_measure"."state_claim" AS "state_claim" FROM "testapp_measure" WHERE "testapp_measure"."id" IN ($1)
