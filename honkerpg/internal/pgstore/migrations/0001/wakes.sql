-- Processes that wait for commits of others. waits is the set of signals that they wait for, a bit for each, as package
-- wake numbers them. A row that has run out counts for nothing.
CREATE TABLE honker.process (
  id text PRIMARY KEY,
  waits bigint NOT NULL,
  waits_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, vacuum_truncate = off);

-- The channel of the notices of this schema. Channels belong to a database.
CREATE FUNCTION honker.channel() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'honker_' || 'honker.process'::regclass::oid $$;

-- Tells the processes that wait for any of signals, except the sender, at the commit of the transaction. It returns
-- whether there are any: a notice takes a lock of the whole server at the commit, so nothing is sent to nobody.
CREATE FUNCTION honker.wake(signals bigint, sender text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM honker.process p WHERE p.waits & signals <> 0 AND p.waits_until > clock_timestamp() AND p.id <> sender) THEN
    RETURN false;
  END IF;
  PERFORM pg_notify(honker.channel(), to_hex(signals) || ' ' || sender);
  RETURN true;
END $$;

-- Registers a process for ten seconds, unless signals is NULL, and returns whether committed transactions have left
-- tokens for the resolver, and rows without numbers. moment differs after a commit of anybody. A look at the database begins with it.
CREATE FUNCTION honker.attend(process text, signals bigint, OUT resolve boolean, OUT number boolean, OUT moment text) LANGUAGE plpgsql AS $$
BEGIN
  moment := pg_current_snapshot();
  IF signals IS NOT NULL THEN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO honker.process AS p (id, waits, waits_until) VALUES (process, signals, clock_timestamp() + interval '10 seconds')
    ON CONFLICT (id) DO UPDATE SET waits = excluded.waits, waits_until = excluded.waits_until;
    DELETE FROM honker.process p WHERE p.waits_until < clock_timestamp() - interval '1 hour';
  END IF;
  resolve := EXISTS (SELECT FROM honker.token t WHERE t.queue IS NULL);
  number := EXISTS (SELECT FROM honker.pending) OR EXISTS (SELECT FROM honker.relay_pending);
END $$;

-- The signal of a name: the bit first + FNV-1a of the name modulo n.
CREATE FUNCTION honker.signal_bit(first int, n int, name text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE h bigint := 2166136261; bytes bytea := convert_to(name, 'UTF8');
BEGIN
  FOR i IN 0 .. length(bytes) - 1 LOOP
    h := ((h # get_byte(bytes, i)) * 16777619) & 4294967295;
  END LOOP;
  RETURN 1::bigint << (first + h % n)::int;
END $$;

-- The signals of an enqueue and of a publication.
CREATE FUNCTION honker.queue_signal(queue text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT honker.signal_bit(0, 20, queue) $$;
CREATE FUNCTION honker.topic_signals(topic text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT honker.signal_bit(32, 15, topic) | (1::bigint << 47) $$;
