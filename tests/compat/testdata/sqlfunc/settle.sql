-- honker_retry, fail, heartbeat, sweep_expired, queue_next_claim_at, and the dead letters of a claim.
-- The time is 946684800 when a script begins.

SELECT honker_enqueue('q', '"x"', NULL, NULL, 7, 2, NULL), honker_claim_batch('q', 'w', 1, 60) <> '[]';
--= 1|1
SELECT honker_retry(1, 'another', 60, 'boom'), honker_retry(99, 'w', 60, 'boom');
--= 0|0
SELECT honker_retry(1, 'w', 60, 'boom');
--= 1
-- A retry keeps the attempt and the priority.
SELECT honker_get_job(1);
--= {"attempts":1,"claim_expires_at":null,"created_at":946684800,"expires_at":null,"id":1,"max_attempts":2,"payload":"\"x\"","priority":7,"queue":"q","run_at":946684860,"state":"pending","worker_id":null}
SELECT count(*) FROM _honker_notifications;
--= 0
SELECT honker_retry(1, 'w', 60, 'boom');
--= 0
SELECT honker_queue_next_claim_at('q');
--= 946684860
--wait 60
SELECT honker_queue_next_claim_at('q');
--= 0
SELECT honker_claim_batch('q', 'w', 1, 60);
--= [{"attempts":2,"claim_expires_at":946684920,"id":1,"payload":"\"x\"","queue":"q","worker_id":"w"}]
-- A running last attempt does not lead to another claim.
SELECT honker_queue_next_claim_at('q');
--= 0
-- A retry without attempts left makes the job dead and returns 1.
SELECT honker_retry(1, 'w', 60, 'the last boom');
--= 1
SELECT * FROM _honker_dead;
--= 1|q|"x"|7|946684860|2|2|the last boom|946684800|946684860
SELECT '(' || honker_get_job(1) || ')';
--= ()

SELECT honker_enqueue('q', 'f', NULL, NULL, 0, 3, NULL), honker_fail(2, 'w', 'not claimed'), honker_claim_batch('q', 'w', 1, 60) <> '[]';
--= 2|0|1
SELECT honker_fail(2, 'another', 'e'), honker_fail(2, 'w', 'no use'), honker_fail(2, 'w', 'no use');
--= 0|1|0
SELECT id, attempts, max_attempts, last_error, died_at FROM _honker_dead WHERE id = 2;
--= 2|1|3|no use|946684860

-- A heartbeat sets the lease relative to now, so it may shorten it.
SELECT honker_enqueue('h', 'x', NULL, NULL, 0, 3, NULL), honker_heartbeat(3, 'w', 10), honker_claim_batch('h', 'w', 1, 60) <> '[]';
--= 3|0|1
SELECT honker_heartbeat(3, 'another', 600), honker_heartbeat(3, 'w', 5);
--= 0|1
SELECT claim_expires_at FROM _honker_live WHERE id = 3;
--= 946684865
SELECT honker_queue_next_claim_at('h');
--= 946684866
--wait 5
SELECT honker_queue_next_claim_at('h');
--= 946684866
SELECT honker_heartbeat(3, 'w', 0);
--= 1
--wait 1
SELECT honker_heartbeat(3, 'w', 60), honker_retry(3, 'w', 0, ''), honker_fail(3, 'w', '');
--= 0|0|0
SELECT honker_cancel(3);
--= 1

-- A job with a negative delay is due at once.
SELECT honker_enqueue('n', 'x', NULL, NULL, 0, 3, NULL), honker_claim_batch('n', 'w', 1, 60) <> '[]', honker_retry(4, 'w', -5, '');
--= 4|1|1
SELECT _honker_live.run_at, last_error FROM _honker_live LEFT JOIN _honkerx_job ON job_id = id WHERE id = 4;
--= 946684861|NULL

-- Jobs without attempts left die in a claim of their queue, even with n = 0. Valid claims are not affected.
SELECT honker_enqueue('m', 'x', NULL, NULL, 0, 0, NULL), honker_enqueue('m', 'y', NULL, NULL, 0, -1, NULL), honker_enqueue('m', 'z', NULL, NULL, 0, 1, NULL);
--= 5|6|7
SELECT honker_claim_batch('m', 'w', 0, 60);
--= []
SELECT id, attempts, max_attempts, last_error FROM _honker_dead WHERE queue = 'm';
--= 5|0|0|max attempts exceeded
--= 6|0|-1|max attempts exceeded
SELECT honker_claim_batch('m', 'w', 9, 60);
--= [{"attempts":1,"claim_expires_at":946684926,"id":7,"payload":"z","queue":"m","worker_id":"w"}]
--wait 60
SELECT honker_claim_batch('m', 'v', 9, 60);
--= []
SELECT count(*) FROM _honker_live WHERE id = 7;
--= 1
--wait 1
SELECT honker_claim_batch('m', 'v', 9, 60);
--= []
SELECT id, attempts, max_attempts, last_error FROM _honker_dead WHERE id = 7;
--= 7|1|1|max attempts exceeded

-- Expired jobs are not claimed and wait for a sweep. Running jobs are not affected.
SELECT honker_enqueue('e', '1', NULL, NULL, 0, 3, -1), honker_enqueue('e', '2', NULL, NULL, 0, 3, 0), honker_enqueue('e', '3', NULL, NULL, 0, 3, 3600), honker_enqueue('e', '4', NULL, NULL, 0, 3, NULL);
--= 8|9|10|11
SELECT honker_claim_batch('e', 'w', 1, 7200) <> '[]';
--= 1
SELECT honker_sweep_expired('nobody''s'), honker_sweep_expired('e'), honker_sweep_expired('e');
--= 0|2|0
SELECT id, last_error FROM _honker_dead WHERE queue = 'e';
--= 8|expired
--= 9|expired
--wait 3600
SELECT honker_sweep_expired('e');
--= 0
SELECT honker_ack(10, 'w');
--= 1

-- The next claim is possible when a job is due, or in the second after a claim expires.
SELECT honker_queue_next_claim_at('nobody''s');
--= 0
SELECT honker_enqueue('next', 'x', NULL, 100, 0, 3, NULL), honker_enqueue('next', 'y', NULL, 50, 9, 3, 10);
--= 12|13
SELECT honker_queue_next_claim_at('next') - 946684800 - 3727;
--= 50
--wait 10
SELECT honker_queue_next_claim_at('next') - 946684800 - 3727;
--= 100
SELECT honker_enqueue('next', 'z', NULL, NULL, 0, 3, NULL), honker_claim_batch('next', 'w', 1, 20) <> '[]';
--= 14|1
SELECT honker_queue_next_claim_at('next') - 946684800 - 3727;
--= 31
