-- Version 1 of the schema. Times are timestamptz of the server's clock, with microseconds. Names sort by their bytes,
-- whatever the collation of the database. The text is run with the schema of the options in place of honker.

CREATE TABLE honker.meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL);

-- The functions may name tables of the files after theirs.
SET LOCAL check_function_bodies = off;

-- The timeline of the server's log, '' on a standby and where the role or the server does not tell. A standby that is
-- promoted begins a new timeline, and so does a restored backup. pg_control_checkpoint() shows it minutes later.
CREATE FUNCTION honker.timeline() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RETURN '';
  END IF;
  RETURN left(pg_walfile_name(pg_current_wal_lsn()), 8);
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR object_not_in_prerequisite_state THEN
  RETURN '';
END $$;

INSERT INTO honker.meta (key, value) VALUES ('timeline', honker.timeline());

-- Returns the timeline. On a new one, the sequences skip the numbers that commits which are lost may have used. So an ID
-- in a process's memory names no other job, a reader's offset no other event, and tokens of locks go on rising. Without
-- the right to set a sequence, fewer numbers are skipped.
CREATE FUNCTION honker.follow() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  here text := honker.timeline();
  sequence regclass;
BEGIN
  IF here = '' OR here = (SELECT m.value FROM honker.meta m WHERE m.key = 'timeline') THEN
    RETURN here;
  END IF;
  PERFORM FROM honker.meta m WHERE m.key = 'timeline' FOR UPDATE;
  IF here = (SELECT m.value FROM honker.meta m WHERE m.key = 'timeline') THEN
    RETURN here; -- another process was faster
  END IF;
  FOR sequence IN SELECT c.oid FROM pg_catalog.pg_class c
    WHERE c.relkind = 'S' AND c.relnamespace = (SELECT t.relnamespace FROM pg_catalog.pg_class t WHERE t.oid = 'honker.meta'::regclass)
  LOOP
    IF has_sequence_privilege(sequence, 'UPDATE') THEN
      PERFORM setval(sequence, coalesce(pg_sequence_last_value(sequence), 0) + 10000000);
    ELSE
      PERFORM nextval(sequence) FROM generate_series(1, 100000);
    END IF;
  END LOOP;
  UPDATE honker.meta SET value = here WHERE key = 'timeline';
  RETURN here;
END $$;
