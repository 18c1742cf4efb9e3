-- What an explanation reads: the state that the next claims find, in the order in which they look at it. Nothing is written.

-- The running jobs of a queue, and the slots of its cancelled jobs.
CREATE FUNCTION honker.in_slots(q text, now timestamptz, OUT running bigint, OUT cancelled bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  SELECT (SELECT count(*) FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until >= now),
    (SELECT count(*) FROM honker.place p WHERE p.queue = q AND p.until_at > now) $$;

-- The jobs of the same kinds, and only those of a key unless it is NULL.
CREATE FUNCTION honker.running_jobs(q text, k text, n bigint, now timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  (SELECT j.id FROM honker.job j WHERE k IS NULL AND j.queue = q AND j.state = 1 AND j.lease_until >= now ORDER BY j.lease_until LIMIT n)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.key = k AND j.state + 0 = 1 AND j.lease_until >= now LIMIT n) $$;

CREATE FUNCTION honker.cancelled_jobs(q text, k text, n bigint, now timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  SELECT p.job_id FROM honker.place p WHERE p.queue = q AND (k IS NULL OR p.key = k) AND p.until_at > now LIMIT n $$;

-- The jobs that the next claim returns to the queue because their claims have lapsed, or dead-letters if over is set. A
-- claim of a queue with limits on keys also dead-letters jobs that have expired.
CREATE FUNCTION honker.overdue_jobs(q text, expired boolean, now timestamptz)
RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text, over boolean)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  (SELECT j.id, j.priority, j.run_at, j.key, honker.is_over(j, now) FROM honker.job j
    WHERE j.queue = q AND j.state = 1 AND j.lease_until < now ORDER BY j.lease_until LIMIT 1000)
  UNION ALL (SELECT j.id, j.priority, j.run_at, j.key, true FROM honker.job j
    WHERE expired AND j.queue = q AND j.state <> 1 AND j.expires_at <= now AND honker.is_over(j, now) ORDER BY j.expires_at LIMIT 1000) $$;

-- The jobs of a queue that wait only for jobs that are about to be dead-lettered, and that a dead job releases.
CREATE FUNCTION honker.freed_by(q text, dying bigint[], now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  SELECT j.id, j.priority, j.run_at, j.key
  FROM (SELECT DISTINCT e.waiter FROM unnest(dying) d (id) JOIN honker.edge e ON e.parent = d.id AND e.parent <> 0 WHERE e.state = 0 AND e.if_dead AND e.waiter > 0) w
  JOIN honker.job j ON j.id = w.waiter
  WHERE j.queue = q AND j.state = 3 AND NOT honker.is_over(j, now) AND NOT EXISTS (SELECT FROM honker.edge e
    WHERE e.waiter = j.id AND (e.state = 2 OR e.state = 0 AND (NOT e.if_dead OR e.parent <> ALL (dying)))) $$;

-- The first n due jobs of a queue in the order of claims. Those that can no longer run count too, with ok unset.
CREATE FUNCTION honker.due_jobs(q text, n bigint, now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text, ok boolean)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  SELECT d.* FROM honker.levels(q) l (p) CROSS JOIN LATERAL (
    SELECT j.id, j.priority, j.run_at, j.key, j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > now) AS ok FROM honker.job j
    WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at <= now ORDER BY j.run_at, j.id LIMIT n) d LIMIT n $$;

-- How many of the due jobs of a queue come before a position in the order of claims. looked counts those that can no longer
-- run too, and stops at n.
CREATE FUNCTION honker.due_before(q text, level bigint, due timestamptz, before bigint, n bigint, now timestamptz, OUT looked bigint, OUT ahead bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  SELECT count(*), count(*) FILTER (WHERE d.ok) FROM (SELECT d.ok FROM honker.levels(q) l (p) CROSS JOIN LATERAL (
    SELECT j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > now) AS ok FROM honker.job j
    WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at <= now AND (l.p > level OR (j.run_at, j.id) < (due, before)) LIMIT n) d
    WHERE l.p >= level LIMIT n) d $$;

-- The due jobs that are held by their keys, and that the next claim may release.
CREATE FUNCTION honker.held_jobs(q text, keys text[], n bigint, now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  SELECT h.* FROM unnest(keys) k (key) CROSS JOIN LATERAL (
    SELECT j.id, j.priority, j.run_at, j.key FROM honker.job j WHERE j.queue = q AND j.key = k.key AND j.state + 0 = 2
      AND j.run_at <= now AND NOT honker.is_over(j, now) ORDER BY j.priority DESC, j.run_at, j.id LIMIT n) h LIMIT n $$;

-- The keys whose held jobs the next claim looks at again, for the reasons of honker.let_go and honker.fit.
CREATE FUNCTION honker.keys_with_room(q text, now timestamptz) RETURNS SETOF text LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  (SELECT t.key FROM honker.token t WHERE t.queue = q AND coalesce(t.due <= now, true) LIMIT 1000)
  UNION (SELECT p.key FROM honker.place p WHERE p.queue = q AND p.key IS NOT NULL AND p.until_at <= now LIMIT 1000)
  UNION (SELECT k.key FROM honker.key k WHERE k.queue = q AND k.paused_until <= now AND NOT k.over LIMIT 1000)
  UNION (SELECT s.key FROM honker.starts s WHERE s.queue = q AND s.next_at <= now + interval '500 microseconds' LIMIT 1000)
  UNION (SELECT j.key FROM honker.job j WHERE j.queue = q AND j.key >= (SELECT x.fit_key FROM honker.queue x WHERE x.queue = q) AND j.state + 0 = 2 LIMIT 1000) $$;

-- The state of keys: their pauses, until when their starts are spent, how many of their jobs are in slots, and with
-- in_order the first job that can still run.
CREATE FUNCTION honker.key_states(q text, keys text[], now timestamptz) RETURNS TABLE (key text, paused_at timestamptz, paused_until timestamptz,
  reason text, who text, tat timestamptz, running bigint, first bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  SELECT r.key, CASE WHEN honker.pauses(k.paused_at, k.paused_until, now) THEN k.paused_at END, k.paused_until, k.reason, k.who, s.tat,
    (SELECT count(*) FROM honker.job j WHERE j.queue = q AND j.key = r.key AND j.state + 0 = 1 AND j.lease_until >= now)
      + (SELECT count(*) FROM honker.place p WHERE p.queue = q AND p.key = r.key AND p.until_at > now), r.first
  FROM honker.queue x CROSS JOIN LATERAL honker.key_rooms(x, keys, now) r
  LEFT JOIN honker.key k ON k.queue = q AND k.key = r.key LEFT JOIN honker.starts s ON s.queue = q AND s.key = r.key AND s.turn = x.key_rate_turn
  WHERE x.queue = q $$;

-- A waiting job of each kind, for a queue from which nothing can be claimed: a held job, the next that becomes due, those
-- that can no longer run, and one whose claim has lapsed.
CREATE FUNCTION honker.first_waiting(q text, now timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
  (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state > 1 LIMIT 1)
  UNION ALL (SELECT d.id FROM honker.levels(q) l (p) CROSS JOIN LATERAL (
    SELECT j.id, j.run_at FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at > now ORDER BY j.run_at, j.id LIMIT 1) d
    ORDER BY d.run_at LIMIT 1)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state <> 1 AND j.state + 0 = 0 AND j.expires_at <= now ORDER BY j.expires_at LIMIT 1)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.attempts >= j.max_attempts ORDER BY j.run_at LIMIT 1)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until < now ORDER BY j.lease_until LIMIT 1) $$;
