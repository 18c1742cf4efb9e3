-- The triggers that let only one copy of a job run. They exist while there are copies.

-- A claim of one copy, by any binding, drops the others. run_id first: what is dropped then does not
-- end the job.
CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_taken AFTER UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND NEW.attempts > OLD.attempts
BEGIN
  UPDATE _honkerx_dispatch_jobs SET run_id = NEW.id
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id) AND run_id <> NEW.id;
  DELETE FROM _honker_live WHERE id <> NEW.id AND id IN (
    SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id
    UNION ALL
    SELECT job_id FROM _honkerx_dispatch_twins
    WHERE sent_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id));
END;

-- What cancels a copy that waits, or dead-letters it, does so to the job.
CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_dropped AFTER DELETE ON _honker_live
WHEN OLD.state = 'pending'
BEGIN
  DELETE FROM _honker_live WHERE state = 'pending' AND id IN (
    SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = OLD.id
    UNION ALL
    SELECT job_id FROM _honkerx_dispatch_twins
    WHERE sent_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = OLD.id), OLD.id));
END;
