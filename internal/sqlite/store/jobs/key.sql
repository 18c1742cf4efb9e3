-- The triggers of keys that need no condition on a claim, see keyTriggers. Releasing a job is always safe: a
-- claim holds it again if its key is still full.

CREATE TRIGGER IF NOT EXISTS _honkerx_key_back AFTER UPDATE OF state ON _honker_live
WHEN OLD.state = 'processing' AND NEW.state <> 'processing'
BEGIN
  UPDATE _honkerx_job SET slot = 0 WHERE job_id = NEW.id AND slot = 1;
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_key_slot AFTER UPDATE OF slot ON _honkerx_job
WHEN NEW.slot = 2 AND OLD.slot <> 2 OR NEW.slot = 0 AND OLD.slot = 2
BEGIN
  UPDATE _honker_live SET state = 'held' WHERE NEW.slot = 2 AND id = NEW.job_id AND state = 'pending';
  UPDATE _honker_live SET state = 'pending' WHERE id = iif(NEW.slot = 0, NEW.job_id, NULL) AND state = 'held'
  AND NOT (EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = _honker_live.id AND state = 0)
    OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = _honker_live.id AND state = 2))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key
    WHERE s.job_id = _honker_live.id AND (s.slot = 2 OR u.next_id = s.job_id));
END;

-- This also applies with in_order. If the order was set while several jobs of the key ran, this job may not
-- be the first.
CREATE TRIGGER IF NOT EXISTS _honkerx_key_left AFTER UPDATE OF slot ON _honkerx_job
WHEN OLD.slot = 1 AND NEW.slot = 0
BEGIN
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = (
    SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_key
    WHERE queue = NEW.queue AND key = NEW.key AND slot = 2
    ORDER BY priority DESC, run_at, job_id LIMIT 1);
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_key_gone AFTER DELETE ON _honkerx_job
WHEN OLD.key IS NOT NULL AND OLD.slot <> 2
BEGIN
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = (
    SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_key
    WHERE queue = OLD.queue AND key = OLD.key AND slot = 2
    ORDER BY priority DESC, run_at, job_id LIMIT 1);
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_key_freed AFTER DELETE ON _honkerx_cancelled
WHEN OLD.key IS NOT NULL
BEGIN
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = (
    SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_key
    WHERE queue = OLD.queue AND key = OLD.key AND slot = 2
    ORDER BY priority DESC, run_at, job_id LIMIT 1);
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_key_later AFTER UPDATE OF run_at ON _honker_live
WHEN NEW.run_at > OLD.run_at AND OLD.state = 'pending' AND NEW.state = 'pending' AND NOT EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = NEW.queue AND in_order = 1)
BEGIN
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = (
    SELECT h.job_id FROM _honkerx_job AS s CROSS JOIN _honkerx_job AS h INDEXED BY _honkerx_job_key
    ON h.queue = s.queue AND h.key = s.key AND h.slot = 2 WHERE s.job_id = NEW.id
    ORDER BY h.priority DESC, h.run_at, h.job_id LIMIT 1);
END;

-- A held job whose time or priority changes is queued again for its key.
CREATE TRIGGER IF NOT EXISTS _honkerx_key_moved AFTER UPDATE OF run_at, priority ON _honker_live
WHEN OLD.state = 'held' AND NEW.state = 'held'
BEGIN
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = NEW.id AND slot = 2;
END;
