//go:build unix

package faults_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/tests/torture"
)

func init() { children["failpoint"] = dieAtStatement }

// failpoints records the statements of a verb and exits the process before the statement with
// number at.
type failpoints struct {
	mu    sync.Mutex
	armed bool
	at    int // 0: never exit
	texts []string
}

func (f *failpoints) hit(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed || strings.HasPrefix(text, "PRAGMA") { // PRAGMA statements come from the watcher at any time
		return
	}
	f.texts = append(f.texts, text)
	if len(f.texts) == f.at {
		// Exit without deferred calls and without closing the database, like a crash.
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// commits returns the numbers, counted from 1, of the statements that commit a write.
func (f *failpoints) commits() (at []int) {
	inTx, wrote := false, false
	for i, text := range f.texts {
		word, _, _ := strings.Cut(text, " ")
		switch strings.ToUpper(word) {
		case "BEGIN":
			inTx, wrote = true, false
		case "COMMIT":
			if wrote {
				at = append(at, i+1)
			}
			inTx = false
		case "ROLLBACK":
			inTx = inTx && strings.HasPrefix(text, "ROLLBACK TO")
		case "SELECT", "SAVEPOINT", "RELEASE":
		default:
			wrote = true
			if !inTx {
				at = append(at, i+1)
			}
		}
	}
	return at
}

// dieAtStatement is a child process. It prepares a verb, prints the state of the file, and runs the
// verb up to the statement at which it exits. Without such a statement, it prints the number of
// statements and the positions of the commits.
func dieAtStatement() {
	a := testkit.ChildArgs[testkit.Task]()
	f := &failpoints{at: a.Jobs}
	sqlite.Failpoint = f.hit
	if a.Owner == "open" {
		f.armed = true
		testkit.Say("")
	}
	db, err := honker.Open(context.Background(), a.Path, &honker.Options{NoFileNotices: true, NoTraffic: true})
	testkit.Must(err)
	if a.Owner != "open" {
		run := failVerbs[a.Owner](db)
		before, err := torture.State(context.Background(), db.SQL())
		testkit.Must(err)
		testkit.Say(before)
		f.mu.Lock()
		f.armed = true
		f.mu.Unlock()
		testkit.Must(run(context.Background()))
	}
	f.mu.Lock()
	f.armed = false
	f.mu.Unlock()
	testkit.Say(len(f.texts), f.commits())
	testkit.Must(db.Close())
}

// inParts are the verbs with several commits. The first commit decides what holds. The rest adjusts
// jobs, and is left to Maintain of another process after a kill. The function checks that it was done.
var inParts = map[string]func(t *testing.T, db *honker.DB){
	"SetLimits, none": func(t *testing.T, db *honker.DB) { requireNoneHeld(t, db, "keyed") },
	"ResumeKey":       func(t *testing.T, db *honker.DB) { requireNoneHeld(t, db, "jobs") },
}

// requireNoneHeld checks that no key of the queue holds a job or is paused.
func requireNoneHeld(t *testing.T, db *honker.DB, queue string) {
	t.Helper()
	q := honker.NewQueue[int](db, queue, nil)
	limits, err := q.Limits(context.Background())
	require.NoError(t, err)
	require.Zero(t, limits)
	keys, err := q.Keys(context.Background())
	require.NoError(t, err)
	for _, k := range keys {
		require.Zero(t, k.Held, k.Key)
		require.Nil(t, k.Pause, k.Key)
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_queues WHERE fit_job IS NOT NULL`), "jobs are left to be adjusted")
}

// A process killed between any two statements of a verb leaves either all of its effects or none. A
// verb in parts leaves all that its first commit decided, and another process finishes the rest.
func TestDB_KilledMidVerb(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.db")
	setStage(t, base)
	for i, verb := range failVerbNames() {
		if testing.Short() && i%4 > 0 {
			continue
		}
		t.Run(verb, func(t *testing.T) { killAtEachStatement(t, base, verb) })
	}
}

func failVerbNames() []string {
	names := []string{"open"}
	for name := range failVerbs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// killAtEachStatement counts the statements of a verb in a dry run. Then it kills a process before
// each of them, and expects the old state up to the commit and a new state after it.
func killAtEachStatement(t *testing.T, base, verb string) {
	dry, _ := startAt(t, base, verb, 0)
	dry.Line(testkit.Timeout)
	var count int
	said := dry.Line(testkit.Timeout)
	_, err := fmt.Sscan(said, &count)
	require.NoError(t, err, said)
	dry.End()
	commits := commitsOf(t, said)
	finished := inParts[verb]
	if finished == nil {
		require.Len(t, commits, 1, "statements that commit: a reader could see one without the other")
	} else {
		require.Greater(t, len(commits), 1)
	}
	for at := 1; at <= count; at++ {
		left := finished
		if at <= commits[0] {
			left = nil
		}
		before, after := killedAt(t, base, verb, at, left)
		if at <= commits[0] {
			require.Equal(t, before, after, "killed before statement %d of %d", at, count)
		} else {
			require.NotEqual(t, before, after, "killed before statement %d of %d, after the commit", at, count)
		}
	}
	t.Logf("%d statements, %v commit", count, commits)
}

func commitsOf(t *testing.T, said string) (at []int) {
	t.Helper()
	_, list, _ := strings.Cut(said, "[")
	for _, word := range strings.Fields(strings.TrimSuffix(list, "]")) {
		var n int
		_, err := fmt.Sscan(word, &n)
		require.NoError(t, err)
		at = append(at, n)
	}
	return at
}

// startAt runs a verb on a copy of base and stops at statement at.
func startAt(t *testing.T, base, verb string, at int) (*testkit.Child, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	if verb != "open" {
		text, err := os.ReadFile(base) // no process has the file open
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	return testkit.StartChild(t, "failpoint", testkit.Task{Path: path, Owner: verb, Jobs: at}), path
}

// killedAt returns the state of the file before the verb and after the kill. With finished, another
// process maintains the file then, and finished checks it.
func killedAt(t *testing.T, base, verb string, at int, finished func(*testing.T, *honker.DB)) (before, after string) {
	t.Helper()
	victim, path := startAt(t, base, verb, at)
	before = victim.Line(testkit.Timeout)
	for line := range victim.Lines() {
		t.Fatalf("statement %d of %s: still alive, and says %q", at, verb, line)
	}
	after, err := torture.State(context.Background(), testkit.OpenPool(t, path))
	require.NoError(t, err)
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Check(context.Background()))
	if finished != nil {
		require.NoError(t, db.Maintain(context.Background(), &honker.MaintainOptions{Once: true}))
		finished(t, db)
		require.NoError(t, db.Check(context.Background()))
	}
	return before, after
}

// stageTimes makes the prepared claims and leases expire.
var stageTimes = []string{
	`UPDATE _honker_live SET claim_expires_at = 1 WHERE state = 'processing'`,
	`UPDATE _honker_live SET expires_at = 2 WHERE id IN (3, 12)`,
	`UPDATE _honkerx_group_claims SET deadline_ms = 1`,
	`UPDATE _honker_scheduler_tasks SET next_fire_at = unixepoch() - 10`,
}

// setStage creates a file on which every verb has an effect.
func setStage(t *testing.T, path string) {
	t.Helper()
	ctx := testkit.Context(t, testkit.Timeout)
	db, err := honker.Open(ctx, path, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[int](db, "jobs", nil)
	_, err = q.EnqueueMany(ctx, make([]int, 6), honker.MaxAttempts(1))
	require.NoError(t, err)
	_, err = q.Claim(ctx, "dead", 6) // jobs 1 to 6 have no attempts left
	require.NoError(t, err)
	_, err = q.EnqueueMany(ctx, make([]int, 12))
	require.NoError(t, err)
	_, err = q.Claim(ctx, "dead", 4) // jobs 7 to 10 can be claimed again
	require.NoError(t, err)
	s := honker.NewStream[int](db, "events", nil)
	_, _, err = s.PublishMany(ctx, make([]int, 20), honker.EventKey("k"))
	require.NoError(t, err)
	g := s.Group("g", &honker.GroupOptions{MaxAttempts: 1})
	m, err := g.Join(ctx, "dead")
	require.NoError(t, err)
	_, err = m.Claim(ctx, 2)
	require.NoError(t, err)
	_, err = s.SaveOffset(ctx, "c", 3)
	require.NoError(t, err)
	require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxCount: 1}))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "fired", Spec: "@every 3s"}))
	_, err = db.Notify(ctx, "news", 1)
	require.NoError(t, err)
	testkit.ExecAll(t, db.SQL(), stageTimes...)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (job INTEGER)`)
	setRelayStage(t, db)
}

// setRelayStage makes messages 1 to 3 dead letters.
func setRelayStage(t *testing.T, db *honker.DB) {
	t.Helper()
	r := relay.New(db, nil)
	q := r.Queue("hooks", 2)
	q.Handle(func(context.Context, *relay.Message) error { return relay.Reject(testkit.ErrCause) })
	_, err := q.Send(context.Background(), make([]relay.Outgoing, 3)...)
	require.NoError(t, err)
	stop := testkit.Background(t, r.Run)
	testkit.Eventually(t, testkit.Timeout, "dead letters", func() bool {
		n, err := q.CountDead(context.Background(), nil)
		return err == nil && n == 3
	})
	require.NoError(t, stop())
}

func onRelay(do func(context.Context, *relay.Queue) error) failVerb {
	return onDB(func(ctx context.Context, db *honker.DB) error { return do(ctx, relay.New(db, nil).Queue("hooks", 2)) })
}

func withDead(do func(context.Context, *relay.DeadMessage) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		dead, err := relay.New(db, nil).Queue("hooks", 2).Replay(context.Background(), 1, time.Minute, nil)
		testkit.Must(err)
		return func(ctx context.Context) error { return do(ctx, dead[0]) }
	}
}

// failVerb prepares a DB and returns the call during which the process is killed.
type failVerb func(*honker.DB) func(context.Context) error

func withJob(do func(context.Context, *honker.Job[int]) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		jobs, err := honker.NewQueue[int](db, "jobs", nil).Claim(context.Background(), "w", 1)
		testkit.Must(err)
		return func(ctx context.Context) error { return do(ctx, jobs[0]) }
	}
}

// withKept is like withJob, for a queue that retains done jobs.
func withKept(do func(context.Context, *honker.Job[int]) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		keep := honker.QueueRetention{Done: honker.Retention{MaxCount: 9}}
		testkit.Must(honker.NewQueue[int](db, "jobs", nil).SetRetention(context.Background(), keep))
		return withJob(do)(db)
	}
}

// withDeadJob prepares a dead letter with a unique key.
func withDeadJob(do func(context.Context, *honker.DB) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		q := honker.NewQueue[int](db, "dying", nil)
		testkit.Must(second(q.Enqueue(context.Background(), 1, honker.Unique("k", nil))))
		jobs, err := q.Claim(context.Background(), "w", 1)
		testkit.Must(err)
		testkit.Must(jobs[0].Reject(context.Background(), testkit.ErrCause))
		return func(ctx context.Context) error { return do(ctx, db) }
	}
}

// withKeys prepares a queue with limits. One job with the key "k" is running and the others are
// held.
func withKeys(do func(context.Context, *honker.Queue[int], *honker.Job[int]) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		ctx, q := context.Background(), honker.NewQueue[int](db, "keyed", nil)
		rate := honker.Rate{N: 1, Per: time.Minute, Burst: 2}
		testkit.Must(q.SetLimits(ctx, honker.Limits{Running: 3, PerKey: 1, Rate: honker.Rate{N: 9, Per: time.Second, Burst: 9}, KeyRate: rate}))
		testkit.Must(second(q.EnqueueMany(ctx, make([]int, 4), honker.Key("k"))))
		jobs, err := q.Claim(ctx, "w", 2)
		testkit.Must(err)
		testkit.Must(second(q.EnqueueMany(ctx, make([]int, 3), honker.Key("l"))))
		return func(ctx context.Context) error { return do(ctx, q, jobs[0]) }
	}
}

func withEvent(attempts int, do func(context.Context, *honker.Delivery[int]) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		g := honker.NewStream[int](db, "events", nil).Group("g", &honker.GroupOptions{MaxAttempts: attempts})
		m, err := g.Join(context.Background(), "m")
		testkit.Must(err)
		ds, err := m.Claim(context.Background(), 1)
		testkit.Must(err)
		return func(ctx context.Context) error { return do(ctx, ds[0]) }
	}
}

func onQueue(do func(context.Context, *honker.Queue[int]) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		return func(ctx context.Context) error { return do(ctx, honker.NewQueue[int](db, "jobs", nil)) }
	}
}

func onStream(do func(context.Context, *honker.Stream[int]) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		return func(ctx context.Context) error { return do(ctx, honker.NewStream[int](db, "events", nil)) }
	}
}

func onDB(do func(context.Context, *honker.DB) error) failVerb {
	return func(db *honker.DB) func(context.Context) error {
		return func(ctx context.Context) error { return do(ctx, db) }
	}
}

func second[A any](_ A, err error) error { return err }

var failVerbs = map[string]failVerb{
	"Enqueue":      onQueue(func(c context.Context, q *honker.Queue[int]) error { return second(q.Enqueue(c, 1)) }),
	"EnqueueMany":  onQueue(func(c context.Context, q *honker.Queue[int]) error { return second(q.EnqueueMany(c, []int{1, 2, 3})) }),
	"Claim":        onQueue(func(c context.Context, q *honker.Queue[int]) error { return second(q.Claim(c, "w", 3)) }),
	"SweepExpired": onQueue(func(c context.Context, q *honker.Queue[int]) error { return second(q.SweepExpired(c)) }),
	"Cancel":       onQueue(func(c context.Context, q *honker.Queue[int]) error { return second(q.Cancel(c, 15)) }),
	"SaveResult":   onQueue(func(c context.Context, q *honker.Queue[int]) error { return q.SaveResult(c, 1, 1, 0) }),
	"AckMany": func(db *honker.DB) func(context.Context) error {
		q := honker.NewQueue[int](db, "jobs", nil)
		jobs, err := q.Claim(context.Background(), "w", 2)
		testkit.Must(err)
		return func(c context.Context) error { return second(q.AckMany(c, "w", []int64{jobs[0].ID, jobs[1].ID})) }
	},
	"Ack": withJob(func(c context.Context, j *honker.Job[int]) error {
		testkit.Must(j.SetResult("done"))
		return j.Ack(c)
	}),
	"Ack of a job that is kept": withKept(func(c context.Context, j *honker.Job[int]) error {
		testkit.Must(j.SetResult("done"))
		return j.Ack(c)
	}),
	"Queue.SetRetention": onQueue(func(c context.Context, q *honker.Queue[int]) error {
		return q.SetRetention(c, honker.QueueRetention{Done: honker.Retention{MaxCount: 9}})
	}),
	"SetLimits, the first": onQueue(func(c context.Context, q *honker.Queue[int]) error {
		return q.SetLimits(c, honker.Limits{Running: 2, PerKey: 1, Rate: honker.Rate{N: 1, Per: time.Second}})
	}),
	"SetLimits, none": withKeys(func(c context.Context, q *honker.Queue[int], _ *honker.Job[int]) error {
		return q.SetLimits(c, honker.Limits{})
	}),
	"Claim of keys": withKeys(func(c context.Context, q *honker.Queue[int], _ *honker.Job[int]) error {
		return second(q.Claim(c, "w", 9))
	}),
	"Ack of a key": withKeys(func(c context.Context, _ *honker.Queue[int], j *honker.Job[int]) error { return j.Ack(c) }),
	"Retry of a key": withKeys(func(c context.Context, _ *honker.Queue[int], j *honker.Job[int]) error {
		return j.Retry(c, 0, testkit.ErrCause)
	}),
	"Enqueue of keys": onQueue(func(c context.Context, q *honker.Queue[int]) error {
		return second(q.EnqueueMany(c, []int{1, 2}, honker.Key("k")))
	}),
	"Pause of a key": withKeys(func(c context.Context, q *honker.Queue[int], _ *honker.Job[int]) error {
		return second(q.Pause(c, &honker.PauseOptions{Key: "k"}))
	}),
	"ResumeKey": func(db *honker.DB) func(context.Context) error {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Must(second(q.Pause(context.Background(), &honker.PauseOptions{Key: "k"})))
		return func(c context.Context) error { return second(q.ResumeKey(c, "k")) }
	},
	"admin.Requeue": withDeadJob(func(c context.Context, db *honker.DB) error {
		return second(admin.Requeue(c, db, admin.JobFilter{All: true}, nil))
	}),
	"admin.Discard": withDeadJob(func(c context.Context, db *honker.DB) error {
		return second(admin.Discard(c, db, admin.JobFilter{All: true}, nil))
	}),
	"admin.ImportJobs": onDB(func(c context.Context, db *honker.DB) error {
		const lines = `{"queue":"jobs","payload":1}` + "\n" + `{"queue":"jobs","payload":2,"unique":"k"}`
		return second(admin.ImportJobs(c, db, strings.NewReader(lines), nil))
	}),
	"Retry":  withJob(func(c context.Context, j *honker.Job[int]) error { return j.Retry(c, time.Second, testkit.ErrCause) }),
	"Reject": withJob(func(c context.Context, j *honker.Job[int]) error { return j.Reject(c, testkit.ErrCause) }),
	"Snooze": withJob(func(c context.Context, j *honker.Job[int]) error { return j.Snooze(c, time.Minute) }),
	"Extend": withJob(func(c context.Context, j *honker.Job[int]) error { return j.Extend(c, time.Hour) }),

	"Publish": onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.Publish(c, 1)) }),
	"PublishMany": onStream(func(c context.Context, s *honker.Stream[int]) error {
		_, _, err := s.PublishMany(c, []int{1, 2})
		return err
	}),
	"SaveOffset":                   onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.SaveOffset(c, "c", 7)) }),
	"SaveOffset of a new consumer": onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.SaveOffset(c, "d", 7)) }),
	"Seek":                         onStream(func(c context.Context, s *honker.Stream[int]) error { return s.Seek(c, "c", honker.Beginning) }),
	"DeleteConsumer":               onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.DeleteConsumer(c, "c")) }),
	"SetRetention": onStream(func(c context.Context, s *honker.Stream[int]) error {
		return s.SetRetention(c, honker.Retention{MaxCount: 9})
	}),
	"Compact": func(db *honker.DB) func(context.Context) error {
		s := honker.NewStream[int](db, "events", nil)
		_, err := s.Group("g", nil).Delete(context.Background())
		testkit.Must(err)
		return func(c context.Context) error { return second(s.Compact(c)) }
	},

	"Join":            onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.Group("g", nil).Join(c, "m")) }),
	"Join, the first": onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.Group("new", nil).Join(c, "m")) }),
	"Group.Delete":    onStream(func(c context.Context, s *honker.Stream[int]) error { return second(s.Group("g", nil).Delete(c)) }),
	"Member.Claim": func(db *honker.DB) func(context.Context) error {
		m, err := honker.NewStream[int](db, "events", nil).Group("g", &honker.GroupOptions{MaxAttempts: 1}).Join(context.Background(), "m")
		testkit.Must(err)
		return func(c context.Context) error { return second(m.Claim(c, 3)) }
	},
	"Leave": func(db *honker.DB) func(context.Context) error {
		m, err := honker.NewStream[int](db, "events", nil).Group("g", nil).Join(context.Background(), "m")
		testkit.Must(err)
		testkit.Must(second(m.Claim(context.Background(), 3)))
		return func(c context.Context) error { return m.Leave(c) }
	},
	"Delivery.Ack":        withEvent(0, func(c context.Context, d *honker.Delivery[int]) error { return d.Ack(c) }),
	"Delivery.Nack":       withEvent(0, func(c context.Context, d *honker.Delivery[int]) error { return d.Nack(c, testkit.ErrCause) }),
	"Delivery.Nack, dead": withEvent(1, func(c context.Context, d *honker.Delivery[int]) error { return d.Nack(c, testkit.ErrCause) }),
	"Delivery.Extend":     withEvent(0, func(c context.Context, d *honker.Delivery[int]) error { return d.Extend(c, time.Hour) }),

	"Notify":             onDB(func(c context.Context, db *honker.DB) error { return second(db.Notify(c, "news", 1)) }),
	"PruneNotifications": onDB(func(c context.Context, db *honker.DB) error { return second(db.PruneNotifications(c, 0, 0)) }),
	"TryLock":            onDB(func(c context.Context, db *honker.DB) error { return second(db.TryLock(c, "l", nil)) }),
	"Unlock": func(db *honker.DB) func(context.Context) error {
		l, err := db.TryLock(context.Background(), "l", nil)
		testkit.Must(err)
		return l.Unlock
	},
	"Allow": onDB(func(c context.Context, db *honker.DB) error { return second(db.RateLimit("r", 5, time.Hour).Allow(c)) }),
	"Register": onDB(func(c context.Context, db *honker.DB) error {
		return db.Scheduler().Register(c, honker.Schedule{Name: "t", Queue: "fired", Spec: "0 0 1 1 *"})
	}),
	"Tick":       onDB(func(c context.Context, db *honker.DB) error { return second(db.Scheduler().Tick(c, time.Now())) }),
	"Trigger":    onDB(func(c context.Context, db *honker.DB) error { return second(db.Scheduler().Trigger(c, "s")) }),
	"Pause":      onDB(func(c context.Context, db *honker.DB) error { return second(db.Scheduler().Pause(c, "s")) }),
	"Unregister": onDB(func(c context.Context, db *honker.DB) error { return second(db.Scheduler().Unregister(c, "s")) }),
	"Tx": onDB(func(c context.Context, db *honker.DB) error {
		return db.Tx(c, func(c context.Context, tx *sql.Tx) error {
			testkit.Must(second(tx.ExecContext(c, `INSERT INTO effects VALUES (1)`)))
			testkit.Must(second(honker.NewQueue[int](db, "jobs", nil).EnqueueTx(c, tx, 1)))
			testkit.Must(second(honker.NewStream[int](db, "events", nil).PublishTx(c, tx, 1)))
			return second(db.NotifyTx(c, tx, "news", 1))
		})
	}),
	"relay.Send": onRelay(func(c context.Context, q *relay.Queue) error {
		return second(q.Send(c, relay.Outgoing{}, relay.Outgoing{}))
	}),
	"relay.Send, the first": onDB(func(c context.Context, db *honker.DB) error {
		return second(relay.New(db, &relay.Options{Family: "new"}).Queue("hooks", 4).Send(c, relay.Outgoing{}))
	}),
	"relay.Replay":  onRelay(func(c context.Context, q *relay.Queue) error { return second(q.Replay(c, 2, time.Minute, nil)) }),
	"relay.Requeue": onRelay(func(c context.Context, q *relay.Queue) error { return second(q.Requeue(c, 1, 2)) }),
	"relay.Discard": onRelay(func(c context.Context, q *relay.Queue) error { return second(q.Discard(c, 1, 2)) }),
	"relay.Resolve": withDead(func(c context.Context, d *relay.DeadMessage) error { return d.Resolve(c) }),
	"relay.Reject":  withDead(func(c context.Context, d *relay.DeadMessage) error { return d.Reject(c, testkit.ErrCause) }),
	"SQL functions": onDB(func(c context.Context, db *honker.DB) error {
		return second(db.SQL().ExecContext(c, `SELECT notify('news', '1'), honker_stream_publish('events', NULL, '1')`))
	}),
}
