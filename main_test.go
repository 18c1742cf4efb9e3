package honker_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/proc"
)

// children are what a process of the tests can be, besides the tests themselves.
var children = map[string]func(){
	"producer":     produce,
	"worker":       workAndReport,
	"batch worker": workInBatches,
	"tx writer":    writeInTxs,
	"hog":          hogTheWriter,
}

func TestMain(m *testing.M) {
	proc.Main(children)
	useSeed()
	goleak.VerifyTestMain(m)
}

// patient ends a test that hangs. It is far above what any wait should take.
const patient = 20 * time.Second

// bounded is a ctx that ends with the test, or after d.
func bounded(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually looks until ok, and fails the test when that takes longer than d.
func eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(d); !ok(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", d, what)
		}
	}
}

// liveAndDead counts the jobs of a file.
const liveAndDead = `SELECT (SELECT count(*) FROM _honker_live) + (SELECT count(*) FROM _honker_dead)`

// number reads one integer.
func number(t testing.TB, pool *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, pool.QueryRowContext(context.Background(), query, args...).Scan(&n), query)
	return n
}

// perform runs statements.
func perform(t testing.TB, pool *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := pool.ExecContext(context.Background(), s)
		require.NoError(t, err, s)
	}
}

// shared is a fresh file that others work on as well, and a DB on it. What lies beside it
// is kept when the test fails.
func shared(t testing.TB) (string, *honker.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shared.db")
	db := honkertest.OpenFile(t, path, nil)
	keepOnFailure(t, filepath.Dir(path))
	return path, db
}

// plain is an application's own pool. Its journal mode is the file's.
func plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// attach attaches a pool of the application's.
func attach(t testing.TB, path string) *honker.DB {
	t.Helper()
	db, err := honker.Attach(context.Background(), plain(t, path), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) }) // before the pool
	return db
}

// application makes a database that has nothing of honker's in it, and closes it.
func application(t testing.TB, path string) {
	t.Helper()
	pool, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	perform(t, pool, `PRAGMA page_size = 8192`, `PRAGMA user_version = 7`, `PRAGMA application_id = 99`,
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)`, `INSERT INTO orders (item) VALUES ('tea')`)
	require.NoError(t, pool.Close())
}

// honkers makes a file with honker's schema, and closes it.
func honkers(t testing.TB, path string) {
	t.Helper()
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// list returns what is in dir, with the modes.
func list(t testing.TB, dir string) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	modes := make(map[string]fs.FileMode)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		modes[e.Name()] = info.Mode().Perm()
	}
	return modes
}

// sum tells whether a file was changed. Nobody may have it open: reading it drops
// the locks that this process holds on it.
func sum(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// task is what a child is asked to do.
type task struct {
	Path   string
	Ledger string        // where workers note what they did
	Owner  string        // of a lock; empty for one of its own
	Quiet  bool          // do not report each handler
	Jobs   int           // how many
	Seed   uint64        // of what is drawn
	Span   time.Duration // of a lease, of holding a lock
}

// openChild opens the file of the child's task.
func openChild(o *honker.Observer) (task, *honker.DB) {
	a := proc.Args[task]()
	db, err := honker.Open(context.Background(), a.Path, &honker.Options{Observer: o})
	proc.Must(err)
	return a, db
}

// produce enqueues jobs, half of them one by one, half in batches, and says the ids.
func produce() {
	a, db := openChild(nil)
	q := honker.NewQueue[int64](db, "jobs", nil)
	last := int64(0)
	for made := 0; made < a.Jobs; {
		ids := []int64{0}
		var err error
		if made%100 < 50 {
			ids[0], err = q.Enqueue(proc.Context(), 0)
		} else {
			ids, err = q.EnqueueMany(proc.Context(), make([]int64, min(50, a.Jobs-made)))
		}
		proc.Must(err)
		made += len(ids)
		for _, id := range ids {
			if id <= last {
				proc.Must(fmt.Errorf("id %d after %d", id, last))
			}
			last = id
			proc.Say(id)
		}
	}
	proc.Must(db.Close())
}

// workAndReport is a child in Work on the queue "jobs". It says when a handler starts,
// and notes which jobs ran and how each was settled. The handler of a negative number
// blocks until its ctx ends.
func workAndReport() {
	note := proc.Ledger(proc.Args[task]().Ledger)
	a, db := openChild(&honker.Observer{Settled: func(s honker.Settled) { note(s.Outcome, s.ID) }})
	q := honker.NewQueue[int64](db, "jobs", nil)
	handle := func(ctx context.Context, job *honker.Job[int64]) error {
		note("ran", job.ID)
		if !a.Quiet {
			proc.Say("ran", job.ID, job.Attempts, job.Args, time.Now().UnixNano())
		}
		if job.Args < 0 {
			<-ctx.Done()
			proc.Say("cancelled", job.ID, errors.Is(context.Cause(ctx), honker.ErrClaimLost))
		}
		return nil
	}
	proc.Must(q.Work(proc.Context(), handle, &honker.WorkOptions{
		Lease: a.Span,
		OnError: func(_ context.Context, job *honker.JobInfo, err error) {
			proc.Say("failed", job.ID, errors.Is(err, honker.ErrClaimLost))
		},
	}))
	proc.Must(db.Close())
}

// run is what workAndReport said of one handler.
type run struct {
	id, attempts, args int64
	at                 time.Time
}

func nextRun(t testing.TB, p *proc.Process) run {
	t.Helper()
	var r run
	var nano int64
	line := p.Line(patient)
	_, err := fmt.Sscanf(line, "ran %d %d %d %d", &r.id, &r.attempts, &r.args, &nano)
	require.NoError(t, err, line)
	r.at = time.Unix(0, nano)
	return r
}

// workInBatches claims a few jobs at a time, acks one, and then the rest at once.
func workInBatches() {
	a, db := openChild(nil)
	note := proc.Ledger(a.Ledger)
	ctx := context.Background() // what was claimed is settled, also at the end
	q := honker.NewQueue[int64](db, "jobs", nil)
	for proc.Context().Err() == nil {
		jobs, err := q.Claim(ctx, a.Ledger, 7)
		proc.Must(err)
		ids := make([]int64, len(jobs))
		for i, job := range jobs {
			note("ran", job.ID)
			ids[i] = job.ID
		}
		if len(jobs) == 0 {
			continue
		}
		proc.Must(jobs[0].Ack(ctx))
		n, err := q.AckMany(ctx, a.Ledger, ids[1:])
		proc.Must(err)
		if n != len(ids)-1 {
			proc.Must(fmt.Errorf("%d of %d acked", n, len(ids)-1))
		}
		for _, id := range ids {
			note(honker.Acked, id)
		}
	}
	proc.Must(db.Close())
}

// writeInTxs enqueues jobs, each in a transaction, and says the longest that one took.
func writeInTxs() {
	a, db := openChild(nil)
	q := honker.NewQueue[int64](db, "jobs", nil)
	var worst time.Duration
	for range a.Jobs {
		began := time.Now()
		proc.Must(db.Tx(proc.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, 0)
			return err
		}))
		worst = max(worst, time.Since(began))
	}
	proc.Must(db.Close())
	proc.Say(worst)
}

// hogTheWriter holds the write lock for a span, again and again.
func hogTheWriter() {
	a := proc.Args[task]()
	pool, err := sql.Open("sqlite", a.Path+"?_pragma=busy_timeout(5000)")
	proc.Must(err)
	conn, err := pool.Conn(context.Background())
	proc.Must(err)
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-proc.Context().Done():
		}
	}
	for proc.Context().Err() == nil {
		_, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
		proc.Must(err)
		proc.Say("held")
		pause(a.Span)
		_, err = conn.ExecContext(context.Background(), "COMMIT")
		proc.Must(err)
		pause(5 * time.Millisecond)
	}
	proc.Must(errors.Join(conn.Close(), pool.Close()))
}

// everyVerb is all that can be done with a DB, with a job that it holds and with a
// transaction on its file.
func everyVerb(t testing.TB, db *honker.DB, tx honker.Tx) map[string]func(context.Context) error {
	t.Helper()
	q := honker.NewQueue[int](db, "jobs", nil)
	id, err := q.Enqueue(context.Background(), 0)
	require.NoError(t, err)
	jobs, err := q.Claim(context.Background(), "w", 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	job := jobs[0]
	l, err := db.Listen(context.Background(), "news")
	require.NoError(t, err)
	lock, rate := takeLock(t, db, "held", nil), db.RateLimit("calls", 1, time.Hour)
	outbox := honker.NewOutbox(db, "mail", func(context.Context, int) error { return nil }, nil)
	type ctx = context.Context
	return map[string]func(ctx) error{
		"Enqueue":            func(c ctx) error { _, err := q.Enqueue(c, 1); return err },
		"EnqueueTx":          func(c ctx) error { _, err := q.EnqueueTx(c, tx, 1); return err },
		"EnqueueMany":        func(c ctx) error { _, err := q.EnqueueMany(c, []int{1}); return err },
		"EnqueueManyTx":      func(c ctx) error { _, err := q.EnqueueManyTx(c, tx, []int{1}); return err },
		"Claim":              func(c ctx) error { _, err := q.Claim(c, "w", 1); return err },
		"Jobs":               func(c ctx) error { return lastError(q.Jobs(c, "w")) },
		"Work":               func(c ctx) error { return q.Work(c, nil, nil) },
		"WorkTx":             func(c ctx) error { return q.WorkTx(c, nil, nil) },
		"AckMany":            func(c ctx) error { _, err := q.AckMany(c, "w", []int64{id}); return err },
		"Get":                func(c ctx) error { _, err := q.Get(c, id); return err },
		"Cancel":             func(c ctx) error { _, err := q.Cancel(c, id); return err },
		"CancelTx":           func(c ctx) error { _, err := q.CancelTx(c, tx, id); return err },
		"SweepExpired":       func(c ctx) error { _, err := q.SweepExpired(c); return err },
		"NextClaimAt":        func(c ctx) error { _, err := q.NextClaimAt(c); return err },
		"SaveResult":         func(c ctx) error { return q.SaveResult(c, id, 1, 0) },
		"SaveResultTx":       func(c ctx) error { return q.SaveResultTx(c, tx, id, 1, 0) },
		"Ack":                func(c ctx) error { return job.Ack(c) },
		"AckTx":              func(c ctx) error { return job.AckTx(c, tx) },
		"Retry":              func(c ctx) error { return job.Retry(c, 0, nil) },
		"Fail":               func(c ctx) error { return job.Fail(c, nil) },
		"FailTx":             func(c ctx) error { return job.FailTx(c, tx, nil) },
		"Snooze":             func(c ctx) error { return job.Snooze(c, 0) },
		"Heartbeat":          func(c ctx) error { return job.Heartbeat(c, time.Hour) },
		"Result":             func(c ctx) error { _, err := honker.Result[int](c, db, id); return err },
		"WaitResult":         func(c ctx) error { _, err := honker.WaitResult[int](c, db, id); return err },
		"Notify":             func(c ctx) error { _, err := db.Notify(c, "news", 1); return err },
		"NotifyTx":           func(c ctx) error { _, err := db.NotifyTx(c, tx, "news", 1); return err },
		"Listen":             func(c ctx) error { _, err := db.Listen(c, "news"); return err },
		"Next":               func(c ctx) error { _, err := l.Next(c); return err },
		"PruneNotifications": func(c ctx) error { _, err := db.PruneNotifications(c, 0, 0); return err },
		"Updates":            func(c ctx) error { return lastError(db.Updates(c)) },
		"TryLock":            func(c ctx) error { _, err := db.TryLock(c, "free", nil); return err },
		"Lock":               func(c ctx) error { _, err := db.Lock(c, "free", nil); return err },
		"Unlock":             func(c ctx) error { return lock.Unlock(c) },
		"Allow":              func(c ctx) error { _, err := rate.Allow(c); return err },
		"AllowTx":            func(c ctx) error { _, err := rate.AllowTx(c, tx); return err },
		"Wait":               func(c ctx) error { return rate.Wait(c) },
		"Remaining":          func(c ctx) error { _, _, err := rate.Remaining(c); return err },
		"SweepRateLimits":    func(c ctx) error { _, err := db.SweepRateLimits(c, 0); return err },
		"Send":               func(c ctx) error { _, err := outbox.Send(c, 1); return err },
		"SendTx":             func(c ctx) error { _, err := outbox.SendTx(c, tx, 1); return err },
		"Run":                func(c ctx) error { return outbox.Run(c, nil) },
		"Check":              func(c ctx) error { return db.Check(c) },
		"Tx":                 func(c ctx) error { return db.Tx(c, func(ctx, *sql.Tx) error { return nil }) },
	}
}

// lastError is what ended a sequence.
func lastError[V any](values iter.Seq2[V, error]) (last error) {
	for _, err := range values {
		last = err
	}
	return last
}

// everyWait lets all that can wait do so, and returns where each of them says how that
// ended.
func everyWait(t testing.TB, db *honker.DB) map[string]<-chan error {
	t.Helper()
	ctx := bounded(t, 5*time.Second)
	q := honker.NewQueue[int](db, "jobs", nil)
	later, err := q.Enqueue(ctx, 1, honker.Delay(time.Hour))
	require.NoError(t, err)
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	alter(t, db, `INSERT INTO _honker_locks VALUES ('another''s', 'another', unixepoch() + 3600)`)
	rate := db.RateLimit("calls", 1, 24*365*time.Hour)
	_, err = rate.Allow(ctx)
	require.NoError(t, err)
	waits := make(map[string]<-chan error)
	for name, wait := range map[string]func() error{
		"Next": func() error { _, err := l.Next(ctx); return err },
		"Work": func() error {
			return q.Work(ctx, func(context.Context, *honker.Job[int]) error { return nil }, nil)
		},
		"WaitResult": func() error { _, err := honker.WaitResult[int](ctx, db, later); return err },
		"Jobs":       func() error { return lastError(q.Jobs(ctx, "w")) },
		"Updates":    func() error { return lastError(db.Updates(ctx)) },
		"Lock":       func() error { _, err := db.Lock(ctx, "another's", nil); return err },
		"Wait":       func() error { return rate.Wait(ctx) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- wait() }()
		waits[name] = ended
	}
	return waits
}
