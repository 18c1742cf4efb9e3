-- Links between jobs. Three kinds of edges share a table:
--
--   (waiter, parent, 0)   the waiter waits for a job
--   (waiter, parent, -1)  the same, because the parent holds the unique key of the waiter
--   (waiter, 0, batch)    the waiter waits for a batch
--   (-batch, parent, 0)   the parent is a member of the batch; the row only records it, for the results of members
--
-- Whether a batch is over follows from the batches of live and dead jobs, not from counters.

-- The jobs and batches that wait for one of nodes, directly or not. A batch is a node below 0, and waits for its members.
CREATE FUNCTION honker.later(nodes bigint[]) RETURNS SETOF bigint LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE later (id) AS (SELECT unnest(nodes) UNION SELECT w.waiter FROM later CROSS JOIN LATERAL (
    SELECT e.waiter FROM honker.edge e WHERE later.id > 0 AND e.parent = later.id AND e.parent <> 0 AND e.batch = 0 AND e.state <> 1
    UNION ALL SELECT e.waiter FROM honker.edge e WHERE later.id < 0 AND e.batch = -later.id AND e.batch <> 0 AND e.state <> 1) w)
  SELECT id FROM later $$;

-- The jobs that wait for one of nodes, directly or not, and are not among them.
CREATE FUNCTION honker.waiters(nodes bigint[]) RETURNS SETOF bigint LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
  SELECT j.id FROM honker.job j WHERE j.id = ANY (ARRAY(SELECT honker.later(nodes))) AND j.state = 3 AND j.id <> ALL (nodes) $$;

-- Checks the links of jobs that are to be added to a queue, and keeps the batch that they join from ending. It returns
-- the first problem and the id that it concerns: 1 and 2 for a job and a batch that have never existed, 3 for a batch
-- that takes no members, 4 for a node that already waits for the batch, 5 for a job of the same key that does.
-- The sequences are not read as tables: without sequential scans that looks so expensive that each call compiles its plan.
CREATE FUNCTION honker.check_links(q text, k text, parents bigint[], batches bigint[], member bigint, OUT problem int, OUT node bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE taken boolean;
BEGIN
  SELECT 1, u.id INTO problem, node FROM unnest(parents) u (id)
  WHERE u.id > coalesce(pg_sequence_last_value('honker.job_id_seq'), 0) LIMIT 1;
  IF FOUND THEN RETURN; END IF;
  SELECT 2, u.id INTO problem, node FROM unnest(batches || member) u (id)
  WHERE u.id > coalesce(pg_sequence_last_value('honker.batch_id_seq'), 0) LIMIT 1;
  IF FOUND OR member = 0 THEN RETURN; END IF;
  PERFORM honker.lock_key(q, k);
  SELECT b.open INTO taken FROM honker.batch b WHERE b.id = member FOR SHARE;
  -- This statement sees the members of the transactions that the lock has waited for.
  IF taken IS NULL OR NOT taken AND NOT EXISTS (SELECT FROM honker.job j WHERE j.batch = member) THEN
    problem := 3; node := member; RETURN;
  END IF;
  SELECT 4, l INTO problem, node FROM honker.later(ARRAY[-member]) l WHERE l = ANY (parents) OR -l = ANY (batches) LIMIT 1;
  IF NOT FOUND AND k IS NOT NULL AND EXISTS (SELECT FROM honker.queue x WHERE x.queue = q AND x.in_order) THEN
    SELECT 5, j.id INTO problem, node FROM honker.later(ARRAY[-member]) l JOIN honker.job j ON j.id = l
    WHERE j.queue = q AND j.key = k LIMIT 1;
  END IF;
END $$;

-- Waits for the other enqueues of a key if its jobs run in order. Ids of the key then follow the order of commits.
CREATE FUNCTION honker.lock_key(q text, k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF k IS NOT NULL AND EXISTS (SELECT FROM honker.queue x WHERE x.queue = q AND x.in_order) THEN
    PERFORM pg_advisory_xact_lock(1751085682, hashtext(q || chr(1) || k));
  END IF;
END $$;

-- Adds the edges of jobs that have been inserted in this transaction, or that it has locked, and makes them members of a
-- batch. Tokens of members are needed only if the batch is sealed: otherwise its seal leaves one.
CREATE FUNCTION honker.link(ids bigint[], parents bigint[], batches bigint[], even_if_dead boolean, member bigint)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF member <> 0 THEN
    INSERT INTO honker.edge (waiter, parent) SELECT -member, unnest(ids);
    INSERT INTO honker.token (batch) SELECT id FROM honker.batch WHERE id = member AND NOT open;
  END IF;
  IF cardinality(parents) + cardinality(batches) > 0 THEN
    INSERT INTO honker.edge (waiter, parent, if_dead) SELECT w, p, even_if_dead FROM unnest(ids) w, unnest(parents) p ON CONFLICT DO NOTHING;
    INSERT INTO honker.edge (waiter, batch, if_dead) SELECT w, b, even_if_dead FROM unnest(ids) w, unnest(batches) b ON CONFLICT DO NOTHING;
    INSERT INTO honker.token (waiter) SELECT unnest(ids);
  END IF;
END $$;

-- Inserts jobs that have a key or links, in the order of payloads. honker.check_links has checked the links. A waiter is
-- awaited from the start: its end leaves a token that takes its edges along.
CREATE FUNCTION honker.insert_linked(q text, payloads text[], priority bigint, most bigint, due timestamptz, created timestamptz,
  expiry timestamptz, headers text, k text, parents bigint[], batches bigint[], even_if_dead boolean, member bigint)
RETURNS SETOF bigint LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE waits boolean := cardinality(parents) + cardinality(batches) > 0; ids bigint[];
BEGIN
  PERFORM honker.lock_key(q, k);
  WITH added AS (INSERT INTO honker.job (queue, payload, priority, max_attempts, run_at, created_at, expires_at, headers, key, batch, state, awaited)
    SELECT q, u.payload, insert_linked.priority, most, due, created, expiry, insert_linked.headers, k, nullif(member, 0),
      CASE WHEN waits THEN 3 ELSE 0 END, waits
    FROM unnest(payloads) WITH ORDINALITY u (payload, ord) ORDER BY u.ord RETURNING id)
  SELECT array_agg(id ORDER BY id) INTO ids FROM added;
  IF coalesce(cardinality(ids), 0) <> cardinality(payloads) THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a job';
  END IF;
  PERFORM honker.link(ids, parents, batches, even_if_dead, member);
  RETURN QUERY SELECT unnest(ids);
END $$;

-- Inserts jobs of which the first n are claimed already, unless a claim would find another job, the queue is paused or
-- has limits, or a trigger of the application could change a job after its handler has got it. The lookup of a due job
-- goes from priority to priority, so jobs with a later time cost nothing.
CREATE FUNCTION honker.hand_over(q text, payloads text[], priority bigint, most bigint, due timestamptz, now timestamptz, expiry timestamptz,
  headers text, worker text, n int, lease timestamptz, others text[])
RETURNS TABLE (id bigint, claimed boolean) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE free boolean;
BEGIN
  free := hand_over.due <= hand_over.now AND (expiry IS NULL OR expiry > hand_over.now) AND most > 0
    AND NOT EXISTS (SELECT FROM honker.queue x WHERE x.queue = q AND (x.limited
      OR x.paused_at IS NOT NULL AND (x.paused_until IS NULL OR x.paused_until > hand_over.now)))
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'honker.job'::regclass AND NOT tgisinternal AND tgname NOT LIKE 'honker\_%')
    AND NOT EXISTS (SELECT FROM unnest(others || q) o (queue) WHERE
      EXISTS (SELECT FROM honker.job j WHERE j.queue = o.queue AND j.state = 1 AND j.lease_until < hand_over.now)
      OR EXISTS (WITH RECURSIVE level (p) AS (
          SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = o.queue AND j.state = 0 ORDER BY j.priority DESC LIMIT 1)
          UNION ALL SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = o.queue AND j.state = 0 AND j.priority < level.p
            ORDER BY j.priority DESC LIMIT 1) FROM level WHERE level.p IS NOT NULL)
        SELECT FROM level WHERE EXISTS (SELECT FROM honker.job j WHERE j.queue = o.queue AND j.state = 0 AND j.priority = level.p
          AND j.run_at <= hand_over.now)));
  RETURN QUERY INSERT INTO honker.job AS j (queue, payload, priority, max_attempts, run_at, created_at, expires_at, headers,
      state, attempts, worker, lease_until)
    SELECT q, u.payload, hand_over.priority, most, hand_over.due, hand_over.now, expiry, hand_over.headers,
      u.c::int, u.c::int, CASE WHEN u.c THEN hand_over.worker END, CASE WHEN u.c THEN lease END
    FROM (SELECT x.payload, x.ord, free AND x.ord <= n AS c FROM unnest(payloads) WITH ORDINALITY x (payload, ord) ORDER BY x.ord) u
    RETURNING j.id, j.state = 1;
END $$;

-- Deletes live jobs, of the queue q unless it is empty, and returns them. A running job keeps its slot in a queue with
-- limits until its claim would have ended.
CREATE FUNCTION honker.cancel_(q text, ids bigint[], now timestamptz) RETURNS TABLE (id bigint, queue text) LANGUAGE sql SET enable_seqscan = off SET jit = off AS $$
  WITH gone AS (DELETE FROM honker.job j WHERE j.id IN (
      SELECT l.id FROM honker.job l WHERE l.id = ANY (ids) AND (q = '' OR l.queue = q) ORDER BY l.id FOR UPDATE) RETURNING j.*),
    p AS (INSERT INTO honker.place (job_id, queue, key, worker, attempt, until_at)
      SELECT g.id, g.queue, g.key, g.worker, g.attempts, g.lease_until + interval '1 microsecond' FROM gone g JOIN honker.queue x ON x.queue = g.queue
      WHERE g.state = 1 AND g.lease_until >= now AND (x.running IS NOT NULL OR g.key IS NOT NULL AND (x.per_key IS NOT NULL OR x.in_order))
      ON CONFLICT (job_id) DO UPDATE SET worker = excluded.worker, attempt = excluded.attempt, until_at = excluded.until_at),
    t AS (INSERT INTO honker.token (parent, batch, queue, key)
      SELECT g.id, NULL, NULL, NULL FROM gone g WHERE g.awaited
      UNION ALL SELECT DISTINCT NULL::bigint, g.batch, NULL, NULL FROM gone g WHERE g.batch IS NOT NULL
      UNION ALL SELECT DISTINCT NULL::bigint, NULL::bigint, g.queue, g.key FROM gone g WHERE g.key IS NOT NULL),
    s AS (DELETE FROM honker.side x USING gone g WHERE x.job_id = g.id),
    a AS (DELETE FROM honker.attempt x USING gone g WHERE x.job_id = g.id)
  SELECT g.id, g.queue FROM gone g ORDER BY g.id $$;
