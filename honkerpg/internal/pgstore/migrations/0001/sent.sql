-- Jobs sent by package dispatch, and its actors. The triggers at the end follow the jobs, whichever verb moves them. They
-- run for jobs with the column sent only.
--
-- A transaction locks a job before its row of sent_job. The exception is a job that also waits in legacy queues: its row
-- of sent_job is locked first, so that no two claims take two of its copies.

-- A row for each sent job, kept for an hour after its end. job_id is the ID that Send has returned.
CREATE TABLE honker.sent_job (
  job_id bigint PRIMARY KEY,
  run_id bigint NOT NULL,           -- the live job that stands for it: job_id, or the copy that was claimed
  sent_at timestamptz NOT NULL,
  started_at timestamptz,
  ended_at timestamptz,
  stop_at timestamptz,
  held_until timestamptz,           -- a stopped job that was running: the end of its claim, until its handler has returned
  queue text COLLATE "C" NOT NULL,
  events text COLLATE "C",          -- the topic of its log
  reply_queue text COLLATE "C",     -- gets its outcome
  reply_topic text COLLATE "C"      -- gets its outcome
) WITH (fillfactor = 70);
CREATE INDEX sent_job_ended ON honker.sent_job (ended_at) WHERE ended_at IS NOT NULL;

-- Copies of sent jobs in legacy queues.
CREATE TABLE honker.sent_copy (
  job_id bigint PRIMARY KEY,
  sent_id bigint NOT NULL
);
CREATE INDEX sent_copy_sent ON honker.sent_copy (sent_id);

-- The live actors.
CREATE TABLE honker.actor (
  key text COLLATE "C" PRIMARY KEY,
  owner text NOT NULL,
  expires_at timestamptz NOT NULL,
  value text NOT NULL               -- JSON
) WITH (fillfactor = 50);

-- The job that a live or ended job stands for.
CREATE FUNCTION honker.sent_of(job bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT coalesce((SELECT c.sent_id FROM honker.sent_copy c WHERE c.job_id = job), job) $$;

-- Whether dispatch has sent a job.
CREATE FUNCTION honker.was_sent(job bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM honker.sent_job s WHERE s.job_id = honker.sent_of(job)) $$;

-- Records a sent job in the transaction that has inserted it. false: it is recorded already.
CREATE FUNCTION honker.send(job bigint, queue text, events text, reply_queue text, reply_topic text, at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO honker.sent_job (job_id, run_id, queue, events, reply_queue, reply_topic, sent_at)
  VALUES (job, job, send.queue, nullif(send.events, ''), nullif(send.reply_queue, ''), nullif(send.reply_topic, ''), at) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE honker.job j SET sent = true WHERE j.id = job;
  RETURN true;
END $$;

-- Records the copies of a sent job.
CREATE FUNCTION honker.send_copies(job bigint, copies bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO honker.sent_copy (job_id, sent_id) SELECT unnest(copies), job ON CONFLICT DO NOTHING;
  UPDATE honker.job j SET sent = true WHERE j.id = ANY (copies);
END $$;

-- The live jobs that stand for a sent job.
CREATE FUNCTION honker.live_copies(job bigint) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
  SELECT j.id FROM honker.job j WHERE j.id = ANY (ARRAY(SELECT s.job_id FROM honker.sent_job s WHERE s.job_id = job
    UNION ALL SELECT c.job_id FROM honker.sent_copy c WHERE c.sent_id = job)) $$;

-- Whether a claim may take a job that was sent. A job with copies belongs to the claim that holds its row of sent_job;
-- others pass over it.
CREATE FUNCTION honker.may_start(job bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE first bigint := honker.sent_of(job);
BEGIN
  IF NOT EXISTS (SELECT FROM honker.sent_copy c WHERE c.sent_id = first) THEN
    RETURN true;
  END IF;
  PERFORM FROM honker.sent_job s WHERE s.job_id = first FOR UPDATE SKIP LOCKED;
  RETURN FOUND;
END $$;

-- Publishes an event of a sent job, which gets its number after the commit.
CREATE FUNCTION honker.tell(topic text, state text, event json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF topic IS NOT NULL THEN
    INSERT INTO honker.pending (xid, created_at, message, topic, key, payload)
    VALUES (pg_current_xact_id(), clock_timestamp(), false, tell.topic, tell.state, event::text);
    PERFORM honker.wake(honker.topic_signals(topic), '');
  END IF;
END $$;

-- Sends the outcome of a sent job to the places that its ReplyTo names.
CREATE FUNCTION honker.reply(s honker.sent_job, outcome json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF s.reply_queue IS NOT NULL THEN
    INSERT INTO honker.job (queue, payload, max_attempts, run_at, created_at)
    VALUES (s.reply_queue, outcome::text, 25, clock_timestamp(), clock_timestamp());
    PERFORM honker.wake(honker.queue_signal(s.reply_queue), '');
  END IF;
  PERFORM honker.tell(s.reply_topic, outcome->>'state', outcome);
END $$;

-- Stops a sent job and returns its live jobs, which the caller must cancel in the transaction. worker holds a valid claim.
CREATE FUNCTION honker.stop(job bigint, at timestamptz) RETURNS TABLE (id bigint, queue text, worker text) LANGUAGE plpgsql AS $$
DECLARE held timestamptz; s honker.sent_job; live bigint[];
BEGIN
  live := ARRAY(SELECT l.id FROM honker.job l WHERE l.id IN (SELECT honker.live_copies(job)) ORDER BY l.id FOR UPDATE);
  SELECT max(l.lease_until) INTO held FROM honker.job l WHERE l.id = ANY (live) AND l.state = 1 AND l.lease_until >= at;
  IF cardinality(live) = 0 THEN
    RETURN;
  END IF;
  UPDATE honker.sent_job x SET stop_at = at, held_until = held WHERE x.job_id = job RETURNING x.* INTO s;
  PERFORM honker.reply(s, json_build_object('id', job, 'state', 'stopped'));
  RETURN QUERY SELECT l.id, l.queue, CASE WHEN l.state = 1 AND l.lease_until >= at THEN coalesce(l.worker, '') ELSE '' END
    FROM honker.job l WHERE l.id = ANY (live) ORDER BY l.id;
END $$;

-- Records that the handler of a stopped job has returned.
CREATE FUNCTION honker.end_stopped(job bigint, at timestamptz) RETURNS void LANGUAGE sql AS $$
  WITH ended AS (
    UPDATE honker.sent_job s SET held_until = NULL, ended_at = at WHERE s.job_id = job AND s.stop_at IS NOT NULL AND s.held_until IS NOT NULL RETURNING s.*)
  SELECT honker.tell(e.events, 'stopped', json_build_object('id', e.job_id, 'queue', e.queue, 'state', 'stopped')) FROM ended e $$;

-- A job was sent again by a requeue, claimed, or returned to its queue. The claim of a copy removes the others: run_id
-- first, so that their ends are not the end of the job.
CREATE FUNCTION honker.sent_moved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE s honker.sent_job; stage text := CASE WHEN NEW.state = 1 THEN 'started' ELSE 'dispatched' END;
BEGIN
  UPDATE honker.sent_job x SET run_id = NEW.id, ended_at = NULL, started_at = CASE WHEN NEW.state = 1 THEN clock_timestamp() ELSE x.started_at END
  WHERE x.job_id = honker.sent_of(NEW.id) RETURNING x.* INTO s;
  PERFORM honker.tell(s.events, stage, json_build_object('id', s.job_id, 'queue', NEW.queue, 'state', stage, 'attempt', NEW.attempts));
  IF NEW.state = 1 THEN
    DELETE FROM honker.job j WHERE j.id <> NEW.id AND j.id IN (SELECT honker.live_copies(s.job_id));
  END IF;
  RETURN NULL;
END $$;

-- A job has ended. If it waited in several queues, so have its copies.
CREATE FUNCTION honker.sent_ended() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE s honker.sent_job; cause text; output text; died boolean; stage text;
BEGIN
  IF OLD.state <> 1 THEN
    DELETE FROM honker.job j WHERE j.state <> 1 AND j.id IN (SELECT honker.live_copies(honker.sent_of(OLD.id)));
  END IF;
  UPDATE honker.sent_job x SET ended_at = clock_timestamp() WHERE x.job_id = honker.sent_of(OLD.id) AND x.run_id = OLD.id RETURNING x.* INTO s;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT d.last_error INTO cause FROM honker.dead d WHERE d.id = OLD.id;
  died := FOUND;
  stage := CASE WHEN died THEN 'failed' WHEN s.stop_at IS NULL THEN 'finished' WHEN s.held_until IS NOT NULL THEN 'stopping' ELSE 'stopped' END;
  IF died THEN
    PERFORM honker.tell(s.events, stage, json_build_object('id', s.job_id, 'queue', OLD.queue, 'state', stage, 'attempt', OLD.attempts, 'error', cause));
    PERFORM honker.reply(s, json_build_object('id', s.job_id, 'state', stage, 'error', cause));
    RETURN NULL;
  END IF;
  PERFORM honker.tell(s.events, stage, json_build_object('id', s.job_id, 'queue', OLD.queue, 'state', stage, 'attempt', OLD.attempts));
  IF stage = 'finished' THEN
    SELECT r.value INTO output FROM honker.result r WHERE r.job_id = OLD.id;
    IF FOUND THEN
      PERFORM honker.reply(s, json_build_object('id', s.job_id, 'state', stage, 'output', honker.json_or_text(output)));
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- A text as JSON, or as a string if it is none.
CREATE FUNCTION honker.json_or_text(value text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN value::json;
EXCEPTION WHEN others THEN
  RETURN to_json(value);
END $$;

CREATE TRIGGER honker_sent_again AFTER INSERT ON honker.job FOR EACH ROW WHEN (NEW.sent) EXECUTE FUNCTION honker.sent_moved();
CREATE TRIGGER honker_sent_moved AFTER UPDATE ON honker.job FOR EACH ROW
  WHEN (NEW.sent AND ((NEW.state = 1) <> (OLD.state = 1) OR NEW.attempts > OLD.attempts)) EXECUTE FUNCTION honker.sent_moved();
CREATE TRIGGER honker_sent_ended AFTER DELETE ON honker.job FOR EACH ROW WHEN (OLD.sent) EXECUTE FUNCTION honker.sent_ended();
