-- Moves of files into this schema. The functions read rows as JSON, as the statements of the files make it: times are Unix
-- seconds or, with the suffix _ms, milliseconds.

-- A row for each file. Ids of the file are shifted by the bases, which are 0 in a schema that was fresh. Later rows of the
-- schema have ids above the ends.
CREATE TABLE honker.move (
  source text COLLATE "C" PRIMARY KEY,
  holder text NOT NULL,             -- the token of the mover
  holds_until timestamptz NOT NULL,
  parcel bigint NOT NULL,           -- the last that has arrived
  job_base bigint NOT NULL,
  job_end bigint NOT NULL,
  batch_base bigint NOT NULL,
  batch_end bigint NOT NULL,
  event_base bigint NOT NULL,
  event_end bigint NOT NULL
);

-- The last event of each topic that was copied, by its offset in the file.
CREATE TABLE honker.move_topic (
  source text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  through bigint NOT NULL,
  PRIMARY KEY (source, topic)
);

-- Where the last copy has left the readers of topics: the offset of a consumer (kind 0), or the token of a group (kind 1). A
-- reader that stands elsewhere has moved on in this schema and is not copied any more.
CREATE TABLE honker.move_reader (
  source text COLLATE "C" NOT NULL,
  kind smallint NOT NULL,
  topic text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  place bigint NOT NULL,
  PRIMARY KEY (source, kind, topic, name)
);

-- A time of a file, within the range of the type.
CREATE FUNCTION honker.file_time(seconds float8) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT to_timestamp(greatest(-1.8e11, least(seconds, 9e12))) $$;

-- Begins a move, or goes on with one. It returns 'busy' if another mover runs, 'older' if the file is a copy from before
-- its last parcels, 'used' if the schema has rows and into_used is not set, and '' otherwise.
CREATE FUNCTION honker.move_begin(src text, token text, until timestamptz, parcel bigint, jobs bigint, batches bigint, events bigint,
  into_used boolean, at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE m honker.move; spare bigint := 1000000000;
BEGIN
  LOCK TABLE honker.move IN SHARE ROW EXCLUSIVE MODE;
  SELECT * INTO m FROM honker.move x WHERE x.source = src;
  IF FOUND THEN
    IF m.holder <> token AND m.holds_until > at THEN RETURN 'busy'; END IF;
    IF m.parcel > move_begin.parcel THEN RETURN 'older'; END IF;
    UPDATE honker.move x SET holder = token, holds_until = until WHERE x.source = src;
    RETURN '';
  END IF;
  IF NOT into_used AND (EXISTS (SELECT FROM honker.job) OR EXISTS (SELECT FROM honker.dead) OR EXISTS (SELECT FROM honker.event)
      OR EXISTS (SELECT FROM honker.batch) OR EXISTS (SELECT FROM honker.pending)) THEN
    RETURN 'used';
  END IF;
  m.job_base := coalesce(pg_sequence_last_value('honker.job_id_seq'), 0);
  m.batch_base := coalesce(pg_sequence_last_value('honker.batch_id_seq'), 0);
  m.event_base := coalesce(pg_sequence_last_value('honker.event_offset_seq'), 0);
  INSERT INTO honker.move (source, holder, holds_until, parcel, job_base, job_end, batch_base, batch_end, event_base, event_end)
  SELECT src, token, until, 0, m.job_base, setval('honker.job_id_seq', m.job_base + jobs + spare),
    m.batch_base, setval('honker.batch_id_seq', m.batch_base + batches + spare),
    m.event_base, setval('honker.event_offset_seq', m.event_base + events + spare);
  RETURN '';
END $$;

-- Locks the row of a move and prolongs the lease of its mover. All columns are NULL if another mover has begun since.
CREATE FUNCTION honker.move_hold(src text, token text, until timestamptz) RETURNS honker.move LANGUAGE sql AS $$
  UPDATE honker.move x SET holds_until = greatest(x.holds_until, until) WHERE x.source = src AND x.holder = token RETURNING x.* $$;

-- Ends the lease.
CREATE FUNCTION honker.move_end(src text, token text, at timestamptz) RETURNS void LANGUAGE sql AS $$
  UPDATE honker.move x SET holds_until = at WHERE x.source = src AND x.holder = token $$;

-- Takes a parcel, unless it has arrived before. It returns NULL if another mover has begun since, and otherwise what was
-- inserted, and the jobs that lost their unique keys to jobs of this schema: a job without links and attempts is dropped,
-- unless dispatch has sent it. Jobs become sent jobs after they were inserted, so no trigger takes them for sent again.
CREATE FUNCTION honker.take_in(src text, token text, until timestamptz, n bigint, p json, at timestamptz) RETURNS json
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  m honker.move := honker.move_hold(src, token, until); k record; u honker.uniq; taken boolean; linked boolean;
  dropped bigint[] := '{}'; bare bigint[] := '{}'; nexts bigint[] := '{}'; lost json[] := '{}';
  jobs bigint; dead bigint; schedules bigint; expected bigint;
BEGIN
  IF m.source IS NULL THEN RETURN NULL; END IF;
  IF n <= m.parcel THEN RETURN '{}'; END IF;
  IF p->'relay' IS NOT NULL THEN
    UPDATE honker.move x SET parcel = n WHERE x.source = src;
    RETURN honker.take_relay(src, p->'relay', at);
  END IF;

  -- Rows of keys are locked before jobs, in the order of keys.
  FOR k IN SELECT * FROM json_to_recordset(p->'keys') x (queue text, key text, id bigint, next bigint, until_ms bigint, first_ms bigint, kind int)
      ORDER BY x.queue COLLATE "C", x.key COLLATE "C" LOOP
    LOOP
      SELECT * INTO u FROM honker.uniq l WHERE l.queue = k.queue AND l.key = k.key FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO honker.uniq (queue, key, job_id, kind, first_at) VALUES (k.queue, k.key, k.id + m.job_base, 2, at)
      ON CONFLICT DO NOTHING;
    END LOOP;
    taken := u.kind <> 2 AND u.job_id <> k.id + m.job_base AND (coalesce(u.until_at > at, false)
      OR EXISTS (SELECT FROM honker.job j WHERE j.id = u.next_id)
      OR EXISTS (SELECT FROM honker.job j WHERE j.id = u.job_id AND (u.kind = 0 OR j.attempts = 0 AND j.lease_until IS NULL)));
    IF NOT taken THEN
      UPDATE honker.uniq l SET job_id = k.id + m.job_base, next_id = k.next + m.job_base, kind = k.kind,
        until_at = honker.file_time(k.until_ms / 1000.0), first_at = honker.file_time(k.first_ms / 1000.0)
      WHERE l.queue = k.queue AND l.key = k.key;
      IF k.next IS NOT NULL THEN nexts := array_append(nexts, k.next); END IF;
      CONTINUE;
    END IF;
    linked := k.next IS NOT NULL OR EXISTS (SELECT FROM json_to_recordset(p->'edges') e (waiter bigint, parent bigint) WHERE k.id IN (e.waiter, e.parent))
      OR EXISTS (SELECT FROM json_to_recordset(p->'jobs') j (id bigint, attempts bigint, batch bigint) WHERE j.id = k.id AND (j.attempts > 0 OR j.batch IS NOT NULL))
      OR EXISTS (SELECT FROM json_to_recordset(p->'sent') s (id bigint) WHERE s.id = k.id)
      OR EXISTS (SELECT FROM json_to_recordset(p->'copies') c (id bigint) WHERE c.id = k.id);
    IF linked THEN
      bare := array_remove(bare || k.id || k.next, NULL);
    ELSE
      dropped := array_append(dropped, k.id);
    END IF;
    lost := array_append(lost, json_build_object('queue', k.queue, 'key', k.key, 'id', k.id, 'by', u.job_id, 'dropped', NOT linked));
  END LOOP;

  INSERT INTO honker.batch (id, name, headers, total, open, created_at, done_at)
  SELECT x.id + m.batch_base, x.name, x.headers, x.total, x.open <> 0, honker.file_time(x.created_ms / 1000.0), honker.file_time(x.done_ms / 1000.0)
  FROM json_to_recordset(p->'batches') x (id bigint, name text, headers text, total bigint, open int, created_ms bigint, done_ms bigint);

  WITH e AS MATERIALIZED (SELECT * FROM json_to_recordset(p->'edges') x (waiter bigint, parent bigint, batch bigint, state int, if_dead int)),
    -- A job without attempts left is a claim that has ended, too: the next claim of its queue dead-letters it.
    x AS MATERIALIZED (SELECT *, x.state = 'processing' OR x.state = 'pending' AND x.attempts >= x.most AS lapsed FROM json_to_recordset(p->'jobs') x (id bigint, queue text, payload text, state text, priority bigint, run_at bigint,
      worker text, lease bigint, attempts bigint, most bigint, created bigint, expires bigint, error text, base bigint, headers text, key text,
      batch bigint, progress text, checkpoint text, uniq text) WHERE x.id <> ALL (dropped)),
    waits AS MATERIALIZED (SELECT waiter AS id FROM e WHERE state <> 1 AND waiter > 0 UNION SELECT unnest(nexts)),
    joined AS MATERIALIZED (SELECT waiter AS id FROM e UNION SELECT parent FROM e WHERE waiter > 0 UNION SELECT unnest(nexts)
      UNION SELECT l.id FROM json_to_recordset(p->'keys') l (id bigint, next bigint) WHERE l.next = ANY (nexts)),
    added AS (INSERT INTO honker.job (id, queue, payload, state, priority, run_at, worker, lease_until, attempts, max_attempts, created_at, expires_at,
        last_error, base, headers, key, batch, unique_key, awaited)
      SELECT x.id + m.job_base, x.queue, x.payload,
        CASE WHEN x.lapsed THEN 1 WHEN x.id IN (SELECT w.id FROM waits w) THEN 3 ELSE 0 END, x.priority, honker.file_time(x.run_at),
        CASE WHEN x.lapsed THEN coalesce(x.worker, '') END, honker.file_time(CASE WHEN x.lapsed THEN coalesce(x.lease, 0) ELSE x.lease END),
        x.attempts, x.most, honker.file_time(x.created),
        honker.file_time(x.expires), x.error, x.base, x.headers, x.key, x.batch + m.batch_base,
        CASE WHEN x.id <> ALL (bare) THEN x.uniq END, x.id IN (SELECT j.id FROM joined j)
      FROM x ORDER BY x.id RETURNING id),
    sides AS (INSERT INTO honker.side (job_id, progress, checkpoint)
      SELECT x.id + m.job_base, x.progress, x.checkpoint FROM x WHERE coalesce(x.progress, x.checkpoint) IS NOT NULL),
    tokens AS (INSERT INTO honker.token (waiter) SELECT w.id + m.job_base FROM waits w)
  SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM x) INTO jobs, expected;
  IF jobs <> expected THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a job';
  END IF;

  INSERT INTO honker.dead (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at, base, headers, key, batch,
    progress, checkpoint, unique_key, unique_kind)
  SELECT x.id + m.job_base, x.queue, x.payload, x.priority, honker.file_time(x.run_at), x.attempts, x.most, x.error, honker.file_time(x.created),
    honker.file_time(x.died), x.base, x.headers, x.key, x.batch + m.batch_base, x.progress, x.checkpoint, x.uniq, CASE WHEN x.uniq IS NOT NULL THEN x.kind END
  FROM json_to_recordset(p->'dead') x (id bigint, queue text, payload text, priority bigint, run_at bigint, attempts bigint, most bigint, error text,
    created bigint, died bigint, base bigint, headers text, key text, batch bigint, progress text, checkpoint text, uniq text, kind smallint);
  GET DIAGNOSTICS dead = ROW_COUNT;
  IF dead <> coalesce(json_array_length(p->'dead'), 0) THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a dead job';
  END IF;

  INSERT INTO honker.sent_job (job_id, run_id, queue, events, reply_queue, reply_topic, sent_at, started_at, ended_at, stop_at, held_until)
  SELECT x.id + m.job_base, x.run + m.job_base, x.queue, x.events, x.reply_queue, x.reply_topic, honker.file_time(x.sent_ms / 1000.0),
    honker.file_time(x.started_ms / 1000.0), honker.file_time(x.ended_ms / 1000.0), honker.file_time(x.stop_ms / 1000.0),
    honker.file_time(x.held_ms / 1000.0)
  FROM json_to_recordset(p->'sent') x (id bigint, run bigint, queue text, events text, reply_queue text, reply_topic text, sent_ms bigint,
    started_ms bigint, ended_ms bigint, stop_ms bigint, held_ms bigint);
  INSERT INTO honker.sent_copy (job_id, sent_id)
  SELECT x.id + m.job_base, x.sent + m.job_base FROM json_to_recordset(p->'copies') x (id bigint, sent bigint);
  UPDATE honker.job j SET sent = true WHERE j.id IN (SELECT x.id + m.job_base FROM json_to_recordset(p->'sent') x (id bigint)
    UNION SELECT x.id + m.job_base FROM json_to_recordset(p->'copies') x (id bigint));

  INSERT INTO honker.attempt (job_id, attempt, worker, start_at, ran, error, log)
  SELECT x.id + m.job_base, x.attempt, x.worker, honker.file_time(x.start_ms / 1000.0), x.ran_ms * interval '1 millisecond', x.error, x.log
  FROM json_to_recordset(p->'attempts') x (id bigint, attempt bigint, worker text, start_ms bigint, ran_ms bigint, error text, log text)
  WHERE x.id <> ALL (dropped);

  INSERT INTO honker.edge (waiter, parent, batch, state, if_dead)
  SELECT CASE WHEN x.waiter > 0 THEN x.waiter + m.job_base ELSE x.waiter - m.batch_base END,
    CASE WHEN x.parent > 0 THEN x.parent + m.job_base ELSE 0 END, CASE WHEN x.parent = 0 THEN x.batch + m.batch_base ELSE 0 END,
    CASE WHEN x.waiter > 0 THEN x.state ELSE 0 END, x.if_dead <> 0
  FROM json_to_recordset(p->'edges') x (waiter bigint, parent bigint, batch bigint, state int, if_dead int)
  UNION ALL SELECT x.next + m.job_base, x.id + m.job_base, -1, 0, true
  FROM json_to_recordset(p->'keys') x (id bigint, next bigint) WHERE x.next = ANY (nexts);
  INSERT INTO honker.token (batch) SELECT x.id + m.batch_base FROM json_to_recordset(p->'batches') x (id bigint);

  INSERT INTO honker.result (job_id, value, created_at, expires_at)
  SELECT x.id + m.job_base, x.value, honker.file_time(x.created), honker.file_time(x.expires)
  FROM json_to_recordset(p->'results') x (id bigint, value text, created bigint, expires bigint) ON CONFLICT DO NOTHING;

  INSERT INTO honker.schedule (name, queue, spec, payload, priority, expires, next_at, enabled, max_attempts, missed)
  SELECT x.name, x.queue, x.spec, x.payload, x.priority, x.expires * interval '1 second', honker.file_time(x.next), x.enabled <> 0, x.most, x.missed
  FROM json_to_recordset(p->'schedules') x (name text, queue text, spec text, payload text, priority bigint, expires bigint, next bigint,
    enabled int, most bigint, missed bigint)
  ON CONFLICT (name) DO NOTHING;
  GET DIAGNOSTICS schedules = ROW_COUNT;

  PERFORM honker.wake(signals, '') FROM (SELECT bit_or(honker.queue_signal(q.queue)) FROM (
    SELECT DISTINCT x.queue FROM json_to_recordset(p->'jobs') x (queue text)) q) w (signals) WHERE signals IS NOT NULL;
  UPDATE honker.move x SET parcel = n WHERE x.source = src;
  RETURN json_build_object('jobs', jobs, 'dead', dead, 'batches', coalesce(json_array_length(p->'batches'), 0), 'schedules', schedules,
    'lost', array_to_json(lost), 'queues', (SELECT array_to_json(array_agg(DISTINCT x.queue)) FROM json_to_recordset(p->'jobs') x (queue text)));
END $$;

-- Reserves the unique keys that jobs of a file hold, until a time, and gives up earlier reservations. Keys that only stay
-- taken for a time are taken for the rest of it.
CREATE FUNCTION honker.take_keys(src text, token text, until timestamptz, p json, reserve timestamptz, at timestamptz) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE m honker.move := honker.move_hold(src, token, until);
BEGIN
  IF m.source IS NULL THEN RETURN false; END IF;
  INSERT INTO honker.uniq AS l (queue, key, job_id, kind, until_at, first_at)
  SELECT x.queue, x.key, x.id + m.job_base, CASE WHEN x.live <> 0 THEN 2 ELSE 0 END,
    CASE WHEN x.live <> 0 THEN greatest(reserve, honker.file_time(x.until_ms / 1000.0)) ELSE honker.file_time(x.until_ms / 1000.0) END,
    honker.file_time(x.first_ms / 1000.0)
  FROM json_to_recordset(p) x (queue text, key text, id bigint, until_ms bigint, first_ms bigint, live int)
  ORDER BY x.queue COLLATE "C", x.key COLLATE "C"
  ON CONFLICT (queue, key) DO UPDATE SET job_id = excluded.job_id, kind = excluded.kind, until_at = excluded.until_at WHERE l.kind = 2;
  RETURN true;
END $$;

-- Gives up the reservations that end before a time.
CREATE FUNCTION honker.free_keys(src text, reserved timestamptz) RETURNS void LANGUAGE sql SET enable_seqscan = off SET jit = off AS $$
  DELETE FROM honker.uniq l USING honker.move m WHERE m.source = src AND l.kind = 2 AND l.until_at < reserved AND l.job_id > m.job_base AND l.job_id <= m.job_end $$;
CREATE INDEX uniq_reserved ON honker.uniq (until_at) WHERE kind = 2;

-- Copies events of a topic, in their order. Readers may be past the offsets of the file once the topic has events of this
-- schema; then the events get new offsets, and late is their number. through is NULL if another mover has begun since.
CREATE FUNCTION honker.take_events(src text, token text, until timestamptz, name text, last bigint, p json, at timestamptz, OUT through bigint, OUT late bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE m honker.move := honker.move_hold(src, token, until);
BEGIN
  IF m.source IS NULL THEN RETURN; END IF;
  INSERT INTO honker.move_topic (source, topic, through) VALUES (src, name, 0) ON CONFLICT DO NOTHING;
  SELECT t.through INTO take_events.through FROM honker.move_topic t WHERE t.source = src AND t.topic = name FOR UPDATE;
  late := 0;
  IF last <= take_events.through THEN RETURN; END IF;
  PERFORM honker.number(at);
  IF EXISTS (SELECT FROM honker.event e WHERE e.topic = name AND e."offset" > m.event_end)
      OR EXISTS (SELECT FROM honker.deleted d WHERE d.log = 0 AND d.topic = name AND d.through > m.event_end) THEN
    INSERT INTO honker.event (created_at, topic, key, payload)
    SELECT honker.file_time(x.created), name, x.key, x.payload FROM json_to_recordset(p) x ("offset" bigint, key text, payload text, created bigint)
    WHERE x."offset" > take_events.through ORDER BY x."offset";
    GET DIAGNOSTICS late = ROW_COUNT;
  ELSE
    INSERT INTO honker.event ("offset", created_at, topic, key, payload)
    SELECT x."offset" + m.event_base, honker.file_time(x.created), name, x.key, x.payload
    FROM json_to_recordset(p) x ("offset" bigint, key text, payload text, created bigint)
    WHERE x."offset" > take_events.through ORDER BY x."offset";
  END IF;
  UPDATE honker.move_topic t SET through = last WHERE t.source = src AND t.topic = name;
  take_events.through := last;
  PERFORM honker.wake(honker.topic_signals(name), '');
END $$;

-- Copies the places of consumers and groups, except those that have moved on in this schema. It returns these, or NULL if
-- another mover has begun since.
CREATE FUNCTION honker.take_readers(src text, token text, until timestamptz, p json, at timestamptz) RETURNS json
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE m honker.move := honker.move_hold(src, token, until); x record; was bigint; g bigint; drawn bigint; own text[] := '{}';
BEGIN
  IF m.source IS NULL THEN RETURN NULL; END IF;
  FOR x IN SELECT * FROM json_to_recordset(p->'consumers') c (topic text, name text, "offset" bigint, created_ms bigint, ack_ms bigint, filter text)
      ORDER BY c.topic COLLATE "C", c.name COLLATE "C" LOOP
    SELECT r.place INTO was FROM honker.move_reader r WHERE r.source = src AND r.kind = 0 AND r.topic = x.topic AND r.name = x.name;
    IF NOT FOUND THEN
      INSERT INTO honker.consumer (topic, name, "offset", created_at, last_ack_at, filter)
      VALUES (x.topic, x.name, x."offset" + m.event_base, coalesce(honker.file_time(x.created_ms / 1000.0), at), honker.file_time(x.ack_ms / 1000.0), x.filter)
      ON CONFLICT DO NOTHING;
    ELSE
      UPDATE honker.consumer c SET "offset" = x."offset" + m.event_base, last_ack_at = honker.file_time(x.ack_ms / 1000.0)
      WHERE c.topic = x.topic AND c.name = x.name AND c."offset" = was;
    END IF;
    IF FOUND THEN
      INSERT INTO honker.move_reader AS r (source, kind, topic, name, place) VALUES (src, 0, x.topic, x.name, x."offset" + m.event_base)
      ON CONFLICT (source, kind, topic, name) DO UPDATE SET place = excluded.place;
    ELSE
      own := own || ('consumer ' || x.name || ' of ' || x.topic);
    END IF;
  END LOOP;
  FOR x IN SELECT * FROM json_to_recordset(p->'groups') c (topic text, name text, cursor bigint, created_ms bigint, filter text, claims json)
      ORDER BY c.topic COLLATE "C", c.name COLLATE "C" LOOP
    SELECT r.place INTO was FROM honker.move_reader r WHERE r.source = src AND r.kind = 1 AND r.topic = x.topic AND r.name = x.name;
    IF NOT FOUND THEN
      INSERT INTO honker.grp (created_at, topic, name, filter) VALUES (honker.file_time(x.created_ms / 1000.0), x.topic, x.name, x.filter)
      ON CONFLICT DO NOTHING RETURNING id INTO g;
    ELSE
      SELECT r.id INTO g FROM honker.grp r WHERE r.topic = x.topic AND r.name = x.name;
      IF FOUND THEN
        PERFORM honker.group_lock(g);
        IF EXISTS (SELECT FROM honker.grp_turn t WHERE t.group_id = g AND t.token > was) OR EXISTS (SELECT FROM honker.delivery d WHERE d.group_id = g AND d.token > was) THEN
          g := NULL;
        END IF;
      END IF;
    END IF;
    IF g IS NULL THEN
      own := own || ('group ' || x.name || ' of ' || x.topic);
      CONTINUE;
    END IF;
    DELETE FROM honker.grp_turn t WHERE t.group_id = g;
    DELETE FROM honker.delivery d WHERE d.group_id = g;
    drawn := nextval('honker.grp_token');
    INSERT INTO honker.grp_turn (group_id, token, cursor) VALUES (g, drawn, x.cursor + m.event_base);
    INSERT INTO honker.delivery (group_id, "offset", token, deadline, attempts, state, holder, last_error)
    SELECT g, c."offset" + m.event_base, drawn, honker.file_time(c.deadline_ms / 1000.0), c.attempts, c.state, c.holder, c.error
    FROM json_to_recordset(x.claims) c ("offset" bigint, state smallint, deadline_ms bigint, attempts bigint, holder text, error text);
    INSERT INTO honker.move_reader AS r (source, kind, topic, name, place) VALUES (src, 1, x.topic, x.name, drawn)
    ON CONFLICT (source, kind, topic, name) DO UPDATE SET place = excluded.place;
  END LOOP;
  RETURN array_to_json(own);
END $$;

-- Copies pauses, limits and retentions of queues and topics that have none here.
CREATE FUNCTION honker.take_settings(p json) RETURNS void LANGUAGE sql AS $$
  INSERT INTO honker.queue (queue, paused_at, paused_until, reason, who, running, per_key, in_order, rate_n, rate_per, rate_burst,
    key_rate_n, key_rate_per, key_rate_burst, done_count, done_age, dead_count, dead_age, keys_paused)
  SELECT x.queue, honker.file_time(x.paused_ms / 1000.0), honker.file_time(x.until_ms / 1000.0), x.reason, x.who, x.running, x.per_key, x.in_order <> 0,
    x.rate_n, x.rate_per_ms * interval '1 millisecond', x.rate_burst, x.key_rate_n, x.key_rate_per_ms * interval '1 millisecond', x.key_rate_burst,
    x.done_count, x.done_age_ms * interval '1 millisecond', x.dead_count, x.dead_age_ms * interval '1 millisecond',
    (SELECT nullif(count(*), 0) FROM json_to_recordset(p->'keys') k (queue text) WHERE k.queue = x.queue)
  FROM json_to_recordset(p->'queues') x (queue text, paused_ms bigint, until_ms bigint, reason text, who text, running bigint, per_key bigint, in_order int,
    rate_n bigint, rate_per_ms bigint, rate_burst bigint, key_rate_n bigint, key_rate_per_ms bigint, key_rate_burst bigint,
    done_count bigint, done_age_ms bigint, dead_count bigint, dead_age_ms bigint)
  ORDER BY x.queue COLLATE "C" ON CONFLICT (queue) DO NOTHING;
  INSERT INTO honker.key (queue, key, paused_at, paused_until, reason, who)
  SELECT x.queue, x.key, honker.file_time(x.paused_ms / 1000.0), honker.file_time(x.until_ms / 1000.0), x.reason, x.who
  FROM json_to_recordset(p->'keys') x (queue text, key text, paused_ms bigint, until_ms bigint, reason text, who text)
  JOIN honker.queue q ON q.queue = x.queue AND q.keys_paused IS NOT NULL
  ORDER BY x.queue COLLATE "C", x.key COLLATE "C" ON CONFLICT (queue, key) DO NOTHING;
  INSERT INTO honker.retention (topic, max_count, max_age)
  SELECT x.topic, nullif(x.max_count, 0), nullif(x.max_age_ms, 0) * interval '1 millisecond'
  FROM json_to_recordset(p->'retention') x (topic text, max_count bigint, max_age_ms bigint)
  ORDER BY x.topic COLLATE "C" ON CONFLICT (topic) DO NOTHING $$;

-- Copies messages that an inbox has received.
CREATE FUNCTION honker.take_received(p json) RETURNS void LANGUAGE sql AS $$
  INSERT INTO honker.received (source, id, received_at, expires_at)
  SELECT x.source, x.id, honker.file_time(x.received_ms / 1000.0), honker.file_time(x.expires_ms / 1000.0)
  FROM json_to_recordset(p) x (source text, id text, received_ms bigint, expires_ms bigint)
  ORDER BY x.source COLLATE "C", x.id COLLATE "C" ON CONFLICT DO NOTHING $$;
