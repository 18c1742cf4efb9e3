package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// binding stands in for honker in another language: its statements, its clock, a
// plain connection with its settings.
type binding struct {
	t    testing.TB
	pool *sql.DB
}

func openBinding(t testing.TB, path string) *binding {
	t.Helper()
	pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return &binding{t, pool}
}

// both are a DB and a binding on one fresh file, made by Go.
func both(t testing.TB) (*honker.DB, *binding) {
	t.Helper()
	path, db := shared(t)
	return db, openBinding(t, path)
}

// bootstrap is what a binding does to the jobs of each file that it opens.
func (b *binding) bootstrap() {
	b.t.Helper()
	perform(b.t, b.pool, strings.Split(bindingSchema, ";\n")...)
}

const bindingSchema = `CREATE TABLE IF NOT EXISTS _honker_live (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending', priority INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL DEFAULT (unixepoch()),
  worker_id TEXT, claim_expires_at INTEGER, attempts INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER NOT NULL DEFAULT 3,
  created_at INTEGER NOT NULL DEFAULT (unixepoch()), expires_at INTEGER);
CREATE INDEX IF NOT EXISTS _honker_live_claim ON _honker_live(queue, priority DESC, run_at, id) WHERE state IN ('pending', 'processing');
CREATE INDEX IF NOT EXISTS _honker_live_pending_deadline ON _honker_live(queue, run_at) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS _honker_live_processing_deadline ON _honker_live(queue, claim_expires_at) WHERE state = 'processing';
CREATE TABLE IF NOT EXISTS _honker_dead (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, payload TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT, created_at INTEGER NOT NULL DEFAULT (unixepoch()), died_at INTEGER NOT NULL DEFAULT (unixepoch()));
DROP VIEW IF EXISTS _honker_jobs;
CREATE VIEW _honker_jobs AS
  SELECT id, queue, payload, state, priority, run_at, worker_id, claim_expires_at, attempts, max_attempts,
    NULL AS last_error, created_at FROM _honker_live UNION ALL
  SELECT id, queue, payload, 'dead', priority, run_at, NULL, NULL, attempts, max_attempts, last_error, created_at FROM _honker_dead`

// change runs a write and returns how many rows it changed, as its functions do.
func (b *binding) change(query string, args ...any) int64 {
	b.t.Helper()
	res, err := b.pool.ExecContext(context.Background(), query, args...)
	require.NoError(b.t, err)
	n, err := res.RowsAffected()
	require.NoError(b.t, err)
	return n
}

func (b *binding) enqueue(queue, payload string) int64 {
	b.t.Helper()
	return number(b.t, b.pool, `INSERT INTO _honker_live (queue, payload, run_at, priority, max_attempts)
VALUES (?, ?, unixepoch(), 0, 3) RETURNING id`, queue, payload)
}

// claimed is an element of what honker_claim_batch returns.
type claimed struct {
	id, attempts int64
	payload      string
}

// inTx runs the statements of do in one transaction.
func (b *binding) inTx(do func(run func(query string, args ...any) *sql.Rows)) {
	b.t.Helper()
	tx, err := b.pool.BeginTx(context.Background(), nil)
	require.NoError(b.t, err)
	defer tx.Rollback()
	do(func(query string, args ...any) *sql.Rows {
		b.t.Helper()
		rows, err := tx.QueryContext(context.Background(), query, args...)
		require.NoError(b.t, err)
		return rows
	})
	require.NoError(b.t, tx.Commit())
}

func (b *binding) claim(queue, worker string, n, timeout int) (jobs []claimed) {
	b.t.Helper()
	const exhausted = ` FROM _honker_live WHERE queue = ?1 AND attempts >= max_attempts
  AND (expires_at IS NULL OR expires_at > unixepoch())
  AND (state = 'pending' AND run_at <= unixepoch() OR state = 'processing' AND claim_expires_at < unixepoch())`
	b.inTx(func(run func(string, ...any) *sql.Rows) {
		run(`INSERT INTO _honker_dead (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at)
SELECT id, queue, payload, priority, run_at, attempts, max_attempts, 'max attempts exceeded', created_at`+exhausted, queue).Close()
		run(`DELETE`+exhausted, queue).Close()
		rows := run(`UPDATE _honker_live
SET state = 'processing', worker_id = ?2, claim_expires_at = unixepoch() + ?4, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live
  WHERE queue = ?1 AND state IN ('pending', 'processing') AND attempts < max_attempts
    AND (expires_at IS NULL OR expires_at > unixepoch())
    AND (state = 'pending' AND run_at <= unixepoch() OR state = 'processing' AND claim_expires_at < unixepoch())
  ORDER BY priority DESC, run_at, id LIMIT ?3)
RETURNING id, attempts, payload`, queue, worker, n, timeout)
		defer rows.Close()
		for rows.Next() {
			var c claimed
			require.NoError(b.t, rows.Scan(&c.id, &c.attempts, &c.payload))
			jobs = append(jobs, c)
		}
		require.NoError(b.t, rows.Err())
	})
	return jobs
}

const validClaim = ` WHERE id = ?1 AND worker_id = ?2 AND claim_expires_at >= unixepoch()`

func (b *binding) ack(id int64, worker string) int64 {
	b.t.Helper()
	return b.change(`DELETE FROM _honker_live`+validClaim, id, worker)
}

func (b *binding) fail(id int64, worker, cause string) {
	b.t.Helper()
	b.inTx(func(run func(string, ...any) *sql.Rows) {
		run(`INSERT INTO _honker_dead (id, queue, payload, attempts, max_attempts, last_error)
SELECT id, queue, payload, attempts, max_attempts, ?3 FROM _honker_live`+validClaim, id, worker, cause).Close()
		run(`DELETE FROM _honker_live`+validClaim, id, worker).Close()
	})
}

func (b *binding) saveResult(id int64, value any) {
	b.t.Helper()
	b.change(`INSERT INTO _honker_results (job_id, value) VALUES (?1, ?2)
ON CONFLICT (job_id) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at`, id, value)
}

// claimOne claims with Go the one job that there must be.
func claimOne[T any](t testing.TB, q *honker.Queue[T], worker string) *honker.Job[T] {
	t.Helper()
	jobs, err := q.Claim(context.Background(), worker, 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0]
}

func TestForeignBindingAndGoClaimAndAckWhatTheOtherEnqueued(t *testing.T) {
	db, other := both(t)
	ctx := bounded(t, patient)
	q := honker.NewQueue[map[string]int](db, "jobs", nil)
	first, err := q.Enqueue(ctx, map[string]int{"n": 1})
	require.NoError(t, err)
	second := other.enqueue("jobs", `{"n": 2}`)
	third := number(t, other.pool, `INSERT INTO _honker_live (queue, payload) VALUES ('jobs', '{"n": 3}') RETURNING id`)
	require.Equal(t, []int64{first + 1, first + 2}, []int64{second, third}, "one sequence of ids")

	theirs := other.claim("jobs", "other", 1, 60)
	require.Equal(t, []claimed{{first, 1, `{"n":1}`}}, theirs)
	for n, id := range []int64{second, third} {
		job := claimOne(t, q, "go")
		require.Equal(t, id, job.ID)
		require.Equal(t, n+2, job.Args["n"])
		require.Equal(t, 3, job.MaxAttempts)
		require.Zero(t, other.ack(job.ID, "other"), "it is not theirs")
		require.NoError(t, job.Ack(ctx))
	}
	n, err := q.AckMany(ctx, "go", []int64{first})
	require.NoError(t, err)
	require.Zero(t, n, "it is not ours")
	require.EqualValues(t, 1, other.ack(first, "other"))
	require.Zero(t, number(t, other.pool, liveAndDead))
}

func TestForeignBindingAndGoSettleAcrossEachOther(t *testing.T) {
	db, other := both(t)
	ctx := bounded(t, patient)
	q := honker.NewQueue[int](db, "jobs", nil)
	id, err := q.Enqueue(ctx, 7)
	require.NoError(t, err)

	require.Len(t, other.claim("jobs", "other", 1, 60), 1)
	require.EqualValues(t, 1, other.change(`UPDATE _honker_live SET state = 'pending', run_at = unixepoch(),
  worker_id = NULL, claim_expires_at = NULL`+validClaim+` AND state = 'processing' AND attempts < max_attempts`, id, "other"))
	job := claimOne(t, q, "go")
	require.Equal(t, 2, job.Attempts)
	require.NoError(t, job.Heartbeat(ctx, time.Hour))
	require.EqualValues(t, 1, number(t, other.pool, `SELECT claim_expires_at > unixepoch() + 3000 FROM _honker_live`))
	require.NoError(t, job.Retry(ctx, 0, errors.New("again")))

	theirs := other.claim("jobs", "other", 1, 60)
	require.Equal(t, []claimed{{id, 3, "7"}}, theirs)
	require.ErrorIs(t, job.Ack(ctx), honker.ErrClaimLost)
	require.EqualValues(t, 1, other.change(`UPDATE _honker_live SET claim_expires_at = unixepoch() + 1000`+validClaim, id, "other"))
	info, err := q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "other", info.WorkerID)
	require.Equal(t, "again", info.LastError)
	require.Greater(t, time.Until(info.ClaimExpiresAt), 900*time.Second)
	other.fail(id, "other", "of no use")
	info, err = q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, honker.Dead, info.State)
	require.Equal(t, "of no use", info.LastError)

	cancelled := other.enqueue("jobs", "8")
	job = claimOne(t, q, "go")
	require.EqualValues(t, 1, other.change(`DELETE FROM _honker_live WHERE id = ?`, cancelled))
	require.ErrorIs(t, job.Heartbeat(ctx, time.Minute), honker.ErrClaimLost)
	require.ErrorIs(t, job.Retry(ctx, 0, nil), honker.ErrClaimLost)
}

func TestLapsedClaimOfTheOneIsTakenOverByTheOther(t *testing.T) {
	db, other := both(t)
	ctx := bounded(t, patient)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Visibility: time.Second})
	id, err := q.Enqueue(ctx, 7)
	require.NoError(t, err)
	job := claimOne(t, q, "go")
	var theirs []claimed
	eventually(t, patient, "lapsed for the binding", func() bool {
		theirs = other.claim("jobs", "other", 1, 0)
		return len(theirs) > 0
	})
	require.True(t, time.Now().After(job.ClaimExpiresAt.Add(time.Second)))
	require.Equal(t, []claimed{{id, 2, "7"}}, theirs)
	require.ErrorIs(t, job.Ack(ctx), honker.ErrClaimLost)
	for job, err := range q.Jobs(ctx, "go") {
		require.NoError(t, err)
		require.Equal(t, 3, job.Attempts)
		require.Zero(t, other.ack(id, "other"))
		require.NoError(t, job.Ack(ctx))
		break
	}
}

func TestFileOfAForeignBindingIsOpenedWithItsJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "theirs.db")
	other := openBinding(t, path)
	other.bootstrap()
	other.enqueue("jobs", "1")
	db := honkertest.OpenFile(t, path, nil)
	require.Equal(t, 1, claimOne(t, honker.NewQueue[int](db, "jobs", nil), "go").Args)
	other.bootstrap() // a binding that opens it later
	require.EqualValues(t, 1, number(t, db.SQL(), `SELECT count(*) FROM _honker_jobs WHERE state = 'processing'`))
}

func TestForeignBootstrapDoesNotDisturbWork(t *testing.T) {
	const jobs = 400
	db, other := both(t)
	ctx, stop := context.WithCancel(bounded(t, patient))
	q := honker.NewQueue[int](db, "jobs", nil)
	var ran atomic.Int64
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(ctx, func(context.Context, *honker.Job[int]) error { ran.Add(1); return nil },
			&honker.WorkOptions{OnError: func(_ context.Context, _ *honker.JobInfo, err error) { assert.NoError(t, err) }})
	}()
	for i := range jobs {
		if i%10 == 0 {
			other.bootstrap()
		}
		_, err := q.Enqueue(ctx, i)
		require.NoError(t, err)
	}
	eventually(t, patient, "all jobs handled", func() bool { return number(t, other.pool, liveAndDead) == 0 })
	stop()
	require.NoError(t, <-worked)
	require.EqualValues(t, jobs, ran.Load())
	require.EqualValues(t, 5, number(t, db.SQL(), `SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = '_honker_live'`))
}

func TestListenerHandsOutMessagesThatAreNoJSON(t *testing.T) {
	db, other := both(t)
	ctx := bounded(t, patient)
	l, err := db.Listen(ctx, "honker:jobs")
	require.NoError(t, err)
	defer l.Close()
	sent := []string{"new", "wake", "", `{"a": 1}`, "NaN"}
	for _, text := range sent {
		other.change(`INSERT INTO _honker_notifications (channel, payload) VALUES ('honker:jobs', ?1), ('elsewhere', ?1)`, text)
	}
	other.change(`INSERT INTO _honker_notifications (channel, payload) VALUES ('honker:jobs', x'ff00')`)
	for _, text := range append(sent, "\xff\x00") {
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, text, string(n.Payload))
		var v any
		require.Equal(t, json.Valid([]byte(text)), n.Decode(&v) == nil, text)
	}
}

func TestJobsThatCannotBeDecodedDieAndTheLoopGoesOn(t *testing.T) {
	type queue = *honker.Queue[int]
	for name, loop := range map[string]func(context.Context, queue, func(int)) error{
		"Work": func(ctx context.Context, q queue, got func(int)) error {
			return q.Work(ctx, func(_ context.Context, j *honker.Job[int]) error { got(j.Args); return nil }, nil)
		},
		"Jobs": func(ctx context.Context, q queue, got func(int)) (last error) {
			for j, err := range q.Jobs(ctx, "w") {
				if last = err; err == nil {
					got(j.Args)
					last = j.Ack(context.Background())
				}
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, other := both(t)
			insert := func(payload string, maxAttempts int) int64 {
				return number(t, other.pool, `INSERT INTO _honker_live (queue, payload, max_attempts)
VALUES ('jobs', `+payload+`, ?) RETURNING id`, maxAttempts)
			}
			reasons := map[int64]string{
				insert(`'not json'`, 3): "does not decode",
				insert(`''`, 3):         "does not decode",
				insert(`'"text"'`, 3):   "does not decode",
				insert(`'NaN'`, 3):      "does not decode",
				insert(`x'31'`, 3):      "not as text",
				insert(`'1'`, 0):        "max attempts exceeded",
				insert(`'1'`, -1):       "max attempts exceeded",
			}
			insert(`'42'`, 3)
			ctx, stop := context.WithCancel(bounded(t, patient))
			ended := make(chan error, 1)
			q := honker.NewQueue[int](db, "jobs", nil)
			go func() { ended <- loop(ctx, q, func(n int) { assert.Equal(t, 42, n) }) }()
			eventually(t, patient, "all jobs settled", func() bool { return number(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0 })
			stop()
			require.NoError(t, <-ended)
			for id, reason := range reasons {
				info, err := q.Get(context.Background(), id)
				require.NoError(t, err)
				require.Equal(t, honker.Dead, info.State, reason)
				require.Contains(t, info.LastError, reason)
			}
			require.EqualValues(t, 1, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE typeof(payload) = 'blob'`), "kept as it was")
		})
	}
}

// waitFor waits for a result in a goroutine of its own.
func waitFor[R any](t testing.TB, db *honker.DB, id int64) func() (R, error) {
	ctx, ended := bounded(t, patient), make(chan struct{})
	var value R
	var err error
	go func() {
		defer close(ended)
		value, err = honker.WaitResult[R](ctx, db, id)
	}()
	return func() (R, error) { <-ended; return value, err }
}

func TestResultsOfAForeignBindingAreRead(t *testing.T) {
	db, other := both(t)
	ctx := bounded(t, patient)
	id, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, 1)
	require.NoError(t, err)
	wait := waitFor[map[string]int](t, db, id)
	other.claim("jobs", "other", 1, 60)
	other.saveResult(id, `{"sum": 3}`)
	other.ack(id, "other")
	got, err := wait()
	require.NoError(t, err)
	require.Equal(t, map[string]int{"sum": 3}, got)
	for value, want := range map[any]string{"bare text": "does not decode", nil: "not found", "null": "<nil>"} {
		other.saveResult(id, value)
		_, err = honker.Result[any](ctx, db, id)
		require.Contains(t, fmt.Sprint(err), want)
	}
}

func TestJobThatAForeignBindingFailsEndsTheWaitForItsResult(t *testing.T) {
	db, other := both(t)
	id := other.enqueue("jobs", `1`)
	other.claim("jobs", "other", 1, 60)
	wait := waitFor[int](t, db, id)
	other.fail(id, "other", "of no use")
	_, err := wait()
	var failed *honker.JobFailedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "of no use", failed.LastError)
}
