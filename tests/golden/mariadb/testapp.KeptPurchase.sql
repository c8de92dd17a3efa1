-- history, and steps

-- poll
SELECT (EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $1 AND `testapp_keptpurchase`.`state` IN ($2, $3, $4, $5) AND `testapp_keptpurchase`.`state_crashes` < $6 AND `testapp_keptpurchase`.`state_crashes` = $7) LIMIT 1)), (EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $8 AND `testapp_keptpurchase`.`state` IN ($9, $10, $11, $12) AND `testapp_keptpurchase`.`state_crashes` < $13 AND `testapp_keptpurchase`.`state_crashes` > $14 AND `testapp_keptpurchase`.`state_crashes` >= $15 AND `testapp_keptpurchase`.`state_crashes` < $16) LIMIT 1)), (EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $17 AND `testapp_keptpurchase`.`state` IN ($18, $19, $20, $21) AND `testapp_keptpurchase`.`state_crashes` < $22 AND `testapp_keptpurchase`.`state_crashes` > $23 AND `testapp_keptpurchase`.`state_crashes` >= $24 AND `testapp_keptpurchase`.`state_crashes` < $25) LIMIT 1)), (EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $26 AND `testapp_keptpurchase`.`state` IN ($27, $28, $29, $30) AND `testapp_keptpurchase`.`state_crashes` < $31 AND `testapp_keptpurchase`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $32 AND `testapp_keptpurchase`.`state` IN ($33, $34, $35, $36) AND `testapp_keptpurchase`.`state_crashes` < $37 AND `testapp_keptpurchase`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NOT NULL AND `testapp_keptpurchase`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NOT NULL AND `testapp_keptpurchase`.`state` IN ($38, $39, $40, $41, $42) AND `testapp_keptpurchase`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $43 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_keptpurchase`.`state_next_attempt`) AS `left` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $44 AND `testapp_keptpurchase`.`state` IN ($45) AND `testapp_keptpurchase`.`state_crashes` < $46 AND `testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_keptpurchase`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $47 MICROSECOND)) ORDER BY `testapp_keptpurchase`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_keptpurchase`.`state_next_attempt`) AS `left` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $48 AND `testapp_keptpurchase`.`state` IN ($49) AND `testapp_keptpurchase`.`state_crashes` < $50 AND `testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_keptpurchase`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $51 MICROSECOND)) ORDER BY `testapp_keptpurchase`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_keptpurchase`.`state_next_attempt`) AS `left` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $52 AND `testapp_keptpurchase`.`state` IN ($53) AND `testapp_keptpurchase`.`state_crashes` < $54 AND `testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_keptpurchase`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $55 MICROSECOND)) ORDER BY `testapp_keptpurchase`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_keptpurchase`.`state_next_attempt`) AS `left` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $56 AND `testapp_keptpurchase`.`state` IN ($57) AND `testapp_keptpurchase`.`state_crashes` < $58 AND `testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_keptpurchase`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $59 MICROSECOND)) ORDER BY `testapp_keptpurchase`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $60)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $1 AND `testapp_keptpurchase`.`state` IN ($2, $3, $4, $5) AND `testapp_keptpurchase`.`state_crashes` < $6 AND `testapp_keptpurchase`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $1 AND `testapp_keptpurchase`.`state` IN ($2, $3, $4, $5) AND `testapp_keptpurchase`.`state_crashes` < $6 AND `testapp_keptpurchase`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_keptpurchase` SET `state_ready` = $1 WHERE `testapp_keptpurchase`.`id` IN ($2)

-- claim
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = $1

-- claim
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $1 AND `testapp_keptpurchase`.`state` IN ($2, $3, $4, $5) AND `testapp_keptpurchase`.`state_crashes` < $6 AND `testapp_keptpurchase`.`state_crashes` = $7) ORDER BY COALESCE(`testapp_keptpurchase`.`state_next_attempt`, `testapp_keptpurchase`.`state_changed`) ASC, `testapp_keptpurchase`.`id` ASC LIMIT 200

-- claim
UPDATE `testapp_keptpurchase` SET `state_claim` = CASE WHEN (`testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_ready` = $3, `state_attempted` = CASE WHEN (`testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_keptpurchase`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_keptpurchase`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_keptpurchase`.`state_attempts` ELSE (`testapp_keptpurchase`.`state_attempts` + $4) END WHERE (`testapp_keptpurchase`.`id` IN ($5) AND `testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $6)

-- claim rows with few lost leases
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NULL AND `testapp_keptpurchase`.`state_ready` = $1 AND `testapp_keptpurchase`.`state` IN ($2, $3, $4, $5) AND `testapp_keptpurchase`.`state_crashes` < $6 AND `testapp_keptpurchase`.`state_crashes` > $7 AND `testapp_keptpurchase`.`state_crashes` >= $8 AND `testapp_keptpurchase`.`state_crashes` < $9) ORDER BY COALESCE(`testapp_keptpurchase`.`state_next_attempt`, `testapp_keptpurchase`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- record heaped to done
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`id` IN ($1) AND `testapp_keptpurchase`.`state` = $2 AND `testapp_keptpurchase`.`state_claim` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record heaped to done
SELECT `testapp_keptpurchase`.`id` AS `pk`, TIMESTAMPDIFF(MICROSECOND, `testapp_keptpurchase`.`state_changed`, CURRENT_TIMESTAMP(6)) AS `elapsed1` FROM `testapp_keptpurchase` WHERE `testapp_keptpurchase`.`id` IN ($1)

-- record heaped to done
UPDATE `testapp_keptpurchase` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_keptpurchase`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_keptpurchase`.`id` IN ($7)

-- record heaped to done
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record heaped to done
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record heaped to done
INSERT INTO `stator_history` (`model_label`, `object_pk`, `at`, `version`, `kind`, `source`, `to`, `actor`, `reason`, `worker`, `claimed`, `duration`, `stay`, `attempts`, `error`, `fingerprint`, `log`) VALUES ($1, $2, CURRENT_TIMESTAMP(6), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING `stator_history`.`id`, `stator_history`.`at`

-- record heaped, attempted again
UPDATE `testapp_keptpurchase` SET `state_ready` = $1, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND), `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_keptpurchase`.`id` IN ($5)

-- record heaped, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record heaped, released
UPDATE `testapp_keptpurchase` SET `state_ready` = $1, `state_attempts` = (`testapp_keptpurchase`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_keptpurchase`.`id` IN ($3)

-- renew
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`id` IN ($1) AND `testapp_keptpurchase`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_keptpurchase` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_keptpurchase`.`id` IN ($2)

-- extend
UPDATE `testapp_keptpurchase` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_keptpurchase`.`id` = $2 AND `testapp_keptpurchase`.`state` = $3 AND `testapp_keptpurchase`.`state_claim` = $4)

-- undo a claim
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` = $1 AND `testapp_keptpurchase`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NOT NULL AND `testapp_keptpurchase`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_keptpurchase`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_keptpurchase`.`id` AS `pk` FROM `testapp_keptpurchase` WHERE (`testapp_keptpurchase`.`state_claim` IS NOT NULL AND `testapp_keptpurchase`.`state` IN ($1, $2, $3, $4, $5) AND `testapp_keptpurchase`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $6 MICROSECOND)) ORDER BY `testapp_keptpurchase`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_keptpurchase`.`id` AS `pk`, `testapp_keptpurchase`.`state_claim` AS `state_claim` FROM `testapp_keptpurchase` WHERE `testapp_keptpurchase`.`id` IN ($1)
