-- Adds a job with a unique key for each payload, or treats the job that holds the key as conflict says: 0 keeps it, 1
-- changes it if it waits, 2 also adds a job that runs after it. result is 0 for a new job, 1 for an existing one, 2 for a
-- changed one, 3 for a successor, and 4 if the links would form a circle: then nothing has changed for this payload.
--
-- The row of the key is locked before jobs are looked at, in a statement of its own. ON CONFLICT DO NOTHING does not
-- return a row that it has met, and the next statement may not find it: its holder may have rolled back, or a sweep may
-- have deleted it. So this is a loop. Several keys are
-- locked in their order first, so that two enqueues do not wait for each other. Jobs are added in the order of payloads.
CREATE FUNCTION honker.place(q text, keys text[], payloads text[], priority bigint, most bigint, due timestamptz, now timestamptz,
  expiry timestamptz, headers text, k text, kind int, keep timestamptz, conflict int, max_delay interval,
  parents bigint[], batches bigint[], even_if_dead boolean, member bigint)
RETURNS TABLE (ord bigint, placed bigint, result int, node bigint, was honker.job, progress text) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE waits boolean := cardinality(parents) + cardinality(batches) > 0; u honker.uniq; x record; live boolean; runs boolean; fresh boolean;
BEGIN
  PERFORM honker.lock_key(q, k);
  IF cardinality(keys) > 1 THEN
    -- The update changes nothing, but locks a row that exists. With DO NOTHING and a lock after it, a sweep could delete the
    -- row in between, and the loop would take it out of order.
    INSERT INTO honker.uniq AS l (queue, key, job_id, kind, first_at)
    SELECT q, o.key, 0, place.kind, place.now FROM (SELECT DISTINCT a.key COLLATE "C" AS key FROM unnest(keys) a (key) ORDER BY 1) o
    ON CONFLICT (queue, key) DO UPDATE SET key = l.key WHERE false;
  END IF;
  FOR x IN SELECT a.key, a.payload, a.ord FROM unnest(keys, payloads) WITH ORDINALITY a (key, payload, ord) ORDER BY a.ord LOOP
    ord := x.ord; node := NULL; was := NULL; progress := NULL;
    LOOP
      fresh := false;
      SELECT * INTO u FROM honker.uniq l WHERE l.queue = q AND l.key = x.key FOR UPDATE;
      IF NOT FOUND THEN
        INSERT INTO honker.uniq (queue, key, job_id, kind, until_at, first_at)
        VALUES (q, x.key, nextval('honker.job_id_seq'), place.kind, keep, place.now) ON CONFLICT DO NOTHING RETURNING * INTO u;
        CONTINUE WHEN u.job_id IS NULL;
        fresh := true;
      END IF;
      IF NOT fresh THEN
        -- The key passes on to the job that waits for it. That job may also be gone before its turn.
        IF u.next_id IS NOT NULL THEN
          SELECT j.* INTO was FROM honker.job j WHERE j.id = u.next_id;
          live := FOUND;
          IF NOT live THEN
            u.next_id := NULL;
          ELSIF NOT EXISTS (SELECT FROM honker.job j WHERE j.id = u.job_id) THEN
            u.job_id := u.next_id; u.next_id := NULL;
          END IF;
        END IF;
        IF u.next_id IS NULL THEN
          SELECT j.* INTO was FROM honker.job j WHERE j.id = u.job_id;
          live := FOUND;
        END IF;
        runs := live AND was.state = 1 AND was.lease_until >= place.now;
        IF u.next_id IS NULL AND NOT coalesce(u.until_at > place.now, false) AND NOT (live
            AND (runs OR was.attempts < was.max_attempts AND (was.expires_at IS NULL OR was.expires_at > place.now))
            AND (u.kind = 0 OR was.attempts = 0 AND was.lease_until IS NULL)) THEN
          fresh := true; was := NULL;
          UPDATE honker.uniq l SET job_id = nextval('honker.job_id_seq'), next_id = NULL, kind = place.kind, until_at = keep, first_at = place.now
          WHERE l.queue = q AND l.key = x.key RETURNING * INTO u;
        END IF;
      END IF;

      IF fresh THEN
        placed := u.job_id; result := 0;
      ELSIF NOT live THEN
        placed := u.job_id; result := 1; was := NULL;
      ELSIF runs AND conflict = 2 THEN
        result := 3;
        UPDATE honker.uniq l SET job_id = u.job_id, next_id = nextval('honker.job_id_seq'), kind = place.kind,
          until_at = greatest(l.until_at, keep), first_at = place.now
        WHERE l.queue = q AND l.key = x.key RETURNING next_id INTO placed;
      ELSIF NOT runs AND conflict <> 0 THEN
        placed := was.id; result := 2;
        SELECT j.* INTO was FROM honker.job j WHERE j.id = placed AND (j.state <> 1 OR j.lease_until < place.now) FOR UPDATE;
        CONTINUE WHEN NOT FOUND; -- it has been claimed or has ended since
        IF waits THEN
          SELECT l INTO node FROM honker.later(ARRAY[placed]) l WHERE l = ANY (parents) OR -l = ANY (batches) LIMIT 1;
          IF FOUND THEN
            result := 4;
            RETURN NEXT;
            RETURN;
          END IF;
        END IF;
      ELSE
        placed := was.id; result := 1;
      END IF;
      EXIT;
    END LOOP;
    SELECT s.progress INTO progress FROM honker.side s WHERE s.job_id = was.id;

    IF result IN (0, 3) THEN
      INSERT INTO honker.job (id, queue, payload, priority, max_attempts, run_at, created_at, expires_at, headers, key, unique_key, batch, state, awaited)
      VALUES (placed, q, x.payload, place.priority, most, due, place.now, expiry, place.headers, k, x.key, nullif(member, 0),
        CASE WHEN waits OR result = 3 THEN 3 ELSE 0 END, waits OR result = 3);
      IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a job';
      END IF;
      IF result = 3 THEN
        INSERT INTO honker.edge (waiter, parent, batch, if_dead) VALUES (placed, was.id, -1, true);
        INSERT INTO honker.token (waiter) VALUES (placed);
      END IF;
      PERFORM honker.link(ARRAY[placed], parents, batches, even_if_dead, member);
    ELSIF result = 2 THEN
      -- Attempts stay, because they fence claims.
      UPDATE honker.job j SET payload = x.payload, priority = place.priority, expires_at = expiry, max_attempts = j.attempts + most,
        run_at = least(due, u.first_at + max_delay), headers = place.headers, worker = NULL,
        state = CASE WHEN waits OR j.state = 3 THEN 3 ELSE 0 END, awaited = j.awaited OR waits
      WHERE j.id = placed;
      DELETE FROM honker.side s WHERE s.job_id = placed;
      PERFORM honker.link(ARRAY[placed], parents, batches, even_if_dead, 0);
      INSERT INTO honker.token (queue, key) SELECT q, was.key WHERE was.key IS NOT NULL AND (was.state = 1 OR waits);
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Takes a key from its job, and lets the job go that waits for it. It returns whether a job held the key.
CREATE FUNCTION honker.release_unique(q text, k text, now timestamptz) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE u honker.uniq; held boolean;
BEGIN
  DELETE FROM honker.uniq l WHERE l.queue = q AND l.key = k RETURNING * INTO u;
  IF NOT FOUND THEN RETURN false; END IF;
  held := coalesce(u.until_at > release_unique.now, false) OR EXISTS (SELECT FROM honker.job j WHERE j.id = u.next_id)
    OR EXISTS (SELECT FROM honker.job j WHERE j.id = u.job_id AND (u.kind = 0 OR j.attempts = 0 AND j.lease_until IS NULL)
      AND (j.state = 1 AND j.lease_until >= release_unique.now
        OR j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > release_unique.now)));
  UPDATE honker.job j SET unique_key = NULL WHERE j.id IN (
    SELECT l.id FROM honker.job l WHERE l.id IN (u.job_id, u.next_id) ORDER BY l.id FOR UPDATE);
  IF u.next_id IS NOT NULL THEN
    DELETE FROM honker.edge e WHERE e.waiter = u.next_id AND e.batch = -1;
    INSERT INTO honker.token (waiter) VALUES (u.next_id);
  END IF;
  RETURN held;
END $$;

-- Deletes rows of keys that no job holds. The rows are locked in a statement of their own: the statement that deletes
-- them then sees the job of an enqueue that has taken the key in between.
CREATE FUNCTION honker.drop_keys(places tid[], at timestamptz) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE locked tid[]; n bigint;
BEGIN
  locked := ARRAY(SELECT u.ctid FROM honker.uniq u WHERE u.ctid = ANY (places) FOR UPDATE SKIP LOCKED);
  DELETE FROM honker.uniq u WHERE u.ctid = ANY (locked) AND coalesce(u.until_at <= at, true)
    AND NOT EXISTS (SELECT FROM honker.job j WHERE j.id IN (u.job_id, u.next_id));
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;
