-- a divided table

-- poll
SELECT (EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $1 AND `testapp_bill`.`state` IN ($2, $3, $4, $5) AND `testapp_bill`.`state_crashes` < $6 AND `testapp_bill`.`state_crashes` = $7) LIMIT 1)), (EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $8 AND `testapp_bill`.`state` IN ($9, $10, $11, $12) AND `testapp_bill`.`state_crashes` < $13 AND `testapp_bill`.`state_crashes` > $14 AND `testapp_bill`.`state_crashes` >= $15 AND `testapp_bill`.`state_crashes` < $16) LIMIT 1)), (EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $17 AND `testapp_bill`.`state` IN ($18, $19, $20, $21) AND `testapp_bill`.`state_crashes` < $22 AND `testapp_bill`.`state_crashes` > $23 AND `testapp_bill`.`state_crashes` >= $24 AND `testapp_bill`.`state_crashes` < $25) LIMIT 1)), (EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $26 AND `testapp_bill`.`state` IN ($27, $28, $29, $30) AND `testapp_bill`.`state_crashes` < $31 AND `testapp_bill`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $32 AND `testapp_bill`.`state` IN ($33, $34, $35, $36) AND `testapp_bill`.`state_crashes` < $37 AND `testapp_bill`.`state_next_attempt` IS NULL) LIMIT 1)), (EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NOT NULL AND `testapp_bill`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NOT NULL AND `testapp_bill`.`state` IN ($38, $39, $40, $41, $42, $43, $44) AND `testapp_bill`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $45 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_bill`.`state_next_attempt`) AS `left` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $46 AND `testapp_bill`.`state` IN ($47) AND `testapp_bill`.`state_crashes` < $48 AND `testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_bill`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $49 MICROSECOND)) ORDER BY `testapp_bill`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_bill`.`state_next_attempt`) AS `left` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $50 AND `testapp_bill`.`state` IN ($51) AND `testapp_bill`.`state_crashes` < $52 AND `testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_bill`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $53 MICROSECOND)) ORDER BY `testapp_bill`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_bill`.`state_next_attempt`) AS `left` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $54 AND `testapp_bill`.`state` IN ($55) AND `testapp_bill`.`state_crashes` < $56 AND `testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_bill`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $57 MICROSECOND)) ORDER BY `testapp_bill`.`state_next_attempt` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_bill`.`state_next_attempt`) AS `left` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $58 AND `testapp_bill`.`state` IN ($59) AND `testapp_bill`.`state_crashes` < $60 AND `testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6)) AND `testapp_bill`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6) + INTERVAL $61 MICROSECOND)) ORDER BY `testapp_bill`.`state_next_attempt` ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $62)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $1 AND `testapp_bill`.`state` IN ($2, $3, $4, $5) AND `testapp_bill`.`state_crashes` < $6 AND `testapp_bill`.`state_next_attempt` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- mark ready
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $1 AND `testapp_bill`.`state` IN ($2, $3, $4, $5) AND `testapp_bill`.`state_crashes` < $6 AND `testapp_bill`.`state_next_attempt` IS NULL) LIMIT 99 FOR UPDATE SKIP LOCKED

-- mark ready
UPDATE `testapp_bill` SET `state_ready` = $1 WHERE `testapp_bill`.`id` IN ($2)

-- claim
SELECT `stator_limit`.`id`, `stator_limit`.`model_label`, `stator_limit`.`state` FROM `stator_limit` WHERE (`stator_limit`.`model_label` = $1 AND `stator_limit`.`state` = $2) ORDER BY `stator_limit`.`id` ASC LIMIT 1 FOR UPDATE

-- claim
INSERT IGNORE INTO `stator_limit` (`model_label`, `state`) VALUES ($1, $2)

-- claim
SELECT `stator_limit`.`id`, `stator_limit`.`model_label`, `stator_limit`.`state` FROM `stator_limit` WHERE (`stator_limit`.`model_label` = $1 AND `stator_limit`.`state` = $2) LIMIT 21 FOR UPDATE

-- claim
SELECT `testapp_bill`.`tenant_id` AS `tenant` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $1 AND `testapp_bill`.`state` IN ($2, $3, $4) AND `testapp_bill`.`state_crashes` < $5 AND `testapp_bill`.`state_crashes` = $6) ORDER BY 1 ASC, COALESCE(`testapp_bill`.`state_next_attempt`, `testapp_bill`.`state_changed`) ASC, `testapp_bill`.`id` ASC LIMIT 1

-- claim rows with few lost leases
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $1 AND `testapp_bill`.`state` IN ($2, $3, $4) AND `testapp_bill`.`state_crashes` < $5 AND `testapp_bill`.`state_crashes` > $6 AND `testapp_bill`.`state_crashes` >= $7 AND `testapp_bill`.`state_crashes` < $8) ORDER BY COALESCE(`testapp_bill`.`state_next_attempt`, `testapp_bill`.`state_changed`) ASC, 1 ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- claim rows with few lost leases
UPDATE `testapp_bill` SET `state_claim` = CASE WHEN (`testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE $1 END, `state_locked_until` = CASE WHEN (`testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN NULL ELSE (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND) END, `state_ready` = $3, `state_attempted` = CASE WHEN (`testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_bill`.`state_attempted` ELSE CURRENT_TIMESTAMP(6) END, `state_attempts` = CASE WHEN (`testapp_bill`.`state_next_attempt` > (CURRENT_TIMESTAMP(6))) THEN `testapp_bill`.`state_attempts` ELSE (`testapp_bill`.`state_attempts` + $4) END WHERE (`testapp_bill`.`id` IN ($5) AND `testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $6)

-- record narrow to done
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`id` IN ($1) AND `testapp_bill`.`state` = $2 AND `testapp_bill`.`state_claim` = $3) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- record narrow to done
SELECT `testapp_bill`.`id` AS `pk`, TIMESTAMPDIFF(MICROSECOND, `testapp_bill`.`state_changed`, CURRENT_TIMESTAMP(6)) AS `elapsed1` FROM `testapp_bill` WHERE `testapp_bill`.`id` IN ($1)

-- record narrow to done
UPDATE `testapp_bill` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_bill`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_bill`.`id` IN ($7)

-- record narrow to done
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- record narrow to done
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- record narrow to done
INSERT INTO `stator_history` (`model_label`, `object_pk`, `at`, `version`, `kind`, `source`, `to`, `actor`, `reason`, `worker`, `claimed`, `duration`, `stay`, `attempts`, `error`, `fingerprint`, `log`) VALUES ($1, $2, CURRENT_TIMESTAMP(6), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) RETURNING `stator_history`.`id`, `stator_history`.`at`

-- record narrow, attempted again
UPDATE `testapp_bill` SET `state_ready` = $1, `state_next_attempt` = (CURRENT_TIMESTAMP(6) + INTERVAL $2 MICROSECOND), `state_failures` = $3, `state_crashes` = $4, `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_bill`.`id` IN ($5)

-- record narrow, attempted again
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2) WHERE (`stator_stats`.`hour` = $3 AND `stator_stats`.`model_label` = $4 AND `stator_stats`.`shard` = $5 AND `stator_stats`.`source` = $6 AND `stator_stats`.`to` = $7)

-- record narrow, released
UPDATE `testapp_bill` SET `state_ready` = $1, `state_attempts` = (`testapp_bill`.`state_attempts` - $2), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_bill`.`id` IN ($3)

-- renew
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`id` IN ($1) AND `testapp_bill`.`state_claim` = $2) ORDER BY 1 ASC LIMIT 1 FOR UPDATE SKIP LOCKED

-- renew
UPDATE `testapp_bill` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE `testapp_bill`.`id` IN ($2)

-- extend
UPDATE `testapp_bill` SET `state_locked_until` = (CURRENT_TIMESTAMP(6) + INTERVAL $1 MICROSECOND) WHERE (`testapp_bill`.`id` = $2 AND `testapp_bill`.`state` = $3 AND `testapp_bill`.`state_claim` = $4)

-- undo a claim
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` = $1 AND `testapp_bill`.`state_claim` IS NOT NULL) LIMIT 100000 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NOT NULL AND `testapp_bill`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_bill`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NOT NULL AND `testapp_bill`.`state` IN ($1, $2, $3, $4, $5, $6, $7) AND `testapp_bill`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $8 MICROSECOND)) ORDER BY `testapp_bill`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_bill`.`id` AS `pk`, `testapp_bill`.`state_claim` AS `state_claim` FROM `testapp_bill` WHERE `testapp_bill`.`id` IN ($1)

-- time out
SELECT `testapp_bill`.`id` AS `pk` FROM `testapp_bill` WHERE (`testapp_bill`.`state_claim` IS NULL AND `testapp_bill`.`state_ready` = $1 AND `testapp_bill`.`state` = $2 AND `testapp_bill`.`state_changed` <= (CURRENT_TIMESTAMP(6) + INTERVAL $3 MICROSECOND)) LIMIT 100 FOR UPDATE SKIP LOCKED

-- time out
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_bill`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_bill`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_bill` WHERE `testapp_bill`.`id` IN ($1)

-- time out
INSERT INTO `stator_history` (`at`, `actor`, `claimed`, `duration`, `attempts`, `error`, `fingerprint`, `log`, `model_label`, `to`, `reason`, `worker`, `kind`, `object_pk`, `source`, `version`, `stay`) SELECT CURRENT_TIMESTAMP(6) AS `stator_at`, $1 AS `stator_actor`, NULL AS `stator_claimed`, NULL AS `stator_duration`, $2 AS `stator_attempts`, $3 AS `stator_error`, $4 AS `stator_fingerprint`, NULL AS `stator_log`, $5 AS `stator_model_label`, $6 AS `stator_to`, $7 AS `stator_reason`, $8 AS `stator_worker`, $9 AS `stator_kind`, CAST(`testapp_bill`.`id` AS char(255)) AS `stator_object_pk`, `testapp_bill`.`state` AS `stator_source`, (`testapp_bill`.`state_version` + $10) AS `stator_version`, (TIMESTAMPDIFF(MICROSECOND, `testapp_bill`.`state_changed`, CURRENT_TIMESTAMP(6))) / 1000000.0 AS `stator_stay` FROM `testapp_bill` WHERE `testapp_bill`.`id` = $11
