-- These triggers keep the edges correct whichever binding ends a job. A change of an edge changes the state
-- of its waiter, never the reverse. The triggers are created with the first edge or batch of a file and are
-- never dropped. None of them relies on recursive triggers, which are a setting of the connection.
--
-- A waiter can be held again if it has not been claimed. A dead waiter also qualifies: it is held when it is
-- requeued.

-- A deleted job counts as done. Our own statements have already updated its edges. Another binding deletes a
-- job before it inserts the dead row, in two commits, so the waiters are delayed by two seconds in which the
-- job may still turn out to be dead.
CREATE TRIGGER IF NOT EXISTS _honkerx_after_gone AFTER DELETE ON _honker_live
WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = OLD.id AND state = 0) OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = OLD.id)
BEGIN
  UPDATE _honker_live SET run_at = max(run_at, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) / 1000 + 2) WHERE state = 'held' AND id IN (
    SELECT waiter FROM _honkerx_after WHERE job_id = OLD.id AND state = 0 AND if_dead = 0
    UNION ALL SELECT w.waiter FROM _honkerx_after AS m CROSS JOIN _honkerx_after AS w ON w.job_id = 0 AND w.batch = m.batch
      WHERE m.job_id = OLD.id AND m.state = 0 AND m.waiter < 0 AND w.if_dead = 0);
  UPDATE _honkerx_after SET state = 1 WHERE job_id = OLD.id AND state = 0;
  DELETE FROM _honkerx_after WHERE waiter = OLD.id AND NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = OLD.id);
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_after_dead AFTER INSERT ON _honker_dead
WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = NEW.id)
BEGIN
  UPDATE _honkerx_after SET state = iif(if_dead, 1, 2)
  WHERE job_id = NEW.id AND (state = 0 OR state = 1 AND if_dead = 0 AND (waiter < 0 OR NOT EXISTS (SELECT 1 FROM _honker_live AS w WHERE w.id = waiter
    AND w.state <> 'held' AND (w.state <> 'pending' OR w.attempts > 0))));
END;

-- A requeued job is awaited again. A discarded dead letter counts as done.
CREATE TRIGGER IF NOT EXISTS _honkerx_after_left AFTER DELETE ON _honker_dead
WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = OLD.id) OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = OLD.id)
BEGIN
  UPDATE _honkerx_after SET state = 0 WHERE job_id = OLD.id AND state <> 0 AND (waiter < 0 OR NOT EXISTS (SELECT 1 FROM _honker_live AS w WHERE w.id = waiter
    AND w.state <> 'held' AND (w.state <> 'pending' OR w.attempts > 0)))
    AND EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
  UPDATE _honkerx_after SET state = 1 WHERE job_id = OLD.id AND state <> 1
    AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
  DELETE FROM _honkerx_after WHERE waiter = OLD.id AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_after_done AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter > 0 AND NEW.state = 1 AND OLD.state <> 1
BEGIN
  UPDATE _honker_live SET state = 'pending' WHERE id = NEW.waiter AND state = 'held'
  AND NOT (EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = _honker_live.id AND state = 0)
    OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = _honker_live.id AND state = 2))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key
    WHERE s.job_id = _honker_live.id AND (s.slot = 2 OR u.next_id = s.job_id));
END;

-- The waiter gives up its turn in the wait for its key, and the next job of the key takes it.
CREATE TRIGGER IF NOT EXISTS _honkerx_after_again AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter > 0 AND NEW.state <> 1 AND OLD.state = 1
BEGIN
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = NEW.waiter AND slot = 2;
  UPDATE _honker_live SET state = 'held' WHERE id = NEW.waiter AND state = 'pending';
  UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL WHERE job_id = (
    SELECT h.job_id FROM _honkerx_job AS s CROSS JOIN _honkerx_job AS h INDEXED BY _honkerx_job_key
    ON h.queue = s.queue AND h.key = s.key AND h.slot = 2 WHERE s.job_id = NEW.waiter
    ORDER BY h.priority DESC, h.run_at, h.job_id LIMIT 1);
END;

-- The batch is settled only when no other member is open, or when this member has become open again: this
-- updates the batch and the edges to it. The members are forgotten when the batch is done and nothing waits
-- for it. Until then their results are kept. The last subquery finds the batch first. Otherwise the condition
-- would be evaluated for every member whenever a member ends.
CREATE TRIGGER IF NOT EXISTS _honkerx_after_member AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter < 0 AND (NEW.state = 0 OR NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = NEW.waiter AND state = 0))
BEGIN
  UPDATE _honkerx_batches SET done_ms = iif(done_ms IS NULL, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), NULL)
  WHERE id = NEW.batch AND (done_ms IS NULL) = (CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = NEW.batch AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.batch AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.batch AND state = 2) THEN iif(0, 1, 2)
    ELSE 1 END = 1);
  UPDATE _honkerx_after SET state = CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = NEW.batch AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.batch AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.batch AND state = 2) THEN iif(if_dead, 1, 2)
    ELSE 1 END
  WHERE job_id = 0 AND batch = NEW.batch AND state <> (CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = NEW.batch AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.batch AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.batch AND state = 2) THEN iif(if_dead, 1, 2)
    ELSE 1 END) AND (state <> 1 OR NOT EXISTS (SELECT 1 FROM _honker_live AS w WHERE w.id = waiter
    AND w.state <> 'held' AND (w.state <> 'pending' OR w.attempts > 0)));
  DELETE FROM _honkerx_after WHERE waiter = (SELECT -b.id FROM _honkerx_batches AS b WHERE b.id = NEW.batch
    AND b.done_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = 0 AND batch = b.id));
END;

-- As for a member.
CREATE TRIGGER IF NOT EXISTS _honkerx_after_sealed AFTER UPDATE OF open ON _honkerx_batches
BEGIN
  UPDATE _honkerx_batches SET done_ms = iif(done_ms IS NULL, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), NULL)
  WHERE id = NEW.id AND (done_ms IS NULL) = (CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = NEW.id AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.id AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.id AND state = 2) THEN iif(0, 1, 2)
    ELSE 1 END = 1);
  UPDATE _honkerx_after SET state = CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = NEW.id AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.id AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.id AND state = 2) THEN iif(if_dead, 1, 2)
    ELSE 1 END
  WHERE job_id = 0 AND batch = NEW.id AND state <> (CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = NEW.id AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.id AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -NEW.id AND state = 2) THEN iif(if_dead, 1, 2)
    ELSE 1 END) AND (state <> 1 OR NOT EXISTS (SELECT 1 FROM _honker_live AS w WHERE w.id = waiter
    AND w.state <> 'held' AND (w.state <> 'pending' OR w.attempts > 0)));
  DELETE FROM _honkerx_after WHERE waiter = (SELECT -b.id FROM _honkerx_batches AS b WHERE b.id = NEW.id
    AND b.done_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = 0 AND batch = b.id));
END;

CREATE TRIGGER IF NOT EXISTS _honkerx_after_forgotten AFTER DELETE ON _honkerx_after
WHEN OLD.job_id = 0
BEGIN
  DELETE FROM _honkerx_after WHERE waiter = (SELECT -b.id FROM _honkerx_batches AS b WHERE b.id = OLD.batch
    AND b.done_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = 0 AND batch = b.id));
END;
