-- These triggers keep the keys correct whichever binding claims and settles. They use only built-in
-- SQL. Most of them are on a table in which a plain job has no row, so they cost such a job nothing.
-- They are created with the first key or the first requeued job of a file, and stay.

-- Other bindings delete a job before they insert its dead row, up to 64 jobs at a time.
-- _honkerx_gone keeps the columns in between.
CREATE TRIGGER IF NOT EXISTS _honkerx_unique_dead AFTER INSERT ON _honker_dead
BEGIN
  INSERT OR REPLACE INTO _honkerx_dead_job (job_id, unique_key, unique_until, base, headers, key, batch, progress, checkpoint)
  SELECT job_id, unique_key, unique_until, base, headers, key, batch, progress, checkpoint FROM _honkerx_gone WHERE slot = NEW.id % 64 AND job_id = NEW.id;
  DELETE FROM _honkerx_gone WHERE slot = NEW.id % 64 AND job_id = NEW.id;
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_unique_forgotten AFTER DELETE ON _honker_dead
BEGIN
  DELETE FROM _honkerx_dead_job WHERE job_id = OLD.id;
END;

-- A job that leaves gives up its key, or passes it on to the job that waits for it. Its columns are
-- kept if the job is dead.
CREATE TRIGGER IF NOT EXISTS _honkerx_unique_gone AFTER DELETE ON _honkerx_job
WHEN coalesce(OLD.unique_key, OLD.unique_until, OLD.base, OLD.headers, OLD.key, OLD.batch, OLD.progress, OLD.checkpoint) IS NOT NULL
BEGIN
  UPDATE _honkerx_unique SET next_id = NULL
  WHERE queue = OLD.queue AND key = OLD.unique_key AND next_id = OLD.job_id;
  DELETE FROM _honkerx_unique
  WHERE queue = OLD.queue AND key = OLD.unique_key AND job_id = OLD.job_id AND next_id IS NULL AND until_ms IS NULL;
  UPDATE _honkerx_unique SET job_id = next_id, next_id = NULL
  WHERE queue = OLD.queue AND key = OLD.unique_key AND job_id = OLD.job_id AND next_id IS NOT NULL;
  UPDATE _honker_live SET state = 'pending' WHERE id = (SELECT job_id FROM _honkerx_unique WHERE queue = OLD.queue AND key = OLD.unique_key) AND state = 'held'
  AND NOT (EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = _honker_live.id AND state = 0)
    OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = _honker_live.id AND state = 2))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key
    WHERE s.job_id = _honker_live.id AND (s.slot = 2 OR u.next_id = s.job_id));
  INSERT OR REPLACE INTO _honkerx_dead_job (job_id, unique_key, unique_until, base, headers, key, batch, progress, checkpoint)
  SELECT OLD.job_id, OLD.unique_key, OLD.unique_until, OLD.base, OLD.headers, OLD.key, OLD.batch, OLD.progress, OLD.checkpoint FROM _honker_dead WHERE id = OLD.job_id;
  INSERT OR REPLACE INTO _honkerx_gone (slot, job_id, unique_key, unique_until, base, headers, key, batch, progress, checkpoint)
  SELECT OLD.job_id % 64, OLD.job_id, OLD.unique_key, OLD.unique_until, OLD.base, OLD.headers, OLD.key, OLD.batch, OLD.progress, OLD.checkpoint
  WHERE NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = OLD.job_id);
END;
