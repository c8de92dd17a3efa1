-- moves with its related objects

-- poll
SELECT (EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE 0 = 1 LIMIT 1) OR EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE 0 = 1 LIMIT 1)), (EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE (`testapp_basket`.`state_claim` IS NOT NULL AND `testapp_basket`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) LIMIT 1) OR EXISTS (SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE (`testapp_basket`.`state_claim` IS NOT NULL AND `testapp_basket`.`state` IN ($1, $2, $3, $4, $5) AND `testapp_basket`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $6 MICROSECOND)) LIMIT 1)), (SELECT SUM((`stator_pause`.`id` + $7)) AS `number` FROM `stator_pause` WHERE (`stator_pause`.`until` IS NULL OR `stator_pause`.`until` > (CURRENT_TIMESTAMP(6))))

-- mark ready
UPDATE `testapp_basket` SET `state_ready` = $1 WHERE `testapp_basket`.`id` IN ($2)

-- reap
SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE (`testapp_basket`.`state_claim` IS NOT NULL AND `testapp_basket`.`state_locked_until` <= (CURRENT_TIMESTAMP(6))) ORDER BY `testapp_basket`.`state_locked_until` ASC LIMIT 100 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_basket`.`id` AS `pk` FROM `testapp_basket` WHERE (`testapp_basket`.`state_claim` IS NOT NULL AND `testapp_basket`.`state` IN ($1, $2, $3, $4, $5) AND `testapp_basket`.`state_locked_until` > (CURRENT_TIMESTAMP(6) + INTERVAL $6 MICROSECOND)) ORDER BY `testapp_basket`.`state_locked_until` ASC LIMIT 99 FOR UPDATE SKIP LOCKED

-- reap
SELECT `testapp_basket`.`id` AS `pk`, `testapp_basket`.`state_claim` AS `state_claim` FROM `testapp_basket` WHERE `testapp_basket`.`id` IN ($1)
