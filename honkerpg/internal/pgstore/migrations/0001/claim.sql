-- A row of a step. what is 0 for a claimed job. It is 1 for an ack or another settlement whose claim was not valid or
-- that became something else: id is its place, attempts the outcome as in honker.settle, and priority 1 if the job is
-- gone. It is 3 for a job that the claim has dead-lettered, with its last worker as payload. It is 2 for the last row: id has the bits 1 if tokens for the resolver were left, 2 if a queue is paused and
-- there are no jobs, 4 if there are jobs that could not be changed, 8 if there may be more jobs at once, and 32 if a queue has limits.
CREATE TYPE honker.step_row AS (what int, id bigint, queue text, payload text, priority bigint, run_at timestamptz, attempts bigint,
  max_attempts bigint, created_at timestamptz, expires_at timestamptz, last_error text, unique_key text, key text, headers text,
  batch bigint, checkpoint text);

-- Claim up to n jobs of a queue without limits. The update has a snapshot of its own, so it sees the newest version of
-- each row that was locked.
CREATE FUNCTION honker.claim_queue(q text, w text, at timestamptz, until timestamptz, n bigint) RETURNS SETOF honker.step_row LANGUAGE plpgsql AS $$
DECLARE places tid[];
BEGIN
  places := honker.lock_due(q, at, n);
  IF cardinality(places) = 0 THEN
    RETURN;
  END IF;
  RETURN QUERY
    UPDATE honker.job j SET state = 1, worker = w, lease_until = until, attempts = j.attempts + 1 WHERE j.ctid = ANY(places)
    RETURNING 0, j.id, j.queue, j.payload, j.priority, j.run_at, j.attempts, j.max_attempts, j.created_at, j.expires_at, j.last_error,
      j.unique_key, j.key, j.headers, j.batch, (SELECT s.checkpoint FROM honker.side s WHERE s.job_id = j.id);
  IF NOT FOUND THEN
    RETURN NEXT (2, 4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
  END IF;
END $$;

-- Return jobs of a queue to it whose claims have ended. Jobs that may not run again are dead-lettered before.
CREATE FUNCTION honker.reclaim(q text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH back AS (
    UPDATE honker.job j SET state = 0, worker = NULL WHERE j.id = ANY(ARRAY(
      SELECT l.id FROM honker.job l WHERE l.queue = q AND l.state = 1 AND l.lease_until < at
        AND l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > at)
      ORDER BY l.lease_until LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING j.key)
  INSERT INTO honker.token (queue, key) SELECT DISTINCT q, b.key FROM back b WHERE b.key IS NOT NULL;
END $$;

-- How many of the next n jobs belong to each of the lanes, and no more than there is room for. The next job of a lane has
-- the tag firsts, and each later job's tag is higher by steps. The jobs of all lanes are ordered by their tags, then in the
-- order of claims. Like the claims, it begins at the marks of a queue.
CREATE FUNCTION honker.shares(queues text[], firsts bigint[], steps bigint[], rooms bigint[], at timestamptz, n bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    WITH next AS (
      SELECT k.lane FROM unnest(queues, firsts, steps, rooms) WITH ORDINALITY k (queue, first, step, room, lane) CROSS JOIN LATERAL (
        WITH RECURSIVE marks AS MATERIALIZED (SELECT m.due, m.marks FROM honker.marks_of('w', k.queue) m), level (p) AS (
          (SELECT j.priority FROM honker.job j WHERE (SELECT m.due FROM marks m) IS NULL AND j.queue = k.queue AND j.state = 0
            ORDER BY j.priority DESC LIMIT 1)
          UNION ALL
          SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = k.queue AND j.state = 0 AND j.priority < l.p ORDER BY j.priority DESC LIMIT 1)
          FROM level l WHERE l.p IS NOT NULL),
        start (priority, run_at, id) AS (
          SELECT l.p, '-infinity'::timestamptz, -9223372036854775808 FROM level l
          UNION ALL SELECT l.priority, l.run_at, l.id FROM marks m CROSS JOIN LATERAL unnest(m.marks) l)
        SELECT d.*, row_number() OVER () - 1 AS nth FROM start l CROSS JOIN LATERAL (
          SELECT j.priority, j.run_at, j.id FROM honker.job j WHERE j.queue = k.queue AND j.state = 0 AND j.priority = l.priority
            AND (j.run_at, j.id) > (l.run_at, l.id) AND j.run_at <= at AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > at)
          ORDER BY j.run_at, j.id) d
        LIMIT least(n, k.room)) d
      ORDER BY k.first + k.step * d.nth, d.priority DESC, d.run_at, d.id LIMIT n)
    SELECT count(x.lane) FROM generate_series(1, cardinality(queues)) i LEFT JOIN next x ON x.lane = i GROUP BY i ORDER BY i);
END $$;

-- Claim up to n jobs of several lanes. Where other claims were in the way, or a limit, a second round makes up for it in
-- the order of the lanes. Another claim of a queue with limits takes milliseconds: if patient is set, this one waits for
-- a moment rather than to return nothing at once. With several lanes it holds locks, and does not wait with them.
CREATE FUNCTION honker.claim_lanes(queues text[], firsts bigint[], steps bigint[], w text, at timestamptz, until timestamptz, n bigint, patient boolean)
RETURNS SETOF honker.step_row LANGUAGE plpgsql AS $$
DECLARE
  rest bigint := n;
  got bigint;
  share bigint;
  bits bigint := 0;
  shares bigint[];
  rooms bigint[];
  paused boolean[];
  limited boolean[];
  shut boolean[];
  r honker.step_row;
BEGIN
  SELECT array_agg(coalesce(honker.pauses(x.paused_at, x.paused_until, at), false) ORDER BY k.ord), array_agg(coalesce(x.limited, false) ORDER BY k.ord)
  INTO paused, limited FROM unnest(queues) WITH ORDINALITY k (queue, ord) LEFT JOIN honker.queue x ON x.queue = k.queue;
  shut := paused;
  IF true = ANY (limited) THEN
    bits := 32;
  END IF;
  FOR i IN 1 .. cardinality(queues) LOOP
    IF honker.has_lapsed(queues[i], at) THEN
      RETURN QUERY SELECT 3, b.id, b.queue, b.worker, NULL::bigint, NULL::timestamptz, b.attempts, NULL::bigint, NULL::timestamptz,
        NULL::timestamptz, b.reason, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text
      FROM honker.bury(ARRAY(SELECT j.id FROM honker.job j WHERE j.queue = queues[i] AND j.state = 1 AND j.lease_until < at
        ORDER BY j.lease_until LIMIT 1000), at) b;
      PERFORM honker.reclaim(queues[i], at);
    END IF;
    IF limited[i] AND NOT paused[i] THEN
      FOR r IN SELECT * FROM honker.begin_limited(queues[i], at, CASE WHEN patient AND cardinality(queues) = 1 THEN 10 ELSE 1 END) LOOP
        IF r.what = 2 THEN
          bits := bits | 8;
          shut[i] := r.id & 16 <> 0;
        ELSE
          RETURN NEXT r;
        END IF;
      END LOOP;
    END IF;
  END LOOP;
  IF cardinality(array_remove(shut, true)) > 1 THEN
    IF true = ANY (limited) THEN
      rooms := ARRAY(SELECT (SELECT m.jobs FROM honker.queue x CROSS JOIN LATERAL honker.room(x, at) m WHERE x.queue = k.queue AND x.limited)
        FROM unnest(queues) WITH ORDINALITY k (queue, ord) ORDER BY k.ord);
    END IF;
    shares := honker.shares(ARRAY(SELECT CASE WHEN shut[k.ord] THEN NULL ELSE k.queue END FROM unnest(queues) WITH ORDINALITY k (queue, ord) ORDER BY k.ord),
      firsts, steps, rooms, at, n);
  END IF;
  FOR round IN 1 .. 2 LOOP
    FOR i IN 1 .. cardinality(queues) LOOP
      CONTINUE WHEN shut[i] OR rest = 0 OR round = 1 AND shares[i] = 0;
      share := CASE round WHEN 1 THEN least(rest, coalesce(shares[i], rest)) ELSE rest END;
      IF limited[i] THEN
        FOR r IN SELECT * FROM honker.claim_limited(queues[i], w, at, until, share) LOOP
          IF r.what = 2 THEN
            bits := bits | r.id;
          ELSE
            rest := rest - (r.what = 0)::int;
            RETURN NEXT r;
          END IF;
        END LOOP;
        CONTINUE;
      END IF;
      RETURN QUERY SELECT * FROM honker.claim_queue(queues[i], w, at, until, share);
      GET DIAGNOSTICS got = ROW_COUNT;
      rest := rest - got;
    END LOOP;
    EXIT WHEN rest = 0 OR shares IS NULL OR n - rest = (SELECT sum(s) FROM unnest(shares) s);
  END LOOP;
  IF rest = n AND true = ANY (paused) THEN
    bits := bits | 2;
  END IF;
  IF bits <> 0 THEN
    RETURN NEXT (2, bits, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
  END IF;
  IF patient AND rest = n AND bits & 8 <> 0 AND cardinality(queues) > 1 THEN
    PERFORM pg_sleep(0.001);
  END IF;
END $$;

-- Settle and claim: acks are claims of w's nth attempts, and the other arrays are as in honker.settle and
-- honker.claim_lanes. The rows are in no order.
CREATE FUNCTION honker.step(w text, at timestamptz, acks bigint[], nth bigint, ids bigint[], nths bigint[], outs smallint[], runs timestamptz[],
  errs text[], results text[], result_ends timestamptz[], news text[], starts timestamptz[], rans bigint[], logs text[], slow boolean[],
  busy boolean[], ack_busy boolean[], queues text[], firsts bigint[], steps bigint[], until timestamptz, n bigint)
RETURNS SETOF honker.step_row LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  done record;
  s record;
  linked boolean := false;
BEGIN
  IF cardinality(acks) > 0 THEN
    SELECT * INTO done FROM honker.ack_(w, at, acks, nth, NULL);
    linked := done.linked;
    IF coalesce(cardinality(done.gone), 0) < cardinality(acks) THEN
      FOR s IN SELECT a.id, a.ord, honker.is_gone(a.id) AS gone FROM unnest(acks) WITH ORDINALITY a (id, ord)
        WHERE done.gone IS NULL OR a.id <> ALL(done.gone)
      LOOP
        IF s.gone AND NOT ack_busy[s.ord] THEN
          PERFORM honker.drop_place(w, s.id, nth);
        END IF;
        RETURN NEXT (1, s.ord, NULL, NULL, s.gone::int, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
      END LOOP;
    END IF;
  END IF;
  IF cardinality(ids) > 0 THEN
    FOR s IN SELECT * FROM honker.settle(w, at, ids, nths, outs, runs, errs, results, result_ends, news, starts, rans, logs, slow, busy) LOOP
      linked := linked OR s.linked;
      IF s.became <> outs[s.ord] THEN
        RETURN NEXT (1, cardinality(acks) + s.ord, NULL, NULL, s.gone::int, NULL, s.became, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
      END IF;
    END LOOP;
  END IF;
  IF linked THEN
    RETURN NEXT (2, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::honker.step_row;
  END IF;
  IF n > 0 THEN
    RETURN QUERY SELECT * FROM honker.claim_lanes(queues, firsts, steps, w, at, until, n, cardinality(acks) + cardinality(ids) = 0);
  END IF;
END $$;
