-- Payloads stored as BLOBs are not lost, do not stop their queue, and are reported as BLOBs.
-- The time is 946684800 when a script begins.

INSERT INTO _honker_live (queue, payload, priority, run_at, max_attempts, created_at) VALUES
  ('q', x'00ff', 9, 0, 3, 0), ('q', x'01', 9, 0, 3, 0), ('q', 'good', 0, 0, 3, 0), ('q', 'better', 1, 0, 3, 0);
SELECT honker_get_job(1);
--! honker_get_job: job 1: payload is a BLOB, not text
SELECT honker_claim_batch('q', 'w', 1, 60);
--= [{"attempts":1,"claim_expires_at":946684860,"id":4,"payload":"better","queue":"q","worker_id":"w"}]
SELECT id, hex(payload), typeof(payload), attempts, last_error, died_at FROM _honker_dead;
--= 1|00FF|blob|1|payload is a BLOB, not text|946684800
--= 2|01|blob|1|payload is a BLOB, not text|946684800
SELECT honker_claim_batch('q', 'w', 9, 60);
--= [{"attempts":1,"claim_expires_at":946684860,"id":3,"payload":"good","queue":"q","worker_id":"w"}]

INSERT INTO _honker_live (id, queue, payload, state, worker_id, claim_expires_at, attempts, run_at, created_at) VALUES
  (10, 'held', x'02', 'processing', 'w', 946684900, 1, 0, 0), (11, 'held', x'03', 'processing', 'w', 946684900, 1, 0, 0),
  (12, 'held', x'04', 'processing', 'w', 946684900, 1, 0, 0), (13, 'held', x'05', 'processing', 'w', 946684900, 3, 0, 0);
SELECT honker_fail(10, 'w', 'e'), honker_retry(11, 'w', 9, 'e'), honker_ack(12, 'w'), honker_retry(13, 'w', 9, 'last');
--= 1|1|1|1
SELECT id, hex(payload), last_error FROM _honker_dead WHERE queue = 'held';
--= 10|02|e
--= 13|05|last
INSERT INTO _honker_live (id, queue, payload, run_at, created_at, expires_at) VALUES (20, 'old', x'06', 0, 0, 1);
SELECT honker_sweep_expired('old');
--= 1
SELECT hex(payload), last_error FROM _honker_dead WHERE id = 20;
--= 06|expired

INSERT INTO _honker_stream (topic, key, payload, created_at) VALUES ('t', x'ff', x'61ff62', 7), ('t', NULL, 'next', 8);
SELECT honker_stream_read_since('t', 0, 9);
--= [{"created_at":7,"key":"�","offset":1,"payload":"a�b","topic":"t"},{"created_at":8,"key":null,"offset":2,"payload":"next","topic":"t"}]
