-- Locks, rate limits, schedules.
-- The time is 946684800 when a script begins.

SELECT honker_lock_acquire('l', 'a', 10), honker_lock_acquire('l', 'b', 10), honker_lock_acquire('l', 'a', 99);
--= 1|0|1
-- Acquiring a lock again does not renew it.
SELECT * FROM _honker_locks;
--= l|a|946684810
SELECT honker_lock_release('l', 'b'), honker_lock_release('l', 'a'), honker_lock_release('l', 'a'), honker_lock_acquire('l', 'b', 10);
--= 0|1|0|1
SELECT honker_lock_renew('l', 'a', 10), honker_lock_renew('l', 'b', 20);
--= 0|1
SELECT honker_lock_renew('l', 'b', 0);
--! ttl_s must be positive
SELECT * FROM _honker_locks;
--= l|b|946684820
--wait 20
-- An expired lock is free and cannot be renewed.
SELECT honker_lock_renew('l', 'b', 10), honker_lock_acquire('l', 'c', 5);
--= 0|1
SELECT honker_lock_acquire('m', 'a', 0), honker_lock_acquire('m', 'b', 5);
--= 1|1

SELECT honker_rate_limit_try('r', 2, 60), honker_rate_limit_try('r', 2, 60), honker_rate_limit_try('r', 2, 60), honker_rate_limit_try('s', 1, 60);
--= 1|1|0|1
SELECT name, window_start, count FROM _honker_rate_limits ORDER BY name;
--= r|946684800|2
--= s|946684800|1
SELECT honker_rate_limit_try('r', 0, 60);
--! limit and per must be positive
SELECT honker_rate_limit_try('r', 1, -1);
--! limit and per must be positive
SELECT honker_rate_limit_sweep(20), honker_rate_limit_sweep(19), honker_rate_limit_sweep(19);
--= 0|2|0

-- The time is 946684820, 20 seconds past the minute.
SELECT honker_cron_next_after('* * * * *', 946684820), honker_cron_next_after('30 * * * * *', 946684820), honker_cron_next_after('@every 5s', 946684820);
--= 946684860|946684830|946684825
SELECT honker_cron_next_after('x * * * *', 0);
--! cron field "x" not an integer
SELECT honker_cron_next_after('* * *', 0);
--! schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 3: "* * *"
SELECT honker_scheduler_soonest(), honker_scheduler_list(), honker_scheduler_tick(946684820);
--= 0|[]|[]
SELECT honker_scheduler_register('tea', 'kitchen', '@every 10s', '{"a":1}', 5, NULL), honker_scheduler_register('bins', 'house', '* * * * *', 'x', 0, 60, 0);
--= 1|1
SELECT honker_scheduler_register('bad', 'q', '@every 0s', 'x', 0, NULL);
--! interval count must be positive: "0s"
SELECT * FROM _honker_scheduler_tasks ORDER BY name;
--= bins|house|* * * * *|x|0|60|946684860|1|1
--= tea|kitchen|@every 10s|{"a":1}|5|NULL|946684830|1|3
SELECT honker_scheduler_list();
--= [{"cron_expr":"* * * * *","enabled":true,"expires_s":60,"max_attempts":1,"name":"bins","next_fire_at":946684860,"payload":"x","priority":0,"queue":"house"},{"cron_expr":"@every 10s","enabled":true,"expires_s":null,"max_attempts":3,"name":"tea","next_fire_at":946684830,"payload":"{\"a\":1}","priority":5,"queue":"kitchen"}]
SELECT honker_scheduler_soonest(), honker_scheduler_tick(946684829);
--= 946684830|[]
SELECT honker_scheduler_tick(946684860);
--= [{"fire_at":946684830,"job_id":1,"name":"tea","queue":"kitchen"},{"fire_at":946684840,"job_id":2,"name":"tea","queue":"kitchen"},{"fire_at":946684850,"job_id":3,"name":"tea","queue":"kitchen"},{"fire_at":946684860,"job_id":4,"name":"tea","queue":"kitchen"},{"fire_at":946684860,"job_id":5,"name":"bins","queue":"house"}]
-- The run_at of a fired job is the time at which it was enqueued, not the scheduled time.
SELECT id, queue, payload, priority, run_at, max_attempts, created_at, expires_at FROM _honker_live WHERE id IN (1, 5) ORDER BY id;
--= 1|kitchen|{"a":1}|5|946684820|3|946684820|NULL
--= 5|house|x|0|946684820|1|946684820|946684880
SELECT name, next_fire_at FROM _honker_scheduler_tasks ORDER BY name;
--= bins|946684920
--= tea|946684870
-- A tick fires at most the oldest 64 times of a schedule, which then continues after the tick.
SELECT honker_scheduler_pause('bins'), honker_scheduler_pause('bins'), honker_scheduler_pause('none');
--= 1|0|0
SELECT json_array_length(honker_scheduler_tick(946685820)), (SELECT next_fire_at FROM _honker_scheduler_tasks WHERE name = 'tea');
--= 64|946685830
-- Registering a schedule again unchanged keeps its next time. A paused schedule stays paused.
SELECT honker_scheduler_register('tea', 'kitchen', '@every 10s', '{"a":1}', 5, NULL), honker_scheduler_register('bins', 'house', '0 * * * *', 'x', 0, 60);
--= 1|1
SELECT name, next_fire_at, enabled, max_attempts FROM _honker_scheduler_tasks ORDER BY name;
--= bins|946688400|0|3
--= tea|946685830|1|3
SELECT honker_scheduler_resume('bins'), honker_scheduler_resume('bins');
--= 1|0
SELECT honker_scheduler_update('none', NULL, 'y', NULL, NULL, 0), honker_scheduler_update('tea', NULL, NULL, NULL, 7, 0), honker_scheduler_update('tea', NULL, 'y', 9, 7, 1);
--= 0|0|1
SELECT cron_expr, payload, priority, expires_s, max_attempts, next_fire_at FROM _honker_scheduler_tasks WHERE name = 'tea';
--= @every 10s|y|9|7|3|946685830
SELECT honker_scheduler_update('tea', '@every 1m', NULL, NULL, NULL, 1, 0, 1);
--= 1
SELECT cron_expr, payload, priority, expires_s, max_attempts, next_fire_at FROM _honker_scheduler_tasks WHERE name = 'tea';
--= @every 1m|y|9|NULL|1|946684880
SELECT honker_scheduler_update('tea', NULL, NULL, NULL, NULL, 0, NULL, 1), honker_scheduler_update('tea', 'bad', NULL, NULL, NULL, 0);
--! schedule expression requires 5 or 6 cron fields
SELECT honker_scheduler_update('tea', NULL, NULL, NULL, NULL, 0, NULL, 1), (SELECT max_attempts FROM _honker_scheduler_tasks WHERE name = 'tea');
--= 1|3
SELECT honker_scheduler_unregister('tea'), honker_scheduler_unregister('tea'), honker_scheduler_soonest();
--= 1|0|946688400
