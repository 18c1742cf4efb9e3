-- notify, honker_bootstrap, results, streams, and the JSON format.
-- The time is 946684800 when a script begins.

SELECT notify('news', 'not {JSON'), notify('news', '');
--= 1|2
SELECT * FROM _honker_notifications;
--= 1|news|not {JSON|946684800
--= 2|news||946684800
SELECT honker_bootstrap(), honker_bootstrap();
--= 1|1

SELECT honker_result_get(5);
--= NULL
SELECT honker_result_save(5, '{"n": 1}', 10), honker_result_save(6, 'null', 0), honker_result_save(7, 'not JSON', -1);
--= 1|1|1
SELECT * FROM _honker_results;
--= 5|{"n": 1}|946684800|946684810
--= 6|null|946684800|NULL
--= 7|not JSON|946684800|NULL
SELECT honker_result_get(5), honker_result_get(6), honker_result_get(7), honker_result_sweep();
--= {"n": 1}|null|not JSON|0
--wait 9
SELECT honker_result_get(5), honker_result_sweep();
--= {"n": 1}|0
SELECT honker_result_save(6, '', 2);
--= 1
SELECT created_at, expires_at, '(' || honker_result_get(6) || ')' FROM _honker_results WHERE job_id = 6;
--= 946684800|946684811|()
--wait 1
SELECT honker_result_get(5);
--= NULL
SELECT honker_result_sweep(), honker_result_sweep();
--= 1|0
UPDATE _honker_results SET value = NULL WHERE job_id = 7;
SELECT honker_result_get(7);
--= NULL

-- All topics share the sequence of offsets.
SELECT honker_stream_publish('t', NULL, '{"a":1}'), honker_stream_publish('u', 'k', 'b'), honker_stream_publish('t', '', 'c');
--= 1|2|3
SELECT honker_stream_read_since('t', 0, 10);
--= [{"created_at":946684810,"key":null,"offset":1,"payload":"{\"a\":1}","topic":"t"},{"created_at":946684810,"key":"","offset":3,"payload":"c","topic":"t"}]
SELECT honker_stream_read_since('u', 0, -1);
--= [{"created_at":946684810,"key":"k","offset":2,"payload":"b","topic":"u"}]
SELECT honker_stream_read_since('t', 1, 1), honker_stream_read_since('t', 3, -1), honker_stream_read_since('t', 0, 0), honker_stream_read_since('v', 0, 9);
--= [{"created_at":946684810,"key":"","offset":3,"payload":"c","topic":"t"}]|[]|[]|[]
-- A star in a name has no special meaning here, unlike in the Go API.
SELECT honker_stream_read_since('*', 0, 10), honker_stream_publish('*', NULL, 'star');
--= []|4
SELECT honker_stream_read_since('*', 0, 10);
--= [{"created_at":946684810,"key":null,"offset":4,"payload":"star","topic":"*"}]
SELECT count(*) FROM _honker_notifications;
--= 2

SELECT honker_stream_get_offset('c', 't');
--= 0
SELECT honker_stream_save_offset('c', 't', 5), honker_stream_save_offset('c', 't', 5), honker_stream_save_offset('c', 't', 3), honker_stream_save_offset('c', 't', 10);
--= 1|0|0|1
SELECT honker_stream_get_offset('c', 't'), honker_stream_get_offset('t', 'c'), honker_stream_get_offset('c', 'u');
--= 10|0|0
SELECT honker_stream_save_offset('below', 't', -3), honker_stream_save_offset('zero', 't', 0);
--= 1|1
SELECT * FROM _honker_stream_consumers;
--= c|t|10
--= below|t|-3
--= zero|t|0

-- JSON uses short escapes where they exist and lower-case \u00xx otherwise. Other characters are not escaped.
SELECT honker_enqueue('j"\', char(34, 92, 8, 12, 10, 13, 9, 1, 31, 127, 47, 60, 8232, 8233, 228, 128512), NULL, NULL, 0, 3, NULL);
--= 1
SELECT replace(replace(replace(honker_claim_batch('j"\', 'w', 1, 0), char(8232), '<2028>'), char(8233), '<2029>'), char(127), '<7f>');
--= [{"attempts":1,"claim_expires_at":946684810,"id":1,"payload":"\"\\\b\f\n\r\t\u0001\u001f<7f>/<<2028><2029>ä😀","queue":"j\"\\","worker_id":"w"}]
SELECT honker_stream_publish('nul', NULL, 'a' || char(0) || 'b');
--= 5
SELECT honker_stream_read_since('nul', 0, 1), length(CAST(payload AS BLOB)) FROM _honker_stream WHERE topic = 'nul';
--= [{"created_at":946684810,"key":null,"offset":5,"payload":"a\u0000b","topic":"nul"}]|3
