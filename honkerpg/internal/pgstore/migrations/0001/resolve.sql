-- Takes up to 5000 tokens of links and works out what they change: which edges are done, which batches are over, which
-- waiters may run. It returns the number of tokens that it has not put back, so 0 means that there is no more to do now.
--
-- One transaction runs this at a time, and each statement sees the commits before it. Whoever changes what a waiter
-- depends on leaves a token in the same commit, so the last of several changes finds the others done. Rows that a
-- transaction of the application has locked are left alone, and their tokens are put back: nothing here waits for it.
CREATE FUNCTION honker.resolve(now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE ps bigint[]; bs bigint[]; ws bigint[]; locked bigint[]; touched bigint[]; free bigint[]; taken bigint; kept bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM honker.token WHERE queue IS NULL) THEN RETURN 0; END IF;
  PERFORM pg_advisory_xact_lock(1751085684, 'honker.job'::regclass::oid::int);
  WITH t AS (DELETE FROM honker.token WHERE id = ANY (ARRAY(SELECT id FROM honker.token WHERE queue IS NULL ORDER BY id LIMIT 5000))
    RETURNING parent, batch, waiter)
  SELECT coalesce(array_agg(DISTINCT parent) FILTER (WHERE parent IS NOT NULL), '{}'),
    coalesce(array_agg(DISTINCT batch) FILTER (WHERE batch IS NOT NULL), '{}'),
    coalesce(array_agg(DISTINCT waiter) FILTER (WHERE waiter IS NOT NULL), '{}'), count(*) INTO ps, bs, ws, taken FROM t;
  IF taken = 0 THEN RETURN 0; END IF;

  -- Live parents are marked, so that their end leaves a token. A parent that is locked may be ending in a transaction
  -- that has not seen the mark.
  WITH e AS MATERIALIZED (SELECT waiter, parent FROM honker.edge WHERE waiter = ANY (ws) AND parent <> 0
      UNION SELECT waiter, parent FROM honker.edge WHERE parent = ANY (ps) AND parent <> 0 AND waiter > 0),
    live AS MATERIALIZED (SELECT id FROM honker.job WHERE id IN (SELECT parent FROM e) AND NOT awaited),
    got AS MATERIALIZED (SELECT id FROM honker.job WHERE id IN (SELECT id FROM live) FOR UPDATE SKIP LOCKED),
    up AS (UPDATE honker.job SET awaited = true WHERE id IN (SELECT id FROM got))
  INSERT INTO honker.token (waiter) SELECT DISTINCT waiter FROM e
  WHERE parent IN (SELECT id FROM live) AND parent NOT IN (SELECT id FROM got);
  GET DIAGNOSTICS kept = ROW_COUNT;
  taken := taken - kept;

  -- A batch that is locked may be getting a member.
  bs := ARRAY(SELECT unnest(bs) UNION SELECT batch FROM honker.edge WHERE waiter = ANY (ws) AND parent = 0);
  locked := ARRAY(SELECT id FROM honker.batch WHERE id = ANY (bs) FOR UPDATE SKIP LOCKED);
  INSERT INTO honker.token (batch) SELECT id FROM honker.batch WHERE id = ANY (bs) AND id <> ALL (locked);
  GET DIAGNOSTICS kept = ROW_COUNT;
  taken := taken - kept;
  bs := ARRAY(SELECT u FROM unnest(bs) u WHERE u = ANY (locked) OR NOT EXISTS (SELECT FROM honker.batch b WHERE b.id = u));
  UPDATE honker.batch b SET done_at = CASE WHEN b.done_at IS NULL THEN resolve.now END,
    total = (SELECT count(*) FROM honker.edge e WHERE e.waiter = -b.id)
  WHERE b.id = ANY (locked) AND (b.done_at IS NULL) = (honker.batch_state(b.id) = 1);

  -- Edges follow their parents. They open again if a dead parent is requeued, unless the waiter has started.
  WITH e AS MATERIALIZED (
      SELECT waiter, parent, batch, if_dead FROM honker.edge WHERE waiter = ANY (ws)
      UNION SELECT waiter, parent, batch, if_dead FROM honker.edge WHERE parent = ANY (ps) AND parent <> 0 AND waiter > 0
      UNION SELECT waiter, parent, batch, if_dead FROM honker.edge WHERE batch = ANY (bs) AND batch <> 0),
    s AS MATERIALIZED (SELECT e.waiter, e.parent, e.batch, CASE WHEN of.state = 2 AND e.if_dead THEN 1 ELSE of.state END AS state
      FROM e CROSS JOIN LATERAL (SELECT CASE WHEN e.parent = 0 THEN honker.batch_state(e.batch)
        WHEN EXISTS (SELECT FROM honker.job j WHERE j.id = e.parent) THEN 0
        WHEN EXISTS (SELECT FROM honker.dead d WHERE d.id = e.parent) THEN 2 ELSE 1 END AS state) of
      WHERE e.parent <> 0 OR e.batch = ANY (bs)),
    up AS (UPDATE honker.edge x SET state = s.state FROM s
      WHERE x.waiter = s.waiter AND x.parent = s.parent AND x.batch = s.batch AND x.state <> s.state
        AND (x.state <> 1 OR NOT EXISTS (SELECT FROM honker.job j WHERE j.id = x.waiter AND (j.state = 1 OR j.attempts > 0)))
      RETURNING x.waiter)
  SELECT array_agg(DISTINCT u.waiter) INTO touched FROM (SELECT waiter FROM up UNION ALL SELECT unnest(ws)) u (waiter);

  -- Waiters follow their edges.
  free := ARRAY(SELECT id FROM honker.job WHERE id = ANY (touched) AND state <> 1 FOR UPDATE SKIP LOCKED);
  INSERT INTO honker.token (waiter) SELECT id FROM honker.job WHERE id = ANY (touched) AND state <> 1 AND id <> ALL (free);
  GET DIAGNOSTICS kept = ROW_COUNT;
  taken := taken - kept;
  UPDATE honker.job j SET state = 0 WHERE j.id = ANY (free) AND j.state = 3
    AND NOT EXISTS (SELECT FROM honker.edge e WHERE e.waiter = j.id AND e.state <> 1);
  WITH held AS (UPDATE honker.job j SET state = 3, awaited = true WHERE j.id = ANY (free) AND j.state IN (0, 2) AND j.attempts = 0
    AND EXISTS (SELECT FROM honker.edge e WHERE e.waiter = j.id AND e.state <> 1) RETURNING j.queue, j.key)
  INSERT INTO honker.token (queue, key) SELECT DISTINCT queue, key FROM held WHERE key IS NOT NULL;

  -- A job that is neither live nor dead waits for nothing any more.
  DELETE FROM honker.edge e WHERE e.waiter = ANY (ps)
    AND NOT EXISTS (SELECT FROM honker.job j WHERE j.id = e.waiter) AND NOT EXISTS (SELECT FROM honker.dead d WHERE d.id = e.waiter);
  RETURN taken;
END $$;

-- The state of an edge to a batch that a dead member does not release: 0 while the batch is open or has live members, 2
-- if only dead ones are left, 1 if it is over.
CREATE FUNCTION honker.batch_state(b bigint) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN EXISTS (SELECT FROM honker.batch WHERE id = b AND open) OR EXISTS (SELECT FROM honker.job WHERE batch = b) THEN 0
    WHEN EXISTS (SELECT FROM honker.dead WHERE batch = b) THEN 2 ELSE 1 END $$;
