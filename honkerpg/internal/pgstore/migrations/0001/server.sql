-- The description of the database for an operator. The numbers of rows are the server's estimates.

CREATE FUNCTION honker.server_state() RETURNS TABLE (version text, started timestamptz, database text, role text, schema_version bigint, size bigint,
  connections bigint, most bigint, standby boolean, sees_all boolean) LANGUAGE sql STABLE SET jit = off AS $$
  SELECT current_setting('server_version'), pg_postmaster_start_time(), current_database()::text, current_user::text,
    (SELECT m.value::bigint FROM honker.meta m WHERE m.key = 'schema_version'), pg_database_size(current_database()),
    coalesce(l.connections, 0), l.most, pg_is_in_recovery(), l.sees_all
  FROM honker.server_load() l $$;

-- A table that is about to be dropped or rewritten has no size, and is left out.
CREATE FUNCTION honker.table_sizes() RETURNS TABLE (name text, n bigint, dead bigint, bytes bigint, vacuumed timestamptz) LANGUAGE sql STABLE SET jit = off AS $$
  SELECT c.relname::text, greatest(pg_stat_get_live_tuples(c.oid), 0), greatest(pg_stat_get_dead_tuples(c.oid), 0), c.bytes,
    greatest(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid))
  FROM (SELECT c.oid, c.relname, pg_total_relation_size(c.oid) AS bytes FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = (SELECT j.relnamespace FROM pg_class j WHERE j.oid = 'honker.job'::regclass) OFFSET 0) c
  WHERE c.bytes IS NOT NULL ORDER BY c.relname $$;
