package store

import "context"

// waits is the condition that job waits for others: by an edge that is open, or of which the other end is
// dead and will not do. job is an SQL expression. Two seeks in _honkerx_after_waiter.
func waits(job string) string {
	return `(EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = ` + job + ` AND state = 0)
    OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = ` + job + ` AND state = 2))`
}

// unhold makes the job pending, if it is held and nothing holds it any more. There are three reasons to be held:
// other jobs, the job that has its unique key, and its key that is full. Each of them, when it goes, is followed by
// this statement, so the last one lets the job go, whichever it is. By primary keys.
func unhold(job string) string {
	return `UPDATE _honker_live SET state = 'pending' WHERE id = ` + job + ` AND state = 'held'
  AND NOT ` + waits("_honker_live.id") + `
  AND NOT EXISTS (SELECT 1 FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key
    WHERE s.job_id = _honker_live.id AND (s.slot = 2 OR u.next_id = s.job_id));`
}

// notStarted is the condition that a waiter has not been claimed, so that it can be held again. One that is dead
// will be, when it lives again.
func notStarted(waiter string) string {
	return `NOT EXISTS (SELECT 1 FROM _honker_live AS w WHERE w.id = ` + waiter + `
    AND w.state <> 'held' AND (w.state <> 'pending' OR w.attempts > 0))`
}

// batchState is the state of an edge to a batch: 0 while it takes members or has some that wait or run, 2 while some
// of them are dead.
func batchState(batch, ifDead string) string {
	return `CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = ` + batch + ` AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -` + batch + ` AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -` + batch + ` AND state = 2) THEN iif(` + ifDead + `, 1, 2)
    ELSE 1 END`
}

// settleBatch notes what has become of a batch, and of the edges to it. Its members are forgotten when it is done
// and nothing waits for it: until then their results are kept.
func settleBatch(batch string) string {
	done := batchState(batch, "0") + ` = 1`
	state := batchState(batch, "if_dead")
	return `UPDATE _honkerx_batches SET done_ms = iif(done_ms IS NULL, ` + clockOfSQLite + `, NULL)
  WHERE id = ` + batch + ` AND (done_ms IS NULL) = (` + done + `);
  UPDATE _honkerx_after SET state = ` + state + `
  WHERE job_id = 0 AND batch = ` + batch + ` AND state <> (` + state + `) AND (state <> 1 OR ` + notStarted("waiter") + `);
  ` + forgetMembers(batch)
}

// forgetMembers finds the batch first: a condition beside waiter would be asked of each member, at the end of each.
func forgetMembers(batch string) string {
	return `DELETE FROM _honkerx_after WHERE waiter = (SELECT -b.id FROM _honkerx_batches AS b WHERE b.id = ` + batch + `
    AND b.done_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = 0 AND batch = b.id));`
}

// afterTriggers keep the edges true, whichever binding ends a job. The edge leads, and the state of its waiter
// follows. They are made with the first edge or batch of a file, and stay. No trigger relies on being fired by
// itself, which is a setting of the connection.
var afterTriggers = []trigger{
	// A job that is gone is done. If the end is ours, its edges say so already. Another binding deletes a job before
	// it is dead, in two commits: for two seconds it may still become that.
	{"_honkerx_after_gone", ` AFTER DELETE ON _honker_live
WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = OLD.id AND state = 0) OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = OLD.id)
BEGIN
  UPDATE _honker_live SET run_at = max(run_at, ` + clockOfSQLite + ` / 1000 + 2) WHERE state = 'held' AND id IN (
    SELECT waiter FROM _honkerx_after WHERE job_id = OLD.id AND state = 0 AND if_dead = 0
    UNION ALL SELECT w.waiter FROM _honkerx_after AS m CROSS JOIN _honkerx_after AS w ON w.job_id = 0 AND w.batch = m.batch
      WHERE m.job_id = OLD.id AND m.state = 0 AND m.waiter < 0 AND w.if_dead = 0);
  UPDATE _honkerx_after SET state = 1 WHERE job_id = OLD.id AND state = 0;
  DELETE FROM _honkerx_after WHERE waiter = OLD.id AND NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = OLD.id);
END`},
	{"_honkerx_after_dead", ` AFTER INSERT ON _honker_dead
WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = NEW.id)
BEGIN
  UPDATE _honkerx_after SET state = iif(if_dead, 1, 2)
  WHERE job_id = NEW.id AND (state = 0 OR state = 1 AND if_dead = 0 AND (waiter < 0 OR ` + notStarted("waiter") + `));
END`},
	// A dead job that lives again is waited for again; one that is discarded counts as done.
	{"_honkerx_after_left", ` AFTER DELETE ON _honker_dead
WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = OLD.id) OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = OLD.id)
BEGIN
  UPDATE _honkerx_after SET state = 0 WHERE job_id = OLD.id AND state <> 0 AND (waiter < 0 OR ` + notStarted("waiter") + `)
    AND EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
  UPDATE _honkerx_after SET state = 1 WHERE job_id = OLD.id AND state <> 1
    AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
  DELETE FROM _honkerx_after WHERE waiter = OLD.id AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = OLD.id);
END`},
	{"_honkerx_after_done", ` AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter > 0 AND NEW.state = 1 AND OLD.state <> 1
BEGIN
  ` + unhold("NEW.waiter") + `
END`},
	// It leaves its place among those that wait for their key to another.
	{"_honkerx_after_again", ` AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter > 0 AND NEW.state <> 1 AND OLD.state = 1
BEGIN
  ` + letGoSlots + ` WHERE job_id = NEW.waiter AND slot = 2;
  UPDATE _honker_live SET state = 'held' WHERE id = NEW.waiter AND state = 'pending';
  ` + nextOfKeyOf("NEW.waiter") + `
END`},
	// While another member is open, the end of one changes nothing.
	{"_honkerx_after_member", ` AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter < 0 AND (NEW.state = 0 OR NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = NEW.waiter AND state = 0))
BEGIN
  ` + settleBatch("NEW.batch") + `
END`},
	{"_honkerx_after_sealed", ` AFTER UPDATE OF open ON _honkerx_batches
BEGIN
  ` + settleBatch("NEW.id") + `
END`},
	{"_honkerx_after_forgotten", ` AFTER DELETE ON _honkerx_after
WHEN OLD.job_id = 0
BEGIN
  ` + forgetMembers("OLD.batch") + `
END`},
}

// ensureAfterTriggers makes the triggers unless they are there. Those that hold jobs for other reasons are made anew:
// where they are of an earlier state of this version, they do not know this one.
func ensureAfterTriggers(ctx context.Context, q Querier) error {
	var x int
	found, err := one(ctx, q, sqlHasTrigger, []any{afterTriggers[0].name}, &x)
	if err != nil || found {
		return err
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil { // a dead job takes its batch along
		return err
	}
	if err := renewKeyTriggers(ctx, q); err != nil {
		return err
	}
	if err := renewSlotTrigger(ctx, q); err != nil {
		return err
	}
	run := make([]string, len(afterTriggers))
	for i, t := range afterTriggers {
		run[i] = `CREATE TRIGGER IF NOT EXISTS ` + t.name + t.body
	}
	return execAll(ctx, q, run)
}
