-- a priority, and limits of states

-- poll
SELECT (EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $1 AND `testapp_ticket`.`state` IN ($2, $3) AND `testapp_ticket`.`state_crashes` < $4 AND `testapp_ticket`.`state_crashes` = $5) LIMIT 1)), (EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $6 AND `testapp_ticket`.`state` IN ($7, $8) AND `testapp_ticket`.`state_crashes` < $9 AND `testapp_ticket`.`state_crashes` > $10 AND `testapp_ticket`.`state_crashes` >= $11 AND `testapp_ticket`.`state_crashes` < $12) LIMIT 1)), (EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $13 AND `testapp_ticket`.`state` IN ($14, $15) AND `testapp_ticket`.`state_crashes` < $16 AND `testapp_ticket`.`state_crashes` > $17 AND `testapp_ticket`.`state_crashes` >= $18 AND `testapp_ticket`.`state_crashes` < $19) LIMIT 1)), (EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $20 AND `testapp_ticket`.`state` IN ($21, $22) AND `testapp_ticket`.`state_crashes` < $23 AND `testapp_ticket`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $24 AND `testapp_ticket`.`state` IN ($25, $26) AND `testapp_ticket`.`state_crashes` < $27 AND `testapp_ticket`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NOT NULL AND `testapp_ticket`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NOT NULL AND `testapp_ticket`.`state` IN ($28, $29, $30) AND `testapp_ticket`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $31 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_ticket`.`state_next_attempt`) AS `left` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $32 AND `testapp_ticket`.`state` IN ($33) AND `testapp_ticket`.`state_crashes` < $34 AND `testapp_ticket`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_ticket`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $35 MICROSECOND)) ORDER BY `testapp_ticket`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_ticket`.`state_next_attempt`) AS `left` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $36 AND `testapp_ticket`.`state` IN ($37) AND `testapp_ticket`.`state_crashes` < $38 AND `testapp_ticket`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_ticket`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $39 MICROSECOND)) ORDER BY `testapp_ticket`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $40)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $1 AND `testapp_ticket`.`state` IN ($2, $3) AND `testapp_ticket`.`state_crashes` < $4 AND `testapp_ticket`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $1 AND `testapp_ticket`.`state` IN ($2, $3) AND `testapp_ticket`.`state_crashes` < $4 AND `testapp_ticket`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_ticket` SET `state_ready` = $1 WHERE `testapp_ticket`.`id` IN ($2)

-- claim
SELECT `stator_limit`.`id`, `stator_limit`.`model_label`, `stator_limit`.`state` FROM `stator_limit` WHERE (`stator_limit`.`model_label` = $1 AND `stator_limit`.`state` = $2) ORDER BY `stator_limit`.`id` ASC LIMIT 1 FOR UPDATE

-- claim
INSERT IGNORE INTO `stator_limit` (`model_label`, `state`) VALUES ($1, $2)

-- claim
SELECT `stator_limit`.`id`, `stator_limit`.`model_label`, `stator_limit`.`state` FROM `stator_limit` WHERE (`stator_limit`.`model_label` = $1 AND `stator_limit`.`state` = $2) LIMIT 21 FOR UPDATE

-- claim
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = $1

-- claim
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $1 AND `testapp_ticket`.`state` IN ($2) AND `testapp_ticket`.`state_crashes` < $3 AND `testapp_ticket`.`state_crashes` = $4) ORDER BY `testapp_ticket`.`place` ASC, COALESCE(`testapp_ticket`.`state_next_attempt`, `testapp_ticket`.`state_changed`) ASC, `testapp_ticket`.`id` ASC LIMIT 200

-- claim
UPDATE `testapp_ticket` SET `state_claim` = CASE WHEN (`testapp_ticket`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_ticket`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_ready` = $3, `state_attempted` = CASE WHEN (`testapp_ticket`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_ticket`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_ticket`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_ticket`.`state_attempts` ELSE (`testapp_ticket`.`state_attempts` + $4) END WHERE (`testapp_ticket`.`id` IN ($5) AND `testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $6)

-- claim
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $1 AND `testapp_ticket`.`state` IN ($2) AND `testapp_ticket`.`state_crashes` < $3 AND `testapp_ticket`.`state_crashes` = $4) ORDER BY COALESCE(`testapp_ticket`.`state_next_attempt`, `testapp_ticket`.`state_changed`) ASC, `testapp_ticket`.`id` ASC LIMIT 200

-- claim rows with few lost leases
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NULL AND `testapp_ticket`.`state_ready` = $1 AND `testapp_ticket`.`state` IN ($2) AND `testapp_ticket`.`state_crashes` < $3 AND `testapp_ticket`.`state_crashes` > $4 AND `testapp_ticket`.`state_crashes` >= $5 AND `testapp_ticket`.`state_crashes` < $6) ORDER BY COALESCE(`testapp_ticket`.`state_next_attempt`, `testapp_ticket`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- record narrow to done
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`id` IN ($1) AND `testapp_ticket`.`state` = $2 AND `testapp_ticket`.`state_claim` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record narrow to done
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_ticket`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_ticket`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_ticket` WHERE `testapp_ticket`.`id` IN ($1)

-- record narrow to done
UPDATE `testapp_ticket` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_ticket`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_ticket`.`id` IN ($7)

-- record narrow to done
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record narrow to done
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record narrow, attempted again
UPDATE `testapp_ticket` SET `state_ready` = $1, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND), `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_ticket`.`id` IN ($5)

-- record narrow, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record narrow, released
UPDATE `testapp_ticket` SET `state_ready` = $1, `state_attempts` = (`testapp_ticket`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_ticket`.`id` IN ($3)

-- renew
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`id` IN ($1) AND `testapp_ticket`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_ticket` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_ticket`.`id` IN ($2)

-- extend
UPDATE `testapp_ticket` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_ticket`.`id` = $2 AND `testapp_ticket`.`state` = $3 AND `testapp_ticket`.`state_claim` = $4)

-- undo a claim
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` = $1 AND `testapp_ticket`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NOT NULL AND `testapp_ticket`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_ticket`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_ticket`.`id` AS `pk` FROM `testapp_ticket` WHERE (`testapp_ticket`.`state_claim` IS NOT NULL AND `testapp_ticket`.`state` IN ($1, $2, $3) AND `testapp_ticket`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $4 MICROSECOND)) ORDER BY `testapp_ticket`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_ticket`.`id` AS `pk`, `testapp_ticket`.`state_claim` AS `state_claim` FROM `testapp_ticket` WHERE `testapp_ticket`.`id` IN ($1)
