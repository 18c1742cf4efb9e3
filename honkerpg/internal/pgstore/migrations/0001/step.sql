-- Settling and claiming. The plans of these functions must not depend on statistics, which are often of an empty table.
-- So the functions forbid plans that read or sort a whole table, and leave only one index to each statement: "state + 0"
-- keeps an ack from the indexes of claimed jobs.

-- Ack the jobs among ids that w holds at a time, by the attempt nth or by any if it is NULL, and in the queue q or in
-- any if it is NULL. linked is set if tokens for the resolver were left.
CREATE FUNCTION honker.ack_(w text, at timestamptz, ids bigint[], nth bigint, q text, OUT gone bigint[], OUT linked boolean)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE later bigint[]; keyed text[];
BEGIN
  IF EXISTS (SELECT FROM honker.queue k WHERE k.done_count IS NOT NULL) THEN
    WITH ended AS (
      DELETE FROM honker.job j WHERE j.id = ANY(ids) AND j.worker = w AND j.state + 0 = 1 AND j.lease_until >= at
        AND (nth IS NULL OR j.attempts = nth) AND (q IS NULL OR j.queue = q) RETURNING j.*),
    kept AS (INSERT INTO honker.done (id, run_at, created_at, expires_at, done_at, priority, attempts, max_attempts, base, batch, queue,
        worker, key, unique_key, headers, last_error, progress, payload)
      SELECT e.id, e.run_at, e.created_at, e.expires_at, at, e.priority, e.attempts, e.max_attempts, e.base, e.batch, e.queue,
        e.worker, e.key, e.unique_key, e.headers, e.last_error, (SELECT s.progress FROM honker.side s WHERE s.job_id = e.id), e.payload
      FROM ended e WHERE EXISTS (SELECT FROM honker.queue k WHERE k.queue = e.queue AND k.done_count IS NOT NULL)),
    links AS (INSERT INTO honker.token (parent, batch) SELECT CASE WHEN e.awaited THEN e.id END, e.batch FROM ended e WHERE e.awaited OR e.batch IS NOT NULL),
    keys AS (INSERT INTO honker.token (queue, key) SELECT DISTINCT e.queue, e.key FROM ended e WHERE e.key IS NOT NULL)
    SELECT array_agg(e.id), coalesce(bool_or(e.awaited OR e.batch IS NOT NULL), false),
      array_agg(e.id) FILTER (WHERE e.last_error IS NOT NULL OR e.base IS NOT NULL),
      array_agg(DISTINCT e.queue) FILTER (WHERE e.key IS NOT NULL) INTO gone, linked, later, keyed FROM ended e;
  ELSE
    WITH ended AS (
      DELETE FROM honker.job j WHERE j.id = ANY(ids) AND j.worker = w AND j.state + 0 = 1 AND j.lease_until >= at
        AND (nth IS NULL OR j.attempts = nth) AND (q IS NULL OR j.queue = q)
      RETURNING j.id, j.queue, j.key, j.batch, j.awaited, j.last_error IS NOT NULL OR j.base IS NOT NULL AS failed),
    links AS (INSERT INTO honker.token (parent, batch) SELECT CASE WHEN e.awaited THEN e.id END, e.batch FROM ended e WHERE e.awaited OR e.batch IS NOT NULL),
    keys AS (INSERT INTO honker.token (queue, key) SELECT DISTINCT e.queue, e.key FROM ended e WHERE e.key IS NOT NULL)
    SELECT array_agg(e.id), coalesce(bool_or(e.awaited OR e.batch IS NOT NULL), false),
      array_agg(e.id) FILTER (WHERE e.failed), array_agg(DISTINCT e.queue) FILTER (WHERE e.key IS NOT NULL) INTO gone, linked, later, keyed FROM ended e;
  END IF;
  IF keyed IS NOT NULL THEN
    PERFORM honker.drop_tokens(keyed);
  END IF;
  DELETE FROM honker.side s WHERE s.job_id = ANY(gone);
  IF later IS NOT NULL THEN
    DELETE FROM honker.attempt a WHERE a.job_id = ANY(later);
  END IF;
END $$;

-- End w's claims in any way. The arrays have an element for each claim, in ascending order of ids. outs: 1 acked,
-- 2 retried, 3 died, 4 snoozed, 5 released, 6 cancelled. runs: when the job may run again. starts, rans and logs
-- describe the attempt. slow pauses a snoozed job's key or queue. busy: the handler has not returned, so a cancelled job
-- keeps its slot. became is the outcome, or 0 if the claim is not valid; gone: the job is neither live nor dead.
CREATE FUNCTION honker.settle(w text, at timestamptz, ids bigint[], nths bigint[], outs smallint[], runs timestamptz[], errs text[],
  results text[], result_ends timestamptz[], news text[], starts timestamptz[], rans bigint[], logs text[], slow boolean[], busy boolean[])
RETURNS TABLE (ord bigint, became smallint, gone boolean, linked boolean)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE r record; keyed text[] := '{}';
BEGIN
  FOR r IN
    WITH s AS MATERIALIZED (
      SELECT * FROM unnest(ids, nths, outs, runs, errs, results, result_ends, news, starts, rans, logs)
        WITH ORDINALITY u (id, nth, out, run, err, result, result_end, new, start_at, ran, log, ord)),
    held AS MATERIALIZED (
      SELECT s.*, j.queue, j.key, j.awaited OR j.batch IS NOT NULL AS links,
        CASE WHEN s.out = 2 AND j.attempts >= j.max_attempts THEN 3 ELSE s.out END AS became
      FROM s JOIN honker.job j ON j.id = s.id
      WHERE s.out <> 6 AND j.worker = w AND j.attempts = s.nth AND j.state + 0 = 1 AND j.lease_until >= at FOR UPDATE OF j),
    back AS (
      UPDATE honker.job j SET state = 0, worker = NULL,
        run_at = CASE h.became WHEN 2 THEN h.run WHEN 4 THEN greatest(j.run_at, h.run) ELSE j.run_at END,
        attempts = CASE WHEN h.became = 2 THEN j.attempts ELSE j.attempts - 1 END,
        last_error = CASE WHEN h.became = 2 THEN coalesce(nullif(h.err, ''), j.last_error) ELSE j.last_error END
      FROM held h WHERE j.id = h.id AND h.became IN (2, 4, 5)),
    ended AS (DELETE FROM honker.job j USING held h WHERE j.id = h.id AND h.became IN (1, 3) RETURNING j.*, h.became, h.err, h.new),
    kept AS (INSERT INTO honker.done (id, run_at, created_at, expires_at, done_at, priority, attempts, max_attempts, base, batch, queue,
        worker, key, unique_key, headers, last_error, progress, payload)
      SELECT e.id, e.run_at, e.created_at, e.expires_at, at, e.priority, e.attempts, e.max_attempts, e.base, e.batch, e.queue,
        e.worker, e.key, e.unique_key, e.headers, e.last_error,
        coalesce(e.new, (SELECT d.progress FROM honker.side d WHERE d.job_id = e.id)), e.payload
      FROM ended e WHERE e.became = 1 AND EXISTS (SELECT FROM honker.queue k WHERE k.queue = e.queue AND k.done_count IS NOT NULL)),
    died AS (INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, base, batch, queue,
        key, unique_key, unique_kind, headers, last_error, progress, checkpoint, payload)
      SELECT e.id, e.run_at, e.created_at, at, e.priority, e.attempts, e.max_attempts, e.base, e.batch, e.queue, e.key, e.unique_key,
        (SELECT u.kind FROM honker.uniq u WHERE u.queue = e.queue AND u.key = e.unique_key AND u.job_id = e.id), e.headers, e.err,
        coalesce(e.new, (SELECT d.progress FROM honker.side d WHERE d.job_id = e.id)),
        (SELECT d.checkpoint FROM honker.side d WHERE d.job_id = e.id), e.payload
      FROM ended e WHERE e.became = 3),
    saved AS (INSERT INTO honker.side (job_id, progress) SELECT h.id, h.new FROM held h WHERE h.new IS NOT NULL AND h.became IN (2, 4, 5)
      ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress),
    unsaved AS (DELETE FROM honker.side d USING held h WHERE d.job_id = h.id AND h.became IN (1, 3)),
    forgotten AS (DELETE FROM honker.attempt a USING held h WHERE a.job_id = h.id AND h.became = 1),
    recorded AS (INSERT INTO honker.attempt (job_id, attempt, worker, start_at, ran, error, log)
      SELECT h.id, h.nth, w, h.start_at, h.ran * interval '1 microsecond', h.err, nullif(h.log, '') FROM held h
      WHERE h.became = 3 OR h.became = 2 AND h.err <> ''
      ON CONFLICT (job_id, attempt) DO UPDATE SET worker = excluded.worker, start_at = excluded.start_at, ran = excluded.ran,
        error = excluded.error, log = excluded.log),
    answered AS (INSERT INTO honker.result (job_id, value, created_at, expires_at)
      SELECT h.id, h.result, at, h.result_end FROM held h WHERE h.became = 1 AND h.result IS NOT NULL
      ON CONFLICT (job_id) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at),
    link_tokens AS (INSERT INTO honker.token (parent, batch)
      SELECT CASE WHEN e.awaited THEN e.id END, e.batch FROM ended e WHERE e.awaited OR e.batch IS NOT NULL),
    key_tokens AS (INSERT INTO honker.token (queue, key) SELECT DISTINCT h.queue, h.key FROM held h WHERE h.key IS NOT NULL)
    SELECT s.ord, s.id, s.nth, s.out, s.run, s.err, h.became, h.queue, h.key, coalesce(h.links AND h.became IN (1, 3), false) AS links
    FROM s LEFT JOIN held h ON h.ord = s.ord ORDER BY s.ord
  LOOP
    ord := r.ord;
    became := coalesce(r.became, CASE WHEN r.out = 6 THEN 6 ELSE 0 END);
    linked := r.links;
    gone := became = 0 AND honker.is_gone(r.id);
    IF (gone OR became = 6) AND NOT busy[ord] THEN
      PERFORM honker.drop_place(w, r.id, r.nth);
    END IF;
    IF became IN (2, 3) AND (r.nth > 20 OR r.nth > 1 AND logs[ord] <> '') THEN
      PERFORM honker.trim_attempts(r.id);
    END IF;
    IF became = 4 AND slow[ord] AND r.run > at THEN
      PERFORM honker.slow_down(r.queue, r.key, r.run, r.err, at);
    END IF;
    IF r.key IS NOT NULL AND r.queue <> ALL (keyed) THEN
      keyed := keyed || r.queue;
    END IF;
    RETURN NEXT;
  END LOOP;
  PERFORM honker.drop_tokens(keyed);
END $$;

-- Whether a job is neither live nor dead.
CREATE FUNCTION honker.is_gone(job bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (SELECT FROM honker.job j WHERE j.id = job) AND NOT EXISTS (SELECT FROM honker.dead d WHERE d.id = job) $$;

-- Give up the slot of a cancelled job, whose handler has returned.
CREATE FUNCTION honker.drop_place(w text, job bigint, nth bigint) RETURNS void LANGUAGE sql AS $$
  WITH gone AS (DELETE FROM honker.place p WHERE p.job_id = job AND p.worker = w AND p.attempt = nth RETURNING p.queue, p.key)
  INSERT INTO honker.token (queue, key) SELECT g.queue, g.key FROM gone g WHERE g.key IS NOT NULL $$;

-- Deletes tokens of the queues that have no limits: no claim takes them. A settlement leaves a token even so, because limits
-- may be set before it commits. Tokens of this transaction stay, since claims that know limits may not have seen its
-- settlements. They have seen those of committed transactions that this statement sees.
CREATE FUNCTION honker.drop_tokens(queues text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
  FOREACH q IN ARRAY queues LOOP
    IF NOT EXISTS (SELECT FROM honker.queue x WHERE x.queue = q AND x.limited) THEN
      DELETE FROM honker.token t WHERE t.id = ANY (ARRAY(SELECT l.id FROM honker.token l WHERE l.queue = q AND l.xact <> pg_current_xact_id()
        AND NOT EXISTS (SELECT FROM honker.queue x WHERE x.queue = q AND x.limited) LIMIT 1000 FOR UPDATE SKIP LOCKED));
    END IF;
  END LOOP;
END $$;

-- Pause a key, or its queue if k is NULL, without shortening a pause.
CREATE FUNCTION honker.slow_down(q text, k text, until timestamptz, why text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO honker.queue (queue) VALUES (q) ON CONFLICT DO NOTHING;
  PERFORM FROM honker.queue x WHERE x.queue = q FOR UPDATE;
  IF k IS NULL THEN
    UPDATE honker.queue x SET paused_until = until, paused_at = CASE WHEN honker.pauses(x.paused_at, x.paused_until, at) THEN x.paused_at ELSE at END,
      reason = CASE WHEN honker.pauses(x.paused_at, x.paused_until, at) AND x.who IS NOT NULL THEN x.reason ELSE nullif(why, '') END,
      who = CASE WHEN honker.pauses(x.paused_at, x.paused_until, at) THEN x.who END
    WHERE x.queue = q AND NOT (honker.pauses(x.paused_at, x.paused_until, at) AND coalesce(x.paused_until >= until, true));
  ELSIF NOT EXISTS (SELECT FROM honker.key x WHERE x.queue = q AND x.key = k
      AND honker.pauses(x.paused_at, x.paused_until, at) AND coalesce(x.paused_until >= until, true)) THEN
    PERFORM honker.pause_key(q, k, at, until, coalesce((SELECT x.reason FROM honker.key x WHERE x.queue = q AND x.key = k
        AND honker.pauses(x.paused_at, x.paused_until, at) AND x.who IS NOT NULL), nullif(why, '')),
      (SELECT x.who FROM honker.key x WHERE x.queue = q AND x.key = k AND honker.pauses(x.paused_at, x.paused_until, at)), at);
  END IF;
END $$;

-- Pause a key, or replace its pause, which keeps its start. It returns whether the key was paused. The queue's row is
-- locked first, so that changes of its keys count each other.
CREATE FUNCTION honker.pause_key(q text, k text, since timestamptz, until timestamptz, why text, by text, at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE old honker.key;
BEGIN
  INSERT INTO honker.queue (queue) VALUES (q) ON CONFLICT DO NOTHING;
  PERFORM FROM honker.queue x WHERE x.queue = q FOR UPDATE;
  SELECT * INTO old FROM honker.key x WHERE x.queue = q AND x.key = k;
  IF honker.pauses(old.paused_at, old.paused_until, at) THEN
    since := old.paused_at;
  END IF;
  INSERT INTO honker.key AS x (queue, key, paused_at, paused_until, reason, who) VALUES (q, k, since, until, why, by)
  ON CONFLICT (queue, key) DO UPDATE SET paused_at = excluded.paused_at, paused_until = excluded.paused_until, reason = excluded.reason,
    who = excluded.who, over = false;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF old.queue IS NULL THEN
    UPDATE honker.queue x SET keys_paused = coalesce(x.keys_paused, 0) + 1 WHERE x.queue = q;
  END IF;
  RETURN honker.pauses(old.paused_at, old.paused_until, at);
END $$;

-- End the pause of a key, or only delete it if it is over. It returns whether there was one. If the queue has no other
-- limits on keys, its claims would not look at tokens, so the jobs are fitted.
CREATE FUNCTION honker.resume_key(q text, k text, at timestamptz, if_over boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE old honker.key;
BEGIN
  PERFORM FROM honker.queue x WHERE x.queue = q FOR UPDATE;
  DELETE FROM honker.key x WHERE x.queue = q AND x.key = k AND (NOT if_over OR x.paused_until <= at) RETURNING * INTO old;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE honker.queue x SET keys_paused = nullif(x.keys_paused - 1, 0),
    fit_key = CASE WHEN x.keys_paused = 1 AND NOT x.in_order AND coalesce(x.per_key, x.key_rate_n) IS NULL THEN '' ELSE x.fit_key END
  WHERE x.queue = q;
  INSERT INTO honker.token (queue, key) VALUES (q, k);
  RETURN honker.pauses(old.paused_at, old.paused_until, at);
END $$;

-- Delete pauses that are over, and starts that no longer count. It returns the number of pauses.
CREATE FUNCTION honker.end_pauses(at timestamptz, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE ended bigint; k record;
BEGIN
  UPDATE honker.queue x SET paused_at = NULL, paused_until = NULL, reason = NULL, who = NULL
  WHERE x.queue = ANY (ARRAY(SELECT l.queue FROM honker.queue l WHERE l.paused_until <= at LIMIT most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS ended = ROW_COUNT;
  FOR k IN SELECT x.queue, x.key FROM honker.key x WHERE x.paused_until <= at ORDER BY x.queue, x.key LIMIT most LOOP
    ended := ended + (honker.resume_key(k.queue, k.key, at, true) IS NOT NULL)::int;
  END LOOP;
  DELETE FROM honker.starts s WHERE s.ctid = ANY (ARRAY(SELECT l.ctid FROM honker.starts l WHERE honker.is_idle(l, at) LIMIT most FOR UPDATE SKIP LOCKED));
  RETURN ended;
END $$;

-- Whether recorded starts no longer count, and no held job waits for the next one.
CREATE FUNCTION honker.is_idle(s honker.starts, at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT coalesce(s.tat <= at, true) AND s.next_at IS NULL OR NOT EXISTS (SELECT FROM honker.queue x WHERE x.queue = s.queue
    AND s.turn = CASE s.key WHEN '' THEN x.rate_turn ELSE x.key_rate_turn END) $$;

-- Whether a pause is in effect.
CREATE FUNCTION honker.pauses(since timestamptz, until timestamptz, at timestamptz) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT since IS NOT NULL AND (until IS NULL OR until > at) $$;

-- Keep the last 20 failed attempts of a job, and the last 256 KiB of their logs.
CREATE FUNCTION honker.trim_attempts(job bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM honker.attempt a WHERE a.job_id = job AND a.attempt <= (
    SELECT b.attempt FROM honker.attempt b WHERE b.job_id = job ORDER BY b.attempt DESC LIMIT 1 OFFSET 20);
  UPDATE honker.attempt a SET log = NULL WHERE a.job_id = job AND a.log IS NOT NULL AND 262144 < (
    SELECT sum(octet_length(b.log)) FROM honker.attempt b WHERE b.job_id = job AND b.attempt >= a.attempt);
END $$;
