// Package suite tests honker.Attach with pools of other SQLite drivers. The drivers are in a
// separate module to keep them out of the library's go.mod. Each has its own test process, because
// some of them register the same driver name, and because two SQLite libraries in a process would
// drop each other's file locks.
package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/relay"
)

// Run runs the suite. open must return a new pool on the file at path.
func Run(t *testing.T, open func(path string) (*sql.DB, error)) {
	for name, test := range map[string]func(*testing.T, *sql.DB){
		"the verbs":                       verbs,
		"a sleeper hears the pool commit": sleeper,
		"a relay":                         relays,
		"unique keys":                     uniqueKeys,
		"pauses":                          pauses,
		"limits":                          limits,
		"what a job carries":              sideRow,
		"jobs after jobs":                 afters,
	} {
		for pools, conns := range map[string]int{"": 0, " through one connection": 1} {
			t.Run(name+pools, func(t *testing.T) {
				pool, err := open(filepath.Join(t.TempDir(), "app.db"))
				require.NoError(t, err)
				pool.SetMaxOpenConns(conns)
				test(t, pool)
				require.NoError(t, pool.Ping(), "the caller's pool stays open")
				require.NoError(t, pool.Close())
			})
		}
	}
}

// verbs checks the basic operations of queues and notifications, also in transactions of the pool.
func verbs(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()

	q := honker.NewQueue[string](db, "mail", nil)
	listener, err := db.Listen(ctx, "done")
	require.NoError(t, err)

	enqueueInTransactions(ctx, t, db, q)
	var handled []string
	workCtx, stop := context.WithCancel(ctx)
	err = q.Work(workCtx, func(_ context.Context, job *honker.Job[string]) error {
		handled = append(handled, job.Args)
		if len(handled) == 3 {
			stop()
		}
		return job.SetResult(len(job.Args))
	}, &honker.WorkOptions{Workers: 1})
	stop()
	require.NoError(t, err)
	require.Equal(t, []string{"plain", "in a tx", "many"}, handled)

	_, err = db.Notify(ctx, "done", "all")
	require.NoError(t, err)
	n, err := listener.Next(ctx)
	require.NoError(t, err)
	require.JSONEq(t, `"all"`, string(n.Payload))

	length, err := honker.WaitResult[int](ctx, db, 1)
	require.NoError(t, err)
	require.Equal(t, len("plain"), length)
	require.NoError(t, db.Check(ctx))
}

func enqueueInTransactions(ctx context.Context, t *testing.T, db *honker.DB, q *honker.Queue[string]) {
	_, err := q.Enqueue(ctx, "plain")
	require.NoError(t, err)
	refused := errors.New("refused")
	for _, outcome := range []error{refused, nil} {
		err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, "in a tx")
			require.NoError(t, err)
			return outcome
		})
		require.ErrorIs(t, err, outcome)
	}
	_, err = q.EnqueueMany(ctx, []string{"many"})
	require.NoError(t, err)
}

// uniqueKeys checks that a trigger in the file releases a unique key when another binding settles
// the job with honker's plain SQL.
func uniqueKeys(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[int](db, "jobs", nil)
	place := func(n int, u *honker.Uniqueness) (p honker.Placement) {
		_, err := q.Enqueue(ctx, n, honker.Unique("k", u), honker.Placed(&p))
		require.NoError(t, err)
		return p
	}
	exec := func(query string, args ...any) {
		_, err := pool.ExecContext(ctx, query, args...)
		require.NoError(t, err)
	}
	const claim = `UPDATE _honker_live SET state = 'processing', worker_id = 'py', claim_expires_at = unixepoch() + 60, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live WHERE queue = 'jobs' AND state = 'pending' AND run_at <= unixepoch())`
	for _, end := range []string{
		`DELETE FROM _honker_live WHERE id = ?1 AND worker_id = 'py'`,
		`DELETE FROM _honker_live WHERE id = ?1`,
	} {
		first := place(1, nil)
		require.Equal(t, honker.PlacedNew, first.Result)
		exec(claim)
		next := place(2, &honker.Uniqueness{Conflict: honker.RunAgain})
		require.Equal(t, honker.PlacedAgain, next.Result)
		exec(claim) // claims nothing, because the successor is held
		exec(end, first.ID)
		info, err := q.Get(ctx, next.ID)
		require.NoError(t, err)
		require.Zero(t, info.Attempts)
		exec(claim)
		info, err = q.Get(ctx, next.ID)
		require.NoError(t, err)
		require.Equal(t, 1, info.Attempts)
		exec(end, next.ID)
	}
	place(3, &honker.Uniqueness{Until: honker.UntilStarted})
	exec(claim)
	require.Equal(t, honker.PlacedNew, place(4, nil).Result)
	require.NoError(t, db.Check(ctx))
}

// pauses checks that a trigger in the file keeps another binding from claiming paused jobs with
// honker's plain SQL.
func pauses(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	paused, free := honker.NewQueue[int](db, "paused", nil), honker.NewQueue[int](db, "free", nil)
	ids := make(map[string]int64)
	for name, q := range map[string]*honker.Queue[int]{"paused": paused, "free": free} {
		ids[name], err = q.Enqueue(ctx, 1)
		require.NoError(t, err)
	}
	claim := func() []int64 { return foreignClaim(ctx, t, pool) }
	changed, err := paused.Pause(ctx, &honker.PauseOptions{Reason: "deploy", Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, []int64{ids["free"]}, claim(), "the claim passes over the others, and fails for none")
	jobs, err := paused.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.NoError(t, db.Check(ctx))
	was, err := paused.Resume(ctx)
	require.NoError(t, err)
	require.True(t, was)
	require.Equal(t, []int64{ids["paused"]}, claim())
	require.NoError(t, db.Check(ctx))
}

// foreignClaim claims all due jobs as a binding without support for limits would.
func foreignClaim(ctx context.Context, t *testing.T, pool *sql.DB) (claimed []int64) {
	rows, err := pool.QueryContext(ctx, `UPDATE _honker_live
SET state = 'processing', worker_id = 'py', claim_expires_at = unixepoch() + 60, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live WHERE state = 'pending' AND run_at <= unixepoch()) RETURNING id`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		claimed = append(claimed, id)
	}
	require.NoError(t, rows.Err())
	return claimed
}

// limits checks that limits also apply to such a binding, and that its settlements release the next
// job of a key.
func limits(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[int](db, "limited", nil)
	require.NoError(t, q.SetLimits(ctx, honker.Limits{
		PerKey: 1, Running: 3, KeyRate: honker.Rate{N: 1, Per: time.Hour, Burst: 2}, Rate: honker.Rate{N: 1, Per: time.Hour, Burst: 9},
	}))
	var ids []int64
	for _, key := range []string{"a", "a", "b", "a", "b", "c", "d"} {
		id, err := q.Enqueue(ctx, 1, honker.Key(key))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	exec := func(query string, args ...any) {
		_, err := pool.ExecContext(ctx, query, args...)
		require.NoError(t, err)
		require.NoError(t, db.Check(ctx))
	}
	const ack = `DELETE FROM _honker_live WHERE id = ?`
	require.Equal(t, []int64{ids[0], ids[2], ids[5]}, foreignClaim(ctx, t, pool), "one of each key, and three of all")
	exec(ack, ids[0])
	require.Equal(t, []int64{ids[1]}, foreignClaim(ctx, t, pool))
	exec(ack, ids[1])
	require.Equal(t, []int64{ids[6]}, foreignClaim(ctx, t, pool), "the third start of a comes too early")
	third, err := q.Get(ctx, ids[3])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseScheduled, third.Phase)
	exec(ack, ids[2])
	jobs, err := q.Claim(ctx, "w", 9)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, ids[4], jobs[0].ID)
	require.NoError(t, jobs[0].Ack(ctx))
	require.NoError(t, q.SetLimits(ctx, honker.Limits{}))
	require.Equal(t, []int64{ids[3]}, foreignClaim(ctx, t, pool))
	require.NoError(t, db.Check(ctx))
}

// afters checks that waiting jobs are released when their predecessors end through any driver or
// binding.
func afters(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[int](db, "steps", nil)
	batch, err := db.NewBatch(ctx, nil)
	require.NoError(t, err)
	ids, err := q.EnqueueMany(ctx, []int{1, 2, 3}, honker.InBatch(batch.ID))
	require.NoError(t, err)
	last, err := q.Enqueue(ctx, 4, honker.AfterBatch(batch.ID))
	require.NoError(t, err)
	next, err := q.Enqueue(ctx, 5, honker.After(last))
	require.NoError(t, err)
	require.NoError(t, batch.Seal(ctx))
	require.NoError(t, db.Check(ctx))
	require.Equal(t, ids, foreignClaim(ctx, t, pool))
	for _, query := range []string{`DELETE FROM _honker_live WHERE id = 1`, `DELETE FROM _honker_live WHERE id = 2`,
		`INSERT INTO _honker_dead (id, queue, payload) VALUES (2, 'steps', '2')`, `DELETE FROM _honker_live WHERE id = 3`} {
		_, err := pool.ExecContext(ctx, query)
		require.NoError(t, err)
		require.NoError(t, db.Check(ctx), query)
	}
	report, err := admin.Requeue(ctx, db, admin.JobFilter{Batch: batch.ID}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Changed)
	_, err = pool.ExecContext(ctx, `UPDATE _honker_live SET run_at = 1`) // otherwise due in two seconds
	require.NoError(t, err)
	run, stop := context.WithCancel(ctx)
	defer stop()
	var read []int64
	require.NoError(t, q.WorkTx(run, func(_ context.Context, _ *sql.Tx, job *honker.Job[int]) error {
		switch job.ID {
		case last:
			read = job.After()
		case next:
			stop()
		}
		return nil
	}, &honker.WorkOptions{Workers: 1}))
	require.Equal(t, ids, read)
	require.NoError(t, db.Check(ctx))
	left, err := q.Claim(ctx, "w", 9)
	require.NoError(t, err)
	require.Empty(t, left)
}

// sideRow checks that the side row of a job keeps its headers and its failed attempt.
func sideRow(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[int](db, "carrying", nil)
	h := map[string]string{"tenant": "ä\"☃"}
	id, err := q.Enqueue(ctx, 1, honker.Headers(h))
	require.NoError(t, err)
	for n := range 3 {
		jobs, err := q.Claim(ctx, "w", 2)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		require.Equal(t, h, jobs[0].Headers)
		var page []int
		some, err := jobs[0].Checkpointed(&page)
		require.NoError(t, err)
		require.Equal(t, n > 0, some)
		require.NoError(t, jobs[0].Checkpoint(ctx, append(page, n)))
		jobs[0].Logger().Info("log", "n", n)
		jobs[0].SetProgress(int64(n), 3, "ä")
		require.NoError(t, jobs[0].Retry(ctx, 0, errors.New("no")))
		require.Len(t, page, n)
	}
	info, err := db.Job(ctx, id)
	require.NoError(t, err)
	require.Equal(t, h, info.Headers)
	require.Equal(t, &honker.Progress{Done: 2, Total: 3, Note: "ä", At: info.Progress.At}, info.Progress)
	attempts, err := admin.Attempts(ctx, db, id)
	require.NoError(t, err)
	require.Len(t, attempts, 3)
	require.Contains(t, attempts[2].Log, "msg=log n=2")
	done, err := q.Cancel(ctx, id)
	require.NoError(t, err)
	require.True(t, done)
	_, err = admin.Attempts(ctx, db, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.NoError(t, db.Check(ctx))
}

// sleeper checks that a commit of the pool wakes a worker.
func sleeper(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	q := honker.NewQueue[int](db, "sleepy", nil)
	started := make(chan int)
	worked := make(chan error)
	go func() {
		worked <- q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			started <- job.Args
			return nil
		}, nil)
	}()
	for i := range 5 {
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = q.EnqueueTx(ctx, tx, i)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, i, <-started)
	}
	require.NoError(t, db.Close())
	require.ErrorIs(t, <-worked, honker.ErrClosed)
}

// relays checks messages sent in the application's transactions, by a plain INSERT of the driver,
// and by the relay's methods.
func relays(t *testing.T, pool *sql.DB) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = pool.ExecContext(ctx, `CREATE TABLE audit (seq INTEGER, payload TEXT)`)
	require.NoError(t, err)

	r := relay.New(db, &relay.Options{RetryBase: time.Millisecond})
	hooks, audited := r.Queue("hooks", 1), r.Queue("audited", 1)
	given := make(chan string, 100)
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		given <- fmt.Sprint(m.Seq, " ", string(m.Payload))
		return nil
	})
	audited.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO audit VALUES (?, ?)`, m.Seq, string(m.Payload))
		if m.Seq == 2 && m.Attempt == 0 {
			return errors.New("its row is undone")
		}
		return err
	})
	_, err = hooks.Send(ctx, relay.Outgoing{Payload: []byte("verb")})
	require.NoError(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	require.Equal(t, "1 verb", <-given)

	sendInTransactions(ctx, t, pool, hooks, audited)
	require.Equal(t, "2 in a tx", <-given)
	_, err = pool.ExecContext(ctx, `INSERT INTO _honkerx_relay_messages (queue, payload) VALUES ('hooks', 'plain')`)
	require.NoError(t, err)
	require.Equal(t, "3 plain", <-given)
	require.Eventually(t, func() bool {
		var left int
		return pool.QueryRowContext(ctx, `SELECT count(*) FROM _honkerx_relay_messages`).Scan(&left) == nil && left == 0
	}, time.Minute, 5*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	var audit string
	require.NoError(t, pool.QueryRowContext(ctx, `SELECT group_concat(seq || payload) FROM (SELECT * FROM audit ORDER BY rowid)`).Scan(&audit))
	require.Equal(t, "1a,2b", audit)
	require.Empty(t, given)
	require.NoError(t, db.Check(ctx))
}

// sendInTransactions sends to both queues twice: in a transaction that is rolled back and in a
// transaction that is committed.
func sendInTransactions(ctx context.Context, t *testing.T, pool *sql.DB, hooks, audited *relay.Queue) {
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = hooks.SendTx(ctx, tx, relay.Outgoing{Payload: []byte("in a tx")})
		require.NoError(t, err)
		_, err = audited.SendTx(ctx, tx, relay.Outgoing{Payload: []byte("a")}, relay.Outgoing{Payload: []byte("b")})
		require.NoError(t, err)
		require.NoError(t, end(tx))
	}
}

const busyTimeout = 500 * time.Millisecond

// RunUnwaiting checks that honker waits for locks although the statements of the pool do not. open
// must return a pool with a rollback journal and without a busy timeout.
func RunUnwaiting(t *testing.T, open func(path string) (*sql.DB, error)) {
	path := filepath.Join(t.TempDir(), "app.db")
	pool, err := open(path)
	require.NoError(t, err)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Without traffic counts, the DB takes no locks in the background that would conflict with the
	// test's.
	db, err := honker.Attach(ctx, pool, &honker.Options{BusyTimeout: busyTimeout, Logger: slog.New(slog.DiscardHandler), NoTraffic: true})
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[int](db, "jobs", nil)
	id, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)

	other, err := open(path)
	require.NoError(t, err)
	defer other.Close()
	for _, c := range []struct {
		what, take string // take: statements of another connection
		verb       func() error
	}{
		{"a read", "BEGIN EXCLUSIVE", func() error { _, err := q.Get(ctx, id); return err }},
		{"an attachment", "BEGIN EXCLUSIVE", func() error { _, err := db.Listen(ctx, "news"); return err }},
		{"a write", "BEGIN IMMEDIATE", func() error { _, err := q.Enqueue(ctx, 2); return err }},
		{"a transaction", "BEGIN EXCLUSIVE", func() error { return enqueueIn(ctx, db, q) }},
		{"a commit", "BEGIN; SELECT count(*) FROM _honker_live", func() error { return enqueueIn(ctx, db, q) }},
		{"an opening", "BEGIN EXCLUSIVE", func() error {
			again, err := honker.Attach(ctx, pool, &honker.Options{BusyTimeout: busyTimeout, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			return again.Close()
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			pool.SetMaxIdleConns(0) // makes each call open a new connection
			release := hold(ctx, t, other, c.take)
			err := c.verb()
			require.ErrorIs(t, err, honker.ErrBusy)
			require.ErrorContains(t, err, "honker: ")
			time.AfterFunc(20*time.Millisecond, release)
			require.NoError(t, c.verb())
		})
	}
	require.NoError(t, db.Check(ctx))
}

// hold takes a lock and keeps it until release is called or the test ends.
func hold(ctx context.Context, t *testing.T, pool *sql.DB, take string) (release func()) {
	conn, err := pool.Conn(ctx)
	require.NoError(t, err)
	for statement := range strings.SplitSeq(take, ";") {
		rows, err := conn.QueryContext(ctx, statement)
		require.NoError(t, err)
		for rows.Next() {
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	release = sync.OnceFunc(func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		_ = conn.Close()
	})
	t.Cleanup(release)
	return release
}

func enqueueIn(ctx context.Context, db *honker.DB, q *honker.Queue[int]) error {
	return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 3)
		return err
	})
}
