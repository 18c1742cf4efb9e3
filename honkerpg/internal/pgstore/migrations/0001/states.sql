-- Whether a claim on a queue would find work at a time and, with times set, when it would. It goes from priority to
-- priority, and reads an entry of an index or two for each. A paused queue has no work before the end of its pause.
-- A job whose claim has ended is work even if it must not run again, because a claim dead-letters it. limited is set if the queue has limits.
CREATE FUNCTION honker.state_of(q text, times boolean, at timestamptz, OUT ready boolean, OUT next timestamptz, OUT limited boolean)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  k honker.queue;
  level bigint;
  due timestamptz;
BEGIN
  SELECT * INTO k FROM honker.queue x WHERE x.queue = q;
  limited := coalesce(k.running, k.per_key, k.rate_n, k.key_rate_n) IS NOT NULL OR coalesce(k.in_order, false);
  ready := EXISTS (SELECT FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until < at);
  IF k.paused_at IS NOT NULL AND (k.paused_until IS NULL OR k.paused_until > at) THEN
    next := k.paused_until;
  ELSE
    SELECT j.priority INTO level FROM honker.job j WHERE j.queue = q AND j.state = 0 ORDER BY j.priority DESC LIMIT 1;
    WHILE level IS NOT NULL AND (times OR NOT ready) LOOP
      ready := ready OR EXISTS (SELECT FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level AND j.run_at <= at
        AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > at));
      IF times THEN
        SELECT j.run_at INTO due FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority = level AND j.run_at > at
          AND j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > j.run_at) ORDER BY j.run_at LIMIT 1;
        next := least(next, due);
      END IF;
      SELECT j.priority INTO level FROM honker.job j WHERE j.queue = q AND j.state = 0 AND j.priority < level ORDER BY j.priority DESC LIMIT 1;
    END LOOP;
  END IF;
  IF times THEN
    SELECT j.lease_until + interval '1 microsecond' INTO due FROM honker.job j WHERE j.queue = q AND j.state = 1 AND j.lease_until >= at
      ORDER BY j.lease_until LIMIT 1;
    next := least(next, due);
  END IF;
END $$;
