-- Settings of a queue that hold in all processes: its pause, its limits, and how many finished jobs it keeps. NULL is
-- no pause and no limit. Claims only read this table and the next, so that they do not wait for a transaction of the
-- application that changes a setting.
CREATE TABLE honker.queue (
  queue text COLLATE "C" PRIMARY KEY,
  paused_at timestamptz,
  paused_until timestamptz,         -- NULL: no end
  reason text,
  who text,
  running bigint,
  per_key bigint,
  in_order boolean NOT NULL DEFAULT false,
  rate_n bigint,
  rate_per interval,
  rate_burst bigint,
  rate_turn bigint NOT NULL DEFAULT 0, -- counts the changes of the rate
  key_rate_n bigint,
  key_rate_per interval,
  key_rate_burst bigint,
  key_rate_turn bigint NOT NULL DEFAULT 0,
  done_count bigint,                -- NULL: keeps none, 0: no bound
  done_age interval,
  dead_count bigint,
  dead_age interval,
  keys_paused bigint,               -- how many rows of the table key it has; NULL: none
  fit_key text COLLATE "C",         -- held jobs of this key and later ones may be held by limits that are gone
  keyed boolean NOT NULL GENERATED ALWAYS AS (in_order OR fit_key IS NOT NULL OR coalesce(per_key, key_rate_n, keys_paused) IS NOT NULL) STORED,
  limited boolean NOT NULL GENERATED ALWAYS AS (in_order OR fit_key IS NOT NULL
    OR coalesce(running, per_key, rate_n, key_rate_n, keys_paused) IS NOT NULL) STORED
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
-- Few queues keep done jobs. Each ack asks whether any does.
CREATE INDEX queue_done ON honker.queue (queue) WHERE done_count IS NOT NULL;

-- Pauses of keys. A pause that has ended stays until a sweep.
CREATE TABLE honker.key (
  queue text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  paused_at timestamptz NOT NULL,
  paused_until timestamptz,
  reason text,
  who text,
  over boolean NOT NULL DEFAULT false, -- a claim has seen its end
  PRIMARY KEY (queue, key)
) WITH (fillfactor = 50);
CREATE INDEX key_until ON honker.key (queue, paused_until) WHERE NOT over AND paused_until IS NOT NULL;

-- The starts that rates count, of a queue (with the key '') and of its keys. Rows whose turn is not that of the rate
-- are of an earlier rate. Only claims change rows, and one claim at a time for each queue.
CREATE TABLE honker.starts (
  queue text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  turn bigint NOT NULL,
  tat timestamptz,                  -- until then the starts are spent; see honker.starts_left
  next_at timestamptz,              -- the next start of the key that its held jobs wait for
  PRIMARY KEY (queue, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX starts_next ON honker.starts (queue, next_at) WHERE next_at IS NOT NULL;

-- Slots that cancelled jobs still take in queues with limits, since their handlers may run on. A slot counts as a
-- running job until until_at, the end of the job's lease.
CREATE TABLE honker.place (
  job_id bigint PRIMARY KEY,
  queue text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  worker text NOT NULL,
  attempt bigint NOT NULL,
  until_at timestamptz NOT NULL
);
CREATE INDEX place_key ON honker.place (queue, key, until_at);

-- A rate lets a job start every so many seconds, and a burst of jobs at once. tat is the time until which its starts
-- are spent, in Unix seconds. Each start adds every to it, and a start is allowed burst - 1 such intervals before it. A
-- tat further ahead than a burst comes from a clock that has gone back since, and counts as past. Stored times are
-- rounded, so a start may be half a millisecond early.

-- How many jobs may start.
CREATE FUNCTION honker.starts_left(at float8, tat float8, every float8, burst bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN tat IS NULL OR tat < at OR tat > at + every * burst + 1 THEN burst
    ELSE greatest(0, floor((at + 0.0005 - tat) / every)::bigint + burst) END $$;

-- When the next job may start, if none may now.
CREATE FUNCTION honker.next_start(at float8, tat float8, every float8, burst bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN honker.starts_left(at, tat, every, burst) = 0 THEN to_timestamp(least(tat - every * (burst - 1), 8e12)) END $$;

-- The tat after n starts.
CREATE FUNCTION honker.tat_after(at float8, tat float8, every float8, burst bigint, n bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT to_timestamp(least(CASE WHEN tat >= at AND tat <= at + every * burst + 1 THEN tat ELSE at END + every * n, 8e12)) $$;

CREATE FUNCTION honker.unix(t timestamptz) RETURNS float8 LANGUAGE sql STABLE AS $$ SELECT extract(epoch FROM t)::float8 $$;

-- How many more jobs of a queue its limit on running jobs and its rate let start; NULL is no bound. is_full is set if the
-- first leaves none, and start_at if the second does. Cancelled jobs whose handlers may run on take slots.
CREATE FUNCTION honker.room(x honker.queue, at timestamptz, OUT jobs bigint, OUT is_full boolean, OUT start_at timestamptz)
LANGUAGE plpgsql STABLE AS $$
DECLARE every float8; spent timestamptz;
BEGIN
  is_full := false;
  IF x.running IS NOT NULL THEN
    jobs := greatest(0, x.running - (SELECT count(*) FROM honker.job j WHERE j.queue = x.queue AND j.state = 1)
      - (SELECT count(*) FROM honker.place p WHERE p.queue = x.queue AND p.until_at > at));
    is_full := jobs = 0;
  END IF;
  IF x.rate_n IS NOT NULL THEN
    every := extract(epoch FROM x.rate_per)::float8 / x.rate_n;
    SELECT s.tat INTO spent FROM honker.starts s WHERE s.queue = x.queue AND s.key = '' AND s.turn = x.rate_turn;
    jobs := least(jobs, honker.starts_left(honker.unix(at), honker.unix(spent), every, x.rate_burst));
    start_at := honker.next_start(honker.unix(at), honker.unix(spent), every, x.rate_burst);
  END IF;
END $$;

-- How many more jobs of each key may start, ahead of all other limits. With in_order only first may, the oldest job that
-- can still run.
CREATE FUNCTION honker.key_rooms(x honker.queue, keys text[], at timestamptz) RETURNS TABLE (key text, ord bigint, room bigint, first bigint)
LANGUAGE sql STABLE AS $$
  SELECT u.key, u.ord, CASE WHEN x.keys_paused IS NOT NULL AND EXISTS (SELECT FROM honker.key p WHERE p.queue = x.queue AND p.key = u.key
        AND honker.pauses(p.paused_at, p.paused_until, at)) THEN 0
      ELSE greatest(0, least(1000000000,
        CASE WHEN x.in_order OR x.per_key IS NOT NULL THEN CASE WHEN x.in_order THEN 1 ELSE x.per_key END
          - (SELECT count(*) FROM honker.job j WHERE j.queue = x.queue AND j.key = u.key AND j.state + 0 = 1)
          - (SELECT count(*) FROM honker.place p WHERE p.queue = x.queue AND p.key = u.key AND p.until_at > at) END,
        CASE WHEN x.key_rate_n IS NOT NULL THEN honker.starts_left(honker.unix(at), honker.unix(s.tat),
          extract(epoch FROM x.key_rate_per)::float8 / x.key_rate_n, x.key_rate_burst) END)) END,
    CASE WHEN x.in_order THEN (SELECT j.id FROM honker.job j WHERE (j.queue, j.key, j.id) > (x.queue, u.key, 0)
      AND (j.queue, j.key, j.id) < (x.queue, u.key, 9223372036854775807) AND j.key IS NOT NULL AND j.id > 0
      AND (j.state IN (1, 3) OR coalesce(j.expires_at > at, true) AND (j.attempts < j.max_attempts OR j.run_at > at))
      ORDER BY j.queue, j.key, j.id LIMIT 1) END
  FROM unnest(keys) WITH ORDINALITY u (key, ord)
  -- The limit keeps the planner from reading the starts of all keys.
  LEFT JOIN LATERAL (SELECT o.tat FROM honker.starts o WHERE x.key_rate_n IS NOT NULL AND o.queue = x.queue AND o.key = u.key AND o.turn = x.key_rate_turn LIMIT 1) s ON true $$;
