-- Moves of the relays of files.

-- A row for each family of a file. Message ids of the file are shifted by base, which is 0 for the first family in a schema
-- that was fresh. Later messages of the schema have ids above ends.
CREATE TABLE honker.move_family (
  source text COLLATE "C" NOT NULL,
  family text COLLATE "C" NOT NULL,
  base bigint NOT NULL,
  ends bigint NOT NULL,
  PRIMARY KEY (source, family)
);

-- The last message of each partition that was moved, by its id in the file. late is set once messages of the partition had
-- to get ids after those of this schema. The next ones get them too, to stay in order.
CREATE TABLE honker.move_partition (
  source text COLLATE "C" NOT NULL,
  family text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  partition bigint NOT NULL,
  through bigint NOT NULL DEFAULT 0,
  late boolean NOT NULL DEFAULT false,
  PRIMARY KEY (source, family, queue, partition)
);

-- Takes in a parcel of a relay's queue, which must be registered. Messages come before those that were sent to this schema,
-- unless a handler has had such a message of the partition, or may have it: saving its batch deletes all messages up to its last.
-- The rows of partitions are locked before the lock of numbering, so no sender waits for a handler's transaction.
CREATE FUNCTION honker.take_relay(src text, r json, at timestamptz) RETURNS json LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
  fam text := r->>'family'; name text := r->>'queue'; f honker.move_family; p honker.relay_partition; t honker.move_partition; x record;
  after boolean; n bigint; messages bigint := 0; late bigint := 0; letters bigint;
BEGIN
  PERFORM FROM honker.relay_partition h WHERE h.family = fam AND h.queue = name AND h.partition IN (
    SELECT c.partition FROM json_to_recordset(r->'closed') c (partition bigint)
    UNION SELECT c.partition FROM json_to_recordset(r->'messages') c (partition bigint)) ORDER BY h.partition FOR UPDATE;
  PERFORM honker.relay_number(at);
  SELECT * INTO f FROM honker.move_family v WHERE v.source = src AND v.family = fam;
  IF NOT FOUND THEN
    n := coalesce(pg_sequence_last_value('honker.relay_message_id_seq'), 0);
    INSERT INTO honker.move_family (source, family, base, ends)
    VALUES (src, fam, n, setval('honker.relay_message_id_seq', n + (r->>'last')::bigint + 1000000000)) RETURNING * INTO f;
  END IF;

  FOR x IN SELECT * FROM json_to_recordset(r->'closed') c (partition bigint, processed bigint, cursor bigint, attempts bigint, retry_ms bigint, error text)
      ORDER BY c.partition LOOP
    INSERT INTO honker.move_partition (source, family, queue, partition) VALUES (src, fam, name, x.partition) ON CONFLICT DO NOTHING;
    CONTINUE WHEN NOT FOUND; -- an operator has freed the partition in the file
    -- Numbers of messages are not used again.
    UPDATE honker.relay_partition h SET processed = h.processed + x.processed WHERE h.family = fam AND h.queue = name AND h.partition = x.partition;
    UPDATE honker.relay_partition h SET cursor = CASE WHEN x.cursor > 0 THEN x.cursor + f.base ELSE 0 END, attempts = x.attempts,
      retry_at = honker.file_time(nullif(x.retry_ms, 0) / 1000.0), last_error = x.error
    WHERE h.family = fam AND h.queue = name AND h.partition = x.partition AND h.cursor = 0 AND h.attempts = 0 AND h.owner = ''
      AND NOT EXISTS (SELECT FROM honker.relay_message m WHERE m.family = fam AND m.queue = name AND m.partition = x.partition AND m.id <= f.base + x.cursor);
  END LOOP;

  FOR x IN SELECT c.partition, min(c.id) AS first, max(c.id) AS last FROM json_to_recordset(r->'messages') c (id bigint, partition bigint)
      GROUP BY c.partition ORDER BY c.partition LOOP
    SELECT * INTO p FROM honker.relay_partition h WHERE h.family = fam AND h.queue = name AND h.partition = x.partition;
    SELECT * INTO t FROM honker.move_partition v WHERE v.source = src AND v.family = fam AND v.queue = name AND v.partition = x.partition;
    after := t.late OR x.first <= t.through OR p.cursor >= x.first + f.base OR x.last + f.base > f.ends OR p.owner <> '' AND EXISTS (
      SELECT FROM honker.relay_message m WHERE m.family = fam AND m.queue = name AND m.partition = x.partition AND m.id > f.ends);
    UPDATE honker.move_partition v SET through = greatest(v.through, x.last), late = after
    WHERE v.source = src AND v.family = fam AND v.queue = name AND v.partition = x.partition;
    INSERT INTO honker.relay_message (id, family, queue, partition, key, type, payload, created_at)
    SELECT CASE WHEN after THEN nextval('honker.relay_message_id_seq') ELSE m.id + f.base END, fam, name, m.partition, m.key, m.type,
      decode(m.payload, 'hex'), honker.file_time(m.created_ms / 1000.0)
    FROM (SELECT * FROM json_to_recordset(r->'messages') c (id bigint, partition bigint, key text, type text, payload text, created_ms bigint)
      WHERE c.partition = x.partition ORDER BY c.id) m;
    GET DIAGNOSTICS n = ROW_COUNT;
    messages := messages + n;
    IF after THEN late := late + n; END IF;
  END LOOP;

  INSERT INTO honker.relay_dead (id, family, queue, partition, seq, key, type, payload, created_at, attempts, last_error, died_at, state, holder, moved_at)
  SELECT d.id + f.base, fam, name, d.partition, d.seq, d.key, d.type, decode(d.payload, 'hex'), honker.file_time(d.created_ms / 1000.0), d.attempts,
    d.error, honker.file_time(d.died_ms / 1000.0), d.state, d.holder, honker.file_time(nullif(d.moved_ms, 0) / 1000.0)
  FROM json_to_recordset(r->'dead') d (id bigint, partition bigint, seq bigint, key text, type text, payload text, created_ms bigint, attempts bigint,
    error text, died_ms bigint, state text, holder text, moved_ms bigint) ORDER BY d.id;
  GET DIAGNOSTICS letters = ROW_COUNT;
  IF messages + letters <> json_array_length(r->'messages') + json_array_length(r->'dead') THEN
    RAISE EXCEPTION USING ERRCODE = 'HK001', MESSAGE = 'a trigger has dropped a message of a relay';
  END IF;
  PERFORM honker.wake(honker.signal_bit(28, 4, fam || '/' || name), '');
  RETURN json_build_object('messages', messages, 'letters', letters, 'late', late, 'relay', fam || '/' || name);
END $$;
