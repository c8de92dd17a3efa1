-- timeouts by dates, of a column and of an expression

-- poll
SELECT (EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state` = $1 AND `testapp_watch`.`state_claim` IS NULL AND `testapp_watch`.`alert_after` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state` = $2 AND `testapp_watch`.`state_claim` IS NULL AND ((`testapp_watch`.`alert_after` + INTERVAL `testapp_watch`.`kept_for` MICROSECOND) + INTERVAL $3 MICROSECOND) <= (CURRENT_TIMESTAMP(6))) LIMIT 1)), (EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE 0 = 1 LIMIT 1) OR EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state_claim` IS NOT NULL AND `testapp_watch`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state_claim` IS NOT NULL AND `testapp_watch`.`state` IN ($4, $5, $6) AND `testapp_watch`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $7 MICROSECOND)) LIMIT 1)), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), `testapp_watch`.`alert_after`) AS `left` FROM `testapp_watch` WHERE (`testapp_watch`.`state` = $8 AND `testapp_watch`.`state_claim` IS NULL AND `testapp_watch`.`alert_after` <= (CURRENT_TIMESTAMP(6) + INTERVAL $9 MICROSECOND) AND `testapp_watch`.`alert_after` > (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_watch`.`alert_after` ASC LIMIT 1), (SELECT TIMESTAMPDIFF(MICROSECOND, CURRENT_TIMESTAMP(6), ((`testapp_watch`.`alert_after` + INTERVAL `testapp_watch`.`kept_for` MICROSECOND) + INTERVAL $10 MICROSECOND)) AS `left` FROM `testapp_watch` WHERE (`testapp_watch`.`state` = $11 AND `testapp_watch`.`state_claim` IS NULL AND ((`testapp_watch`.`alert_after` + INTERVAL `testapp_watch`.`kept_for` MICROSECOND) + INTERVAL $12 MICROSECOND) <= (CURRENT_TIMESTAMP(6) + INTERVAL $13 MICROSECOND) AND ((`testapp_watch`.`alert_after` + INTERVAL `testapp_watch`.`kept_for` MICROSECOND) + INTERVAL $14 MICROSECOND) > (CURRENT_TIMESTAMP(6))) ORDER BY ((`testapp_watch`.`alert_after` + INTERVAL `testapp_watch`.`kept_for` MICROSECOND) + INTERVAL $15 MICROSECOND) ASC LIMIT 1), (SELECT SUM((`stator_pause`.`id` + $16)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
UPDATE `testapp_watch` SET `state_ready` = $1 WHERE `testapp_watch`.`id` IN ($2)

-- reap
SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state_claim` IS NOT NULL AND `testapp_watch`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_watch`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state_claim` IS NOT NULL AND `testapp_watch`.`state` IN ($1, $2, $3) AND `testapp_watch`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $4 MICROSECOND)) ORDER BY `testapp_watch`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_watch`.`id` AS `pk`, `testapp_watch`.`state_claim` AS `state_claim` FROM `testapp_watch` WHERE `testapp_watch`.`id` IN ($1)

-- time out
SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state` = $1 AND `testapp_watch`.`state_claim` IS NULL AND `testapp_watch`.`alert_after` <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED

-- time out
SELECT CAST(SUM(TIMESTAMPDIFF(MICROSECOND, `testapp_watch`.`state_changed`, CURRENT_TIMESTAMP(6))) AS SIGNED) AS `seconds`, TIMESTAMPDIFF(MICROSECOND, MIN(`testapp_watch`.`state_changed`), CURRENT_TIMESTAMP(6)) AS `longest` FROM `testapp_watch` WHERE `testapp_watch`.`id` IN ($1)

-- time out
INSERT INTO `stator_history` (`at`, `actor`, `claimed`, `duration`, `attempts`, `error`, `fingerprint`, `log`, `model_label`, `to`, `reason`, `worker`, `kind`, `object_pk`, `source`, `version`, `stay`) SELECT CURRENT_TIMESTAMP(6) AS `stator_at`, $1 AS `stator_actor`, NULL AS `stator_claimed`, NULL AS `stator_duration`, $2 AS `stator_attempts`, $3 AS `stator_error`, $4 AS `stator_fingerprint`, NULL AS `stator_log`, $5 AS `stator_model_label`, $6 AS `stator_to`, $7 AS `stator_reason`, $8 AS `stator_worker`, $9 AS `stator_kind`, CAST(`testapp_watch`.`id` AS char(255)) AS `stator_object_pk`, `testapp_watch`.`state` AS `stator_source`, (`testapp_watch`.`state_version` + $10) AS `stator_version`, (TIMESTAMPDIFF(MICROSECOND, `testapp_watch`.`state_changed`, CURRENT_TIMESTAMP(6))) / 1000000.0 AS `stator_stay` FROM `testapp_watch` WHERE `testapp_watch`.`id` = $11

-- time out
UPDATE `testapp_watch` SET `state` = $1, `state_changed` = CURRENT_TIMESTAMP(6), `state_attempted` = NULL, `state_ready` = $2, `state_next_attempt` = NULL, `state_attempts` = $3, `state_failures` = $4, `state_crashes` = $5, `state_version` = (`testapp_watch`.`state_version` + $6), `state_claim` = NULL, `state_locked_until` = NULL WHERE `testapp_watch`.`id` IN ($7)

-- time out
UPDATE `stator_stats` SET `handled` = (`stator_stats`.`handled` + $1), `failed` = (`stator_stats`.`failed` + $2), `seconds` = (`stator_stats`.`seconds` + $3), `longest` = GREATEST(`stator_stats`.`longest`, $4) WHERE (`stator_stats`.`hour` = $5 AND `stator_stats`.`model_label` = $6 AND `stator_stats`.`shard` = $7 AND `stator_stats`.`source` = $8 AND `stator_stats`.`to` = $9)

-- time out
INSERT IGNORE INTO `stator_stats` (`model_label`, `hour`, `source`, `to`, `shard`, `handled`, `failed`, `seconds`, `longest`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- time out
SELECT `testapp_watch`.`id` AS `pk` FROM `testapp_watch` WHERE (`testapp_watch`.`state` = $1 AND `testapp_watch`.`state_claim` IS NULL AND ((`testapp_watch`.`alert_after` + INTERVAL `testapp_watch`.`kept_for` MICROSECOND) + INTERVAL $2 MICROSECOND) <= (CURRENT_TIMESTAMP(6))) LIMIT 100 FOR UPDATE SKIP LOCKED
