-- Claims of queues with limits. They hold the jobs that may not start because of their key (state 2), out of the way of
-- later claims. Whoever makes room for a key leaves a token in the same commit and looks no further. Claims of a queue
-- run one at a time, and each takes the tokens that are committed and lets as many held jobs go as there is room for.
-- Whatever the order of commits, the last of several changes has left a token, so the claim that takes it sees them all.

-- The lock of claims of a queue. A claim only tries to get it. So no transaction of the application takes it, as that
-- may last.
CREATE FUNCTION honker.limits_lock(q text) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT hashtext(q) # 'honker.job'::regclass::oid::int $$;

-- Whether a key holds jobs. As EXISTS, this could become a join that reads the held jobs of all keys.
CREATE FUNCTION honker.holds(q text, k text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT (SELECT true FROM honker.job j WHERE j.queue = q AND j.key = k AND j.state + 0 = 2 LIMIT 1) IS NOT NULL $$;

-- The first held jobs of keys, as many of each as there is room for, and up to n.
CREATE FUNCTION honker.releasable(x honker.queue, keys text[], at timestamptz, n bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE rooms bigint[]; firsts bigint[];
BEGIN
  SELECT array_agg(k.room ORDER BY k.ord), array_agg(k.first ORDER BY k.ord) INTO rooms, firsts FROM honker.key_rooms(x, keys, at) k;
  IF x.in_order THEN
    RETURN ARRAY(SELECT j.id FROM unnest(rooms, firsts) k (room, first) JOIN honker.job j ON j.id = k.first WHERE k.room > 0 AND j.state + 0 = 2 LIMIT n);
  END IF;
  RETURN ARRAY(SELECT h.id FROM unnest(keys, rooms) k (key, room) CROSS JOIN LATERAL (
    SELECT j.id FROM honker.job j WHERE j.queue = x.queue AND j.key = k.key AND j.state + 0 = 2
    ORDER BY j.priority DESC, j.run_at, j.id LIMIT k.room) h LIMIT n);
END $$;

-- Let held jobs go. It returns the keys of those that another transaction has locked.
CREATE FUNCTION honker.release(ids bigint[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE free bigint[];
BEGIN
  free := ARRAY(SELECT j.id FROM honker.job j WHERE j.id = ANY (ids) AND j.state + 0 = 2 FOR UPDATE SKIP LOCKED);
  UPDATE honker.job j SET state = 0 WHERE j.id = ANY (free);
  IF cardinality(free) = cardinality(ids) THEN
    RETURN '{}';
  END IF;
  RETURN ARRAY(SELECT DISTINCT j.key FROM honker.job j WHERE j.id = ANY (ids) AND j.state + 0 = 2);
END $$;

-- Look at held jobs again after a change of limits: up to most of them, and those of at least one key. It returns
-- whether there may be more. The caller has the lock of claims, so that no claim with the old limits is under way.
CREATE FUNCTION honker.fit(q text, at timestamptz, most bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE x honker.queue; ids bigint[]; k text; locked boolean := false;
BEGIN
  SELECT * INTO x FROM honker.queue f WHERE f.queue = q AND f.fit_key IS NOT NULL FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN EXISTS (SELECT FROM honker.queue f WHERE f.queue = q AND f.fit_key IS NOT NULL);
  END IF;
  WHILE most > 0 AND NOT locked LOOP
    SELECT j.key INTO k FROM honker.job j WHERE j.queue = q AND j.key >= x.fit_key AND j.state + 0 = 2 ORDER BY j.queue, j.key LIMIT 1;
    IF NOT FOUND THEN
      UPDATE honker.queue f SET fit_key = NULL WHERE f.queue = q;
      RETURN false;
    END IF;
    ids := honker.releasable(x, ARRAY[k], at, most);
    locked := cardinality(honker.release(ids)) > 0;
    IF cardinality(ids) < most AND NOT locked THEN
      x.fit_key := k || chr(1); -- no text lies between the two
    ELSE
      x.fit_key := k;
    END IF;
    most := most - greatest(1, cardinality(ids));
  END LOOP;
  UPDATE honker.queue f SET fit_key = x.fit_key WHERE f.queue = q;
  RETURN true;
END $$;

-- The same for a transaction that does not claim. It waits for the claim that is under way.
CREATE FUNCTION honker.fit_alone(q text, at timestamptz, most bigint) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off
SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(1751085683, honker.limits_lock(q));
  RETURN honker.fit(q, at, most);
END $$;

-- Let the held jobs go of the keys that may have room: keys with tokens, keys whose pauses or whose cancelled jobs' slots
-- have ended, and keys whose next start is due. It returns whether there may be more. A job that another transaction has
-- locked is looked at again a little later, since that transaction may leave no token.
CREATE FUNCTION honker.let_go(x honker.queue, at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE keys text[]; ids bigint[]; n bigint; every float8 := extract(epoch FROM x.key_rate_per)::float8 / x.key_rate_n;
BEGIN
  WITH t AS (DELETE FROM honker.token d WHERE d.id = ANY (ARRAY(
      SELECT l.id FROM honker.token l WHERE l.queue = x.queue AND coalesce(l.due <= at, true) LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING d.key),
    p AS (DELETE FROM honker.place d WHERE d.job_id = ANY (ARRAY(
      SELECT l.job_id FROM honker.place l WHERE l.queue = x.queue AND l.until_at <= at LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING d.key),
    o AS (UPDATE honker.key d SET over = true WHERE d.ctid = ANY (ARRAY(
      SELECT l.ctid FROM honker.key l WHERE l.queue = x.queue AND l.paused_until <= at AND NOT l.over LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING d.key),
    s AS (SELECT d.key FROM honker.starts d WHERE d.queue = x.queue AND d.next_at <= at + interval '500 microseconds' LIMIT 1000)
  SELECT array_agg(DISTINCT a.key) FILTER (WHERE a.key IS NOT NULL), count(*) INTO keys, n
  FROM (SELECT t.key FROM t UNION ALL SELECT p.key FROM p UNION ALL SELECT o.key FROM o UNION ALL SELECT s.key FROM s) a;
  IF keys IS NULL OR NOT x.keyed THEN
    RETURN false;
  END IF;
  ids := honker.releasable(x, keys, at, 1000);
  IF cardinality(ids) > 0 THEN
    INSERT INTO honker.token (queue, key, due) SELECT x.queue, l.key, at + interval '20 milliseconds' FROM unnest(honker.release(ids)) l (key);
  END IF;
  -- Also of an earlier rate.
  UPDATE honker.starts s SET next_at = CASE WHEN honker.holds(x.queue, s.key)
    AND s.turn = x.key_rate_turn THEN honker.next_start(honker.unix(at), honker.unix(s.tat), every, x.key_rate_burst) END
  WHERE s.queue = x.queue AND s.key = ANY (keys) AND s.next_at IS NOT NULL;
  IF cardinality(ids) = 1000 THEN
    INSERT INTO honker.token (queue, key) SELECT x.queue, unnest(keys);
  END IF;
  RETURN n >= 1000 OR cardinality(ids) = 1000;
END $$;

-- Record the starts of the jobs among ids that a claim has just taken, and when the other jobs of their keys may start.
CREATE FUNCTION honker.count_key_starts(x honker.queue, ids bigint[], at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE every float8 := extract(epoch FROM x.key_rate_per)::float8 / x.key_rate_n;
BEGIN
  INSERT INTO honker.starts AS s (queue, key, turn, tat)
  SELECT x.queue, c.key, x.key_rate_turn, honker.tat_after(honker.unix(at), honker.unix(o.tat), every, x.key_rate_burst, c.n)
  FROM (SELECT j.key, count(*) AS n FROM honker.job j WHERE j.id = ANY (ids) AND j.key IS NOT NULL AND j.state + 0 = 1 GROUP BY j.key) c
  LEFT JOIN LATERAL (SELECT s.tat FROM honker.starts s WHERE s.queue = x.queue AND s.key = c.key AND s.turn = x.key_rate_turn LIMIT 1) o ON true
  ON CONFLICT (queue, key) DO UPDATE SET turn = excluded.turn, tat = excluded.tat;
  UPDATE honker.starts s SET next_at = honker.next_start(honker.unix(at), honker.unix(s.tat), every, x.key_rate_burst)
  WHERE s.queue = x.queue AND s.turn = x.key_rate_turn AND s.key = ANY (ARRAY(SELECT DISTINCT j.key FROM honker.job j WHERE j.id = ANY (ids) AND j.key IS NOT NULL))
    AND honker.holds(x.queue, s.key);
END $$;

-- Prepare claims of a queue with limits: take its lock until the end of the transaction, dead-letter what has expired, and
-- let held jobs go. A row with the bit 8 says that there may be more to do, and the bit 16 that another claim has the lock.
-- It tries to get the lock tries times, a millisecond apart. To wait for the lock instead would make the next claim start
-- with an old snapshot, and keep dead rows from being removed.
CREATE FUNCTION honker.begin_limited(q text, at timestamptz, tries int) RETURNS SETOF honker.step_row LANGUAGE plpgsql AS $$
DECLARE x honker.queue; more boolean := false;
BEGIN
  WHILE NOT pg_try_advisory_xact_lock(1751085683, honker.limits_lock(q)) LOOP
    tries := tries - 1;
    IF tries <= 0 THEN
      RETURN NEXT (2, 24, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
      RETURN;
    END IF;
    PERFORM pg_sleep(0.001);
  END LOOP;
  SELECT * INTO x FROM honker.queue k WHERE k.queue = q; -- a snapshot after the lock
  IF x.keyed AND EXISTS (SELECT FROM honker.job j WHERE j.queue = q AND j.state <> 1 AND j.expires_at <= at) THEN
    RETURN QUERY SELECT 3, b.id, b.queue, b.worker, NULL::bigint, NULL::timestamptz, b.attempts, NULL::bigint, NULL::timestamptz,
      NULL::timestamptz, b.reason, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text
    FROM honker.bury(ARRAY(SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state <> 1 AND j.expires_at <= at ORDER BY j.expires_at LIMIT 1000), at) b;
  END IF;
  IF x.fit_key IS NOT NULL THEN
    more := honker.fit(q, at, 256);
  END IF;
  IF honker.let_go(x, at) OR more THEN
    RETURN NEXT (2, 8, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
  END IF;
END $$;

-- Claim up to n jobs of a queue with limits, after honker.begin_limited. The last row has the bit 8 if there may be more
-- jobs, because this claim has held so many that it would keep others waiting.
CREATE FUNCTION honker.claim_limited(q text, w text, at timestamptz, until timestamptz, n bigint) RETURNS SETOF honker.step_row LANGUAGE plpgsql AS $$
DECLARE
  x honker.queue;
  want bigint;
  got bigint := 0;
  seen bigint := 0;
  changed bigint;
  places tid[];
  keys text[];
  rooms bigint[];
  firsts bigint[];
  go bigint[];
  hold bigint[];
BEGIN
  SELECT * INTO x FROM honker.queue k WHERE k.queue = q;
  SELECT least(n, r.jobs) INTO want FROM honker.room(x, at) r;
  WHILE got < want LOOP
    IF NOT coalesce(x.keyed, false) THEN
      RETURN QUERY SELECT * FROM honker.claim_queue(q, w, at, until, want);
      GET DIAGNOSTICS got = ROW_COUNT;
      EXIT;
    END IF;
    IF seen >= 2000 THEN
      RETURN NEXT (2, 8, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
      EXIT;
    END IF;
    places := honker.lock_due(q, at, CASE seen WHEN 0 THEN want ELSE greatest(want - got, 100) END);
    EXIT WHEN cardinality(places) = 0;
    keys := ARRAY(SELECT DISTINCT j.key FROM honker.job j WHERE j.ctid = ANY (places) AND j.key IS NOT NULL ORDER BY j.key);
    SELECT array_agg(k.room ORDER BY k.ord), array_agg(k.first ORDER BY k.ord) INTO rooms, firsts FROM honker.key_rooms(x, keys, at) k;
    SELECT array_agg(v.id) FILTER (WHERE v.ok), array_agg(v.id) FILTER (WHERE NOT v.ok) INTO go, hold
    FROM (SELECT c.id, c.ok, sum(c.ok::int) OVER (ORDER BY c.priority DESC, c.run_at, c.id) - c.ok::int AS before FROM (
        SELECT j.id, j.priority, j.run_at, j.key IS NULL
          OR CASE WHEN x.in_order THEN rooms[j.place] > 0 AND firsts[j.place] = j.id ELSE j.of_key <= rooms[j.place] END AS ok
        FROM (SELECT d.id, d.key, d.priority, d.run_at, dense_rank() OVER (ORDER BY d.key) AS place, -- in keys
            row_number() OVER (PARTITION BY d.key ORDER BY d.priority DESC, d.run_at, d.id) AS of_key
          FROM honker.job d WHERE d.ctid = ANY (places) AND d.state = 0) j) c) v
    WHERE v.before < want - got;
    UPDATE honker.job j SET state = 2 WHERE j.id = ANY (hold);
    GET DIAGNOSTICS changed = ROW_COUNT;
    seen := seen + changed;
    RETURN QUERY
      UPDATE honker.job j SET state = 1, worker = w, lease_until = until, attempts = j.attempts + 1 WHERE j.id = ANY (go)
      RETURNING 0, j.id, j.queue, j.payload, j.priority, j.run_at, j.attempts, j.max_attempts, j.created_at, j.expires_at, j.last_error,
        j.unique_key, j.key, j.headers, j.batch, (SELECT s.checkpoint FROM honker.side s WHERE s.job_id = j.id);
    IF NOT FOUND AND changed = 0 THEN
      RETURN NEXT (2, 4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
      EXIT;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    got := got + changed;
    seen := seen + changed;
    IF x.key_rate_n IS NOT NULL THEN
      PERFORM honker.count_key_starts(x, go || hold, at);
    END IF;
  END LOOP;
  IF x.rate_n IS NOT NULL AND got > 0 THEN
    INSERT INTO honker.starts AS s (queue, key, turn, tat)
    SELECT q, '', x.rate_turn, honker.tat_after(honker.unix(at), (SELECT honker.unix(o.tat) FROM honker.starts o
      WHERE o.queue = q AND o.key = '' AND o.turn = x.rate_turn), extract(epoch FROM x.rate_per)::float8 / x.rate_n, x.rate_burst, got)
    ON CONFLICT (queue, key) DO UPDATE SET turn = excluded.turn, tat = excluded.tat;
  END IF;
END $$;
