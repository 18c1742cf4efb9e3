package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Close ends every waiting call and may be called again.
func TestDB_Close_EndsWaiters(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, settled := range map[string]bool{"at once": false, "when all of them sleep": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "file.db"), nil)
			require.NoError(t, err)
			waits := everyWait(t, db)
			if settled { // receiving a message proves that the watcher runs
				l := testkit.Listen(t, db, "other")
				testkit.Receive(t, l, testkit.Notify(t, db, "other", 1))
			}
			began := time.Now()
			closed := make(chan error, 2)
			for range cap(closed) {
				go func() { closed <- db.Close() }()
			}
			for range cap(closed) {
				require.NoError(t, <-closed)
			}
			for what, ended := range waits {
				require.ErrorIs(t, <-ended, honker.ErrClosed, what)
			}
			require.Less(t, time.Since(began), 15*time.Second, "DrainTimeout is 20")
			require.NoError(t, db.Close())
			require.Error(t, db.SQL().Ping(), "asked for too late")
		})
	}
}

// Close lets handlers finish their work.
func TestDB_Close_DrainsHandlers(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(context.Context, *honker.DB) error{
		"nothing":    func(context.Context, *honker.DB) error { return nil },
		"plain verb": func(ctx context.Context, db *honker.DB) error { _, err := db.Notify(ctx, "news", 1); return err },
		"transaction": func(ctx context.Context, db *honker.DB) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := db.NotifyTx(ctx, tx, "news", 1)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(context.Background(), path, nil)
			require.NoError(t, err)
			q := honker.NewQueue[int](db, "jobs", nil)
			id := testkit.Enqueue(t, q, 1)
			running, finish, worked := make(chan struct{}), make(chan struct{}), make(chan error, 2)
			go func() {
				worked <- q.Work(context.Background(), func(ctx context.Context, _ *honker.Job[int]) error {
					close(running)
					<-finish
					err := work(ctx, db)
					worked <- err
					return err
				}, nil)
			}()
			<-running
			closed := make(chan error, 1)
			go func() { closed <- db.Close() }()
			ended, end := context.WithCancel(context.Background())
			end()
			testkit.Eventually(t, testkit.Timeout, "closing", func() bool { return q.Work(ended, testkit.Succeed, nil) != nil })
			require.Empty(t, closed, "closed under a handler")
			close(finish)
			handled := <-worked
			require.ErrorIs(t, <-worked, honker.ErrClosed)
			require.NoError(t, <-closed)
			require.NoError(t, handled)

			db = honkertest.OpenFile(t, path, nil)
			testkit.RequireGone(t, honker.NewQueue[int](db, "jobs", nil), id)
		})
	}
}

// Every verb of a closed DB returns ErrClosed.
func TestDB_Close_ErrClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	opened, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	attached := testkit.Attach(t, path, nil)
	for name, db := range map[string]*honker.DB{"opened": opened, "attached": attached} {
		tx, err := testkit.OpenPool(t, path).BeginTx(context.Background(), nil)
		require.NoError(t, err)
		verbs := everyVerb(t, db, tx)
		require.NoError(t, db.Close())
		for verb, call := range verbs {
			t.Run(name+" "+verb, func(t *testing.T) {
				require.ErrorIs(t, call(testkit.Context(t, testkit.Timeout)), honker.ErrClosed)
			})
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, db.Close(), "again")
	}
}

// A verb with an ended context does nothing.
func TestDB_EndedContext(t *testing.T) {
	_, db := testkit.OpenShared(t)
	tx, err := db.SQL().BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	verbs := everyVerb(t, db, tx)
	ended, end := context.WithCancel(context.Background())
	end()
	for _, loop := range []string{"Jobs", "Work", "WorkTx", "Run", "Updates"} {
		require.NoError(t, verbs[loop](ended), "%s ends with its ctx", loop)
		delete(verbs, loop)
	}
	require.NoError(t, verbs["Unlock"](ended), "what ends is not left half done")
	delete(verbs, "Unlock")
	for verb, call := range verbs {
		require.ErrorIs(t, call(ended), context.Canceled, verb)
	}
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 1, claimedJobs(t, honker.NewQueue[int](db, "jobs", nil)))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// everyVerb returns every verb of a DB, of a claimed job, and of a transaction on the file.
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
	lock, rate := testkit.TakeLock(t, db, "held", nil), db.RateLimit("calls", 1, time.Hour)
	outbox := honker.NewOutbox(db, "mail", func(context.Context, int) error { return nil }, nil)
	type ctx = context.Context
	return map[string]func(ctx) error{
		"Enqueue":            func(c ctx) error { _, err := q.Enqueue(c, 1); return err },
		"EnqueueTx":          func(c ctx) error { _, err := q.EnqueueTx(c, tx, 1); return err },
		"EnqueueMany":        func(c ctx) error { _, err := q.EnqueueMany(c, []int{1}); return err },
		"EnqueueManyTx":      func(c ctx) error { _, err := q.EnqueueManyTx(c, tx, []int{1}); return err },
		"Claim":              func(c ctx) error { _, err := q.Claim(c, "w", 1); return err },
		"Jobs":               func(c ctx) error { return testkit.LastError(q.Jobs(c, "w")) },
		"Work":               func(c ctx) error { return q.Work(c, testkit.Succeed, nil) },
		"WorkTx":             func(c ctx) error { return q.WorkTx(c, testkit.SucceedTx, nil) },
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
		"Reject":             func(c ctx) error { return job.Reject(c, nil) },
		"RejectTx":           func(c ctx) error { return job.RejectTx(c, tx, nil) },
		"Snooze":             func(c ctx) error { return job.Snooze(c, 0) },
		"Extend":             func(c ctx) error { return job.Extend(c, time.Hour) },
		"Result":             func(c ctx) error { _, err := honker.Result[int](c, db, id); return err },
		"WaitResult":         func(c ctx) error { _, err := honker.WaitResult[int](c, db, id); return err },
		"Notify":             func(c ctx) error { _, err := db.Notify(c, "news", 1); return err },
		"NotifyTx":           func(c ctx) error { _, err := db.NotifyTx(c, tx, "news", 1); return err },
		"Listen":             func(c ctx) error { _, err := db.Listen(c, "news"); return err },
		"Next":               func(c ctx) error { _, err := l.Next(c); return err },
		"PruneNotifications": func(c ctx) error { _, err := db.PruneNotifications(c, 0, 0); return err },
		"Updates":            func(c ctx) error { return testkit.LastError(db.Updates(c)) },
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

// everyWait starts every kind of waiting call. For each call it returns a channel that receives the call's error.
func everyWait(t testing.TB, db *honker.DB) map[string]<-chan error {
	t.Helper()
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int](db, "jobs", nil)
	later, err := q.Enqueue(ctx, 1, honker.Delay(time.Hour))
	require.NoError(t, err)
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	testkit.Exec(t, db, `INSERT INTO _honker_locks VALUES ('another''s', 'another', unixepoch() + 3600)`)
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
		"Jobs":       func() error { return testkit.LastError(q.Jobs(ctx, "w")) },
		"Updates":    func() error { return testkit.LastError(db.Updates(ctx)) },
		"Lock":       func() error { _, err := db.Lock(ctx, "another's", nil); return err },
		"Wait":       func() error { return rate.Wait(ctx) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- wait() }()
		waits[name] = ended
	}
	return waits
}

// Each line of the README's code appears in an example, and the examples are run.
func TestReadme_CodeOfExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	known := exampleLines(t)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		for line := range strings.Lines(string(block[1])) {
			line = strings.TrimSpace(line)
			require.True(t, line == "" || known[line], "no example has the line %q", line)
		}
	}
}

func exampleLines(t *testing.T) map[string]bool {
	files := []string{"examples/quickstart/main.go"}
	for _, pattern := range []string{"example*_test.go", "relay/example*_test.go", "honkerpg/example*_test.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	lines := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		// An example keeps its file in a temporary directory.
		for line := range strings.Lines(strings.ReplaceAll(string(text), "Open(ctx, path,", `Open(ctx, "app.db",`)) {
			lines[strings.TrimSpace(line)] = true
		}
	}
	return lines
}

// Updates ticks after each commit until its context ends.
func TestUpdates_EachCommit(t *testing.T) {
	testkit.Differs(t, "commits of your own transactions")
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := testkit.OpenPool(t, path) // includes commits by other connections
	testkit.ExecAll(t, other, `CREATE TABLE n (n INTEGER)`, `INSERT INTO n VALUES (0)`)
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
	seen := make(chan int64, 1000)
	ended := make(chan error, 1)
	go func() {
		for _, err := range db.Updates(ctx) {
			if err != nil {
				ended <- err
				return
			}
			var n int64
			if err := db.SQL().QueryRow(`SELECT n FROM n`).Scan(&n); err != nil {
				ended <- err
				return
			}
			seen <- n
		}
		ended <- nil
	}()
	for i := int64(1); i <= 40; i++ {
		pool := []*sql.DB{other, db.SQL()}[i%2]
		testkit.ExecAll(t, pool, fmt.Sprintf(`UPDATE n SET n = %d`, i))
		for n := int64(-1); n < i; {
			select {
			case n = <-seen:
			case <-ctx.Done():
				t.Fatalf("no tick showed commit %d", i)
			}
		}
	}
	stop()
	require.NoError(t, <-ended)
}

// Updates coalesces commits that occur while its body runs.
func TestUpdates_Coalesces(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer stop()
	db := honkertest.Open(t, nil)
	go func() { _, _ = db.Notify(ctx, "news", "begin") }() // commits even if the first tick doesn't need it
	ticks, last := 0, int64(0)
	for _, err := range db.Updates(ctx) {
		require.NoError(t, err)
		if ticks++; ticks == 1 {
			for i := range 200 {
				last = testkit.Notify(t, db, "news", i)
			}
			time.AfterFunc(100*time.Millisecond, stop)
		}
	}
	require.NotZero(t, last)
	require.GreaterOrEqual(t, ticks, 2, "one must follow the commits")
	require.Less(t, ticks, 50)
}

// In every journal mode, each commit by another connection causes a single tick. There may be an extra tick
// when the watcher starts, and for a checkpoint.
func TestUpdates_JournalModes(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	const commits = 30
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			open := func() *sql.DB {
				pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode("+mode+")")
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, pool.Close()) })
				return pool
			}
			db, err := honker.Attach(context.Background(), open(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			other := open()
			testkit.ExecAll(t, other, `CREATE TABLE n (n INTEGER)`, `INSERT INTO n VALUES (0)`)
			ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
			shown := make(chan int, 10*commits)
			ended := testkit.Background(t, func(context.Context) error {
				for _, err := range db.Updates(ctx) {
					if err != nil {
						return err
					}
					n := 0
					if err := db.SQL().QueryRow(`SELECT n FROM n`).Scan(&n); err != nil {
						return err
					}
					shown <- n
				}
				return nil
			})
			require.Zero(t, <-shown)
			ticks := 1
			for i := 1; i <= commits; i++ {
				if i == commits/2 {
					testkit.ExecAll(t, other, `PRAGMA wal_checkpoint(TRUNCATE)`)
				}
				testkit.ExecAll(t, other, fmt.Sprintf(`UPDATE n SET n = %d`, i))
				for n := -1; n < i; ticks++ {
					select {
					case n = <-shown:
					case <-ctx.Done():
						t.Fatalf("commit %d was not seen", i)
					}
				}
			}
			stop()
			require.NoError(t, ended())
			require.LessOrEqual(t, ticks+len(shown), commits+3)
			kept, err := testkit.Rows(other, `PRAGMA journal_mode`)
			require.True(t, err == nil && kept[0] == mode, "%v %v", kept, err)
		})
	}
}

// A caller that begins to wait while the notifier is reading the changes is not missed. Such a caller has checked too
// early to see the change, and must not be woken too late. In each round, two callers begin to wait for names that no
// other call is waiting for, and a single commit, without a hint, makes both of them ready.
func TestNotifier_WaitDuringLook(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, 3*testkit.Timeout)
	for round := range 300 {
		names := [2]string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		heard := make(chan error, 4)
		for _, name := range names {
			go func() { heard <- firstEvent(ctx, db, name) }()
			l, err := db.Listen(ctx, name)
			require.NoError(t, err)
			go func() { _, err := l.Next(ctx); heard <- err }()
		}
		time.Sleep(time.Duration(round%40) * 25 * time.Microsecond) // at any point in the two other goroutines
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, name := range names {
				if _, err := honker.NewStream[int](db, name, nil).PublishTx(ctx, tx, 1); err != nil {
					return err
				}
				if _, err := db.NotifyTx(ctx, tx, name, 1); err != nil {
					return err
				}
			}
			return nil
		}))
		for range 4 {
			require.NoError(t, testkit.Within(ctx, heard, testkit.Timeout), "round %d", round)
		}
	}
}

func firstEvent(ctx context.Context, db *honker.DB, topic string) error {
	for _, err := range honker.NewStream[int](db, topic, nil).Subscribe(ctx, "c", nil) {
		return err
	}
	return nil
}

// Verbs that may change many rows use transactions of a few rows each. When ctx ends, they stop between two
// transactions. The completed part is committed and reported, and a second call does the rest.
func TestDB_LongVerbs_Chunks(t *testing.T) {
	testkit.FileOnly(t)
	const all = 5000
	type verb struct {
		seed, left string // statements that insert ? rows and count the remaining rows
		do         func(context.Context, *honker.DB) (int, error)
	}
	const numbers = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) `
	for name, v := range map[string]verb{
		"SweepExpired": {`INSERT INTO _honker_live (queue, payload, expires_at) SELECT 'jobs', '1', 1 FROM n`,
			`SELECT count(*) FROM _honker_live`,
			func(ctx context.Context, db *honker.DB) (int, error) {
				return honker.NewQueue[int](db, "jobs", nil).SweepExpired(ctx)
			}},
		"PruneNotifications by age": {`INSERT INTO _honker_notifications (channel, payload, created_at) SELECT 'c', '1', 1 FROM n`,
			`SELECT count(*) FROM _honker_notifications`,
			func(ctx context.Context, db *honker.DB) (int, error) {
				return db.PruneNotifications(ctx, time.Hour, -1)
			}},
		"PruneNotifications by count": {`INSERT INTO _honker_notifications (channel, payload) SELECT 'c', '1' FROM n`,
			`SELECT count(*) FROM _honker_notifications`,
			func(ctx context.Context, db *honker.DB) (int, error) { return db.PruneNotifications(ctx, 0, 0) }},
		"SweepRateLimits": {`INSERT INTO _honker_rate_limits (name, window_start, count) SELECT 'r' || i, 1, 1 FROM n`,
			`SELECT count(*) FROM _honker_rate_limits`,
			func(ctx context.Context, db *honker.DB) (int, error) { return db.SweepRateLimits(ctx, time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				testkit.Exec(t, db, numbers+v.seed, all)
				ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Microsecond) // ends in the third pause
				defer cancel()
				first, err := v.do(ctx, db)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Positive(t, first)
				require.EqualValues(t, all-first, testkit.QueryInt(t, db.SQL(), v.left))
				rest, err := v.do(t.Context(), db)
				require.NoError(t, err)
				require.Equal(t, all, first+rest)
				require.Zero(t, testkit.QueryInt(t, db.SQL(), v.left))
			})
		})
	}
}

// requirePerFile waits until each file has at most most goroutines. It does not count goroutines that
// existed before, or the few that all files in a process share.
func requirePerFile(t *testing.T, what string, before, files, most int) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, what, func() bool { return runtime.NumGoroutine()-before <= files*most+5 })
}

// An open file has a single goroutine, and a second goroutine while a worker loop waits on it, in addition to the
// goroutine that called Work. The same is true after jobs have run. The test is not parallel because it counts all
// goroutines.
func TestOpen_Many_Goroutines(t *testing.T) {
	testkit.FileOnly(t)
	const files = 30
	before, dir := runtime.NumGoroutine(), t.TempDir()
	var queues []*honker.Queue[int]
	for i := range files {
		db, err := honker.Open(t.Context(), filepath.Join(dir, strconv.Itoa(i)), &honker.Options{NoTraffic: true})
		require.NoError(t, err)
		defer db.Close()
		queues = append(queues, honker.NewQueue[int](db, "jobs", nil))
	}
	requirePerFile(t, "one for each open file", before, files, 1)
	done := make(chan struct{}, files)
	for _, q := range queues {
		testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { done <- struct{}{}; return nil },
			&honker.WorkOptions{Workers: 1, Lease: time.Second})
	}
	testkit.Eventually(t, testkit.Timeout, "the loops wait", func() bool { return runtime.NumGoroutine()-before >= files*3 })
	requirePerFile(t, "two more for each loop that waits", before, files, 3)
	for _, q := range queues {
		testkit.Enqueue(t, q, 1)
	}
	for range files {
		<-done
	}
	requirePerFile(t, "and no more once it has worked", before, files, 3)
}
