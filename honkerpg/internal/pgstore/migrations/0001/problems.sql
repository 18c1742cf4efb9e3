-- What a search for problems reads. Each function reads a bounded number of rows.

-- Edges that hold a waiter because of a dead job or batch.
CREATE INDEX edge_dead ON honker.edge (waiter) WHERE state = 2;

-- The jobs that wait for dead jobs, by queue, with an example of both.
CREATE FUNCTION honker.dead_members() RETURNS TABLE (queue text, n bigint, waiter bigint, member bigint, since timestamptz)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
  SELECT j.queue, count(DISTINCT e.waiter), min(e.waiter), max(e.parent), min(d.died_at)
  FROM (SELECT e.waiter, e.parent FROM honker.edge e WHERE e.state = 2 AND e.waiter > 0 LIMIT 100000) e
  JOIN honker.job j ON j.id = e.waiter LEFT JOIN honker.dead d ON d.id = e.parent
  GROUP BY j.queue ORDER BY j.queue LIMIT 100 $$;

-- The jobs that died after a time and are still dead, by queue.
CREATE FUNCTION honker.died_since(at timestamptz) RETURNS TABLE (queue text, n bigint, first timestamptz)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
  SELECT q.name, x.n, x.first FROM honker.dead_queues() q (name) CROSS JOIN LATERAL (SELECT count(*) AS n, min(d.died_at) AS first FROM (
    SELECT d.died_at FROM honker.dead d WHERE d.queue = q.name AND d.died_at > at ORDER BY d.died_at LIMIT 10001) d) x
  WHERE x.n > 0 ORDER BY q.name LIMIT 100 $$;

-- Keys whose held jobs could run, although nothing makes the next claim look at them.
CREATE FUNCTION honker.held_free(now timestamptz) RETURNS TABLE (queue text, key text, n bigint, first bigint, per_key bigint, in_order boolean)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
  SELECT h.queue, h.key, h.n, h.first, CASE WHEN x.in_order THEN 1 ELSE coalesce(x.per_key, 0) END, x.in_order
  FROM (SELECT s.queue, s.key, count(*) AS n, min(s.id) AS first FROM (
      SELECT j.queue, j.key, j.id FROM honker.job j WHERE j.state > 1 AND j.state + 0 = 2 LIMIT 10000) s GROUP BY s.queue, s.key) h
  JOIN honker.queue x ON x.queue = h.queue CROSS JOIN LATERAL honker.key_rooms(x, ARRAY[h.key], now) r
  WHERE r.room > 0 AND x.fit_key IS NULL AND (NOT x.in_order OR r.first IN (SELECT j.id FROM honker.job j WHERE j.id = r.first AND j.state + 0 = 2))
    AND NOT EXISTS (SELECT FROM honker.keys_with_room(h.queue, now) k WHERE k = h.key)
    AND NOT EXISTS (SELECT FROM honker.token t WHERE t.queue = h.queue AND t.key = h.key)
  ORDER BY h.queue, h.key LIMIT 100 $$;

-- The consumers and groups that have not seen an event older than a time, and have not saved their offset since. Those
-- with a pattern or a filter are left out, because a search for their next event could read all events.
CREATE FUNCTION honker.behind(before timestamptz, now timestamptz) RETURNS TABLE (kind text, name text, topic text, oldest timestamptz,
  acked timestamptz, unseen bigint) LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
  SELECT r.kind, r.name, r.topic, e.created_at, r.acked,
    (SELECT count(*) FROM (SELECT FROM honker.event e WHERE e.topic = r.topic AND e."offset" > r.seen LIMIT 10001) x)
  FROM (SELECT 'consumer' AS kind, c.name, c.topic, c."offset" AS seen, coalesce(c.last_ack_at, c.created_at) AS acked FROM honker.consumer c
      WHERE right(c.topic, 1) <> '*' AND c.filter IS NULL
    UNION ALL SELECT 'group', g.name, g.topic, least(
      (SELECT t.cursor FROM honker.grp_turn t WHERE t.group_id = g.id ORDER BY t.group_id DESC, t.token DESC LIMIT 1),
      (SELECT d."offset" - 1 FROM honker.delivery d WHERE d.group_id = g.id AND d.state < 2 ORDER BY d.group_id, d."offset" LIMIT 1)), NULL
    FROM honker.grp g WHERE right(g.topic, 1) <> '*' AND g.filter IS NULL
      AND NOT EXISTS (SELECT FROM honker.member m WHERE m.group_id = g.id AND m.expires_at > behind.now)) r
  CROSS JOIN LATERAL (SELECT e.created_at FROM honker.event e WHERE (e.topic, e."offset") > (r.topic, r.seen) AND e.topic = r.topic
    ORDER BY e.topic, e."offset" LIMIT 1) e
  WHERE e.created_at <= before AND coalesce(r.acked <= before, true) ORDER BY r.topic, r.kind, r.name LIMIT 100 $$;

-- The sessions that have kept others waiting for their locks for a second, if the others use honker's tables or locks. A
-- session that waits itself is left out. pg_locks shows the sessions of all roles, and pg_stat_activity may not.
CREATE FUNCTION honker.blocked(now timestamptz) RETURNS TABLE (by text, query text, n bigint, since timestamptz) LANGUAGE sql STABLE SET jit = off AS $$
  WITH locks AS MATERIALIZED (SELECT * FROM pg_locks), waits AS (SELECT l.pid, l.waitstart FROM locks l WHERE NOT l.granted),
    ours AS MATERIALIZED (SELECT w.pid, w.waitstart FROM waits w WHERE w.waitstart < now - interval '1 second' AND w.pid IN (
      SELECT l.pid FROM locks l LEFT JOIN pg_class c ON c.oid = l.relation
      WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND (c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'honker.job'::regclass)
          OR l.locktype = 'advisory' AND l.classid::bigint BETWEEN 1751085680 AND 1751085700)) LIMIT 100)
  SELECT CASE WHEN b.pid = 0 THEN 'a prepared transaction' ELSE honker.session_name(b.pid) END, honker.session_query(b.pid), count(DISTINCT o.pid),
    min(o.waitstart)
  FROM ours o CROSS JOIN LATERAL unnest(pg_blocking_pids(o.pid)) b (pid) WHERE b.pid NOT IN (SELECT w.pid FROM waits w)
  GROUP BY b.pid ORDER BY 3 DESC, 1 LIMIT 100 $$;

CREATE FUNCTION honker.session_name(p int) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT 'session ' || p || coalesce(' of ' || (SELECT nullif(a.application_name, '') FROM pg_stat_activity a WHERE a.pid = p), '') $$;

-- The beginning of a session's running or last statement, or '' if the role may not see it.
CREATE FUNCTION honker.session_query(p int) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT coalesce((SELECT left(btrim(regexp_replace(a.query, '\s+', ' ', 'g')), 80) FROM pg_stat_activity a
    WHERE a.pid = p AND a.query <> '<insufficient privilege>'), '') $$;

-- What has had a snapshot for ten minutes, if there are many deleted jobs that it may keep from being removed.
CREATE FUNCTION honker.old_snapshots(now timestamptz) RETURNS TABLE (holder text, query text, since timestamptz, dead bigint) LANGUAGE sql STABLE SET jit = off AS $$
  SELECT s.holder, s.query, s.since, d.n FROM (SELECT pg_stat_get_dead_tuples('honker.job'::regclass)) d (n) CROSS JOIN LATERAL (
    SELECT honker.session_name(a.pid) AS holder, honker.session_query(a.pid) AS query, a.xact_start AS since FROM pg_stat_activity a
      WHERE coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.datname = current_database() AND a.backend_type <> 'autovacuum worker'
        AND a.pid <> pg_backend_pid()
    UNION ALL SELECT 'prepared transaction ' || p.gid, '', p.prepared FROM pg_prepared_xacts p WHERE p.database = current_database()
    UNION ALL SELECT 'replication slot ' || r.slot_name, '', NULL FROM pg_replication_slots r WHERE age(r.xmin) > 1000000) s
  WHERE d.n > 100000 AND coalesce(s.since < now - interval '10 minutes', true) ORDER BY s.since, s.holder LIMIT 100 $$;

-- The load of the server, and whether the role sees the sessions of other roles.
CREATE FUNCTION honker.server_load() RETURNS TABLE (sees_all boolean, dead bigint, connections bigint, most bigint) LANGUAGE sql STABLE SET jit = off AS $$
  SELECT pg_has_role('pg_read_all_stats', 'USAGE'), pg_stat_get_dead_tuples('honker.job'::regclass),
    (SELECT sum(d.numbackends)::bigint FROM pg_stat_database d),
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint $$;

-- The standbys that are behind by a time or a number of bytes, and the slots of standbys that are away. The position of the
-- log is only read if there are any, because some servers refuse to tell it.
CREATE FUNCTION honker.slow_standbys(late interval, bytes bigint) RETURNS TABLE (standby text, behind bigint, lag interval, away boolean)
LANGUAGE sql VOLATILE SET jit = off AS $$
  SELECT s.* FROM (
    SELECT coalesce('standby ' || coalesce(nullif(r.application_name, ''), host(r.client_addr)), 'a standby'),
      pg_wal_lsn_diff(CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END, r.replay_lsn)::bigint, r.replay_lag, false
      FROM pg_stat_replication r WHERE r.state IN ('streaming', 'catchup')
    UNION ALL SELECT 'the standby of replication slot ' || r.slot_name,
      pg_wal_lsn_diff(CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END, r.restart_lsn)::bigint, NULL, true
      FROM pg_replication_slots r WHERE NOT r.active AND r.slot_type = 'physical' AND r.restart_lsn IS NOT NULL) s (standby, behind, lag, away)
  WHERE s.behind > bytes OR s.lag > late ORDER BY s.behind DESC, s.standby LIMIT 100 $$;

-- Whether autovacuum leaves many deleted jobs, and since when. There is no row if it does not.
CREATE FUNCTION honker.unvacuumed(now timestamptz) RETURNS TABLE (off boolean, since timestamptz, dead bigint) LANGUAGE sql STABLE SET jit = off AS $$
  SELECT v.* FROM (
    SELECT current_setting('autovacuum') = 'off' OR 'off' = (SELECT o.option_value FROM pg_options_to_table(c.reloptions) o WHERE o.option_name = 'autovacuum_enabled'),
      greatest(s.last_vacuum, s.last_autovacuum), s.n_dead_tup
    FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.oid = 'honker.job'::regclass) v (off, since, dead)
  WHERE v.dead > 100000 AND (v.off OR coalesce(v.since < now - interval '10 minutes', true)) $$;
