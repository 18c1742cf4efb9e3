-- A claim increments attempts, which keyTaken tests. An attempt that is given back would hide the
-- claim, so this trigger records it. It costs a plain job a comparison at its claim, so it is created
-- only with the first key that a job releases when it starts.

CREATE TRIGGER IF NOT EXISTS _honkerx_unique_started AFTER UPDATE OF attempts ON _honker_live
WHEN NEW.attempts < OLD.attempts
BEGIN
  UPDATE _honkerx_job SET unique_until = 2 WHERE job_id = NEW.id AND unique_until = 1;
END;
