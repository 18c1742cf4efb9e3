-- The triggers that note when a job of dispatch starts and ends, in the transaction of the claim or
-- the settle, and publish its log. They exist while there are such jobs.
-- The time is rounded, since the sum of floats may lie a hair below its millisecond.

CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_moved AFTER UPDATE OF state ON _honker_live
WHEN NEW.state <> OLD.state OR NEW.attempts > OLD.attempts
BEGIN
  UPDATE _honkerx_dispatch_jobs SET run_id = NEW.id, ended_ms = NULL,
    started_ms = iif(NEW.state = 'processing', CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), started_ms)
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id);
  INSERT INTO _honker_stream (topic, key, payload)
  SELECT events, iif(NEW.state = 'processing', 'started', 'dispatched'),
    json_object('id', job_id, 'queue', NEW.queue, 'state', iif(NEW.state = 'processing', 'started', 'dispatched'), 'attempt', NEW.attempts)
  FROM _honkerx_dispatch_jobs
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id) AND events IS NOT NULL;
END;

-- A copy that is dropped because another was claimed is not the end of the job: run_id is the other's
-- by then.
CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_ended AFTER DELETE ON _honker_live
BEGIN
  UPDATE _honkerx_dispatch_jobs SET ended_ms = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = OLD.id), OLD.id) AND run_id = OLD.id;
  INSERT INTO _honker_stream (topic, key, payload)
  SELECT events, state, json_object('id', job_id, 'queue', OLD.queue, 'state', state, 'attempt', OLD.attempts)
  FROM (SELECT events, job_id,
      CASE WHEN stop_ms IS NULL THEN 'finished' WHEN held_until_ms > 0 THEN 'stopping' ELSE 'stopped' END AS state
    FROM _honkerx_dispatch_jobs
    WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = OLD.id), OLD.id)
      AND run_id = OLD.id AND events IS NOT NULL)
  WHERE NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = OLD.id);
END;

-- Other bindings delete the live job first, so the log may say finished, and then failed.
CREATE TRIGGER IF NOT EXISTS _honkerx_dispatch_died AFTER INSERT ON _honker_dead
BEGIN
  INSERT INTO _honker_stream (topic, key, payload)
  SELECT events, 'failed', json_object('id', job_id, 'queue', NEW.queue, 'state', 'failed', 'attempt', NEW.attempts, 'error', NEW.last_error)
  FROM _honkerx_dispatch_jobs
  WHERE job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = NEW.id), NEW.id)
    AND run_id = NEW.id AND events IS NOT NULL;
END;
