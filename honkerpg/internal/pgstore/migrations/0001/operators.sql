-- What operators read. The functions are STABLE, so that all their statements see the same moment.

-- Jobs that are held, by their key or by other jobs.
CREATE INDEX job_apart ON honker.job (queue) WHERE state > 1;
-- Waiting jobs without attempts left. There are none, unless a program has written them.
CREATE INDEX job_spent ON honker.job (queue, run_at) WHERE state = 0 AND attempts >= max_attempts;

-- The queues that have live jobs. Each index is searched from name to name, so long queues cost nothing.
CREATE FUNCTION honker.live_queues() RETURNS SETOF text LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  WITH RECURSIVE
    w (queue) AS (SELECT (SELECT j.queue FROM honker.job j WHERE j.state = 0 ORDER BY j.queue LIMIT 1)
      UNION ALL SELECT (SELECT j.queue FROM honker.job j WHERE j.state = 0 AND j.queue > w.queue ORDER BY j.queue LIMIT 1) FROM w WHERE w.queue IS NOT NULL),
    c (queue) AS (SELECT (SELECT j.queue FROM honker.job j WHERE j.state = 1 ORDER BY j.queue LIMIT 1)
      UNION ALL SELECT (SELECT j.queue FROM honker.job j WHERE j.state = 1 AND j.queue > c.queue ORDER BY j.queue LIMIT 1) FROM c WHERE c.queue IS NOT NULL),
    h (queue) AS (SELECT (SELECT j.queue FROM honker.job j WHERE j.state > 1 ORDER BY j.queue LIMIT 1)
      UNION ALL SELECT (SELECT j.queue FROM honker.job j WHERE j.state > 1 AND j.queue > h.queue ORDER BY j.queue LIMIT 1) FROM h WHERE h.queue IS NOT NULL)
  SELECT queue FROM w WHERE queue IS NOT NULL UNION SELECT queue FROM c WHERE queue IS NOT NULL UNION SELECT queue FROM h WHERE queue IS NOT NULL $$;

-- The queues that have dead jobs.
CREATE FUNCTION honker.dead_queues() RETURNS SETOF text LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  WITH RECURSIVE n (queue) AS (SELECT (SELECT d.queue FROM honker.dead d ORDER BY d.queue LIMIT 1)
    UNION ALL SELECT (SELECT d.queue FROM honker.dead d WHERE d.queue > n.queue ORDER BY d.queue LIMIT 1) FROM n WHERE n.queue IS NOT NULL)
  SELECT queue FROM n WHERE queue IS NOT NULL $$;

-- The queues that keep done jobs.
CREATE FUNCTION honker.done_queues() RETURNS SETOF text LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  WITH RECURSIVE n (queue) AS (SELECT (SELECT d.queue FROM honker.done d ORDER BY d.queue LIMIT 1)
    UNION ALL SELECT (SELECT d.queue FROM honker.done d WHERE d.queue > n.queue ORDER BY d.queue LIMIT 1) FROM n WHERE n.queue IS NOT NULL)
  SELECT queue FROM n WHERE queue IS NOT NULL $$;

-- The priorities of a queue's waiting jobs. A search by time goes from priority to priority.
CREATE FUNCTION honker.levels(q text) RETURNS SETOF bigint LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
  WITH RECURSIVE l (p) AS (SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = q AND j.state = 0 ORDER BY j.priority DESC LIMIT 1)
    UNION ALL SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority < l.p ORDER BY j.priority DESC LIMIT 1)
    FROM l WHERE l.p IS NOT NULL)
  SELECT p FROM l WHERE p IS NOT NULL $$;

-- Counts a queue's waiting jobs that are due, or that are not, without ended ones of them, up to most. It reads an index
-- only: whether a job may still run is not in it, so the caller counts the few that may not.
CREATE FUNCTION honker.waiting(q text, is_due boolean, ended bigint, most bigint, now timestamptz) RETURNS bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE level bigint := 9223372036854775807; total bigint := 0; n bigint;
BEGIN
  LOOP
    SELECT j.priority INTO level FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority <= level ORDER BY j.priority DESC LIMIT 1;
    EXIT WHEN NOT FOUND OR total - ended >= most;
    IF is_due THEN
      SELECT count(*) INTO n FROM (SELECT FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level AND j.run_at <= waiting.now
        LIMIT most + ended) x;
    ELSE
      SELECT count(*) INTO n FROM (SELECT FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level AND j.run_at > waiting.now
        LIMIT most + ended) x;
    END IF;
    total := total + n;
    EXIT WHEN level = -9223372036854775808;
    level := level - 1;
  END LOOP;
  RETURN least(most, total - ended);
END $$;

-- Counts the jobs of queues, or of all queues if there are none, in phases. Each number stops at most. A phase may have
-- several rows, which add up.
CREATE FUNCTION honker.counts_(queues text[], phases text[], most bigint, now timestamptz) RETURNS TABLE (queue text, phase text, n bigint)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
DECLARE live text[]; dead text[]; done text[];
BEGIN
  live := queues; dead := queues; done := queues;
  IF cardinality(queues) = 0 THEN
    live := ARRAY(SELECT honker.live_queues());
    dead := ARRAY(SELECT honker.dead_queues() WHERE 'dead' = ANY (phases));
    done := ARRAY(SELECT honker.done_queues() WHERE 'done' = ANY (phases));
  END IF;
  IF 'ready' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'ready', CASE WHEN x.n < most THEN honker.waiting(u.q, true, x.n, most, counts_.now) ELSE (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 0 AND j.run_at <= counts_.now
          AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > counts_.now) LIMIT most) x) END
    FROM unnest(live) u (q) CROSS JOIN LATERAL (SELECT
      (SELECT count(*) FROM (SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 0 AND j.attempts >= j.max_attempts
        AND j.run_at <= counts_.now LIMIT most) x)
      + (SELECT count(*) FROM (SELECT FROM honker.job j WHERE j.queue = u.q AND j.state <> 1 AND j.state + 0 = 0 AND j.expires_at <= counts_.now
        AND j.run_at + interval '0' <= counts_.now AND j.attempts < j.max_attempts LIMIT most) x)) x (n);
  END IF;
  IF 'scheduled' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'scheduled', CASE WHEN x.n < most THEN honker.waiting(u.q, false, x.n, most, counts_.now) ELSE (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 0 AND j.run_at > counts_.now
          AND (j.expires_at IS NULL OR j.expires_at > counts_.now) LIMIT most) x) END
    FROM unnest(live) u (q) CROSS JOIN LATERAL (SELECT (SELECT count(*) FROM (
      SELECT FROM honker.job j WHERE j.queue = u.q AND j.state <> 1 AND j.state + 0 = 0 AND j.expires_at <= counts_.now
        AND j.run_at + interval '0' > counts_.now LIMIT most) x)) x (n);
  END IF;
  IF 'running' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'running', (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 1 AND j.lease_until >= counts_.now LIMIT most) x) FROM unnest(live) u (q);
  END IF;
  IF 'lapsed' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'lapsed', (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 1 AND j.lease_until < counts_.now
          AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > counts_.now) LIMIT most) x) FROM unnest(live) u (q);
  END IF;
  IF 'held' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'held', (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state > 1 LIMIT most) x) FROM unnest(live) u (q);
  END IF;
  IF 'expired' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'expired', (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 1 AND j.lease_until < counts_.now
          AND (j.attempts >= j.max_attempts OR j.expires_at <= counts_.now) LIMIT most) x) FROM unnest(live) u (q);
    RETURN QUERY SELECT u.q, 'expired', (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state <> 1 AND j.state + 0 = 0 AND j.expires_at <= counts_.now LIMIT most) x) FROM unnest(live) u (q);
    RETURN QUERY SELECT u.q, 'expired', (SELECT count(*) FROM (
        SELECT FROM honker.job j WHERE j.queue = u.q AND j.state = 0 AND j.attempts >= j.max_attempts AND j.run_at <= counts_.now
          AND (j.expires_at IS NULL OR j.expires_at > counts_.now) LIMIT most) x) FROM unnest(live) u (q);
  END IF;
  IF 'dead' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'dead', (SELECT count(*) FROM (SELECT FROM honker.dead d WHERE d.queue = u.q LIMIT most) x) FROM unnest(dead) u (q);
  END IF;
  IF 'done' = ANY (phases) THEN
    RETURN QUERY SELECT u.q, 'done', (SELECT count(*) FROM (SELECT FROM honker.done d WHERE d.queue = u.q LIMIT most) x) FROM unnest(done) u (q);
  END IF;
END $$;

-- The times at the head of each of queues, or of all queues if there are none: since when the first job is ready, when the
-- next one becomes due, and when the next claim ends. Up to 1000 jobs that cannot run are passed over. If there are more,
-- the time of the last is a lower bound: behind for a ready job.
CREATE FUNCTION honker.heads(queues text[], now timestamptz)
RETURNS TABLE (queue text, ready timestamptz, behind timestamptz, due timestamptz, lapse timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
  IF cardinality(queues) = 0 THEN
    queues := ARRAY(SELECT honker.live_queues() UNION SELECT honker.dead_queues());
  END IF;
  RETURN QUERY SELECT u.q, w.ready, w.behind, w.due, (SELECT coalesce(
      (SELECT x.t FROM (SELECT j.lease_until AS t, j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > heads.now) AS ok
        FROM honker.job j WHERE j.queue = u.q AND j.state = 1 AND j.lease_until >= heads.now ORDER BY j.lease_until LIMIT 1000) x WHERE x.ok LIMIT 1),
      (SELECT j.lease_until FROM honker.job j WHERE j.queue = u.q AND j.state = 1 AND j.lease_until >= heads.now ORDER BY j.lease_until OFFSET 999 LIMIT 1)))
  FROM unnest(queues) u (q) CROSS JOIN LATERAL (
    SELECT min(r.first) AS ready, min(CASE WHEN r.first IS NULL THEN (SELECT j.run_at FROM honker.job j WHERE j.queue = u.q AND j.state = 0
        AND j.priority = p AND j.run_at <= heads.now ORDER BY j.run_at OFFSET 999 LIMIT 1) END) AS behind,
      min(coalesce(d.first, (SELECT j.run_at FROM honker.job j WHERE j.queue = u.q AND j.state = 0
        AND j.priority = p AND j.run_at > heads.now ORDER BY j.run_at OFFSET 999 LIMIT 1))) AS due
    FROM honker.levels(u.q) p
    CROSS JOIN LATERAL (SELECT (SELECT x.t FROM (
      SELECT j.run_at AS t, j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > heads.now) AS ok FROM honker.job j
      WHERE j.queue = u.q AND j.state = 0 AND j.priority = p AND j.run_at <= heads.now ORDER BY j.run_at LIMIT 1000) x WHERE x.ok LIMIT 1) AS first) r
    CROSS JOIN LATERAL (SELECT (SELECT x.t FROM (
      SELECT j.run_at AS t, j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > heads.now) AS ok FROM honker.job j
      WHERE j.queue = u.q AND j.state = 0 AND j.priority = p AND j.run_at > heads.now ORDER BY j.run_at LIMIT 1000) x WHERE x.ok LIMIT 1) AS first) d) w;
END $$;
