-- Whether a job can never run: it has expired before its start, or its last attempt is over. A job that only waits for
-- the holder of its unique key does not expire, because it stands for the next run of that job.
CREATE FUNCTION honker.is_over(j honker.job, at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT CASE j.state
    WHEN 1 THEN j.lease_until < at AND (j.attempts >= j.max_attempts OR coalesce(j.expires_at <= at, false))
    WHEN 3 THEN coalesce(j.expires_at <= at, false) AND EXISTS (SELECT FROM honker.edge e WHERE e.waiter = j.id AND e.batch <> -1 AND e.state <> 1)
    ELSE coalesce(j.expires_at <= at, false) OR j.attempts >= j.max_attempts AND j.run_at <= at
  END $$;

-- Moves the jobs among ids that can never run to the dead letters, and returns them. With a cause, it moves all that nobody
-- has a valid claim on: they keep their last error, or get the cause. Jobs that another transaction has locked are left to
-- the next sweep.
CREATE FUNCTION honker.bury(ids bigint[], at timestamptz, cause text DEFAULT NULL) RETURNS TABLE (id bigint, queue text, attempts bigint, worker text, reason text)
LANGUAGE sql AS $$
  WITH over AS (DELETE FROM honker.job j WHERE j.id IN (
      SELECT l.id FROM honker.job l WHERE l.id = ANY (ids)
        AND CASE WHEN cause IS NULL THEN honker.is_over(l, at) ELSE l.state <> 1 OR l.lease_until < at END ORDER BY l.id FOR UPDATE SKIP LOCKED)
    RETURNING j.*, CASE WHEN cause IS NOT NULL THEN coalesce(nullif(j.last_error, ''), cause) WHEN j.expires_at <= at THEN 'expired' ELSE 'max attempts exceeded' END AS reason),
  died AS (INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, base, batch, queue, key, unique_key,
      unique_kind, headers, last_error, progress, checkpoint, payload)
    SELECT o.id, o.run_at, o.created_at, at, o.priority, o.attempts, o.max_attempts, o.base, o.batch, o.queue, o.key, o.unique_key,
      (SELECT u.kind FROM honker.uniq u WHERE u.queue = o.queue AND u.key = o.unique_key AND o.id IN (u.job_id, u.next_id)),
      o.headers, o.reason, s.progress, s.checkpoint, o.payload
    FROM over o LEFT JOIN honker.side s ON s.job_id = o.id),
  sides AS (DELETE FROM honker.side s USING over o WHERE s.job_id = o.id),
  links AS (INSERT INTO honker.token (parent, batch)
    SELECT CASE WHEN o.awaited THEN o.id END, o.batch FROM over o WHERE o.awaited OR o.batch IS NOT NULL),
  keys AS (INSERT INTO honker.token (queue, key) SELECT DISTINCT o.queue, o.key FROM over o WHERE o.key IS NOT NULL)
  SELECT o.id, o.queue, o.attempts, CASE WHEN o.state = 1 THEN coalesce(o.worker, '') ELSE '' END, o.reason FROM over o ORDER BY o.id $$;
