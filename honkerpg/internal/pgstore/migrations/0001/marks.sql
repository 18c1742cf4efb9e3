-- Marks of claims. What was claimed and deleted stays at the head of the indexes of claims until a vacuum may remove it, and
-- while somebody keeps an old snapshot, no vacuum may. A look that walks over many such entries leaves a mark in a setting of
-- its connection. The looks of the connection begin there for a while, which grows with the length of the walk: looks from
-- the start take a twentieth of the time. A rollback restores the setting. Times of looks are the server's, since they
-- concern no job.
--
-- Jobs can appear below a mark: they were given back, or committed late, or have a higher priority. They wait for the next
-- look from the start. A look at a mark that finds nothing looks from the start at once, so nothing waits while a worker
-- has nothing to do.

-- Where the claims of a priority have come to.
CREATE TYPE honker.mark AS (priority bigint, run_at timestamptz, id bigint);

-- The marks of a queue on this connection, and when the next look from the start is due.
CREATE TYPE honker.marks AS (due timestamptz, marks honker.mark[], lapsed timestamptz);

-- The name of the setting with the marks of a queue: kind w of its waiting jobs, kind c of its claims.
CREATE FUNCTION honker.mark_name(kind text, q text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT 'honkerpg.' || kind || 'honker.job'::regclass::oid || '_' || md5(q) $$;

-- The marks of a queue on this connection, or NULL if there are none or a look from the start is due.
CREATE FUNCTION honker.marks_of(kind text, q text) RETURNS honker.marks LANGUAGE plpgsql STABLE AS $$
DECLARE
  told text := current_setting(honker.mark_name(kind, q), true);
  m honker.marks;
BEGIN
  IF told <> '' THEN
    m := told::honker.marks;
    IF m.due > clock_timestamp() THEN
      RETURN m;
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- The first n jobs of a queue in the order of claims, if they are free. The walk goes from priority to priority, since a
-- walk through the whole index would meet every job of a higher priority that is not due yet.
CREATE FUNCTION honker.lock_due(q text, at timestamptz, n bigint) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
  name text := honker.mark_name('w', q);
  told text := current_setting(name, true);
  m honker.marks;
  places tid[];
  walked bigint;
BEGIN
  IF told <> '' THEN
    m := told::honker.marks;
    IF m.due > clock_timestamp() THEN
      places := ARRAY(
        SELECT d.place FROM unnest(m.marks) WITH ORDINALITY l (priority, run_at, id, ord) CROSS JOIN LATERAL (
          SELECT j.ctid AS place FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = l.priority
            AND (j.run_at, j.id) > (l.run_at, l.id) AND j.run_at <= at
            AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > at) AND (NOT j.sent OR honker.may_start(j.id))
          ORDER BY j.run_at, j.id FOR UPDATE SKIP LOCKED) d
        LIMIT n);
    END IF;
    IF cardinality(places) > 0 THEN
      m.marks := honker.marks_after(m.marks, places);
      PERFORM set_config(name, m::text, false);
      RETURN places;
    END IF;
  END IF;
  walked := pg_stat_get_xact_tuples_returned('honker.job_waits'::regclass);
  places := ARRAY(
    WITH RECURSIVE level (p) AS (
      (SELECT j.priority FROM honker.job j WHERE j.queue = q AND j.state = 0 ORDER BY j.priority DESC LIMIT 1)
      UNION ALL
      SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority < l.p ORDER BY j.priority DESC LIMIT 1)
      FROM level l WHERE l.p IS NOT NULL)
    SELECT d.place FROM level l CROSS JOIN LATERAL (
      SELECT j.ctid AS place FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = l.p AND j.run_at <= at
        AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > at) AND (NOT j.sent OR honker.may_start(j.id))
      ORDER BY j.run_at, j.id FOR UPDATE SKIP LOCKED) d
    LIMIT n);
  walked := pg_stat_get_xact_tuples_returned('honker.job_waits'::regclass) - walked;
  IF walked > 1000 + 4 * n AND cardinality(places) > 0 THEN
    PERFORM set_config(name, (clock_timestamp() + walked * interval '10 microseconds', honker.marks_after('{}', places), NULL)::honker.marks::text, false);
  ELSIF told <> '' THEN
    IF walked <= 1000 THEN
      PERFORM set_config(name, '', false);
    ELSE -- there is nothing to claim, but looks at the state of the queue need not walk as far
      m.due := clock_timestamp() + walked * interval '10 microseconds';
      PERFORM set_config(name, m::text, false);
    END IF;
  END IF;
  RETURN places;
END $$;

-- The marks after a claim of the jobs at places, in the order of claims.
CREATE FUNCTION honker.marks_after(marks honker.mark[], places tid[]) RETURNS honker.mark[] LANGUAGE sql STABLE AS $$
  SELECT array_agg((l.priority, l.run_at, l.id)::honker.mark ORDER BY l.priority DESC) FROM (
    SELECT DISTINCT ON (a.priority) a.priority, a.run_at, a.id FROM (
      SELECT m.priority, m.run_at, m.id FROM unnest(marks) m
      UNION ALL SELECT j.priority, j.run_at, j.id FROM honker.job j WHERE j.ctid = ANY (places)) a
    ORDER BY a.priority, a.run_at DESC, a.id DESC) l $$;

-- Whether a queue has claims that have lapsed. A look that walks over many dead entries and finds none is not repeated from
-- the start at once: a lease does not end before it is taken, so lapsed claims appear above the time of the look.
CREATE FUNCTION honker.has_lapsed(q text, at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  name text := honker.mark_name('c', q);
  told text := current_setting(name, true);
  m honker.marks;
  walked bigint := pg_stat_get_xact_tuples_returned('honker.job_claims'::regclass);
  found_one boolean;
BEGIN
  IF told <> '' THEN
    m := told::honker.marks;
    IF m.due < clock_timestamp() OR m.lapsed > at THEN
      m := NULL;
    END IF;
  END IF;
  found_one := (SELECT j.id FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until < at
    AND j.lease_until >= coalesce(m.lapsed, '-infinity') ORDER BY j.lease_until LIMIT 1) IS NOT NULL;
  walked := pg_stat_get_xact_tuples_returned('honker.job_claims'::regclass) - walked;
  IF NOT found_one AND walked > 1000 THEN
    PERFORM set_config(name, (coalesce(m.due, clock_timestamp() + walked * interval '10 microseconds'), NULL, at)::honker.marks::text, false);
  END IF;
  RETURN found_one;
END $$;
