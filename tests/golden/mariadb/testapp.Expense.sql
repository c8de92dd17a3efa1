-- events

-- poll
SELECT (EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $1 AND `testapp_expense`.`state` IN ($2) AND `testapp_expense`.`state_crashes` < $3 AND `testapp_expense`.`state_crashes` = $4) LIMIT 1)), (EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $5 AND `testapp_expense`.`state` IN ($6) AND `testapp_expense`.`state_crashes` < $7 AND `testapp_expense`.`state_crashes` > $8 AND `testapp_expense`.`state_crashes` >= $9 AND `testapp_expense`.`state_crashes` < $10) LIMIT 1)), (EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $11 AND `testapp_expense`.`state` IN ($12) AND `testapp_expense`.`state_crashes` < $13 AND `testapp_expense`.`state_crashes` > $14 AND `testapp_expense`.`state_crashes` >= $15 AND `testapp_expense`.`state_crashes` < $16) LIMIT 1)), (EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $17 AND `testapp_expense`.`state` IN ($18) AND `testapp_expense`.`state_crashes` < $19 AND `testapp_expense`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $20 AND `testapp_expense`.`state` IN ($21) AND `testapp_expense`.`state_crashes` < $22 AND `testapp_expense`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NOT NULL AND `testapp_expense`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NOT NULL AND `testapp_expense`.`state` IN ($23, $24, $25, $26, $27, $28) AND `testapp_expense`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $29 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_expense`.`state_next_attempt`) AS `left` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $30 AND `testapp_expense`.`state` IN ($31) AND `testapp_expense`.`state_crashes` < $32 AND `testapp_expense`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_expense`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $33 MICROSECOND)) ORDER BY `testapp_expense`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $34)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $1 AND `testapp_expense`.`state` IN ($2) AND `testapp_expense`.`state_crashes` < $3 AND `testapp_expense`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $1 AND `testapp_expense`.`state` IN ($2) AND `testapp_expense`.`state_crashes` < $3 AND `testapp_expense`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_expense` SET `state_ready` = $1 WHERE `testapp_expense`.`id` IN ($2)

-- claim
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = $1

-- claim
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $1 AND `testapp_expense`.`state` IN ($2) AND `testapp_expense`.`state_crashes` < $3 AND `testapp_expense`.`state_crashes` = $4) ORDER BY COALESCE(`testapp_expense`.`state_next_attempt`, `testapp_expense`.`state_changed`) ASC, `testapp_expense`.`id` ASC LIMIT 200

-- claim
UPDATE `testapp_expense` SET `state_claim` = CASE WHEN (`testapp_expense`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_expense`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_ready` = $3, `state_attempted` = CASE WHEN (`testapp_expense`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_expense`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_expense`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_expense`.`state_attempts` ELSE (`testapp_expense`.`state_attempts` + $4) END WHERE (`testapp_expense`.`id` IN ($5) AND `testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $6)

-- claim rows with few lost leases
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $1 AND `testapp_expense`.`state` IN ($2) AND `testapp_expense`.`state_crashes` < $3 AND `testapp_expense`.`state_crashes` > $4 AND `testapp_expense`.`state_crashes` >= $5 AND `testapp_expense`.`state_crashes` < $6) ORDER BY COALESCE(`testapp_expense`.`state_next_attempt`, `testapp_expense`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- record approved to paid
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`id` IN ($1) AND `testapp_expense`.`state` = $2 AND `testapp_expense`.`state_claim` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record approved to paid
SELECT `testapp_expense`.`id` AS `pk`, TIMESTAMPDIFF(MICROSECOND, `testapp_expense`.`state_changed`, CURRENT_TIMESTAMP(6)) AS `elapsed1` FROM `testapp_expense` WHERE `testapp_expense`.`id` IN ($1)

-- record approved to paid
UPDATE `testapp_expense` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_expense`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_expense`.`id` IN ($7)

-- record approved to paid
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record approved to paid
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record approved to paid
INSERT INTO `stator_history` (`model_label`, `object_pk`, `at`, `version`, `kind`, `source`, `to`, `actor`, `reason`, `worker`, `claimed`, `duration`, `stay`, `attempts`, `error`, `fingerprint`, `log`) VALUES ($1, $2, CURRENT_TIMESTAMP(6), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING `stator_history`.`id`, `stator_history`.`at`

-- record approved to paid
SELECT `stator_event`.`id`, `stator_event`.`model_label`, `stator_event`.`object_pk`, `stator_event`.`name`, `stator_event`.`payload`, `stator_event`.`sender`, `stator_event`.`at`, `stator_event`.`version`, `stator_event`.`until`, `stator_event`.`source`, `stator_event`.`to`, `stator_event`.`key`, `stator_event`.`voter`, `stator_event`.`life` FROM `stator_event` WHERE (NOT (`stator_event`.`version` = $1 AND `stator_event`.`version` IS NOT NULL) AND `stator_event`.`model_label` = $2 AND `stator_event`.`name` IN ($3) AND `stator_event`.`until` > (CURRENT_TIMESTAMP(6)) AND `stator_event`.`version` IS NULL AND `stator_event`.`object_pk` IN ($4) AND `stator_event`.`id` > $5) ORDER BY `stator_event`.`id` ASC LIMIT 1000

-- record approved, attempted again
UPDATE `testapp_expense` SET `state_next_attempt` = CASE WHEN (`testapp_expense`.`state_ready` = $1) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_expense`.`id` IN ($5)

-- record approved, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record approved, released
UPDATE `testapp_expense` SET `state_ready` = $1, `state_attempts` = (`testapp_expense`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_expense`.`id` IN ($3)

-- renew
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`id` IN ($1) AND `testapp_expense`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_expense` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_expense`.`id` IN ($2)

-- extend
UPDATE `testapp_expense` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_expense`.`id` = $2 AND `testapp_expense`.`state` = $3 AND `testapp_expense`.`state_claim` = $4)

-- undo a claim
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` = $1 AND `testapp_expense`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NOT NULL AND `testapp_expense`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_expense`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NOT NULL AND `testapp_expense`.`state` IN ($1, $2, $3, $4, $5, $6) AND `testapp_expense`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $7 MICROSECOND)) ORDER BY `testapp_expense`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_expense`.`id` AS `pk`, `testapp_expense`.`state_claim` AS `state_claim` FROM `testapp_expense` WHERE `testapp_expense`.`id` IN ($1)

-- time out
SELECT `testapp_expense`.`id` AS `pk` FROM `testapp_expense` WHERE (`testapp_expense`.`state_claim` IS NULL AND `testapp_expense`.`state_ready` = $1 AND `testapp_expense`.`state` = $2 AND `testapp_expense`.`state_changed` <= (CURRENT_TIMESTAMP(6) + INTERVAL $3 MICROSECOND)) LIMIT 100 FOR UPDATE SKIP LOCKED

-- time out
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_expense`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_expense`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_expense` WHERE `testapp_expense`.`id` IN ($1)

-- time out
INSERT INTO `stator_history` (`at`, `actor`, `claimed`, `duration`, `attempts`, `error`, `fingerprint`, `log`, `model_label`, `to`, `reason`, `worker`, `kind`, `object_pk`, `source`, `version`, `stay`) SELECT CURRENT_TIMESTAMP(6) AS `stator_at`, $1 AS `stator_actor`, NULL AS `stator_claimed`, NULL AS `stator_duration`, $2 AS `stator_attempts`, $3 AS `stator_error`, $4 AS `stator_fingerprint`, NULL AS `stator_log`, $5 AS `stator_model_label`, $6 AS `stator_to`, $7 AS `stator_reason`, $8 AS `stator_worker`, $9 AS `stator_kind`, CAST(`testapp_expense`.`id` AS char(255)) AS `stator_object_pk`, `testapp_expense`.`state` AS `stator_source`, (`testapp_expense`.`state_version` + $10) AS `stator_version`, (TIMESTAMPDIFF(MICROSECOND, `testapp_expense`.`state_changed`, CURRENT_TIMESTAMP(6))) / 1000000.0 AS `stator_stay` FROM `testapp_expense` WHERE `testapp_expense`.`id` = $11
