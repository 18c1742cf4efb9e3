-- What an explanation reads: the state that the next claims find, in the order in which they look at it. Nothing is written.

-- The running jobs of a queue, and the slots of its cancelled jobs.
CREATE FUNCTION honker.in_slots(q text, now timestamptz, OUT running bigint, OUT cancelled bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT (SELECT count(*) FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until >= now),
    (SELECT count(*) FROM honker.place p WHERE p.queue = q AND p.until_at > now) $$;

-- The jobs of the same kinds, and only those of a key unless it is NULL.
CREATE FUNCTION honker.running_jobs(q text, k text, n bigint, now timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  (SELECT j.id FROM honker.job j WHERE k IS NULL AND j.queue = q AND j.state = 1 AND j.lease_until >= now ORDER BY j.lease_until LIMIT n)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.key = k AND j.state = 1 AND j.lease_until >= now LIMIT n) $$;

CREATE FUNCTION honker.cancelled_jobs(q text, k text, n bigint, now timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT p.job_id FROM honker.place p WHERE p.queue = q AND (k IS NULL OR p.key = k) AND p.until_at > now LIMIT n $$;

-- The jobs whose claims have lapsed, which the next claim returns to the queue, or dead-letters if over is set.
CREATE FUNCTION honker.lapsed_jobs(q text, now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text, over boolean)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT j.id, j.priority, j.run_at, j.key, honker.is_over(j, now) FROM honker.job j
  WHERE j.queue = q AND j.state = 1 AND j.lease_until < now ORDER BY j.lease_until LIMIT 1000 $$;

-- The jobs of a queue that wait only for jobs that are about to be dead-lettered, and that a dead job releases.
CREATE FUNCTION honker.freed_by(q text, dying bigint[], now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  SELECT j.id, j.priority, j.run_at, j.key
  FROM (SELECT DISTINCT e.waiter FROM unnest(dying) d (id) JOIN honker.edge e ON e.parent = d.id AND e.parent <> 0 WHERE e.state = 0 AND e.if_dead AND e.waiter > 0) w
  JOIN honker.job j ON j.id = w.waiter
  WHERE j.queue = q AND j.state = 3 AND NOT honker.is_over(j, now) AND NOT EXISTS (SELECT FROM honker.edge e
    WHERE e.waiter = j.id AND (e.state = 2 OR e.state = 0 AND (NOT e.if_dead OR e.parent <> ALL (dying)))) $$;

-- The first n due jobs of a queue in the order of claims. Those that can no longer run count too, with ok unset.
CREATE FUNCTION honker.due_jobs(q text, n bigint, now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text, ok boolean)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  SELECT d.* FROM honker.levels(q) l (p) CROSS JOIN LATERAL (
    SELECT j.id, j.priority, j.run_at, j.key, j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > now) AS ok FROM honker.job j
    WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at <= now ORDER BY j.run_at, j.id LIMIT n) d LIMIT n $$;

-- How many of the due jobs of a queue come before a position in the order of claims. looked counts those that can no longer
-- run too, and stops at n.
CREATE FUNCTION honker.due_before(q text, level bigint, due timestamptz, before bigint, n bigint, now timestamptz, OUT looked bigint, OUT ahead bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  SELECT count(*), count(*) FILTER (WHERE d.ok) FROM (SELECT d.ok FROM honker.levels(q) l (p) CROSS JOIN LATERAL (
    SELECT j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > now) AS ok FROM honker.job j
    WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at <= now AND (l.p > level OR (j.run_at, j.id) < (due, before)) LIMIT n) d
    WHERE l.p >= level LIMIT n) d $$;

-- The due jobs that are held by their keys, and that the next claim may release.
CREATE FUNCTION honker.held_jobs(q text, keys text[], n bigint, now timestamptz) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz, key text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT h.* FROM unnest(keys) k (key) CROSS JOIN LATERAL (
    SELECT j.id, j.priority, j.run_at, j.key FROM honker.job j WHERE j.queue = q AND j.key = k.key AND j.state = 2
      AND j.run_at <= now AND NOT honker.is_over(j, now) ORDER BY j.priority DESC, j.run_at, j.id LIMIT n) h LIMIT n $$;

-- The keys of which something has ended since the last claim looked at them, or whose cancelled jobs have given up their
-- slots.
CREATE FUNCTION honker.keys_with_room(q text, now timestamptz) RETURNS SETOF text LANGUAGE sql STABLE SET enable_seqscan = off AS $$
  SELECT t.key FROM (SELECT t.key FROM honker.token t WHERE t.queue = q LIMIT 1000) t
  UNION SELECT p.key FROM (SELECT p.key FROM honker.place p WHERE p.queue = q AND p.key IS NOT NULL AND p.until_at <= now LIMIT 1000) p $$;

-- The state of keys: their pauses and starts, how many of their jobs are in slots, and the lowest id of those that the
-- next claims do not dead-letter.
CREATE FUNCTION honker.key_states(q text, keys text[], now timestamptz) RETURNS TABLE (key text, paused_at timestamptz, paused_until timestamptz,
  reason text, who text, tat timestamptz, next_at timestamptz, running bigint, first bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  SELECT u.key, CASE WHEN honker.pauses(k.paused_at, k.paused_until, now) THEN k.paused_at END, k.paused_until, k.reason, k.who, k.tat, k.next_at,
    (SELECT count(*) FROM honker.job j WHERE j.queue = q AND j.key = u.key AND j.state = 1 AND j.lease_until >= now)
      + (SELECT count(*) FROM honker.place p WHERE p.queue = q AND p.key = u.key AND p.until_at > now),
    (SELECT min(j.id) FROM honker.job j WHERE j.queue = q AND j.key = u.key AND NOT honker.is_over(j, now))
  FROM unnest(keys) u (key) LEFT JOIN honker.key k ON k.queue = q AND k.key = u.key $$;

-- A waiting job of each kind, for a queue from which nothing can be claimed: a held job, the next that becomes due, those
-- that can no longer run, and one whose claim has lapsed.
CREATE FUNCTION honker.first_waiting(q text, now timestamptz) RETURNS SETOF bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state > 1 LIMIT 1)
  UNION ALL (SELECT d.id FROM honker.levels(q) l (p) CROSS JOIN LATERAL (
    SELECT j.id, j.run_at FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at > now ORDER BY j.run_at, j.id LIMIT 1) d
    ORDER BY d.run_at LIMIT 1)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state <> 1 AND j.state + 0 = 0 AND j.expires_at <= now ORDER BY j.expires_at LIMIT 1)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.attempts >= j.max_attempts ORDER BY j.run_at LIMIT 1)
  UNION ALL (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until < now ORDER BY j.lease_until LIMIT 1) $$;
