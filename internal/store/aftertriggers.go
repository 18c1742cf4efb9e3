package store

import (
	"context"

	"github.com/honker-go/honker/internal/row"
)

// waits returns the condition that job, an SQL expression, waits for others. Either an edge is open, or its
// other end is dead and does not release the job. It costs two seeks in _honkerx_after_waiter.
func waits(job string) string {
	return `(EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = ` + job + ` AND state = 0)
    OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = ` + job + ` AND state = 2))`
}

// unhold returns the statement that makes a held job pending once nothing holds it. A job can be held by
// its edges, by the owner of its unique key, and by the limit of its key. The statement runs after each of
// these goes away, so the last of them releases the job. Its lookups use primary keys.
func unhold(job string) string {
	return `UPDATE _honker_live SET state = 'pending' WHERE id = ` + job + ` AND state = 'held'
  AND NOT ` + waits("_honker_live.id") + `
  AND NOT EXISTS (SELECT 1 FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key
    WHERE s.job_id = _honker_live.id AND (s.slot = 2 OR u.next_id = s.job_id));`
}

// notStarted returns the condition that a waiter has not been claimed and can therefore be held again. A
// dead waiter also qualifies: it is held when it is requeued.
func notStarted(waiter string) string {
	return `NOT EXISTS (SELECT 1 FROM _honker_live AS w WHERE w.id = ` + waiter + `
    AND w.state <> 'held' AND (w.state <> 'pending' OR w.attempts > 0))`
}

// batchState returns the state of an edge to a batch: 0 while the batch is open or has live members, 2 if
// some of its members are dead and that does not release the waiter, 1 otherwise.
func batchState(batch, ifDead string) string {
	return `CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = ` + batch + ` AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -` + batch + ` AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -` + batch + ` AND state = 2) THEN iif(` + ifDead + `, 1, 2)
    ELSE 1 END`
}

// settleBatch returns the statements that update a batch and the edges to it after a change of its members.
// The members are forgotten when the batch is done and nothing waits for it. Until then their results are
// kept.
func settleBatch(batch string) string {
	done := batchState(batch, "0") + ` = 1`
	state := batchState(batch, "if_dead")
	return `UPDATE _honkerx_batches SET done_ms = iif(done_ms IS NULL, ` + clockOfSQLite + `, NULL)
  WHERE id = ` + batch + ` AND (done_ms IS NULL) = (` + done + `);
  UPDATE _honkerx_after SET state = ` + state + `
  WHERE job_id = 0 AND batch = ` + batch + ` AND state <> (` + state + `) AND (state <> 1 OR ` + notStarted("waiter") + `);
  ` + forgetMembers(batch)
}

// forgetMembers returns the statement that deletes the member edges of a batch that is done and that
// nothing waits for. The subquery finds the batch first. Otherwise the condition would be evaluated for
// every member whenever a member ends.
func forgetMembers(batch string) string {
	return `DELETE FROM _honkerx_after WHERE waiter = (SELECT -b.id FROM _honkerx_batches AS b WHERE b.id = ` + batch + `
    AND b.done_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = 0 AND batch = b.id));`
}

// afterTriggers keep the edges correct whichever binding ends a job. A change of an edge changes the state
// of its waiter, never the reverse. The triggers are created with the first edge or batch of a file and are
// never dropped. None of them relies on recursive triggers, which are a setting of the connection.
var afterTriggers = []trigger{
	// A deleted job counts as done. Our own statements have already updated its edges. Another binding
	// deletes a job before it inserts the dead row, in two commits, so the waiters are delayed by two seconds
	// in which the job may still turn out to be dead.
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
	// A requeued job is awaited again. A discarded dead letter counts as done.
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
	// The waiter gives up its turn in the wait for its key, and the next job of the key takes it.
	{"_honkerx_after_again", ` AFTER UPDATE OF state ON _honkerx_after
WHEN NEW.waiter > 0 AND NEW.state <> 1 AND OLD.state = 1
BEGIN
  ` + letGoSlots + ` WHERE job_id = NEW.waiter AND slot = 2;
  UPDATE _honker_live SET state = 'held' WHERE id = NEW.waiter AND state = 'pending';
  ` + nextOfKeyOf("NEW.waiter") + `
END`},
	// The batch is settled only when no other member is open, or when this member has become open again.
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

// ensureAfterTriggers creates the triggers if they do not exist. It also recreates the other triggers that
// hold jobs, because a file from an earlier build of this version may have triggers that do not know about
// edges.
func ensureAfterTriggers(ctx context.Context, q row.Querier) error {
	var x int
	found, err := one(ctx, q, sqlHasTrigger, []any{afterTriggers[0].name}, &x)
	if err != nil || found {
		return err
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil { // they copy the batch of a job to its dead letter
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
