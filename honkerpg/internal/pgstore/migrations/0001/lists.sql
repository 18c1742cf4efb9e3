-- Lists of jobs. The functions plan each call for its values: a condition that is NULL then costs nothing, and a condition on
-- ids or on a batch finds its index. Sequential scans and bitmaps are forbidden, because they do not stop at a page.

-- The latest deaths of all queues.
CREATE INDEX dead_latest ON honker.dead (died_at, id);

-- Every job: live (tbl 0), dead (1) or done (2). Each branch reads a single table, so that a condition on tbl leaves only
-- one table, and an order by id merges the primary keys.
CREATE VIEW honker.listed AS
  SELECT 0 AS tbl, j.id, j.queue, j.state, j.payload, j.priority, j.run_at, j.worker, j.lease_until, j.attempts, j.max_attempts, j.created_at,
    j.expires_at, j.last_error, j.unique_key, j.key, j.headers, j.batch, (SELECT s.progress FROM honker.side s WHERE s.job_id = j.id) AS progress,
    NULL::timestamptz AS died_at, NULL::timestamptz AS done_at,
    (SELECT s.started_at FROM honker.side s WHERE s.job_id = j.id AND j.state + 0 = 1 AND j.worker = s.started_by AND j.attempts = s.started_in AND j.run_at <= s.started_at) AS started_at
  FROM honker.job j
  UNION ALL SELECT 1, d.id, d.queue, 0::smallint, d.payload, d.priority, d.run_at, NULL, NULL, d.attempts, d.max_attempts, d.created_at,
    NULL, d.last_error, d.unique_key, d.key, d.headers, d.batch, d.progress, d.died_at, NULL, NULL FROM honker.dead d
  UNION ALL SELECT 2, d.id, d.queue, 0::smallint, d.payload, d.priority, d.run_at, d.worker, NULL, d.attempts, d.max_attempts, d.created_at,
    d.expires_at, d.last_error, d.unique_key, d.key, d.headers, d.batch, d.progress, NULL, d.done_at, NULL FROM honker.done d;

-- A condition on jobs. NULL fields match any job. fields and headers are arrays of objects with the path of a member and
-- its text, such as [{"path": ["order", "id"], "is": "17"}].
CREATE TYPE honker.selection AS (queues text[], phases text[], ids bigint[], key text, unique_key text, batch bigint, worker text, error text,
  contains text, fields jsonb, headers jsonb, min_attempts bigint, created_since timestamptz, created_before timestamptz, run_since timestamptz,
  run_before timestamptz, died_since timestamptz, died_before timestamptz, requeue bigint);

-- The phase of a job of a table. It agrees with row.Job.Phase.
CREATE FUNCTION honker.phase(tbl int, state smallint, run_at timestamptz, lease_until timestamptz, expires_at timestamptz, attempts bigint,
  max_attempts bigint, now timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN tbl = 1 THEN 'dead' WHEN tbl = 2 THEN 'done' WHEN state > 1 THEN 'held'
    WHEN state = 1 AND lease_until >= now THEN 'running'
    WHEN expires_at <= now THEN 'expired'
    WHEN state = 0 AND run_at > now THEN 'scheduled'
    WHEN attempts >= max_attempts THEN 'expired'
    WHEN state = 1 THEN 'lapsed' ELSE 'ready' END $$;

-- The member of a JSON document at a path of names, as text. It is NULL if there is none, if it is null, or if the document
-- is no JSON. Numbers are as they were written. A boolean is 1 or 0, as in SQLite.
CREATE FUNCTION honker.json_text(doc text, path text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE at json; name text;
BEGIN
  at := doc::json;
  FOREACH name IN ARRAY path LOOP
    IF json_typeof(at) IS DISTINCT FROM 'object' THEN
      RETURN NULL;
    END IF;
    at := at -> name;
  END LOOP;
  RETURN CASE WHEN json_typeof(at) = 'boolean' THEN (at::text = 'true')::int::text ELSE at #>> '{}' END;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

-- Whether a JSON document has all fields of a selection.
CREATE FUNCTION honker.has_fields(doc text, fields jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT NOT EXISTS (SELECT FROM jsonb_array_elements(fields) f
    WHERE honker.json_text(doc, ARRAY(SELECT jsonb_array_elements_text(f -> 'path'))) IS DISTINCT FROM f ->> 'is') $$;

-- The first n jobs of a table with ids above after that a selection matches. The cost includes the jobs that it skips. The
-- conditions are written so that only an index by id serves them: a page would read all jobs of a queue to find its ids.
CREATE FUNCTION honker.chosen(sel honker.selection, tbl int, after bigint, n bigint, now timestamptz) RETURNS SETOF honker.listed
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM honker.listed j WHERE j.tbl = chosen.tbl AND j.id > chosen.after
    AND (sel.ids IS NULL OR j.id = ANY (sel.ids))
    AND (sel.queues IS NULL OR j.queue || '' = ANY (sel.queues))
    AND (sel.phases IS NULL OR honker.phase(j.tbl, j.state, j.run_at, j.lease_until, j.expires_at, j.attempts, j.max_attempts, chosen.now) = ANY (sel.phases))
    AND (sel.unique_key IS NULL OR j.unique_key = sel.unique_key)
    AND (sel.key IS NULL OR j.key = sel.key)
    AND (sel.batch IS NULL OR CASE WHEN sel.ids IS NULL THEN j.batch ELSE j.batch + 0 END = sel.batch)
    AND (sel.worker IS NULL OR j.tbl <> 0 OR j.worker = sel.worker)
    AND (sel.min_attempts IS NULL OR j.attempts >= sel.min_attempts)
    AND (sel.created_since IS NULL OR j.created_at >= sel.created_since)
    AND (sel.created_before IS NULL OR j.created_at < sel.created_before)
    AND (sel.run_since IS NULL OR j.run_at >= sel.run_since)
    AND (sel.run_before IS NULL OR j.run_at < sel.run_before)
    AND (sel.died_since IS NULL OR j.tbl <> 1 OR j.died_at + interval '0' >= sel.died_since)
    AND (sel.died_before IS NULL OR j.tbl <> 1 OR j.died_at + interval '0' < sel.died_before)
    AND (sel.requeue IS NULL OR j.tbl = 0 AND EXISTS (SELECT FROM honker.side s JOIN honker.job r ON r.id = s.job_id
      WHERE s.job_id = j.id AND s.requeue = sel.requeue AND r.attempts = r.base))
    AND (sel.error IS NULL OR strpos(j.last_error, sel.error) > 0)
    AND (sel.contains IS NULL OR strpos(j.payload, sel.contains) > 0)
    AND (sel.fields IS NULL OR honker.has_fields(j.payload, sel.fields))
    AND (sel.headers IS NULL OR honker.has_fields(j.headers, sel.headers))
  ORDER BY j.id LIMIT n;
END $$;

-- The first n jobs by id, newest first if newest is set, that a list must look at. bounds is the first id of each table,
-- or NULL for a table that is not listed.
CREATE FUNCTION honker.places_by_id(sel honker.selection, newest boolean, bounds bigint[], n bigint) RETURNS TABLE (id bigint, tbl int)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  IF newest THEN
    RETURN QUERY SELECT j.id, j.tbl FROM honker.listed j WHERE j.id <= bounds[j.tbl + 1] AND (sel.ids IS NULL OR j.id = ANY (sel.ids))
      AND (sel.batch IS NULL OR j.tbl = 2 OR j.batch = sel.batch) ORDER BY j.id DESC LIMIT n;
  ELSE
    RETURN QUERY SELECT j.id, j.tbl FROM honker.listed j WHERE j.id >= bounds[j.tbl + 1] AND (sel.ids IS NULL OR j.id = ANY (sel.ids))
      AND (sel.batch IS NULL OR j.tbl = 2 OR j.batch = sel.batch) ORDER BY j.id LIMIT n;
  END IF;
END $$;

-- Up to most jobs that include all jobs of a selection's queues and phases, in no order. Some may be of other phases.
CREATE FUNCTION honker.places_in(sel honker.selection, most bigint, now timestamptz) RETURNS TABLE (id bigint, tbl int)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  live text[] := coalesce(sel.queues, ARRAY(SELECT honker.live_queues()));
  dead text[] := coalesce(sel.queues, ARRAY(SELECT honker.dead_queues()));
  done text[] := coalesce(sel.queues, ARRAY(SELECT honker.done_queues()));
  ready boolean := sel.phases IS NULL OR sel.phases && '{ready,expired}';
  scheduled boolean := sel.phases IS NULL OR sel.phases && '{scheduled,expired}';
  running boolean := sel.phases IS NULL OR sel.phases && '{running}';
  lapsed boolean := sel.phases IS NULL OR sel.phases && '{lapsed,expired}';
  held boolean := sel.phases IS NULL OR sel.phases && '{held}';
BEGIN
  RETURN QUERY SELECT x.id, x.tbl FROM (
    SELECT j.id, 0 AS tbl FROM unnest(live) u (q) CROSS JOIN LATERAL (SELECT j.id FROM honker.job j
      WHERE j.queue = u.q AND j.state = 0 AND (CASE WHEN j.run_at <= places_in.now THEN ready ELSE scheduled END)) j WHERE ready OR scheduled
    UNION ALL SELECT j.id, 0 FROM unnest(live) u (q) CROSS JOIN LATERAL (SELECT j.id FROM honker.job j
      WHERE j.queue = u.q AND j.state = 1 AND (CASE WHEN j.lease_until >= places_in.now THEN running ELSE lapsed END)) j WHERE running OR lapsed
    UNION ALL SELECT j.id, 0 FROM unnest(live) u (q) CROSS JOIN LATERAL (SELECT j.id FROM honker.job j WHERE j.queue = u.q AND j.state > 1) j WHERE held
    UNION ALL SELECT d.id, 1 FROM unnest(dead) u (q) CROSS JOIN LATERAL (SELECT d.id FROM honker.dead d WHERE d.queue = u.q) d
      WHERE sel.phases IS NULL OR 'dead' = ANY (sel.phases)
    UNION ALL SELECT d.id, 2 FROM unnest(done) u (q) CROSS JOIN LATERAL (SELECT d.id FROM honker.done d WHERE d.queue = u.q) d
      WHERE sel.phases IS NULL OR 'done' = ANY (sel.phases)) x LIMIT most;
END $$;

-- The first n waiting jobs of a queue in the order of claims, after a job.
CREATE FUNCTION honker.places_by_turn(q text, level bigint, due timestamptz, after bigint, n bigint) RETURNS TABLE (id bigint, priority bigint, run_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  RETURN QUERY SELECT x.* FROM (
    (SELECT j.id, j.priority, j.run_at FROM honker.job j WHERE level IS NULL AND j.queue = q AND j.state = 0
      ORDER BY j.priority DESC, j.run_at, j.id LIMIT n)
    UNION ALL (SELECT j.id, j.priority, j.run_at FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level
      AND (j.run_at, j.id) > (due, places_by_turn.after) ORDER BY j.run_at, j.id LIMIT n)
    UNION ALL (SELECT j.id, j.priority, j.run_at FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority < level
      ORDER BY j.priority DESC, j.run_at, j.id LIMIT n)) x ORDER BY x.priority DESC, x.run_at, x.id LIMIT n;
END $$;

-- The last n dead jobs of queues, or of all if they are NULL, that died before a job did. The last death comes first.
CREATE FUNCTION honker.places_by_death(queues text[], died timestamptz, before bigint, n bigint) RETURNS TABLE (id bigint, died_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  IF queues IS NULL THEN
    RETURN QUERY SELECT d.id, d.died_at FROM honker.dead d WHERE (d.died_at, d.id) < (died, before) ORDER BY d.died_at DESC, d.id DESC LIMIT n;
  ELSE
    RETURN QUERY SELECT d.id, d.died_at FROM unnest(queues) u (q) CROSS JOIN LATERAL (
      SELECT d.id, d.died_at FROM honker.dead d WHERE d.queue = u.q AND (d.died_at, d.id) < (died, before)
      ORDER BY d.died_at DESC, d.id DESC LIMIT n) d ORDER BY d.died_at DESC, d.id DESC LIMIT n;
  END IF;
END $$;
