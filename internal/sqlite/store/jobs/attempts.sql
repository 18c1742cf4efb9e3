-- These triggers delete the attempts with their job, whichever binding deletes it. A live job with attempts
-- has a side row that holds its last error, or its base since a requeue, so plain jobs do not pay for the
-- triggers. They are created with the first failed attempt of a file and are never dropped.

-- A requeue inserts the live job before it deletes the dead one.
CREATE TRIGGER IF NOT EXISTS _honkerx_attempts_forgotten AFTER DELETE ON _honker_dead
BEGIN
  DELETE FROM _honkerx_attempts
  WHERE job_id = OLD.id AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_attempts_gone AFTER DELETE ON _honkerx_job
WHEN coalesce(OLD.last_error, OLD.base) IS NOT NULL
BEGIN
  DELETE FROM _honkerx_attempts
  WHERE job_id = OLD.job_id AND NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = OLD.job_id);
END;
