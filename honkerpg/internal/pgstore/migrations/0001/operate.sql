-- What operators change. Jobs are locked in the order of their ids, and looked at again under the locks.

-- Deletes live jobs, and claimed ones only if running is set. waiters says how to treat the jobs that wait for them: 0
-- lets them go, 1 deletes them too, 2 keeps the jobs that others wait for.
CREATE FUNCTION honker.cancel_many(ids bigint[], running boolean, waiters int, now timestamptz)
RETURNS TABLE (id bigint, queue text, waited boolean) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE gone bigint[]; too bigint[] := '{}'; locked bigint[] := ids;
BEGIN
  IF waiters = 1 THEN
    locked := ARRAY(SELECT honker.later(ids));
  END IF;
  PERFORM FROM honker.job j WHERE j.id = ANY (locked) ORDER BY j.id FOR UPDATE;
  gone := ARRAY(SELECT j.id FROM honker.job j WHERE j.id = ANY (ids) AND (running OR j.state <> 1 OR j.lease_until < cancel_many.now)
    AND (waiters <> 2 OR NOT EXISTS (SELECT FROM honker.waiters(ARRAY[j.id]))));
  IF waiters = 1 THEN
    too := ARRAY(SELECT honker.waiters(gone));
  END IF;
  RETURN QUERY SELECT c.id, c.queue, c.id = ANY (too) FROM honker.cancel_('', gone || too, cancel_many.now) c;
END $$;

-- Moves the live jobs that nobody has a valid claim on to the dead letters. It waits for jobs that are locked.
CREATE FUNCTION honker.bury_many(ids bigint[], cause text, now timestamptz) RETURNS TABLE (id bigint, queue text, attempts bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $$
BEGIN
  PERFORM FROM honker.job j WHERE j.id = ANY (ids) ORDER BY j.id FOR UPDATE;
  RETURN QUERY SELECT b.id, b.queue, b.attempts FROM honker.bury(ids, bury_many.now, cause) b;
END $$;

-- Deletes dead jobs. waiters is as in honker.cancel_many. A job that has links leaves a token: whatever waits for it
-- takes it as done then.
CREATE FUNCTION honker.discard(ids bigint[], waiters int, now timestamptz) RETURNS TABLE (id bigint, queue text, waited boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $$
DECLARE gone bigint[];
BEGIN
  gone := ARRAY(SELECT d.id FROM honker.dead d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE);
  IF waiters = 1 THEN
    RETURN QUERY SELECT c.id, c.queue, true FROM honker.cancel_('', ARRAY(SELECT honker.waiters(gone)), discard.now) c;
  ELSIF waiters = 2 THEN
    gone := ARRAY(SELECT g FROM unnest(gone) g WHERE NOT EXISTS (SELECT FROM honker.waiters(ARRAY[g])));
  END IF;
  RETURN QUERY WITH d AS (DELETE FROM honker.dead x WHERE x.id = ANY (gone) RETURNING x.id, x.queue, x.batch),
    t AS (INSERT INTO honker.token (parent, batch)
      SELECT d.id, NULL FROM d WHERE EXISTS (SELECT FROM honker.edge e WHERE e.waiter = d.id OR e.parent = d.id AND e.parent <> 0)
      UNION ALL SELECT DISTINCT NULL::bigint, d.batch FROM d WHERE d.batch IS NOT NULL),
    a AS (DELETE FROM honker.attempt x USING d WHERE x.job_id = d.id)
  SELECT d.id, d.queue, false FROM d;
END $$;

-- Makes a dead job live again, in the queue to unless it is NULL. It takes its unique key again unless it had released it
-- before it died. The row of the key is locked before the job, as by honker.place. So the job is read before it is locked,
-- and once more if it has changed in between. The attempts go on, because they fence claims: a worker from before the death
-- must not settle the job. Nothing has changed unless done is returned.
CREATE FUNCTION honker.requeue(job bigint, into_queue text, due timestamptz, more bigint, new_payload text, now timestamptz)
RETURNS TABLE (queue text, done boolean, key text, taken_by bigint, live boolean) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE d honker.dead; was honker.dead; u honker.uniq; waits boolean; awaits boolean; held boolean; fresh boolean;
BEGIN
  LOOP
    SELECT * INTO d FROM honker.dead x WHERE x.id = job;
    IF NOT FOUND THEN RETURN; END IF;
    queue := coalesce(into_queue, d.queue); done := false; key := coalesce(d.unique_key, ''); taken_by := 0;
    held := d.unique_key IS NOT NULL AND d.unique_kind IS NOT NULL AND NOT (d.unique_kind = 1 AND d.attempts > 0);
    live := EXISTS (SELECT FROM honker.job j WHERE j.id = job);
    IF live THEN RETURN NEXT; RETURN; END IF;
    fresh := false;
    IF held THEN
      LOOP
        SELECT * INTO u FROM honker.uniq l WHERE l.queue = requeue.queue AND l.key = d.unique_key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO honker.uniq (queue, key, job_id, kind, first_at) VALUES (requeue.queue, d.unique_key, job, d.unique_kind, requeue.now) ON CONFLICT DO NOTHING;
        fresh := FOUND;
      END LOOP;
      IF u.job_id <> job OR u.next_id IS NOT NULL THEN
        SELECT coalesce(
          (SELECT j.id FROM honker.job j WHERE j.id = u.job_id AND (u.kind = 0 OR u.next_id IS NOT NULL OR j.attempts = 0 AND j.lease_until IS NULL)
            AND (j.state = 1 AND j.lease_until >= requeue.now
              OR j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > requeue.now))),
          (SELECT j.id FROM honker.job j WHERE j.id = u.next_id),
          CASE WHEN u.job_id <> job AND u.until_at > requeue.now THEN u.job_id END, 0) INTO taken_by;
        IF taken_by <> 0 THEN RETURN NEXT; RETURN; END IF;
      END IF;
    END IF;
    was := d;
    SELECT * INTO d FROM honker.dead x WHERE x.id = job FOR UPDATE;
    EXIT WHEN FOUND AND (d.queue, d.unique_key, d.unique_kind, d.attempts) IS NOT DISTINCT FROM (was.queue, was.unique_key, was.unique_kind, was.attempts);
    IF fresh THEN
      DELETE FROM honker.uniq l WHERE l.queue = requeue.queue AND l.key = was.unique_key;
    END IF;
  END LOOP;
  IF held THEN
    UPDATE honker.uniq l SET job_id = job, next_id = NULL, kind = d.unique_kind, first_at = requeue.now WHERE l.queue = requeue.queue AND l.key = d.unique_key;
  END IF;
  DELETE FROM honker.dead x WHERE x.id = job;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has kept a dead job';
  END IF;
  waits := EXISTS (SELECT FROM honker.edge e WHERE e.waiter = job AND e.state <> 1);
  awaits := EXISTS (SELECT FROM honker.edge e WHERE e.waiter = job OR e.parent = job AND e.parent <> 0 AND e.waiter > 0);
  INSERT INTO honker.job (id, queue, payload, priority, run_at, attempts, max_attempts, base, created_at, state, awaited,
    sent, last_error, unique_key, key, headers, batch)
  VALUES (job, requeue.queue, coalesce(new_payload, d.payload), d.priority, due, d.attempts,
    d.attempts + CASE WHEN more > 0 THEN more ELSE greatest(1, d.max_attempts - coalesce(d.base, 0)) END, d.attempts, d.created_at,
    CASE WHEN waits THEN 3 ELSE 0 END, awaits, honker.was_sent(job), d.last_error, d.unique_key, d.key, d.headers, d.batch);
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a job';
  END IF;
  INSERT INTO honker.side (job_id, progress, checkpoint) SELECT job, d.progress, d.checkpoint WHERE coalesce(d.progress, d.checkpoint) IS NOT NULL;
  INSERT INTO honker.token (parent) SELECT job WHERE awaits;
  INSERT INTO honker.token (waiter) SELECT job WHERE waits;
  INSERT INTO honker.token (batch) SELECT d.batch WHERE d.batch IS NOT NULL;
  done := true; key := '';
  RETURN NEXT;
END $$;
