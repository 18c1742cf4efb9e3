//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

func init() {
	children["dying writer"] = dieInTx
	children["stale worker"] = settleLate
	children["opener"] = openOnDemand
	children["notifier"] = notifyAll
}

// Many processes enqueue and handle jobs, and each job is handled exactly once.
func TestProcess_Jobs_ExactlyOnce(t *testing.T) {
	each := 2500
	if testing.Short() {
		each = 250
	}
	path, db := openShared(t)
	dir := filepath.Dir(path)
	var workers, producers []*testkit.Child
	for i, kind := range []string{"worker", "worker", "batch worker", "batch worker"} {
		a := testkit.Task{Path: path, Quiet: true, Ledger: filepath.Join(dir, fmt.Sprint("ledger", i))}
		workers = append(workers, testkit.StartChild(t, kind, a))
	}
	for range 4 {
		producers = append(producers, testkit.StartChild(t, "producer", testkit.Task{Path: path, Jobs: each}))
	}
	var made []int64
	for _, p := range producers {
		for line := range p.Lines() { // each producer has checked that its ids increase
			id, err := strconv.ParseInt(line, 10, 64)
			require.NoError(t, err)
			made = append(made, id)
		}
		p.End()
	}
	testkit.Eventually(t, 3*testkit.Timeout, "all jobs handled", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0
	})
	for _, w := range workers {
		require.Empty(t, w.End())
	}

	slices.Sort(made)
	require.Len(t, slices.Compact(slices.Clone(made)), 4*each, "ids are unique")
	ran, _ := testkit.Noted(t, filepath.Join(dir, "ledger*"), "ran")
	require.Equal(t, made, ran)
	acked, by := testkit.Noted(t, filepath.Join(dir, "ledger*"), honker.OutcomeAcked)
	require.Equal(t, made, acked)
	require.GreaterOrEqual(t, by, 2, "workers that took part")
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	require.NoError(t, db.Check(context.Background()))
}

// dieInTx waits inside a transaction until it is killed.
func dieInTx() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int64](db, "jobs", nil)
	testkit.Must(db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 0)
		testkit.Must(err)
		_, err = db.NotifyTx(ctx, tx, "news", "of the dead")
		testkit.Must(err)
		testkit.Say("READY")
		<-testkit.ChildContext().Done()
		return errors.New("not killed")
	}))
}

// A process killed inside a transaction leaves neither changes nor locks.
func TestProcess_Killed_InTx(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	news, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer news.Close()
	victim := testkit.StartChild(t, "dying writer", testkit.Task{Path: path})
	require.Equal(t, "READY", victim.Line(testkit.Timeout))
	victim.Kill()

	took, err := time.ParseDuration(testkit.StartChild(t, "tx writer", testkit.Task{Path: path, Jobs: 1}).Line(testkit.Timeout))
	require.NoError(t, err)
	t.Logf("another process could write after %v", took) // otherwise the writer would have failed with SQLITE_BUSY
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs), "jobs, the dead writer's included")

	sent, err := db.Notify(ctx, "news", "of the living")
	require.NoError(t, err)
	got, err := news.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, sent, got.ID)
	require.JSONEq(t, `"of the living"`, string(got.Payload))
}

// The jobs of a killed worker run again after their leases have expired.
func TestProcess_Killed_JobsRunAgain(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int64](db, "jobs", nil)
	ids, err := q.EnqueueMany(ctx, []int64{-1, -2})
	require.NoError(t, err)
	victim := testkit.StartChild(t, "worker", testkit.Task{Path: path, Span: time.Minute})
	for range ids {
		require.EqualValues(t, 1, nextRun(t, victim).attempts)
	}
	victim.Kill()
	endLeases(t, db, time.Second)
	lapse := make(map[int64]time.Time)
	for _, id := range ids {
		info, err := q.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, honker.StateProcessing, info.State)
		lapse[id] = info.ClaimExpiresAt
		if testkit.OnFile() {
			lapse[id] = lapse[id].Add(time.Second) // the claim is valid through its last second
		}
	}

	heir := testkit.StartChild(t, "worker", testkit.Task{Path: path, Span: time.Minute})
	for range ids {
		r := nextRun(t, heir)
		require.EqualValues(t, 2, r.attempts)
		require.False(t, r.at.Before(lapse[r.id]), "%v too early", lapse[r.id].Sub(r.at))
		t.Logf("%v after the lease had lapsed", r.at.Sub(lapse[r.id]))
	}
}

// A job that kills all of its workers becomes a dead letter after its last attempt, without running
// again. The worker that finds it reports this to the log and the observer.
func TestProcess_Killed_JobDies(t *testing.T) {
	const attempts = 3
	path, events, log := filepath.Join(t.TempDir(), "shared.db"), new(testkit.Recorder), new(testkit.Log)
	db := honkertest.OpenFile(t, path, &honker.Options{
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
		Observer: &observe.Observer{Settled: func(e observe.Settled) { testkit.Record(events, &events.Settled, e) }},
	})
	q := honker.NewQueue[int64](db, "jobs", nil)
	id := testkit.Enqueue(t, q, -1, honker.MaxAttempts(attempts))
	for n := range attempts {
		victim := testkit.StartChild(t, "worker", testkit.Task{Path: path, Span: time.Minute})
		require.EqualValues(t, n+1, nextRun(t, victim).attempts)
		victim.Kill()
		endLeases(t, db, -time.Second)
	}

	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int64]) error {
		t.Errorf("job %d ran a %dth time", job.ID, job.Attempts)
		return nil
	}, nil)
	require.Eventually(t, func() bool { return testkit.GetJob(t, q, id).State == honker.StateDead }, testkit.Timeout, 10*time.Millisecond)
	require.NoError(t, stop())
	dead := testkit.GetJob(t, q, id)
	require.Equal(t, attempts, dead.Attempts)
	require.Equal(t, "max attempts exceeded", dead.LastError)

	told := testkit.Recorded(events, &events.Settled)
	require.Len(t, told, 1)
	require.EqualError(t, told[0].Err, dead.LastError)
	require.NotEmpty(t, told[0].Worker, "the last one that it killed")
	told[0].Err, told[0].Worker = nil, ""
	require.Equal(t, observe.Settled{Queue: "jobs", ID: id, Attempt: attempts, Outcome: honker.OutcomeDied}, told[0])
	require.Equal(t, 1, log.Times(fmt.Sprintf(`level=WARN msg="honker: job dead-lettered" queue=jobs job=%d attempt=%d worker=`, id, attempts)))
	require.Equal(t, 1, log.Times("level="))
}

// settleLate claims a job. For each line that it reads, it tries all methods that settle the job.
func settleLate() {
	a, db := testkit.OpenChild(nil)
	ctx := context.Background()
	q := honker.NewQueue[int64](db, "jobs", &honker.QueueOptions{Lease: a.Span})
	jobs, err := q.Claim(ctx, "stale", 1)
	testkit.Must(err)
	job := jobs[0]
	for testkit.Say("ready"); ; testkit.Say("ready") {
		if _, ok := testkit.ReadLine(); !ok {
			return
		}
		tx := func(settle func(context.Context, *sql.Tx) error) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, job.ID)
				testkit.Must(err)
				return settle(ctx, tx)
			})
		}
		for verb, err := range map[string]error{
			"Ack":      job.Ack(ctx),
			"Retry":    job.Retry(ctx, 0, errors.New("late")),
			"Reject":   job.Reject(ctx, errors.New("late")),
			"Snooze":   job.Snooze(ctx, 0),
			"Extend":   job.Extend(ctx, time.Minute),
			"AckTx":    tx(func(ctx context.Context, tx *sql.Tx) error { return job.AckTx(ctx, tx) }),
			"RejectTx": tx(func(ctx context.Context, tx *sql.Tx) error { return job.RejectTx(ctx, tx, errors.New("late")) }),
		} {
			if !errors.Is(err, honker.ErrClaimLost) {
				testkit.Must(fmt.Errorf("%s: %w", verb, err))
			}
		}
	}
}

// A worker that is suspended beyond its lease cannot settle its job.
func TestProcess_Stopped_CannotSettle(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (job BIGINT)`)
	q := honker.NewQueue[int64](db, "jobs", nil)
	_, err := q.Enqueue(ctx, 0)
	require.NoError(t, err)
	stale := testkit.StartChild(t, "stale worker", testkit.Task{Path: path, Span: time.Minute})
	require.Equal(t, "ready", stale.Line(testkit.Timeout))
	stopBesideWrites(t, path, stale)
	endLeases(t, db, -time.Second)
	for job, err := range q.Jobs(ctx, "second") {
		require.NoError(t, err)
		require.Equal(t, 2, job.Attempts)
		stale.Cont()
		stale.Tell("settle what another holds")
		require.Equal(t, "ready", stale.Line(testkit.Timeout))
		require.NoError(t, job.Ack(ctx))
		break
	}
	stale.Tell("settle what is done")
	require.Equal(t, "ready", stale.Line(testkit.Timeout))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// When a worker resumes after its lease has expired, it cancels the handler.
func TestProcess_Stopped_TellsHandler(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int64](db, "jobs", nil)
	id, err := q.Enqueue(ctx, -1)
	require.NoError(t, err)
	stale := testkit.StartChild(t, "worker", testkit.Task{Path: path, Span: 9 * time.Second}) // renewed every three seconds
	nextRun(t, stale)
	stopBesideWrites(t, path, stale)
	endLeases(t, db, -time.Second)
	for job, err := range q.Jobs(ctx, "second") {
		require.NoError(t, err)
		stale.Cont()
		require.Equal(t, fmt.Sprintln("cancelled", id, true), stale.Line(testkit.Timeout)+"\n")
		require.Equal(t, fmt.Sprintln("failed", id, true), stale.Line(testkit.Timeout)+"\n")
		require.NoError(t, job.Ack(ctx))
		break
	}
}

// An idle worker wakes at deadlines without any commit.
func TestProcess_Wake_Deadlines(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int64](db, "jobs", nil)
	worker := testkit.StartChild(t, "worker", testkit.Task{Path: path})
	for name, prepare := range map[string]func(){
		"a delayed job": func() { testkit.Enqueue(t, q, 0, honker.Delay(2*time.Second)) },
		"the claim of a worker that has gone": func() { // valid through its last second
			testkit.ExecAll(t, db.SQL(), testkit.Either(`INSERT INTO _honker_live (queue, payload, state, worker_id, attempts, claim_expires_at)
VALUES ('jobs', '0', 'processing', 'gone', 1, unixepoch() + 1)`, `INSERT INTO job (queue, payload, state, worker, attempts, run_at, created_at, lease_until)
VALUES ('jobs', '0', 1, 'gone', 1, now(), now(), date_trunc('second', now()) + interval '2 seconds')`))
		},
	} {
		_, err := q.Enqueue(ctx, 0)
		require.NoError(t, err)
		nextRun(t, worker) // the worker has started and is about to sleep
		due := time.Unix(time.Now().Unix()+2, 0)
		prepare()
		late := nextRun(t, worker).at.Sub(due) // without the deadline it would continue to sleep
		require.GreaterOrEqual(t, late, time.Duration(0), name)
		t.Logf("%s: %v late", name, late)
	}
}

// An idle worker of another process receives each job at once.
func TestProcess_Wake_IdleWorker(t *testing.T) {
	const jobs = 50
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int64](db, "jobs", nil)
	worker := testkit.StartChild(t, "worker", testkit.Task{Path: path})
	var took []time.Duration
	pace := time.NewTicker(15 * time.Millisecond)
	defer pace.Stop()
	for range jobs {
		<-pace.C
		sent := time.Now()
		id, err := q.Enqueue(ctx, sent.UnixNano())
		require.NoError(t, err)
		r := nextRun(t, worker)
		require.Equal(t, id, r.id)
		took = append(took, r.at.Sub(sent))
	}
	slices.Sort(took)
	t.Logf("median %v, longest %v", took[jobs/2], took[jobs-2]) // the first sample includes the start of the process
	require.Less(t, took[jobs/2], wokenByEvent)
}

// Writers of many processes wait for each other without errors.
func TestProcess_Writers_Wait(t *testing.T) {
	testkit.FileOnly(t) // a server has no write lock
	const writers = 4
	each := 300
	if testing.Short() {
		each = 40
	}
	path, db := testkit.OpenShared(t)
	hog := testkit.StartChild(t, "hog", testkit.Task{Path: path, Span: 200 * time.Millisecond})
	require.Equal(t, "held", hog.Line(testkit.Timeout))
	var procs []*testkit.Child
	for range writers {
		procs = append(procs, testkit.StartChild(t, "tx writer", testkit.Task{Path: path, Jobs: each}))
	}
	var worst []string
	for _, p := range procs {
		worst = append(worst, p.Line(testkit.Timeout))
		p.End()
	}
	t.Log("longest waits:", worst)
	require.EqualValues(t, writers*each, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	hog.End()
}

// A writer that waits too long for another process gets ErrBusy and changes nothing.
func TestProcess_Writers_Busy(t *testing.T) {
	testkit.FileOnly(t) // a server has no write lock
	path, _ := testkit.OpenShared(t)
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 200 * time.Millisecond})
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int64](db, "jobs", nil)
	_, err := q.Enqueue(ctx, 0)
	require.NoError(t, err)
	held, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	id, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)
	hog := testkit.StartChild(t, "hog", testkit.Task{Path: path, Span: time.Hour})
	require.Equal(t, "held", hog.Line(testkit.Timeout))

	for name, verb := range map[string]func() error{
		"Enqueue":     func() error { _, err := q.Enqueue(ctx, 2); return err },
		"EnqueueMany": func() error { _, err := q.EnqueueMany(ctx, []int64{3, 4}); return err },
		"Claim":       func() error { _, err := q.Claim(ctx, "w", 1); return err },
		"Ack":         func() error { return held[0].Ack(ctx) },
		"Cancel":      func() error { _, err := q.Cancel(ctx, id); return err },
		"Notify":      func() error { _, err := db.Notify(ctx, "news", 0); return err },
		"Tx": func() error {
			return db.Tx(ctx, func(context.Context, *sql.Tx) error { t.Error("fn ran"); return nil })
		},
	} {
		began := time.Now()
		require.ErrorIs(t, verb(), honker.ErrBusy, name)
		require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond, name)
	}
	hog.End()
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'pending'`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
	require.NoError(t, held[0].Ack(ctx), "and all is well afterwards")
}

// openOnDemand opens each path that it reads. It closes the DB again unless the path ends in
// "keep".
func openOnDemand() {
	for path, ok := testkit.ReadLine(); ok; path, ok = testkit.ReadLine() {
		db, err := honker.Open(testkit.ChildContext(), path, nil)
		testkit.Must(err)
		if !strings.HasSuffix(path, "keep") {
			testkit.Must(db.Close())
		}
		testkit.Say("open")
	}
}

// Two processes can open a new file at the same moment.
func TestProcess_OpenTogether(t *testing.T) {
	testkit.FileOnly(t) // the databases of a test are copies of a template
	dir := t.TempDir()
	a, b := testkit.StartChild(t, "opener", testkit.Task{}), testkit.StartChild(t, "opener", testkit.Task{})
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if i%2 == 0 {
			path += "keep"
		}
		a.Tell(path)
		b.Tell(path)
		require.Equal(t, "open", a.Line(testkit.Timeout))
		require.Equal(t, "open", b.Line(testkit.Timeout))
		honkertest.OpenFile(t, path, nil)
	}
}

// notifyAll sends numbered messages, some of them in transactions.
func notifyAll() {
	a, db := testkit.OpenChild(nil)
	for i := range a.Jobs {
		var err error
		if i%3 > 0 {
			_, err = db.Notify(testkit.ChildContext(), "news", i)
		} else {
			err = db.Tx(testkit.ChildContext(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := db.NotifyTx(ctx, tx, "news", i)
				return err
			})
		}
		testkit.Must(err)
	}
	testkit.Must(db.Close())
}

// A listener receives all messages of another process in order.
func TestProcess_Listen_InOrder(t *testing.T) {
	const messages = 300
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	news, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer news.Close()
	testkit.StartChild(t, "notifier", testkit.Task{Path: path, Jobs: messages})
	last := int64(0)
	for want := range messages {
		n, err := news.Next(ctx)
		require.NoError(t, err)
		var got int
		require.NoError(t, n.Decode(&got))
		require.Equal(t, want, got)
		require.Greater(t, n.ID, last)
		last = n.ID
	}
}
