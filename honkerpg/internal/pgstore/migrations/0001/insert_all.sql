-- Inserts the plain jobs of several enqueues, and returns their ids in the order of the arrays. Ids are drawn while rows
-- are inserted, so they rise in that order. The error keeps a job that a trigger of the application drops from being
-- lost among the others.
CREATE FUNCTION honker.insert_all(queues text[], payloads text[], priorities bigint[], most bigint[], due timestamptz[],
  expiries timestamptz[], now timestamptz) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
  RETURN QUERY INSERT INTO honker.job (queue, payload, priority, max_attempts, run_at, created_at, expires_at)
  SELECT u.queue, u.payload, u.priority, u.most, u.due, insert_all.now, u.expiry
  FROM unnest(queues, payloads, priorities, most, due, expiries) WITH ORDINALITY u (queue, payload, priority, most, due, expiry, ord)
  ORDER BY u.ord RETURNING id;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n <> cardinality(payloads) THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a job';
  END IF;
END $$;
