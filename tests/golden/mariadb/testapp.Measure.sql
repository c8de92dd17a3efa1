-- fields that outcomes save

-- poll
SELECT (EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $1 AND `testapp_measure`.`state` IN ($2) AND `testapp_measure`.`state_crashes` < $3 AND `testapp_measure`.`state_crashes` = $4) LIMIT 1)), (EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $5 AND `testapp_measure`.`state` IN ($6) AND `testapp_measure`.`state_crashes` < $7 AND `testapp_measure`.`state_crashes` > $8 AND `testapp_measure`.`state_crashes` >= $9 AND `testapp_measure`.`state_crashes` < $10) LIMIT 1)), (EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $11 AND `testapp_measure`.`state` IN ($12) AND `testapp_measure`.`state_crashes` < $13 AND `testapp_measure`.`state_crashes` > $14 AND `testapp_measure`.`state_crashes` >= $15 AND `testapp_measure`.`state_crashes` < $16) LIMIT 1)), (EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $17 AND `testapp_measure`.`state` IN ($18) AND `testapp_measure`.`state_crashes` < $19 AND `testapp_measure`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $20 AND `testapp_measure`.`state` IN ($21) AND `testapp_measure`.`state_crashes` < $22 AND `testapp_measure`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NOT NULL AND `testapp_measure`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NOT NULL AND `testapp_measure`.`state` IN ($23, $24, $25) AND `testapp_measure`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $26 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_measure`.`state_next_attempt`) AS `left` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $27 AND `testapp_measure`.`state` IN ($28) AND `testapp_measure`.`state_crashes` < $29 AND `testapp_measure`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_measure`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $30 MICROSECOND)) ORDER BY `testapp_measure`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $31)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $1 AND `testapp_measure`.`state` IN ($2) AND `testapp_measure`.`state_crashes` < $3 AND `testapp_measure`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $1 AND `testapp_measure`.`state` IN ($2) AND `testapp_measure`.`state_crashes` < $3 AND `testapp_measure`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_measure` SET `state_ready` = $1 WHERE `testapp_measure`.`id` IN ($2)

-- claim
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = $1

-- claim
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $1 AND `testapp_measure`.`state` IN ($2) AND `testapp_measure`.`state_crashes` < $3 AND `testapp_measure`.`state_crashes` = $4) ORDER BY COALESCE(`testapp_measure`.`state_next_attempt`, `testapp_measure`.`state_changed`) ASC, `testapp_measure`.`id` ASC LIMIT 200

-- claim
UPDATE `testapp_measure` SET `state_claim` = CASE WHEN (`testapp_measure`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_measure`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_ready` = $3, `state_attempted` = CASE WHEN (`testapp_measure`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_measure`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_measure`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_measure`.`state_attempts` ELSE (`testapp_measure`.`state_attempts` + $4) END WHERE (`testapp_measure`.`id` IN ($5) AND `testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $6)

-- claim rows with few lost leases
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NULL AND `testapp_measure`.`state_ready` = $1 AND `testapp_measure`.`state` IN ($2) AND `testapp_measure`.`state_crashes` < $3 AND `testapp_measure`.`state_crashes` > $4 AND `testapp_measure`.`state_crashes` >= $5 AND `testapp_measure`.`state_crashes` < $6) ORDER BY COALESCE(`testapp_measure`.`state_next_attempt`, `testapp_measure`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- record new to done
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`id` IN ($1) AND `testapp_measure`.`state` = $2 AND `testapp_measure`.`state_claim` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record new to done
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_measure`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_measure`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_measure` WHERE `testapp_measure`.`id` IN ($1)

-- record new to done
UPDATE `testapp_measure` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_measure`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_measure`.`id` IN ($7)

-- record new to done
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record new to done
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record new to failed
UPDATE `testapp_measure` SET `state_visit` = CASE WHEN (CASE WHEN ((FLOOR(`testapp_measure`.`state_visit` / POW(2, $1))) = (CONVERT(`testapp_measure`.`state_version`&$2, SIGNED))) THEN (CONVERT(`testapp_measure`.`state_visit`&$3, SIGNED)) ELSE $4 END < $5 AND `testapp_measure`.`state` = $6) THEN ((((CONVERT((`testapp_measure`.`state_version` + $7)&$8, SIGNED)) * $9) + ((CASE WHEN ((FLOOR(`testapp_measure`.`state_visit` / POW(2, $10))) = (CONVERT(`testapp_measure`.`state_version`&$11, SIGNED))) THEN (CONVERT(`testapp_measure`.`state_visit`&$12, SIGNED)) ELSE $13 END + $14) * $15)) + $16) ELSE NULL END, `state` = $17, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $18, `state_next_attempt` = NULL, `state_attempts` = $19, `state_failures` = $20, `state_crashes` = $21, `state_version` = (`testapp_measure`.`state_version` + $22), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_measure`.`id` IN ($23)

-- record new, attempted again
UPDATE `testapp_measure` SET `state_ready` = $1, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND), `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_measure`.`id` IN ($5)

-- record new, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record new, released
UPDATE `testapp_measure` SET `state_ready` = $1, `state_attempts` = (`testapp_measure`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_measure`.`id` IN ($3)

-- renew
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`id` IN ($1) AND `testapp_measure`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_measure` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_measure`.`id` IN ($2)

-- extend
UPDATE `testapp_measure` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_measure`.`id` = $2 AND `testapp_measure`.`state` = $3 AND `testapp_measure`.`state_claim` = $4)

-- undo a claim
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` = $1 AND `testapp_measure`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NOT NULL AND `testapp_measure`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_measure`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_measure`.`id` AS `pk` FROM `testapp_measure` WHERE (`testapp_measure`.`state_claim` IS NOT NULL AND `testapp_measure`.`state` IN ($1, $2, $3) AND `testapp_measure`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $4 MICROSECOND)) ORDER BY `testapp_measure`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_measure`.`id` AS `pk`, `testapp_measure`.`state_claim` AS `state_claim` FROM `testapp_measure` WHERE `testapp_measure`.`id` IN ($1)
