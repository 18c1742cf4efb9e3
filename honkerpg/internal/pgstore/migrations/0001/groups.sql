-- Groups of competing consumers. Members of a group share its events.
CREATE TABLE honker.grp (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  created_at timestamptz NOT NULL,
  topic text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  filter text,                      -- JSON; NULL: all events
  UNIQUE (topic, name)
) WITH (fillfactor = 50);

-- The cursor of each group is in the row with the highest token: events up to it have been given out. A claim inserts a
-- row and deletes the previous one. An update of one row would become slower with each version that an old snapshot keeps.
CREATE TABLE honker.grp_turn (
  group_id bigint NOT NULL,
  token bigint NOT NULL,            -- of the claim that moved the cursor
  cursor bigint NOT NULL,
  PRIMARY KEY (group_id, token)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- The tokens of all groups' claims and returns. Drawing one takes no lock, so a return waits for no claim.
CREATE SEQUENCE honker.grp_token;

CREATE TABLE honker.member (
  group_id bigint NOT NULL,
  joined_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  name text COLLATE "C" NOT NULL,
  instance text COLLATE "C" NOT NULL,
  PRIMARY KEY (group_id, name)
) WITH (fillfactor = 50);

-- Events that a group was given and has not acked.
CREATE TABLE honker.delivery (
  group_id bigint NOT NULL,
  "offset" bigint NOT NULL,
  token bigint NOT NULL,            -- state 0: of the claim; otherwise of the return
  deadline timestamptz NOT NULL,    -- state 0: the lease is valid through it; 1: it can be claimed from then on; 2: it died
  attempts bigint NOT NULL,
  state smallint NOT NULL,          -- 0: is leased by holder, 1: has come back, 2: is dead
  holder text COLLATE "C" NOT NULL, -- a member's instance
  last_error text,
  PRIMARY KEY (group_id, "offset")
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX delivery_lease ON honker.delivery (group_id, deadline) WHERE state = 0;
CREATE INDEX delivery_wait ON honker.delivery (group_id, deadline) WHERE state = 1;
-- Returned events, the last first.
CREATE INDEX delivery_back ON honker.delivery (group_id, token, "offset") WHERE state = 1;
-- Dead ones keep their events.
CREATE INDEX delivery_dead ON honker.delivery ("offset", group_id) WHERE state = 2;

-- Waits until no other transaction claims for the group or drops it. Groups whose numbers have the same hash wait for each other.
CREATE FUNCTION honker.group_lock(g bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(1751085686, hashint8('honker.grp'::regclass::oid::bigint << 32 # g));
END $$;

-- Begins a claim: locks the group until the end of the transaction, returns or dead-letters up to most events whose
-- leases have lapsed, and tells where the group stands. Statements after the lock see all earlier claims. A lease that an open
-- transaction settles is passed over; lapsed is -1 if there are only such leases. selected is NULL if there is no such group.
CREATE FUNCTION honker.group_begin(g bigint, max_attempts bigint, most bigint, reason text, at timestamptz,
  OUT selected text, OUT selection text, OUT begins bigint, OUT drawn bigint, OUT lapsed bigint, OUT settled bigint,
  OUT dead bigint[], OUT dead_attempts bigint[]) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  PERFORM honker.group_lock(g);
  SELECT r.topic, coalesce(r.filter, '') INTO selected, selection FROM honker.grp r WHERE r.id = g;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT t.cursor INTO begins FROM honker.grp_turn t WHERE t.group_id = g ORDER BY t.group_id DESC, t.token DESC LIMIT 1;
  drawn := nextval('honker.grp_token');
  WITH due AS MATERIALIZED (
    SELECT d."offset" FROM honker.delivery d WHERE d.group_id = g AND d.state = 0 AND d.deadline < at
    ORDER BY d.deadline LIMIT most FOR UPDATE SKIP LOCKED
  ), ended AS (
    UPDATE honker.delivery d SET token = drawn, deadline = at,
      state = CASE WHEN max_attempts > 0 AND d.attempts >= max_attempts THEN 2 ELSE 1 END,
      last_error = CASE WHEN max_attempts > 0 AND d.attempts >= max_attempts THEN reason ELSE d.last_error END
    WHERE d.group_id = g AND d."offset" = ANY (ARRAY(SELECT u."offset" FROM due u))
    RETURNING d."offset", d.attempts, d.state
  )
  SELECT (SELECT count(*) FROM due), count(*), array_agg(e."offset" ORDER BY e."offset") FILTER (WHERE e.state = 2),
    array_agg(e.attempts ORDER BY e."offset") FILTER (WHERE e.state = 2)
  INTO lapsed, settled, dead, dead_attempts FROM ended e;
  IF lapsed = 0 AND EXISTS (SELECT FROM honker.delivery d WHERE d.group_id = g AND d.state = 0 AND d.deadline < at) THEN
    lapsed := -1;
  END IF;
END $$;

-- Ends a claim in the transaction of group_begin: leases the new events in fresh, moves the cursor, and leases up to
-- room returned events, whose payloads may have up to most bytes together before the last. It returns the returned events in their order.
-- An event that was deleted from the stream has a NULL topic, and its row is gone.
-- The sum in the condition of returned events keeps the server from delivery_wait, whose rows it would have to sort.
CREATE FUNCTION honker.group_end(g bigint, drawn bigint, instance text, until timestamptz, at timestamptz, begins bigint, ends bigint,
  fresh bigint[], room bigint, most bigint)
RETURNS TABLE ("offset" bigint, topic text, key text, payload text, created_at timestamptz, attempts bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  n bigint;
  back bigint[];
  kept bigint[];
BEGIN
  IF cardinality(fresh) > 0 THEN
    INSERT INTO honker.delivery (group_id, "offset", token, deadline, attempts, state, holder)
    SELECT g, u.id, drawn, until, 1, 0, instance FROM unnest(fresh) u (id);
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n < cardinality(fresh) THEN
      RAISE EXCEPTION 'a trigger has dropped a row of delivery' USING ERRCODE = 'HK001';
    END IF;
  END IF;
  IF ends > begins THEN
    INSERT INTO honker.grp_turn (group_id, token, cursor) VALUES (g, drawn, ends);
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a trigger has dropped a row of grp_turn' USING ERRCODE = 'HK001';
    END IF;
    DELETE FROM honker.grp_turn t WHERE t.group_id = g AND t.token < drawn;
  END IF;
  IF room <= 0 THEN
    RETURN;
  END IF;
  SELECT array_agg(m."offset" ORDER BY m.place), array_agg(m."offset" ORDER BY m.place) FILTER (WHERE m.there) INTO back, kept
  FROM (
    SELECT f."offset", f.place, e."offset" IS NOT NULL AS there,
      coalesce(sum(octet_length(e.payload)) OVER (ORDER BY f.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM (
      SELECT o."offset", row_number() OVER (ORDER BY o.token DESC, o."offset" DESC) AS place FROM (
        SELECT d.token, d."offset" FROM honker.delivery d WHERE d.group_id = g AND d.state = 1 AND d.deadline + interval '0' <= at
        ORDER BY d.group_id DESC, d.token DESC, d."offset" DESC LIMIT room) o
    ) f LEFT JOIN honker.event e ON e."offset" = f."offset"
  ) m WHERE m.before < most;
  DELETE FROM honker.delivery d WHERE d.group_id = g AND d."offset" = ANY (back) AND NOT d."offset" = ANY (coalesce(kept, '{}'));
  UPDATE honker.delivery d SET state = 0, holder = instance, token = drawn, deadline = until, attempts = d.attempts + 1
  WHERE d.group_id = g AND d."offset" = ANY (kept);
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n < cardinality(kept) THEN
    RAISE EXCEPTION 'a trigger has dropped an update of delivery' USING ERRCODE = 'HK001';
  END IF;
  RETURN QUERY SELECT u.id, e.topic, coalesce(e.key, ''), e.payload, e.created_at, coalesce(d.attempts, 0)
    FROM unnest(back) WITH ORDINALITY u (id, place)
    LEFT JOIN honker.delivery d ON d.group_id = g AND d."offset" = u.id
    LEFT JOIN honker.event e ON e."offset" = u.id AND u.id = ANY (kept)
    ORDER BY u.place;
END $$;

-- Acks the events that have valid leases, and returns their number. The sum keeps the statement from the indexes of states.
CREATE FUNCTION honker.group_ack(g bigint, events bigint[], tokens bigint[], at timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  n bigint;
BEGIN
  DELETE FROM honker.delivery d USING unnest(events, tokens) h(event, token)
  WHERE d.group_id = g AND d."offset" = h.event AND d.token = h.token AND d.state + 0 = 0 AND d.deadline >= at;
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;
