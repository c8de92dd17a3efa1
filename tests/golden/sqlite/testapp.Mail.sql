-- a column of the state with another name and numbers

-- poll
SELECT (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2, $3) AND "testapp_mail"."state_crashes" = $4) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $5 AND "testapp_mail"."status" IN ($6, $7) AND "testapp_mail"."state_crashes" > $8 AND "testapp_mail"."state_crashes" >= $9 AND "testapp_mail"."state_crashes" < $10) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $11 AND "testapp_mail"."status" IN ($12, $13) AND "testapp_mail"."state_crashes" > $14 AND "testapp_mail"."state_crashes" >= $15 AND "testapp_mail"."state_crashes" < $16) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $17 AND "testapp_mail"."status" IN ($18, $19) AND "testapp_mail"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $20 AND "testapp_mail"."status" IN ($21, $22) AND "testapp_mail"."state_next_attempt" IS NULL) LIMIT 1)), (EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 1) OR EXISTS (SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $23)) AND "testapp_mail"."status" IN ($24, $25, $26, $27, $28)) LIMIT 1)), (SELECT CAST(ROUND((JULIANDAY("testapp_mail"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $29 AND "testapp_mail"."status" IN ($30) AND "testapp_mail"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_mail"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $31))) ORDER BY "testapp_mail"."state_next_attempt" ASC LIMIT 1), (SELECT CAST(ROUND((JULIANDAY("testapp_mail"."state_next_attempt") - JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) * 86400000) AS INTEGER) * 1000 AS "left" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $32 AND "testapp_mail"."status" IN ($33) AND "testapp_mail"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) AND "testapp_mail"."state_next_attempt" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $34))) ORDER BY "testapp_mail"."state_next_attempt" ASC LIMIT 1), (SELECT SUM(("stator_pause"."id" + $35)) AS "number" FROM "stator_pause" WHERE ("stator_pause"."until" IS NULL OR "stator_pause"."until" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))))

-- mark ready
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2, $3) AND "testapp_mail"."state_next_attempt" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) LIMIT 100

-- mark ready
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2, $3) AND "testapp_mail"."state_next_attempt" IS NULL) LIMIT 99

-- mark ready
UPDATE "testapp_mail" SET "state_ready" = $1 WHERE "testapp_mail"."id" IN ($2)

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) ORDER BY "stator_limit"."id" ASC LIMIT 1

-- claim
INSERT OR IGNORE INTO "stator_limit" ("model_label", "state") VALUES ($1, $2)

-- claim
SELECT "stator_limit"."id", "stator_limit"."model_label", "stator_limit"."state" FROM "stator_limit" WHERE ("stator_limit"."model_label" = $1 AND "stator_limit"."state" = $2) LIMIT 21

-- claim
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2) AND "testapp_mail"."state_crashes" = $3) ORDER BY COALESCE("testapp_mail"."state_next_attempt", "testapp_mail"."state_changed") ASC, "testapp_mail"."id" ASC LIMIT 100

-- claim
UPDATE "testapp_mail" SET "state_claim" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE $1 END, "state_locked_until" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN NULL ELSE (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)) END, "state_ready" = $3, "state_attempted" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_mail"."state_attempted" ELSE STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') END, "state_attempts" = CASE WHEN ("testapp_mail"."state_next_attempt" > (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) THEN "testapp_mail"."state_attempts" ELSE ("testapp_mail"."state_attempts" + $4) END WHERE ("testapp_mail"."id" IN ($5) AND "testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready")

-- claim
SELECT "testapp_mail"."id" AS "id", "testapp_mail"."state_ready" AS "state_ready", "testapp_mail"."state_changed" AS "state_changed", "testapp_mail"."state_attempted" AS "state_attempted", "testapp_mail"."state_locked_until" AS "state_locked_until", "testapp_mail"."state_next_attempt" AS "state_next_attempt", "testapp_mail"."state_attempts" AS "state_attempts", "testapp_mail"."state_failures" AS "state_failures", "testapp_mail"."state_crashes" AS "state_crashes", "testapp_mail"."state_version" AS "state_version", "testapp_mail"."state_claim" AS "state_claim", "testapp_mail"."state_life" AS "state_life", "testapp_mail"."state_visit" AS "state_visit", "testapp_mail"."address" AS "address", "testapp_mail"."status" AS "status" FROM "testapp_mail" WHERE ("testapp_mail"."id" IN ($1) AND "testapp_mail"."state_claim" = $2)

-- claim rows with few lost leases
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND "testapp_mail"."state_ready" AND "testapp_mail"."state_crashes" < $1 AND "testapp_mail"."status" IN ($2) AND "testapp_mail"."state_crashes" > $3 AND "testapp_mail"."state_crashes" >= $4 AND "testapp_mail"."state_crashes" < $5) ORDER BY COALESCE("testapp_mail"."state_next_attempt", "testapp_mail"."state_changed") ASC, 1 ASC LIMIT 100

-- record queued to refused
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."id" IN ($1) AND "testapp_mail"."state_claim" = $2 AND "testapp_mail"."status" = $3) ORDER BY 1 ASC LIMIT 1

-- record queued to refused
SELECT "testapp_mail"."id" AS "pk", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_mail"."state_changed")) * 86400000) AS INTEGER) * 1000 AS "elapsed1" FROM "testapp_mail" WHERE "testapp_mail"."id" IN ($1)

-- record queued to refused
UPDATE "testapp_mail" SET "state_visit" = CASE WHEN (CASE WHEN (("testapp_mail"."state_visit" >> $1) = ("testapp_mail"."state_version" & $2)) THEN ("testapp_mail"."state_visit" & $3) ELSE $4 END < $5 AND "testapp_mail"."status" = $6) THEN ((((("testapp_mail"."state_version" + $7) & $8) * $9) + ((CASE WHEN (("testapp_mail"."state_visit" >> $10) = ("testapp_mail"."state_version" & $11)) THEN ("testapp_mail"."state_visit" & $12) ELSE $13 END + $14) * $15)) + $16) ELSE NULL END, "status" = $17, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $18, "state_next_attempt" = NULL, "state_attempts" = $19, "state_failures" = $20, "state_crashes" = $21, "state_version" = ("testapp_mail"."state_version" + $22), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_mail"."id" IN ($23)

-- record queued to refused
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2), "seconds" = ("stator_stats"."seconds" + $3), "longest" = MAX("stator_stats"."longest", $4) WHERE ("stator_stats"."hour" = $5 AND "stator_stats"."model_label" = $6 AND "stator_stats"."shard" = $7 AND "stator_stats"."source" = $8 AND "stator_stats"."to" = $9)

-- record queued to refused
INSERT INTO "stator_history" ("model_label", "object_pk", "at", "version", "kind", "source", "to", "actor", "reason", "worker", "claimed", "duration", "stay", "attempts", "error", "fingerprint", "log") VALUES ($1, $2, STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING "stator_history"."id", "stator_history"."at"

-- record queued to sending
UPDATE "testapp_mail" SET "status" = $1, "state_changed" = STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), "state_attempted" = NULL, "state_ready" = $2, "state_next_attempt" = NULL, "state_attempts" = $3, "state_failures" = $4, "state_crashes" = $5, "state_version" = ("testapp_mail"."state_version" + $6), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_mail"."id" IN ($7)

-- record queued, attempted again
UPDATE "testapp_mail" SET "state_ready" = $1, "state_next_attempt" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2)), "state_failures" = $3, "state_crashes" = $4, "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_mail"."id" IN ($5)

-- record queued, attempted again
UPDATE "stator_stats" SET "handled" = ("stator_stats"."handled" + $1), "failed" = ("stator_stats"."failed" + $2) WHERE ("stator_stats"."hour" = $3 AND "stator_stats"."model_label" = $4 AND "stator_stats"."shard" = $5 AND "stator_stats"."source" = $6 AND "stator_stats"."to" = $7)

-- record queued, released
UPDATE "testapp_mail" SET "state_ready" = $1, "state_attempts" = ("testapp_mail"."state_attempts" - $2), "state_claim" = NULL, "state_locked_until" = NULL WHERE "testapp_mail"."id" IN ($3)

-- renew
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."id" IN ($1) AND "testapp_mail"."state_claim" = $2) ORDER BY 1 ASC LIMIT 1

-- renew
UPDATE "testapp_mail" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE "testapp_mail"."id" IN ($2)

-- extend
UPDATE "testapp_mail" SET "state_locked_until" = (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) WHERE ("testapp_mail"."id" = $2 AND "testapp_mail"."state_claim" = $3 AND "testapp_mail"."status" = $4)

-- undo a claim
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" = $1 AND "testapp_mail"."state_claim" IS NOT NULL) LIMIT 100000

-- reap
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" <= (STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'))) ORDER BY "testapp_mail"."state_locked_until" ASC LIMIT 100

-- reap
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NOT NULL AND "testapp_mail"."state_locked_until" > (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $1)) AND "testapp_mail"."status" IN ($2, $3, $4, $5, $6)) ORDER BY "testapp_mail"."state_locked_until" ASC LIMIT 99

-- reap
SELECT "testapp_mail"."id" AS "pk", "testapp_mail"."state_claim" AS "state_claim" FROM "testapp_mail" WHERE "testapp_mail"."id" IN ($1)

-- time out
SELECT "testapp_mail"."id" AS "pk" FROM "testapp_mail" WHERE ("testapp_mail"."state_claim" IS NULL AND NOT "testapp_mail"."state_ready" AND "testapp_mail"."status" = $1 AND "testapp_mail"."state_changed" <= (django_format_dtdelta('+', STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW'), $2))) LIMIT 100

-- time out
SELECT SUM(CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_mail"."state_changed")) * 86400000) AS INTEGER) * 1000) AS "seconds", CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY(MIN("testapp_mail"."state_changed"))) * 86400000) AS INTEGER) * 1000 AS "longest" FROM "testapp_mail" WHERE "testapp_mail"."id" IN ($1)

-- time out
INSERT INTO "stator_history" ("at", "actor", "claimed", "duration", "attempts", "error", "fingerprint", "log", "model_label", "to", "reason", "worker", "kind", "object_pk", "source", "version", "stay") SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') AS "stator_at", $1 AS "stator_actor", NULL AS "stator_claimed", NULL AS "stator_duration", $2 AS "stator_attempts", $3 AS "stator_error", $4 AS "stator_fingerprint", NULL AS "stator_log", $5 AS "stator_model_label", $6 AS "stator_to", $7 AS "stator_reason", $8 AS "stator_worker", $9 AS "stator_kind", CAST("testapp_mail"."id" AS varchar(255)) AS "stator_object_pk", CASE WHEN "testapp_mail"."status" = $10 THEN $11 WHEN "testapp_mail"."status" = $12 THEN $13 WHEN "testapp_mail"."status" = $14 THEN $15 WHEN "testapp_mail"."status" = $16 THEN $17 WHEN "testapp_mail"."status" = $18 THEN $19 ELSE CAST("testapp_mail"."status" AS text) END AS "stator_source", ("testapp_mail"."state_version" + $20) AS "stator_version", (CAST(ROUND((JULIANDAY(STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')) - JULIANDAY("testapp_mail"."state_changed")) * 86400000) AS INTEGER) * 1000) / 1000000.0 AS "stator_stay" FROM "testapp_mail" WHERE "testapp_mail"."id" = $21
