-- an ordinary model, with a timeout and a deletion

-- poll
SELECT (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_crashes" = $6) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($7, $8, $9, $10) AND "testapp_step"."state_crashes" < $11 AND "testapp_step"."state_crashes" > $12 AND "testapp_step"."state_crashes" >= $13 AND "testapp_step"."state_crashes" < $14) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($15, $16, $17, $18) AND "testapp_step"."state_crashes" < $19 AND "testapp_step"."state_crashes" > $20 AND "testapp_step"."state_crashes" >= $21 AND "testapp_step"."state_crashes" < $22) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($23, $24, $25, $26) AND "testapp_step"."state_crashes" < $27 AND "testapp_step"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($28, $29, $30, $31) AND "testapp_step"."state_crashes" < $32 AND "testapp_step"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state" IN ($33, $34, $35, $36, $37, $38, $39, $40) AND "testapp_step"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $41))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_step"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($42) AND "testapp_step"."state_crashes" < $43 AND "testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_step"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $44))) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_step"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($45) AND "testapp_step"."state_crashes" < $46 AND "testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_step"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $47))) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_step"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($48) AND "testapp_step"."state_crashes" < $49 AND "testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_step"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $50))) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_step"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($51) AND "testapp_step"."state_crashes" < $52 AND "testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_step"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $53))) ORDER BY "testapp_step"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $54)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_step" SET "state_ready" = $1 WHERE "testapp_step"."id" IN ($2)

-- claim
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_crashes" = $6) ORDER BY COALESCE("testapp_step"."state_next_attempt", "testapp_step"."state_changed") ASC, "testapp_step"."id" ASC LIMIT 100

-- claim
UPDATE "testapp_step" SET "state_claim" = CASE WHEN ("testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE CASE WHEN ("testapp_step"."state" = $2) THEN (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $3)) ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $4)) END END, "state_ready" = $5, "state_attempted" = CASE WHEN ("testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_step"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_step"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_step"."state_attempts" ELSE ("testapp_step"."state_attempts" + $6) END WHERE ("testapp_step"."id" IN ($7) AND "testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready")

-- claim
SELECT "testapp_step"."id" AS "id", "testapp_step"."state_ready" AS "state_ready", "testapp_step"."state_changed" AS "state_changed", "testapp_step"."state_attempted" AS "state_attempted", "testapp_step"."state_locked_until" AS "state_locked_until", "testapp_step"."state_next_attempt" AS "state_next_attempt", "testapp_step"."state_attempts" AS "state_attempts", "testapp_step"."state_failures" AS "state_failures", "testapp_step"."state_crashes" AS "state_crashes", "testapp_step"."state_version" AS "state_version", "testapp_step"."state_claim" AS "state_claim", "testapp_step"."state_life" AS "state_life", "testapp_step"."state_visit" AS "state_visit", "testapp_step"."state" AS "state", "testapp_step"."name" AS "name" FROM "testapp_step" WHERE ("testapp_step"."id" IN ($1) AND "testapp_step"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND "testapp_step"."state_ready" AND "testapp_step"."state" IN ($1, $2, $3, $4) AND "testapp_step"."state_crashes" < $5 AND "testapp_step"."state_crashes" > $6 AND "testapp_step"."state_crashes" >= $7 AND "testapp_step"."state_crashes" < $8) ORDER BY COALESCE("testapp_step"."state_next_attempt", "testapp_step"."state_changed") ASC, 1 ASC LIMIT 100

-- record late to done
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."id" IN ($1) AND "testapp_step"."state" = $2 AND "testapp_step"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record late to done
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_step"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_step"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_step" WHERE "testapp_step"."id" IN ($1)

-- record late to done
UPDATE "testapp_step" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_step"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_step"."id" IN ($7)

-- record late to done
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record late, attempted again
UPDATE "testapp_step" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_step"."id" IN ($5)

-- record late, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record late, released
UPDATE "testapp_step" SET "state_ready" = $1, "state_attempts" = ("testapp_step"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_step"."id" IN ($3)

-- record new to failed
UPDATE "testapp_step" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_step"."state_visit" >> $1) = ("testapp_step"."state_version" & $2)) THEN ("testapp_step"."state_visit" & $3) ELSE $4 END < $5 AND "testapp_step"."state" = $6) THEN ((((("testapp_step"."state_version" + $7) & $8) * $9) + ((CASE WHEN (("testapp_step"."state_visit" >> $10) = ("testapp_step"."state_version" & $11)) THEN ("testapp_step"."state_visit" & $12) ELSE $13 END + $14) * $15)) + $16) ELSE NULL END, "state" = $17, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $18, "state_next_attempt" = NULL, "state_attempts" = $19, "state_failures" = $20, "state_crashes" = $21, "state_version" = ("testapp_step"."state_version" + $22), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_step"."id" IN ($23)

-- record new to late
UPDATE "testapp_step" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $3)), "state_attempts" = $4, "state_failures" = $5, "state_crashes" = $6, "state_version" = ("testapp_step"."state_version" + $7), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_step"."id" IN ($8)

-- renew
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."id" IN ($1) AND "testapp_step"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_step" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_step"."id" IN ($2)

-- extend
UPDATE "testapp_step" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_step"."id" = $2 AND "testapp_step"."state" = $3 AND "testapp_step"."state_claim" = $4)

-- undo a claim
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" = $1 AND "testapp_step"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_step"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NOT NULL AND "testapp_step"."state" IN ($1, $2, $3, $4, $5, $6, $7, $8) AND "testapp_step"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $9))) ORDER BY "testapp_step"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_step"."id" AS "pk", "testapp_step"."state_claim" AS "state_claim" FROM "testapp_step" WHERE "testapp_step"."id" IN ($1)

-- time out
SELECT "testapp_step"."id" AS "pk" FROM "testapp_step" WHERE ("testapp_step"."state_claim" IS NULL AND NOT "testapp_step"."state_ready" AND "testapp_step"."state" = $1 AND "testapp_step"."state_changed" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2))) LIMIT 100
