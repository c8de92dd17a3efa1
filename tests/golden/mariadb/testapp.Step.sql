-- an ordinary model, with a timeout and a deletion

-- poll
SELECT (EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $1 AND `testapp_step`.`state` IN ($2, $3, $4, $5) AND `testapp_step`.`state_crashes` < $6 AND `testapp_step`.`state_crashes` = $7) LIMIT 1)), (EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $8 AND `testapp_step`.`state` IN ($9, $10, $11, $12) AND `testapp_step`.`state_crashes` < $13 AND `testapp_step`.`state_crashes` > $14 AND `testapp_step`.`state_crashes` >= $15 AND `testapp_step`.`state_crashes` < $16) LIMIT 1)), (EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $17 AND `testapp_step`.`state` IN ($18, $19, $20, $21) AND `testapp_step`.`state_crashes` < $22 AND `testapp_step`.`state_crashes` > $23 AND `testapp_step`.`state_crashes` >= $24 AND `testapp_step`.`state_crashes` < $25) LIMIT 1)), (EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $26 AND `testapp_step`.`state` IN ($27, $28, $29, $30) AND `testapp_step`.`state_crashes` < $31 AND `testapp_step`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $32 AND `testapp_step`.`state` IN ($33, $34, $35, $36) AND `testapp_step`.`state_crashes` < $37 AND `testapp_step`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NOT NULL AND `testapp_step`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NOT NULL AND `testapp_step`.`state` IN ($38, $39, $40, $41, $42, $43, $44, $45) AND `testapp_step`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $46 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_step`.`state_next_attempt`) AS `left` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $47 AND `testapp_step`.`state` IN ($48) AND `testapp_step`.`state_crashes` < $49 AND `testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_step`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $50 MICROSECOND)) ORDER BY `testapp_step`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_step`.`state_next_attempt`) AS `left` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $51 AND `testapp_step`.`state` IN ($52) AND `testapp_step`.`state_crashes` < $53 AND `testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_step`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $54 MICROSECOND)) ORDER BY `testapp_step`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_step`.`state_next_attempt`) AS `left` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $55 AND `testapp_step`.`state` IN ($56) AND `testapp_step`.`state_crashes` < $57 AND `testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_step`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $58 MICROSECOND)) ORDER BY `testapp_step`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_step`.`state_next_attempt`) AS `left` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $59 AND `testapp_step`.`state` IN ($60) AND `testapp_step`.`state_crashes` < $61 AND `testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_step`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $62 MICROSECOND)) ORDER BY `testapp_step`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $63)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $1 AND `testapp_step`.`state` IN ($2, $3, $4, $5) AND `testapp_step`.`state_crashes` < $6 AND `testapp_step`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $1 AND `testapp_step`.`state` IN ($2, $3, $4, $5) AND `testapp_step`.`state_crashes` < $6 AND `testapp_step`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_step` SET `state_ready` = $1 WHERE `testapp_step`.`id` IN ($2)

-- claim
SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = $1

-- claim
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $1 AND `testapp_step`.`state` IN ($2, $3, $4, $5) AND `testapp_step`.`state_crashes` < $6 AND `testapp_step`.`state_crashes` = $7) ORDER BY COALESCE(`testapp_step`.`state_next_attempt`, `testapp_step`.`state_changed`) ASC, `testapp_step`.`id` ASC LIMIT 200

-- claim
UPDATE `testapp_step` SET `state_claim` = CASE WHEN (`testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE CASE WHEN (`testapp_step`.`state` = $2) THEN (CURRENT_TIMESTAMP(6) + INTERVAL $3 MICROSECOND) ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $4 MICROSECOND) END END, `state_ready` = $5, `state_attempted` = CASE WHEN (`testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_step`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_step`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_step`.`state_attempts` ELSE (`testapp_step`.`state_attempts` + $6) END WHERE (`testapp_step`.`id` IN ($7) AND `testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $8)

-- claim rows with few lost leases
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $1 AND `testapp_step`.`state` IN ($2, $3, $4, $5) AND `testapp_step`.`state_crashes` < $6 AND `testapp_step`.`state_crashes` > $7 AND `testapp_step`.`state_crashes` >= $8 AND `testapp_step`.`state_crashes` < $9) ORDER BY COALESCE(`testapp_step`.`state_next_attempt`, `testapp_step`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- record late to done
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`id` IN ($1) AND `testapp_step`.`state` = $2 AND `testapp_step`.`state_claim` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record late to done
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_step`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_step`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_step` WHERE `testapp_step`.`id` IN ($1)

-- record late to done
UPDATE `testapp_step` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_step`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_step`.`id` IN ($7)

-- record late to done
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record late to done
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record late, attempted again
UPDATE `testapp_step` SET `state_ready` = $1, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND), `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_step`.`id` IN ($5)

-- record late, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record late, released
UPDATE `testapp_step` SET `state_ready` = $1, `state_attempts` = (`testapp_step`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_step`.`id` IN ($3)

-- record new to failed
UPDATE `testapp_step` SET `state_visit` = CASE WHEN (CASE WHEN ((FLOOR(`testapp_step`.`state_visit` / POW(2, $1))) = (CONVERT(`testapp_step`.`state_version`&$2, SIGNED))) THEN (CONVERT(`testapp_step`.`state_visit`&$3, SIGNED)) ELSE $4 END < $5 AND `testapp_step`.`state` = $6) THEN ((((CONVERT((`testapp_step`.`state_version` + $7)&$8, SIGNED)) * $9) + ((CASE WHEN ((FLOOR(`testapp_step`.`state_visit` / POW(2, $10))) = (CONVERT(`testapp_step`.`state_version`&$11, SIGNED))) THEN (CONVERT(`testapp_step`.`state_visit`&$12, SIGNED)) ELSE $13 END + $14) * $15)) + $16) ELSE NULL END, `state` = $17, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $18, `state_next_attempt` = NULL, `state_attempts` = $19, `state_failures` = $20, `state_crashes` = $21, `state_version` = (`testapp_step`.`state_version` + $22), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_step`.`id` IN ($23)

-- record new to late
UPDATE `testapp_step` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $3 MICROSECOND), `state_attempts` = $4, `state_failures` = $5, `state_crashes` = $6, `state_version` = (`testapp_step`.`state_version` + $7), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_step`.`id` IN ($8)

-- renew
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`id` IN ($1) AND `testapp_step`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_step` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_step`.`id` IN ($2)

-- extend
UPDATE `testapp_step` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_step`.`id` = $2 AND `testapp_step`.`state` = $3 AND `testapp_step`.`state_claim` = $4)

-- undo a claim
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` = $1 AND `testapp_step`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NOT NULL AND `testapp_step`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_step`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NOT NULL AND `testapp_step`.`state` IN ($1, $2, $3, $4, $5, $6, $7, $8) AND `testapp_step`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $9 MICROSECOND)) ORDER BY `testapp_step`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_step`.`id` AS `pk`, `testapp_step`.`state_claim` AS `state_claim` FROM `testapp_step` WHERE `testapp_step`.`id` IN ($1)

-- time out
SELECT `testapp_step`.`id` AS `pk` FROM `testapp_step` WHERE (`testapp_step`.`state_claim` IS NULL AND `testapp_step`.`state_ready` = $1 AND `testapp_step`.`state` = $2 AND `testapp_step`.`state_changed` <= (CURRENT_TIMESTAMP(6) + INTERVAL $3 MICROSECOND)) LIMIT 100 FOR UPDATE SKIP LOCKED
