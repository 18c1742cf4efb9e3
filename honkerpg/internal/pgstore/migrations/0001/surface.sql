-- The functions for other languages, for psql and for triggers of the application: docs/sql-postgres.md promises the
-- functions of this file without a sentence that says otherwise. They take the server's time, work in the transaction of
-- their caller and tell waiting processes at its commit. Work that must not hold a lock until then, which is the numbering
-- of events and the release of waiting jobs, is left to the next look of a process, or to honker.catch_up.
--
-- Arguments are checked before anything is written. An error of an argument has the code 22023. Functions that look rows up
-- forbid scans of whole tables, since statistics are often of an empty table. A plan that scans one even so looks so
-- expensive that it would be compiled.

-- Ends the statement with an error of an argument. Not promised.
CREATE FUNCTION honker.refuse(message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = message;
END $$;

-- Checks a name or a key. Not promised.
CREATE FUNCTION honker.check_name(kind text, name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF name IS NULL THEN
    PERFORM honker.refuse(format('the %s is NULL', kind));
  ELSIF name = '' THEN
    PERFORM honker.refuse(format('the %s is empty', kind));
  ELSIF octet_length(name) > 1024 THEN
    PERFORM honker.refuse(format('the %s has %s bytes; the maximum is 1024', kind, octet_length(name)));
  END IF;
END $$;

-- Checks a span of time, which must be longer than above. NULL is allowed if it is optional. Not promised.
CREATE FUNCTION honker.check_span(kind text, span interval, above interval, optional boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF span IS NULL AND NOT optional THEN
    PERFORM honker.refuse(format('the %s is NULL', kind));
  ELSIF span <= above THEN
    PERFORM honker.refuse(format(CASE WHEN span < interval '0' THEN 'the %s %s is negative' ELSE 'the %s %s is not positive' END, kind, span));
  END IF;
END $$;

-- Checks that a payload is not the NULL of SQL. Not promised.
CREATE FUNCTION honker.check_payload(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF payload IS NULL THEN
    PERFORM honker.refuse('the payload is NULL; the null of JSON is ''null''::jsonb');
  END IF;
END $$;

-- Checks a claim's worker and attempt. Not promised.
CREATE FUNCTION honker.check_claim(id bigint, worker text, attempt bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF id IS NULL OR attempt IS NULL THEN
    PERFORM honker.refuse('the id or the attempt of the job is NULL');
  END IF;
  PERFORM honker.check_name('worker', worker);
END $$;

-- Refuses transactions whose statements do not see the commits of others. Not promised.
CREATE FUNCTION honker.check_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = 'the transaction must be READ COMMITTED';
  END IF;
END $$;

-- Headers as they are stored, or NULL if there are none. Not promised.
CREATE FUNCTION honker.headers_text(headers jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n bigint; bytes bigint; strings boolean; named boolean;
BEGIN
  IF headers IS NULL OR headers IN ('null', '{}') THEN
    RETURN NULL;
  END IF;
  IF jsonb_typeof(headers) <> 'object' THEN
    PERFORM honker.refuse('the headers are no JSON object');
  END IF;
  SELECT count(*), sum(octet_length(h.key) + octet_length(h.value #>> '{}')), bool_and(jsonb_typeof(h.value) = 'string'), bool_and(h.key <> '')
  INTO n, bytes, strings, named FROM jsonb_each(headers) h;
  IF NOT strings OR NOT named THEN
    PERFORM honker.refuse('each header must have a name, and a string as its value');
  ELSIF n > 64 OR bytes > 8192 THEN
    PERFORM honker.refuse(format('%s headers have %s bytes; the maximum is 64 headers with 8192 bytes', n, bytes));
  END IF;
  RETURN headers::text;
END $$;

-- A stored payload. Text that is no jsonb, such as that of a Codec, becomes a JSON string. Not promised.
CREATE FUNCTION honker.jsonb_or_text(value text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN value::jsonb;
EXCEPTION WHEN others THEN
  RETURN to_jsonb(value);
END $$;

-- The signals of a job that has ended, of all queues and jobs, of a message and of a lock. Not promised.
CREATE FUNCTION honker.job_signal(id bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT honker.signal_bit(20, 8, id::text) $$;
CREATE FUNCTION honker.released_signals() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT (1::bigint << 28) - 1 $$;
CREATE FUNCTION honker.channel_signal(channel text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT honker.signal_bit(48, 7, channel) $$;
CREATE FUNCTION honker.lock_signal(name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT honker.signal_bit(60, 3, name) $$;

-- Tells the processes that wait for a queue or a job of it. If the resolver has work, any process may do it. Not promised.
CREATE FUNCTION honker.tell_settled(id bigint, queue text) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
  PERFORM honker.wake(honker.queue_signal(queue) | honker.job_signal(id)
    | CASE WHEN EXISTS (SELECT FROM honker.token t WHERE t.queue IS NULL) THEN honker.released_signals() ELSE 0 END, '');
END $$;

-- Adds jobs that share their options. Not promised.
CREATE FUNCTION honker.enqueue_jobs(queue text, payloads jsonb[], priority bigint, delay interval, run_at timestamptz, expires interval,
  max_attempts bigint, unique_key text, key text, headers jsonb, after bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := clock_timestamp();
  due timestamptz;
  expiry timestamptz;
  texts text[];
  others bigint[] := coalesce(after, '{}');
  stored text;
  missing bigint;
  ids bigint[];
BEGIN
  PERFORM honker.check_name('queue name', queue);
  PERFORM honker.check_span('delay', delay, '-1 microsecond', true);
  PERFORM honker.check_span('expires', expires, '0', true);
  IF key IS NOT NULL THEN
    PERFORM honker.check_name('key', key);
  END IF;
  IF unique_key IS NOT NULL THEN
    PERFORM honker.check_name('unique key', unique_key);
  END IF;
  IF priority IS NULL OR max_attempts IS NULL THEN
    PERFORM honker.refuse('the priority or max_attempts is NULL');
  ELSIF max_attempts < 1 THEN
    PERFORM honker.refuse(format('max_attempts must be positive, got %s', max_attempts));
  ELSIF delay IS NOT NULL AND run_at IS NOT NULL THEN
    PERFORM honker.refuse('delay cannot be combined with run_at');
  ELSIF run_at = 'infinity' THEN
    PERFORM honker.refuse('run_at is infinity');
  ELSIF array_position(payloads, NULL) IS NOT NULL THEN
    PERFORM honker.check_payload(NULL);
  ELSIF array_position(others, NULL) IS NOT NULL OR cardinality(others) > 10000 THEN
    PERFORM honker.refuse('after must have at most 10000 ids and no NULL');
  END IF;
  stored := honker.headers_text(headers);
  due := CASE WHEN delay > '0' THEN at + delay ELSE greatest(run_at, at) END;
  expiry := at + expires;
  texts := payloads::text[];
  IF cardinality(others) > 0 THEN
    SELECT l.node INTO missing FROM honker.check_links(queue, key, others, '{}', 0) l WHERE l.problem IS NOT NULL;
    IF FOUND THEN
      PERFORM honker.refuse(format('no job with id %s has ever existed', missing));
    END IF;
  END IF;
  IF unique_key IS NOT NULL THEN
    ids := ARRAY(SELECT p.placed FROM honker.place(queue, ARRAY[unique_key], texts, priority, max_attempts, due, at, expiry, stored, key,
      0, NULL, 0, NULL, others, '{}', false, 0) p);
  ELSIF key IS NULL AND cardinality(others) = 0 AND cardinality(texts) = 1 THEN
    INSERT INTO honker.job AS j (queue, payload, priority, max_attempts, run_at, created_at, expires_at, headers)
    VALUES (enqueue_jobs.queue, texts[1], enqueue_jobs.priority, enqueue_jobs.max_attempts, due, at, expiry, stored) RETURNING ARRAY[j.id] INTO ids;
    IF NOT FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a job';
    END IF;
  ELSE
    ids := ARRAY(SELECT honker.insert_linked(queue, texts, priority, max_attempts, due, at, expiry, stored, key, others, '{}', false, 0));
  END IF;
  PERFORM honker.wake(CASE WHEN cardinality(others) > 0 THEN honker.released_signals() ELSE honker.queue_signal(queue) END, '');
  RETURN ids;
END $$;

-- Adds a job and returns its id, or the id of the live job that holds the unique key.
CREATE FUNCTION honker.enqueue(queue text, payload jsonb, priority bigint DEFAULT 0, delay interval DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  expires interval DEFAULT NULL, max_attempts bigint DEFAULT 25, unique_key text DEFAULT NULL, key text DEFAULT NULL, headers jsonb DEFAULT NULL,
  after bigint[] DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (honker.enqueue_jobs(queue, ARRAY[payload], priority, delay, run_at, expires, max_attempts, unique_key, key, headers, after))[1];
END $$;

-- Adds a job for each payload and returns their ids in the same order.
CREATE FUNCTION honker.enqueue_many(queue text, payloads jsonb[], priority bigint DEFAULT 0, delay interval DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  expires interval DEFAULT NULL, max_attempts bigint DEFAULT 25, key text DEFAULT NULL, headers jsonb DEFAULT NULL, after bigint[] DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
  IF payloads IS NULL THEN
    PERFORM honker.refuse('the array of payloads is NULL');
  ELSIF cardinality(payloads) * cardinality(after) > 100000 THEN
    PERFORM honker.refuse(format('%s jobs with %s ids in after each make too many edges; the maximum is 100000', cardinality(payloads), cardinality(after)));
  ELSIF cardinality(payloads) > 0 THEN
    RETURN QUERY SELECT unnest(honker.enqueue_jobs(queue, payloads, priority, delay, run_at, expires, max_attempts, NULL, key, headers, after));
  END IF;
END $$;

-- Deletes a live job, and returns whether there was one.
CREATE FUNCTION honker.cancel(id bigint) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE name text;
BEGIN
  SELECT c.queue INTO name FROM honker.cancel_('', ARRAY[cancel.id], clock_timestamp()) c;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM honker.tell_settled(id, name);
  RETURN true;
END $$;

-- Leases up to n jobs to a worker, in the order of priority DESC, run_at, id.
CREATE FUNCTION honker.claim(queue text, worker text, n bigint DEFAULT 1, lease interval DEFAULT '5 minutes')
RETURNS TABLE (id bigint, payload jsonb, attempts bigint, max_attempts bigint, priority bigint, run_at timestamptz, created_at timestamptz,
  expires_at timestamptz, claim_expires_at timestamptz, last_error text, unique_key text, key text, headers jsonb, batch bigint, checkpoint jsonb)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  at timestamptz := clock_timestamp();
  until timestamptz;
  steps honker.step_row[];
  died record;
BEGIN
  PERFORM honker.check_name('queue name', queue);
  PERFORM honker.check_name('worker', worker);
  PERFORM honker.check_span('lease', lease, '0', false);
  IF n IS NULL OR n < 1 THEN
    PERFORM honker.refuse(format('the number of jobs must be positive, got %s', coalesce(n::text, 'NULL')));
  END IF;
  PERFORM honker.check_isolation();
  until := at + lease;
  steps := ARRAY(SELECT s FROM honker.claim_lanes(ARRAY[queue], '{0}', '{1}', worker, at, until, least(n, 1000), true) s);
  FOR died IN SELECT s.id, s.queue FROM unnest(steps) s WHERE s.what = 3 LOOP
    PERFORM honker.tell_settled(died.id, died.queue);
  END LOOP;
  IF NOT EXISTS (SELECT FROM unnest(steps) s WHERE s.what = 0) AND EXISTS (SELECT FROM unnest(steps) s WHERE s.what = 2 AND s.id & 4 <> 0) THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has kept a job from being claimed';
  END IF;
  RETURN QUERY SELECT s.id, honker.jsonb_or_text(s.payload), s.attempts, s.max_attempts, s.priority, s.run_at, s.created_at, s.expires_at, until,
    s.last_error, s.unique_key, s.key, s.headers::jsonb, s.batch, honker.jsonb_or_text(s.checkpoint)
  FROM unnest(steps) s WHERE s.what = 0 ORDER BY s.priority DESC, s.run_at, s.id;
END $$;

-- Ends a claim as honker.settle does, and returns whether it was valid. Not promised.
CREATE FUNCTION honker.settle_one(id bigint, worker text, attempt bigint, outcome int, at timestamptz, run_at timestamptz, error text,
  result text, result_end timestamptz) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE name text; became int;
BEGIN
  SELECT j.queue INTO name FROM honker.job j WHERE j.id = settle_one.id;
  SELECT s.became INTO became FROM honker.settle(worker, at, ARRAY[id], ARRAY[attempt], ARRAY[outcome::smallint], ARRAY[run_at],
    ARRAY[convert_from(substr(convert_to(error, 'UTF8'), 1, 16384), 'UTF8')], ARRAY[result], ARRAY[result_end], '{NULL}', ARRAY[at], '{0}',
    '{""}', '{false}', '{false}') s;
  IF became = 0 THEN
    RETURN false;
  END IF;
  PERFORM honker.tell_settled(id, name);
  RETURN true;
END $$;

-- Ends a job that is done. It returns false if the claim was not valid. The result, if any, is kept for a time, or forever.
CREATE FUNCTION honker.ack(id bigint, worker text, attempt bigint, result jsonb DEFAULT NULL, keep interval DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE at timestamptz := clock_timestamp();
BEGIN
  PERFORM honker.check_claim(id, worker, attempt);
  PERFORM honker.check_span('keep', keep, '0', true);
  RETURN honker.settle_one(id, worker, attempt, 1, at, at, '', result::text, at + keep);
END $$;

-- Runs a job again after a delay, or dead-letters it if it has no attempts left. It returns false if the claim was not valid.
CREATE FUNCTION honker.retry(id bigint, worker text, attempt bigint, delay interval, error text DEFAULT '') RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE at timestamptz := clock_timestamp();
BEGIN
  PERFORM honker.check_claim(id, worker, attempt);
  PERFORM honker.check_span('delay', delay, '-1 microsecond', false);
  RETURN honker.settle_one(id, worker, attempt, 2, at, at + delay, coalesce(error, ''), NULL, NULL);
END $$;

-- Dead-letters a job. It returns false if the claim was not valid.
CREATE FUNCTION honker.fail(id bigint, worker text, attempt bigint, error text DEFAULT '') RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE at timestamptz := clock_timestamp();
BEGIN
  PERFORM honker.check_claim(id, worker, attempt);
  RETURN honker.settle_one(id, worker, attempt, 3, at, at, coalesce(error, ''), NULL, NULL);
END $$;

-- Makes a claim last for a time from now. It returns false if the claim was not valid.
CREATE FUNCTION honker.extend(id bigint, worker text, attempt bigint, lease interval) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE at timestamptz := clock_timestamp();
BEGIN
  PERFORM honker.check_claim(id, worker, attempt);
  PERFORM honker.check_span('lease', lease, '0', false);
  UPDATE honker.job j SET lease_until = at + lease WHERE j.id = extend.id AND j.worker = extend.worker AND j.attempts = extend.attempt
    AND j.state + 0 = 1 AND j.lease_until >= at;
  RETURN FOUND;
END $$;

-- The result of a job, or NULL if there is none.
CREATE FUNCTION honker.result(id bigint) RETURNS jsonb LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE at timestamptz := clock_timestamp();
BEGIN
  RETURN (SELECT honker.jsonb_or_text(r.value) FROM honker.result r WHERE r.job_id = result.id AND (r.expires_at IS NULL OR r.expires_at > at
    OR EXISTS (SELECT FROM honker.edge e WHERE e.parent = r.job_id AND e.parent <> 0)));
END $$;

-- Appends an event to a topic. It gets its offset after the commit.
CREATE FUNCTION honker.publish(topic text, payload jsonb, key text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM honker.check_name('topic', topic);
  PERFORM honker.check_payload(payload);
  IF topic LIKE '%*' THEN
    PERFORM honker.refuse('a pattern of topics can only be read');
  ELSIF key <> '' THEN
    PERFORM honker.check_name('event key', key);
  END IF;
  INSERT INTO honker.pending (xid, created_at, message, topic, key, payload)
  VALUES (pg_current_xact_id(), clock_timestamp(), false, publish.topic, nullif(publish.key, ''), payload::text);
  PERFORM honker.wake(honker.topic_signals(topic), '');
END $$;

-- The first n events of a topic after an offset.
CREATE FUNCTION honker.read(topic text, after bigint DEFAULT 0, n bigint DEFAULT 1000)
RETURNS TABLE ("offset" bigint, key text, payload jsonb, created_at timestamptz) LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
  PERFORM honker.check_name('topic', topic);
  IF after IS NULL OR n IS NULL OR n < 1 THEN
    PERFORM honker.refuse('the offset is NULL, or the number of events is not positive');
  END IF;
  RETURN QUERY SELECT e."offset", e.key, honker.jsonb_or_text(e.payload), e.created_at FROM honker.event e
  WHERE e.topic = read.topic AND e."offset" > after ORDER BY e.topic, e."offset" LIMIT n;
END $$;

-- Sends a message to the listeners of a channel.
CREATE FUNCTION honker.notify(channel text, payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM honker.check_name('channel', channel);
  PERFORM honker.check_payload(payload);
  IF starts_with(channel, '_honker:job:') THEN
    PERFORM honker.refuse('channels that begin with _honker:job: are reserved');
  END IF;
  INSERT INTO honker.pending (xid, created_at, message, topic, payload)
  VALUES (pg_current_xact_id(), clock_timestamp(), true, channel, payload::text);
  PERFORM honker.wake(honker.channel_signal(channel), '');
END $$;

-- Sends a signal to a run of a flow. It returns false and changes nothing if the run has a signal of that name.
CREATE FUNCTION honker.signal(flow text, id text, name text, value jsonb) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE over timestamptz;
BEGIN
  PERFORM honker.check_name('flow', flow);
  PERFORM honker.check_name('run', id);
  PERFORM honker.check_name('signal', name);
  PERFORM honker.check_payload(value);
  SELECT r.ended_at INTO over FROM honker.flow_run r WHERE r.flow = signal.flow AND r.id = signal.id FOR NO KEY UPDATE;
  IF NOT FOUND OR over IS NOT NULL THEN
    PERFORM honker.refuse(format('flow %L has no run %L, or it is over', flow, id));
  ELSIF octet_length(name) > 255 THEN
    PERFORM honker.refuse(format('the signal has %s bytes; the maximum is 255', octet_length(name)));
  ELSIF NOT honker.flow_signal_(flow, id, name, value::text, clock_timestamp()) THEN
    RETURN false;
  END IF;
  PERFORM honker.wake(honker.queue_signal('flow:' || flow), '');
  RETURN true;
END $$;

-- Takes a lock and returns its fencing token, or NULL if the lock is held, by whomever.
CREATE FUNCTION honker.lock(name text, owner text, ttl interval DEFAULT '1 minute') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE at timestamptz := clock_timestamp(); token bigint;
BEGIN
  PERFORM honker.check_name('lock name', name);
  PERFORM honker.check_name('lock owner', owner);
  PERFORM honker.check_span('ttl', ttl, '0', false);
  INSERT INTO honker.lock AS l (name, owner, expires_at) VALUES (lock.name, lock.owner, at + ttl)
  ON CONFLICT ON CONSTRAINT lock_pkey DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at <= at
  RETURNING nextval('honker.lock_token') INTO token;
  RETURN token;
END $$;

-- Makes a lock last for a time from now. It returns false if the owner does not hold it.
CREATE FUNCTION honker.renew(name text, owner text, ttl interval DEFAULT '1 minute') RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE at timestamptz := clock_timestamp();
BEGIN
  PERFORM honker.check_name('lock name', name);
  PERFORM honker.check_name('lock owner', owner);
  PERFORM honker.check_span('ttl', ttl, '0', false);
  UPDATE honker.lock l SET expires_at = at + ttl WHERE l.name = renew.name AND l.owner = renew.owner AND l.expires_at > at;
  RETURN FOUND;
END $$;

-- Gives a lock up. It returns false if the owner did not hold it.
CREATE FUNCTION honker.unlock(name text, owner text) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
  PERFORM honker.check_name('lock name', name);
  PERFORM honker.check_name('lock owner', owner);
  DELETE FROM honker.lock l WHERE l.name = unlock.name AND l.owner = unlock.owner;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM honker.wake(honker.lock_signal(name), '');
  RETURN true;
END $$;

-- Counts a call in the current window of per, which is rounded up to seconds, and returns whether the limit allows it.
CREATE FUNCTION honker.rate(name text, most bigint, per interval) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE seconds bigint := ceil(extract(epoch FROM per));
BEGIN
  PERFORM honker.check_name('rate limit name', name);
  PERFORM honker.check_span('window', per, '0', false);
  IF most IS NULL OR most < 1 THEN
    PERFORM honker.refuse(format('the limit must be positive, got %s', coalesce(most::text, 'NULL')));
  END IF;
  INSERT INTO honker.rate AS r (name, window_start, count)
  VALUES (rate.name, to_timestamp(floor(extract(epoch FROM clock_timestamp()) / seconds) * seconds), 1)
  ON CONFLICT ON CONSTRAINT rate_pkey DO UPDATE SET count = r.count + 1 WHERE r.count < most;
  RETURN FOUND;
END $$;

-- Keeps the jobs of a queue, or of a key of it, from starting. It returns false if that was so before; the pause is then
-- replaced.
CREATE FUNCTION honker.pause(queue text, until timestamptz DEFAULT NULL, reason text DEFAULT NULL, who text DEFAULT NULL, key text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE at timestamptz := clock_timestamp(); was boolean;
BEGIN
  PERFORM honker.check_name('queue name', queue);
  IF until <= at THEN
    PERFORM honker.refuse(format('the end of the pause, %s, has already passed', until));
  ELSIF until >= '10000-01-01 00:00:00Z' THEN
    PERFORM honker.refuse('the end of the pause is after the year 9999');
  ELSIF octet_length(reason) > 1024 OR octet_length(who) > 1024 THEN
    PERFORM honker.refuse('the reason or who has more than 1024 bytes');
  ELSIF key IS NOT NULL THEN
    PERFORM honker.check_name('key', key);
    was := honker.pause_key(queue, key, at, until, nullif(reason, ''), nullif(who, ''), at);
  ELSE
    WITH old AS MATERIALIZED (SELECT x.paused_at FROM honker.queue x
      WHERE x.queue = pause.queue AND honker.pauses(x.paused_at, x.paused_until, at) FOR UPDATE)
    INSERT INTO honker.queue AS k (queue, paused_at, paused_until, reason, who)
    VALUES (pause.queue, coalesce((SELECT o.paused_at FROM old o), at), until, nullif(pause.reason, ''), nullif(pause.who, ''))
    ON CONFLICT ON CONSTRAINT queue_pkey DO UPDATE SET paused_at = excluded.paused_at, paused_until = excluded.paused_until,
      reason = excluded.reason, who = excluded.who
    RETURNING EXISTS (SELECT FROM old) INTO was;
  END IF;
  IF was IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a pause';
  END IF;
  PERFORM honker.wake(honker.queue_signal(queue), '');
  RETURN NOT was;
END $$;

-- Ends a pause. It returns false if there was none.
CREATE FUNCTION honker.resume(queue text, key text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE at timestamptz := clock_timestamp(); was boolean;
BEGIN
  PERFORM honker.check_name('queue name', queue);
  IF key IS NOT NULL THEN
    PERFORM honker.check_name('key', key);
    was := honker.resume_key(queue, key, at, false);
  ELSE
    WITH old AS MATERIALIZED (SELECT x.queue, honker.pauses(x.paused_at, x.paused_until, at) AS was FROM honker.queue x
      WHERE x.queue = resume.queue AND x.paused_at IS NOT NULL FOR UPDATE)
    UPDATE honker.queue k SET paused_at = NULL, paused_until = NULL, reason = NULL, who = NULL FROM old o WHERE k.queue = o.queue
    RETURNING o.was INTO was;
  END IF;
  PERFORM honker.wake(honker.queue_signal(queue), '');
  RETURN coalesce(was, false);
END $$;

-- The numbers of jobs of a queue, or of all queues, by their phases. No number exceeds most.
CREATE FUNCTION honker.counts(queue text DEFAULT NULL, most bigint DEFAULT 10000)
RETURNS TABLE (name text, ready bigint, scheduled bigint, running bigint, lapsed bigint, held bigint, expired bigint, dead bigint, done bigint)
LANGUAGE plpgsql AS $$
BEGIN
  IF queue IS NOT NULL THEN
    PERFORM honker.check_name('queue name', queue);
  END IF;
  IF most IS NULL OR most < 1 THEN
    PERFORM honker.refuse('the highest number must be positive');
  END IF;
  RETURN QUERY SELECT c.queue,
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'ready'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'scheduled'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'running'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'lapsed'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'held'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'expired'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'dead'), 0)::bigint),
    least(most, coalesce(sum(c.n) FILTER (WHERE c.phase = 'done'), 0)::bigint)
  FROM honker.counts_(CASE WHEN counts.queue IS NULL THEN '{}' ELSE ARRAY[counts.queue] END,
    '{ready,scheduled,running,lapsed,held,expired,dead,done}', most, clock_timestamp()) c
  GROUP BY c.queue ORDER BY c.queue;
END $$;

-- Numbers the events of committed transactions and releases the jobs that waited for ended ones. Processes of the Go
-- library do it by themselves. It holds locks until the end of its transaction.
CREATE FUNCTION honker.catch_up() RETURNS void LANGUAGE plpgsql AS $$
DECLARE at timestamptz := clock_timestamp(); released boolean := false;
BEGIN
  PERFORM honker.check_isolation();
  PERFORM honker.number(at);
  PERFORM honker.relay_number(at);
  WHILE honker.resolve(at) > 0 LOOP
    released := true;
  END LOOP;
  IF released THEN
    PERFORM honker.wake(honker.released_signals(), '');
  END IF;
END $$;
