-- Whether a claim on a queue would find work at a time and, with times set, when it would. It goes from priority to
-- priority, and reads an entry of an index or two for each. With marks of claims it does not look below them, and next is
-- not after the time of the next look from the start. A paused queue has no work before the end of its pause.
-- A job whose claim has ended is work even if it must not run again, because a claim dead-letters it. limited is set if
-- the queue has limits, and start is when its rate lets the next due job start, if it does not let it start now. With
-- alive set, next passes over claims whose jobs must not run again.
CREATE FUNCTION honker.state_of(q text, times boolean, alive boolean, at timestamptz, OUT ready boolean, OUT next timestamptz, OUT limited boolean, OUT start timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  lowest CONSTANT bigint := -9223372036854775808;
  k honker.queue;
  m honker.marks := honker.marks_of('w', q);
  mark honker.mark; -- the next below
  bound bigint := 9223372036854775807;
  level bigint;
  due timestamptz;
  lapsed boolean := honker.has_lapsed(q, at);
BEGIN
  SELECT * INTO k FROM honker.queue x WHERE x.queue = q;
  limited := coalesce(k.limited, false);
  ready := false;
  IF k.paused_at IS NOT NULL AND (k.paused_until IS NULL OR k.paused_until > at) THEN
    next := k.paused_until;
  ELSE
    WHILE times OR NOT (ready OR lapsed) LOOP
      mark := (SELECT l::honker.mark FROM unnest(m.marks) l WHERE l.priority <= bound ORDER BY l.priority DESC LIMIT 1);
      level := NULL;
      IF mark.priority IS NULL OR mark.priority < bound THEN
        SELECT j.priority INTO level FROM honker.job j WHERE j.queue = q AND j.state = 0
          AND j.priority BETWEEN coalesce(mark.priority + 1, lowest) AND bound ORDER BY j.priority DESC LIMIT 1;
      END IF;
      IF level IS NOT NULL THEN
        mark := NULL;
      ELSIF mark.priority IS NULL THEN
        EXIT;
      ELSE
        level := mark.priority;
      END IF;
      ready := ready OR EXISTS (SELECT FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level
        AND (j.run_at, j.id) > (coalesce(mark.run_at, '-infinity'), coalesce(mark.id, lowest)) AND j.run_at <= at AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > at));
      IF times THEN
        SELECT j.run_at INTO due FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level AND j.run_at > at
          AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > j.run_at) ORDER BY j.run_at LIMIT 1;
        next := least(next, due);
      END IF;
      EXIT WHEN level = lowest;
      bound := level - 1;
    END LOOP;
    IF times THEN
      next := least(next, m.due);
    END IF;
    IF limited AND (times OR NOT lapsed) THEN
      SELECT * INTO ready, next, start FROM honker.limited_state(k, ready, next, at);
    END IF;
  END IF;
  ready := ready OR lapsed;
  IF times THEN
    SELECT j.lease_until + interval '1 microsecond' INTO due FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until >= at
      AND (NOT alive OR j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > j.lease_until + interval '1 microsecond'))
      ORDER BY j.lease_until LIMIT 1;
    next := least(next, due);
  END IF;
END $$;

-- When a job of a queue becomes claimable, or NULL if none will. A paused queue is looked at from the end of its pause.
CREATE FUNCTION honker.next_claim(q text, at timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
  k honker.queue;
  s record;
BEGIN
  SELECT * INTO k FROM honker.queue x WHERE x.queue = q;
  IF honker.pauses(k.paused_at, k.paused_until, at) THEN
    IF k.paused_until IS NULL THEN
      RETURN NULL;
    END IF;
    at := k.paused_until;
    SELECT * INTO s FROM honker.state_of(q, false, false, at);
    IF s.ready THEN
      RETURN at;
    END IF;
  END IF;
  SELECT * INTO s FROM honker.state_of(q, true, true, at);
  RETURN coalesce(s.start, s.next);
END $$;

-- The state of a queue whose limits are as in x, if due and soonest are its state without limits. Held jobs that a claim
-- would let go are work. A queue without room has none before a slot becomes free or its rate lets a job start.
CREATE FUNCTION honker.limited_state(x honker.queue, due boolean, soonest timestamptz, at timestamptz, OUT ready boolean, OUT next timestamptz, OUT start timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE room record;
BEGIN
  ready := due; next := soonest;
  SELECT * INTO room FROM honker.room(x, at) r;
  IF x.keyed THEN
    ready := ready OR x.fit_key IS NOT NULL
      OR EXISTS (SELECT FROM honker.token t WHERE t.queue = x.queue AND coalesce(t.due <= at, true) AND honker.holds(x.queue, t.key))
      OR EXISTS (SELECT FROM honker.place p WHERE p.queue = x.queue AND p.until_at <= at AND p.key IS NOT NULL)
      OR EXISTS (SELECT FROM honker.key k WHERE k.queue = x.queue AND k.paused_until <= at AND NOT k.over)
      OR EXISTS (SELECT FROM honker.starts s WHERE s.queue = x.queue AND s.next_at <= at + interval '500 microseconds')
      OR x.in_order AND EXISTS (SELECT FROM honker.job j WHERE j.queue = x.queue AND j.state <> 1 AND j.expires_at <= at AND j.state <> 3);
    next := least(next,
      (SELECT min(t.due) FROM honker.token t WHERE t.queue = x.queue AND t.due > at),
      (SELECT min(k.paused_until) FROM honker.key k WHERE k.queue = x.queue AND k.paused_until > at AND NOT k.over),
      (SELECT min(s.next_at) FROM honker.starts s WHERE s.queue = x.queue AND s.next_at > at),
      CASE WHEN x.in_order THEN (SELECT min(j.expires_at) FROM honker.job j WHERE j.queue = x.queue AND j.state <> 1 AND j.expires_at > at) END);
  END IF;
  IF room.jobs = 0 THEN
    start := CASE WHEN ready AND NOT room.is_full THEN room.start_at END;
    ready := false;
    next := CASE WHEN NOT room.is_full THEN greatest(next, room.start_at) END;
  END IF;
  next := least(next, (SELECT min(p.until_at) FROM honker.place p WHERE p.queue = x.queue AND p.until_at > at));
END $$;
