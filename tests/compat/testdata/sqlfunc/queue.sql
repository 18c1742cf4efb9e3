-- honker_enqueue, claim_batch, ack, ack_batch, cancel, get_job.
-- The time is 946684800 when a script begins.

SELECT honker_enqueue('q', '{"a": "b"}', NULL, NULL, 0, 3, NULL);
--= 1
SELECT * FROM _honker_live;
--= 1|q|{"a": "b"}|pending|0|946684800|NULL|NULL|0|3|946684800|NULL
SELECT honker_get_job(1);
--= {"attempts":0,"claim_expires_at":null,"created_at":946684800,"expires_at":null,"id":1,"max_attempts":3,"payload":"{\"a\": \"b\"}","priority":0,"queue":"q","run_at":946684800,"state":"pending","worker_id":null}

-- No notification row is written.
SELECT count(*) FROM _honker_notifications;
--= 0

-- run_at is stored unchanged, even in the past. A delay takes precedence and may be negative.
SELECT honker_enqueue('times', '1', 1000, NULL, 0, 3, NULL), honker_enqueue('times', '2', 1000, 60, 0, 3, NULL),
  honker_enqueue('times', '3', NULL, -5, 0, 3, NULL), honker_enqueue('times', '4', -7, NULL, 0, 3, NULL);
--= 2|3|4|5
SELECT id, run_at FROM _honker_live WHERE queue = 'times';
--= 2|1000
--= 3|946684860
--= 4|946684795
--= 5|-7
-- The expiry is relative to now. A job with zero or less is expired from the start.
SELECT honker_enqueue('expiring', '1', NULL, NULL, 0, 3, 30), honker_enqueue('expiring', '2', NULL, NULL, 0, 3, 0),
  honker_enqueue('expiring', '3', NULL, NULL, 0, 3, -946684800), honker_enqueue('expiring', '4', NULL, NULL, 0, 3, -1);
--= 6|7|8|9
SELECT id, expires_at - 946684800 FROM _honker_live WHERE queue = 'expiring' AND id <> 8;
--= 6|30
--= 7|0
--= 9|-1
SELECT honker_claim_batch('expiring', 'w', -1, 10);
--= [{"attempts":1,"claim_expires_at":946684810,"id":6,"payload":"1","queue":"expiring","worker_id":"w"}]
-- Sums that overflow are clamped to the last possible second.
SELECT honker_enqueue('far', '1', NULL, 9223372036854775807, 0, 3, 9223372036854775807);
--= 10
SELECT run_at, expires_at FROM _honker_live WHERE id = 10;
--= 9223372036854775807|9223372036854775807

-- A claim returns payloads as JSON strings, whatever they contain.
SELECT honker_claim_batch('q', 'w', 10, 60);
--= [{"attempts":1,"claim_expires_at":946684860,"id":1,"payload":"{\"a\": \"b\"}","queue":"q","worker_id":"w"}]
SELECT honker_claim_batch('q', 'w', 10, 60);
--= []
SELECT honker_claim_batch('nobody''s', 'w', 1, 60);
--= []
SELECT honker_get_job(1);
--= {"attempts":1,"claim_expires_at":946684860,"created_at":946684800,"expires_at":null,"id":1,"max_attempts":3,"payload":"{\"a\": \"b\"}","priority":0,"queue":"q","run_at":946684800,"state":"processing","worker_id":"w"}
SELECT honker_ack(1, 'another'), honker_ack(99, 'w');
--= 0|0
SELECT honker_ack(1, 'w');
--= 1
SELECT honker_ack(1, 'w');
--= 0
SELECT '(' || honker_get_job(1) || ')', '(' || honker_get_job(-1) || ')';
--= ()|()

-- Jobs are claimed and returned by priority, run_at and id.
SELECT honker_enqueue('order', 'c', 946684790, NULL, 0, 3, NULL), honker_enqueue('order', 'a', NULL, NULL, 10, 3, NULL),
  honker_enqueue('order', 'b', NULL, NULL, 5, 3, NULL), honker_enqueue('order', 'd', 946684790, NULL, 0, 3, NULL),
  honker_enqueue('order', 'later', NULL, 1, 99, 3, NULL);
--= 11|12|13|14|15
SELECT honker_claim_batch('order', 'w', 0, 60);
--= []
SELECT json_extract(value, '$.payload') FROM json_each(honker_claim_batch('order', 'w', 3, 60));
--= a
--= b
--= c
SELECT honker_claim_batch('order', '', 9, 0);
--= [{"attempts":1,"claim_expires_at":946684800,"id":14,"payload":"d","queue":"order","worker_id":""}]
SELECT json_extract(honker_get_job(14), '$.worker_id') IS '';
--= 1

-- A batch skips jobs that the worker does not hold. Its jobs may be in several queues.
SELECT honker_enqueue('other', 'x', NULL, NULL, 0, 3, NULL), honker_enqueue('other', 'y', NULL, NULL, 0, 3, NULL);
--= 16|17
SELECT json_array_length(honker_claim_batch('other', 'w', 1, 60));
--= 1
SELECT honker_ack_batch('[11, 12, 12, 14, 15, 16, 17, 99]', 'w');
--= 3
SELECT id FROM _honker_live WHERE queue IN ('order', 'other') ORDER BY id;
--= 13
--= 14
--= 15
--= 17
SELECT honker_ack_batch('[]', 'w');
--= 0
SELECT honker_ack_batch('[13,', 'w');
--! malformed JSON
SELECT honker_ack_batch('', 'w');
--! malformed JSON
SELECT honker_ack_batch('13 14', 'w');
--! malformed JSON
SELECT id FROM _honker_live WHERE id = 13;
--= 13

-- A claim is valid through the second in which it expires.
--wait 60
SELECT honker_ack(13, 'w');
--= 1
SELECT honker_enqueue('lapse', 'x', NULL, NULL, 0, 3, NULL), honker_claim_batch('lapse', 'w', 1, 10) <> '[]';
--= 18|1
--wait 10
SELECT honker_claim_batch('lapse', 'thief', 1, 10);
--= []
--wait 1
SELECT honker_ack(18, 'w');
--= 0
SELECT honker_claim_batch('lapse', 'thief', 1, 10);
--= [{"attempts":2,"claim_expires_at":946684881,"id":18,"payload":"x","queue":"lapse","worker_id":"thief"}]
SELECT honker_ack(18, 'w'), honker_ack(18, 'thief');
--= 0|1

-- Cancelling deletes a job, even if a worker holds it.
SELECT honker_enqueue('c', 'x', NULL, NULL, 0, 3, NULL), honker_enqueue('c', 'y', NULL, NULL, 0, 3, NULL), honker_claim_batch('c', 'w', 1, 60) <> '';
--= 19|20|1
SELECT honker_cancel(19), honker_cancel(19), honker_cancel(20), honker_cancel(99);
--= 1|0|1|0
SELECT honker_ack(19, 'w'), honker_heartbeat(19, 'w', 9), honker_retry(19, 'w', 0, 'e'), honker_fail(19, 'w', 'e');
--= 0|0|0|0
SELECT count(*) FROM _honker_dead;
--= 0
