-- waits for related objects

-- poll
SELECT (EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($1, $2) AND "testapp_rollout"."state_crashes" < $3 AND "testapp_rollout"."state_crashes" = $4) LIMIT 1)), (EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($5, $6) AND "testapp_rollout"."state_crashes" < $7 AND "testapp_rollout"."state_crashes" > $8 AND "testapp_rollout"."state_crashes" >= $9 AND "testapp_rollout"."state_crashes" < $10) LIMIT 1)), (EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($11, $12) AND "testapp_rollout"."state_crashes" < $13 AND "testapp_rollout"."state_crashes" > $14 AND "testapp_rollout"."state_crashes" >= $15 AND "testapp_rollout"."state_crashes" < $16) LIMIT 1)), (EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($17, $18) AND "testapp_rollout"."state_crashes" < $19 AND "testapp_rollout"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($20, $21) AND "testapp_rollout"."state_crashes" < $22 AND "testapp_rollout"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NOT NULL AND "testapp_rollout"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NOT NULL AND "testapp_rollout"."state" IN ($23, $24, $25, $26) AND "testapp_rollout"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $27))) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_rollout"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($28) AND "testapp_rollout"."state_crashes" < $29 AND "testapp_rollout"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_rollout"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $30))) ORDER BY "testapp_rollout"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_rollout"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($31) AND "testapp_rollout"."state_crashes" < $32 AND "testapp_rollout"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_rollout"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $33))) ORDER BY "testapp_rollout"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $34)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($1, $2) AND "testapp_rollout"."state_crashes" < $3 AND "testapp_rollout"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($1, $2) AND "testapp_rollout"."state_crashes" < $3 AND "testapp_rollout"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_rollout" SET "state_ready" = $1 WHERE "testapp_rollout"."id" IN ($2)

-- claim
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($1, $2) AND "testapp_rollout"."state_crashes" < $3 AND "testapp_rollout"."state_crashes" = $4) ORDER BY COALESCE("testapp_rollout"."state_next_attempt", "testapp_rollout"."state_changed") ASC, "testapp_rollout"."id" ASC LIMIT 100

-- claim
SELECT "testapp_rollout"."id" AS "pk", "testapp_rollout"."build_id" AS "build__pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."id" IN ($1) AND EXISTS(SELECT $2 AS "a" FROM "testapp_build" U0 WHERE (NOT (U0."state" IN ($3, $4)) AND U0."id" = ("testapp_rollout"."build_id")) LIMIT 1))

-- claim
SELECT "testapp_rollout"."id" AS "pk", "testapp_rollout"."after_id" AS "after__pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."id" IN ($1) AND EXISTS(SELECT $2 AS "a" FROM "testapp_rollout" U0 WHERE (NOT (U0."state" IN ($3)) AND U0."id" = ("testapp_rollout"."after_id")) LIMIT 1))

-- claim
UPDATE "testapp_rollout" SET "state_claim" = CASE WHEN ("testapp_rollout"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_rollout"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_rollout"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_rollout"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_rollout"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_rollout"."state_attempts" ELSE ("testapp_rollout"."state_attempts" + $4) END WHERE ("testapp_rollout"."id" IN ($5) AND "testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_ready")

-- claim
SELECT "testapp_rollout"."id" AS "id", "testapp_rollout"."state_ready" AS "state_ready", "testapp_rollout"."state_changed" AS "state_changed", "testapp_rollout"."state_attempted" AS "state_attempted", "testapp_rollout"."state_locked_until" AS "state_locked_until", "testapp_rollout"."state_next_attempt" AS "state_next_attempt", "testapp_rollout"."state_attempts" AS "state_attempts", "testapp_rollout"."state_failures" AS "state_failures", "testapp_rollout"."state_crashes" AS "state_crashes", "testapp_rollout"."state_version" AS "state_version", "testapp_rollout"."state_claim" AS "state_claim", "testapp_rollout"."state_life" AS "state_life", "testapp_rollout"."state_visit" AS "state_visit", "testapp_rollout"."state" AS "state", "testapp_rollout"."build_id" AS "build_id", "testapp_rollout"."after_id" AS "after_id", "testapp_rollout"."name" AS "name" FROM "testapp_rollout" WHERE ("testapp_rollout"."id" IN ($1) AND "testapp_rollout"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_ready" AND "testapp_rollout"."state" IN ($1, $2) AND "testapp_rollout"."state_crashes" < $3 AND "testapp_rollout"."state_crashes" > $4 AND "testapp_rollout"."state_crashes" >= $5 AND "testapp_rollout"."state_crashes" < $6) ORDER BY COALESCE("testapp_rollout"."state_next_attempt", "testapp_rollout"."state_changed") ASC, 1 ASC LIMIT 100

-- record new to stale
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."id" IN ($1) AND "testapp_rollout"."state" = $2 AND "testapp_rollout"."state_claim" = $3) ORDER BY 1 ASC LIMIT 1

-- record new to stale
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_rollout"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_rollout"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_rollout" WHERE "testapp_rollout"."id" IN ($1)

-- record new to stale
UPDATE "testapp_rollout" SET "state" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_rollout"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_rollout"."id" IN ($7)

-- record new to stale
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record new, attempted again
UPDATE "testapp_rollout" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_rollout"."id" IN ($5)

-- record new, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record new, released
UPDATE "testapp_rollout" SET "state_ready" = $1, "state_attempts" = ("testapp_rollout"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_rollout"."id" IN ($3)

-- record started to done
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."after_id" IN ($1) AND "testapp_rollout"."state_claim" IS NULL AND "testapp_rollout"."state_next_attempt" >= $2 AND NOT "testapp_rollout"."state_ready") LIMIT 5000

-- renew
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."id" IN ($1) AND "testapp_rollout"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_rollout" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_rollout"."id" IN ($2)

-- extend
UPDATE "testapp_rollout" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_rollout"."id" = $2 AND "testapp_rollout"."state" = $3 AND "testapp_rollout"."state_claim" = $4)

-- undo a claim
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" = $1 AND "testapp_rollout"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NOT NULL AND "testapp_rollout"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_rollout"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NOT NULL AND "testapp_rollout"."state" IN ($1, $2, $3, $4) AND "testapp_rollout"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $5))) ORDER BY "testapp_rollout"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_rollout"."id" AS "pk", "testapp_rollout"."state_claim" AS "state_claim" FROM "testapp_rollout" WHERE "testapp_rollout"."id" IN ($1)

-- time out
SELECT "testapp_rollout"."id" AS "pk" FROM "testapp_rollout" WHERE ("testapp_rollout"."state_claim" IS NULL AND NOT "testapp_rollout"."state_ready" AND "testapp_rollout"."state" = $1 AND "testapp_rollout"."state_changed" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2))) LIMIT 100
