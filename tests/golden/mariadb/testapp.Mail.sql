-- a column of the state with another name and numbers

-- poll
SELECT (EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $1 AND `testapp_mail`.`state_crashes` < $2 AND `testapp_mail`.`status` IN ($3, $4) AND `testapp_mail`.`state_crashes` = $5) LIMIT 1)), (EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $6 AND `testapp_mail`.`state_crashes` < $7 AND `testapp_mail`.`status` IN ($8, $9) AND `testapp_mail`.`state_crashes` > $10 AND `testapp_mail`.`state_crashes` >= $11 AND `testapp_mail`.`state_crashes` < $12) LIMIT 1)), (EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $13 AND `testapp_mail`.`state_crashes` < $14 AND `testapp_mail`.`status` IN ($15, $16) AND `testapp_mail`.`state_crashes` > $17 AND `testapp_mail`.`state_crashes` >= $18 AND `testapp_mail`.`state_crashes` < $19) LIMIT 1)), (EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $20 AND `testapp_mail`.`state_crashes` < $21 AND `testapp_mail`.`status` IN ($22, $23) AND `testapp_mail`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $24 AND `testapp_mail`.`state_crashes` < $25 AND `testapp_mail`.`status` IN ($26, $27) AND `testapp_mail`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NOT NULL AND `testapp_mail`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NOT NULL AND `testapp_mail`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $28 MICROSECOND) AND `testapp_mail`.`status` IN ($29, $30, $31, $32, $33)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_mail`.`state_next_attempt`) AS `left` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $34 AND `testapp_mail`.`state_crashes` < $35 AND `testapp_mail`.`status` IN ($36) AND `testapp_mail`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_mail`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $37 MICROSECOND)) ORDER BY `testapp_mail`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_mail`.`state_next_attempt`) AS `left` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $38 AND `testapp_mail`.`state_crashes` < $39 AND `testapp_mail`.`status` IN ($40) AND `testapp_mail`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_mail`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $41 MICROSECOND)) ORDER BY `testapp_mail`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $42)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $1 AND `testapp_mail`.`state_crashes` < $2 AND `testapp_mail`.`status` IN ($3, $4) AND `testapp_mail`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $1 AND `testapp_mail`.`state_crashes` < $2 AND `testapp_mail`.`status` IN ($3, $4) AND `testapp_mail`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_mail` SET `state_ready` = $1 WHERE `testapp_mail`.`id` IN ($2)

-- claim
SELECT `stator_limit`.`id`, `stator_limit`.`model_label`, `stator_limit`.`state` FROM `stator_limit` WHERE (`stator_limit`.`model_label` = $1 AND `stator_limit`.`state` = $2) ORDER BY `stator_limit`.`id` ASC LIMIT 1 FOR UPDATE

-- claim
INSERT IGNORE INTO `stator_limit` (`model_label`, `state`) VALUES ($1, $2)

-- claim
SELECT `stator_limit`.`id`, `stator_limit`.`model_label`, `stator_limit`.`state` FROM `stator_limit` WHERE (`stator_limit`.`model_label` = $1 AND `stator_limit`.`state` = $2) LIMIT 21 FOR UPDATE

-- claim
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = $1

-- claim
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $1 AND `testapp_mail`.`state_crashes` < $2 AND `testapp_mail`.`status` IN ($3) AND `testapp_mail`.`state_crashes` = $4) ORDER BY COALESCE(`testapp_mail`.`state_next_attempt`, `testapp_mail`.`state_changed`) ASC, `testapp_mail`.`id` ASC LIMIT 200

-- claim
UPDATE `testapp_mail` SET `state_claim` = CASE WHEN (`testapp_mail`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_mail`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_ready` = $3, `state_attempted` = CASE WHEN (`testapp_mail`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_mail`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_mail`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_mail`.`state_attempts` ELSE (`testapp_mail`.`state_attempts` + $4) END WHERE (`testapp_mail`.`id` IN ($5) AND `testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $6)

-- claim rows with few lost leases
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $1 AND `testapp_mail`.`state_crashes` < $2 AND `testapp_mail`.`status` IN ($3) AND `testapp_mail`.`state_crashes` > $4 AND `testapp_mail`.`state_crashes` >= $5 AND `testapp_mail`.`state_crashes` < $6) ORDER BY COALESCE(`testapp_mail`.`state_next_attempt`, `testapp_mail`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- record queued to refused
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`id` IN ($1) AND `testapp_mail`.`state_claim` = $2 AND `testapp_mail`.`status` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record queued to refused
SELECT `testapp_mail`.`id` AS `pk`, TIMESTAMPDIFF(MICROSECOND, `testapp_mail`.`state_changed`, CURRENT_TIMESTAMP(6)) AS `elapsed1` FROM `testapp_mail` WHERE `testapp_mail`.`id` IN ($1)

-- record queued to refused
UPDATE `testapp_mail` SET `state_visit` = CASE WHEN (CASE WHEN ((FLOOR(`testapp_mail`.`state_visit` / POW(2, $1))) = (CONVERT(`testapp_mail`.`state_version`&$2, SIGNED))) THEN (CONVERT(`testapp_mail`.`state_visit`&$3, SIGNED)) ELSE $4 END < $5 AND `testapp_mail`.`status` = $6) THEN ((((CONVERT((`testapp_mail`.`state_version` + $7)&$8, SIGNED)) * $9) + ((CASE WHEN ((FLOOR(`testapp_mail`.`state_visit` / POW(2, $10))) = (CONVERT(`testapp_mail`.`state_version`&$11, SIGNED))) THEN (CONVERT(`testapp_mail`.`state_visit`&$12, SIGNED)) ELSE $13 END + $14) * $15)) + $16) ELSE NULL END, `status` = $17, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $18, `state_next_attempt` = NULL, `state_attempts` = $19, `state_failures` = $20, `state_crashes` = $21, `state_version` = (`testapp_mail`.`state_version` + $22), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_mail`.`id` IN ($23)

-- record queued to refused
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record queued to refused
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record queued to refused
INSERT INTO `stator_history` (`model_label`, `object_pk`, `at`, `version`, `kind`, `source`, `to`, `actor`, `reason`, `worker`, `claimed`, `duration`, `stay`, `attempts`, `error`, `fingerprint`, `log`) VALUES ($1, $2, CURRENT_TIMESTAMP(6), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING `stator_history`.`id`, `stator_history`.`at`

-- record queued to sending
UPDATE `testapp_mail` SET `status` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_mail`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_mail`.`id` IN ($7)

-- record queued, attempted again
UPDATE `testapp_mail` SET `state_ready` = $1, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND), `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_mail`.`id` IN ($5)

-- record queued, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record queued, released
UPDATE `testapp_mail` SET `state_ready` = $1, `state_attempts` = (`testapp_mail`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_mail`.`id` IN ($3)

-- renew
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`id` IN ($1) AND `testapp_mail`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_mail` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_mail`.`id` IN ($2)

-- extend
UPDATE `testapp_mail` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_mail`.`id` = $2 AND `testapp_mail`.`state_claim` = $3 AND `testapp_mail`.`status` = $4)

-- undo a claim
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` = $1 AND `testapp_mail`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NOT NULL AND `testapp_mail`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_mail`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NOT NULL AND `testapp_mail`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) AND `testapp_mail`.`status` IN ($2, $3, $4, $5, $6)) ORDER BY `testapp_mail`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_mail`.`id` AS `pk`, `testapp_mail`.`state_claim` AS `state_claim` FROM `testapp_mail` WHERE `testapp_mail`.`id` IN ($1)

-- time out
SELECT `testapp_mail`.`id` AS `pk` FROM `testapp_mail` WHERE (`testapp_mail`.`state_claim` IS NULL AND `testapp_mail`.`state_ready` = $1 AND `testapp_mail`.`status` = $2 AND `testapp_mail`.`state_changed` <= (CURRENT_TIMESTAMP(6) + INTERVAL $3 MICROSECOND)) LIMIT 100 FOR UPDATE SKIP LOCKED

-- time out
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_mail`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_mail`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_mail` WHERE `testapp_mail`.`id` IN ($1)

-- time out
INSERT INTO `stator_history` (`at`, `actor`, `claimed`, `duration`, `attempts`, `error`, `fingerprint`, `log`, `model_label`, `to`, `reason`, `worker`, `kind`, `object_pk`, `source`, `version`, `stay`) SELECT CURRENT_TIMESTAMP(6) AS `stator_at`, $1 AS `stator_actor`, NULL AS `stator_claimed`, NULL AS `stator_duration`, $2 AS `stator_attempts`, $3 AS `stator_error`, $4 AS `stator_fingerprint`, NULL AS `stator_log`, $5 AS `stator_model_label`, $6 AS `stator_to`, $7 AS `stator_reason`, $8 AS `stator_worker`, $9 AS `stator_kind`, CAST(`testapp_mail`.`id` AS char(255)) AS `stator_object_pk`, CASE WHEN `testapp_mail`.`status` = $10 THEN $11 WHEN `testapp_mail`.`status` = $12 THEN $13 WHEN `testapp_mail`.`status` = $14 THEN $15 WHEN `testapp_mail`.`status` = $16 THEN $17 WHEN `testapp_mail`.`status` = $18 THEN $19 ELSE CAST(`testapp_mail`.`status` AS char) END AS `stator_source`, (`testapp_mail`.`state_version` + $20) AS `stator_version`, (TIMESTAMPDIFF(MICROSECOND, `testapp_mail`.`state_changed`, CURRENT_TIMESTAMP(6))) / 1000000.0 AS `stator_stay` FROM `testapp_mail` WHERE `testapp_mail`.`id` = $21
