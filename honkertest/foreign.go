package honkertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/honker-go/honker"
)

// ForeignWorker simulates a worker written in another language. It runs the SQL statements of a
// honker binding directly on honker's tables and does not use package honker. Durations are
// truncated to seconds. Its methods call t.Fatal if a statement fails.
//
// It uses Go's clock, which is the bubble's clock in a testing/synctest bubble. The triggers that
// enforce pauses and rates use SQLite's clock, so in a bubble neither a rate nor a pause with an
// end holds back a ForeignWorker, except for jobs with a key that a claim in Go has already
// postponed.
type ForeignWorker struct {
	t     testing.TB
	db    *honker.DB
	queue string
	id    string
}

// ForeignJob is a job claimed by a ForeignWorker.
type ForeignJob struct {
	ID       int64
	Payload  json.RawMessage
	Attempts int
}

// Foreign returns a ForeignWorker for a queue. All ForeignWorkers have the worker ID "foreign".
// Foreign calls t.Fatal if db is on a server, where other languages call honker's SQL functions.
func Foreign(t testing.TB, db *honker.DB, queue string) *ForeignWorker {
	t.Helper()
	requireFile(t, db, "Foreign")
	return &ForeignWorker{t: t, db: db, queue: queue, id: "foreign"}
}

// These are conditions from honker's own statements, with the current time as a parameter.
const (
	foreignDue = ` (expires_at IS NULL OR expires_at > ?2)
  AND (state = 'pending' AND run_at <= ?2 OR state = 'processing' AND claim_expires_at < ?2)`
	foreignSpent = ` FROM _honker_live WHERE queue = ?1 AND attempts >= max_attempts AND` + foreignDue
	foreignHeld  = ` WHERE id = ?1 AND worker_id = ?2 AND claim_expires_at >= ?3`

	foreignBury = `INSERT INTO _honker_dead (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at)
SELECT id, queue, payload, priority, run_at, attempts, max_attempts, 'max attempts exceeded', created_at, ?2` + foreignSpent
	foreignClaim = `UPDATE _honker_live SET state = 'processing', worker_id = ?3, claim_expires_at = ?2 + ?5, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live WHERE queue = ?1 AND attempts < max_attempts AND` + foreignDue + `
  ORDER BY priority DESC, run_at, id LIMIT ?4)
RETURNING id, payload, attempts`

	foreignAck    = `DELETE FROM _honker_live` + foreignHeld
	foreignExtend = `UPDATE _honker_live SET claim_expires_at = ?3 + ?4` + foreignHeld
	foreignRetry  = `UPDATE _honker_live SET state = 'pending', run_at = ?3 + ?4, worker_id = NULL, claim_expires_at = NULL` +
		foreignHeld + ` AND attempts < max_attempts`
	foreignFail = `INSERT INTO _honker_dead (id, queue, payload, attempts, max_attempts, last_error, died_at)
SELECT id, queue, payload, attempts, max_attempts, ?4, ?3 FROM _honker_live` + foreignHeld

	foreignEnqueue = `INSERT INTO _honker_live (queue, payload, run_at, created_at) VALUES (?1, ?2, ?3, ?3) RETURNING id`
)

// Claim claims up to n jobs for the duration of lease. It first moves jobs that have no attempts
// left to the dead letters.
func (w *ForeignWorker) Claim(n int, lease time.Duration) (jobs []ForeignJob) {
	w.t.Helper()
	w.inTx(func(ctx context.Context, tx *sql.Tx, now int64) error {
		for _, statement := range []string{foreignBury, `DELETE` + foreignSpent} {
			if _, err := tx.ExecContext(ctx, statement, w.queue, now); err != nil {
				return err
			}
		}
		return each(ctx, tx, foreignClaim, func(rows *sql.Rows) error {
			var j ForeignJob
			var payload []byte
			err := rows.Scan(&j.ID, &payload, &j.Attempts)
			j.Payload = payload
			jobs = append(jobs, j)
			return err
		}, w.queue, now, w.id, n, int64(lease/time.Second))
	})
	return jobs
}

// Ack deletes a job and reports whether the worker held it.
func (w *ForeignWorker) Ack(id int64) (held bool) {
	w.t.Helper()
	w.inTx(func(ctx context.Context, tx *sql.Tx, now int64) (err error) {
		held, err = change(ctx, tx, foreignAck, id, w.id, now)
		return err
	})
	return held
}

// Extend makes a claim expire one lease from now and reports whether the worker held the job.
func (w *ForeignWorker) Extend(id int64, lease time.Duration) (held bool) {
	w.t.Helper()
	w.inTx(func(ctx context.Context, tx *sql.Tx, now int64) (err error) {
		held, err = change(ctx, tx, foreignExtend, id, w.id, now, int64(lease/time.Second))
		return err
	})
	return held
}

// Retry makes a job run again after delay and reports whether the worker held it. If the job has no
// attempts left, it becomes a dead letter with cause as its error. Otherwise cause is discarded.
func (w *ForeignWorker) Retry(id int64, delay time.Duration, cause string) (held bool) {
	w.t.Helper()
	w.inTx(func(ctx context.Context, tx *sql.Tx, now int64) (err error) {
		if held, err = change(ctx, tx, foreignRetry, id, w.id, now, int64(delay/time.Second)); held || err != nil {
			return err
		}
		held, err = w.fail(ctx, tx, id, cause, now)
		return err
	})
	return held
}

// Fail moves a job to the dead letters and reports whether the worker held it.
func (w *ForeignWorker) Fail(id int64, cause string) (held bool) {
	w.t.Helper()
	w.inTx(func(ctx context.Context, tx *sql.Tx, now int64) (err error) {
		held, err = w.fail(ctx, tx, id, cause, now)
		return err
	})
	return held
}

func (w *ForeignWorker) fail(ctx context.Context, tx *sql.Tx, id int64, cause string, now int64) (held bool, err error) {
	if held, err = change(ctx, tx, foreignFail, id, w.id, now, cause); err != nil || !held {
		return held, err
	}
	return change(ctx, tx, foreignAck, id, w.id, now)
}

// Enqueue adds a job with the bindings' default of 3 attempts and returns its ID. The payload is
// stored unchanged and need not be JSON.
func (w *ForeignWorker) Enqueue(payload string) (id int64) {
	w.t.Helper()
	w.inTx(func(ctx context.Context, tx *sql.Tx, now int64) (err error) {
		id, err = number(ctx, tx, foreignEnqueue, w.queue, payload, now)
		return err
	})
	return id
}

// inTx runs a method's statements in a transaction. The statements all use the same current time.
func (w *ForeignWorker) inTx(do func(ctx context.Context, tx *sql.Tx, now int64) error) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error { return do(ctx, tx, time.Now().Unix()) })
	if err != nil {
		w.t.Fatalf("honkertest: foreign worker of %q: %v", w.queue, explain(err))
	}
}

// change runs a statement that changes at most one row and reports whether it did.
func change(ctx context.Context, on honker.Tx, statement string, args ...any) (changed bool, err error) {
	res, err := on.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
