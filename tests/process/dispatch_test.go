//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

func init() {
	children["actor"] = actAndNote
	children["old worker"] = workOldQueue
	children["foreign worker"] = workAsBinding
	children["slow actor"] = actOnDemand
}

const oldQueue = "hero:job:actor_queue:osis"

var ofOsis = dispatch.Target{Type: "osis"}

func newDispatcher(db *honker.DB, ttl time.Duration) *dispatch.Dispatcher {
	return dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush, TTL: ttl})
}

// notedAcks returns an observer that notes each committed ack.
func notedAcks(note func(what any, number int64)) *observe.Observer {
	return &observe.Observer{Settled: func(s observe.Settled) {
		if s.Outcome == honker.OutcomeAcked {
			note(s.Outcome, s.ID)
		}
	}}
}

// hasEffect reports whether task n inserts a row in the transaction that ends it. Every other task
// does.
func hasEffect(n int64) bool { return n%2 == 1 }

const addEffect = `INSERT INTO effects VALUES ($1)`

// actAndNote runs an actor named by its task. It notes the arguments of each task that it runs, and
// the id of each ended job.
func actAndNote() {
	note := testkit.ChildLedger(testkit.ChildArgs[testkit.Task]().Ledger)
	a, db := testkit.OpenChild(notedAcks(note))
	handle := func(ctx context.Context, t *dispatch.Task[int64]) (any, error) {
		note("ran", t.Args)
		if !hasEffect(t.Args) {
			return t.Args, nil
		}
		return nil, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, addEffect, t.Args)
			return errors.Join(err, t.FinishTx(ctx, tx, t.Args))
		})
	}
	id := dispatch.Identity{Type: "osis", Instance: a.Owner}
	testkit.Must(dispatch.NewActor(newDispatcher(db, a.Span), id, handle, &dispatch.ActorOptions{Workers: 2, Lease: a.Span}).Run(testkit.ChildContext()))
	testkit.Must(db.Close())
}

// workOldQueue is a worker of the old queue that does not use dispatch.
func workOldQueue() {
	note := testkit.ChildLedger(testkit.ChildArgs[testkit.Task]().Ledger)
	a, db := testkit.OpenChild(notedAcks(note))
	q := honker.NewQueue[int64](db, oldQueue, nil)
	testkit.Must(q.Work(testkit.ChildContext(), func(ctx context.Context, job *honker.Job[int64]) error {
		note("ran", job.Args)
		if !hasEffect(job.Args) {
			return nil
		}
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, addEffect, job.Args)
			return errors.Join(err, job.AckTx(ctx, tx))
		})
	}, &honker.WorkOptions{Workers: 2, Lease: a.Span}))
	testkit.Must(db.Close())
}

// workAsBinding is a worker of the old queue in another language. It polls with honker's own SQL
// and sends its result to the reply queue of the job.
func workAsBinding() {
	a := testkit.ChildArgs[testkit.Task]()
	note := testkit.ChildLedger(a.Ledger)
	pool, err := testkit.BindingPool(a.Path)
	testkit.Must(err)
	ctx := context.Background() // claimed jobs are ended even during shutdown
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for testkit.ChildContext().Err() == nil {
		jobs, err := testkit.ClaimAs(ctx, pool, oldQueue, a.Owner, 3, int(a.Span/time.Second))
		testkit.Must(err)
		for _, job := range jobs {
			runAsBinding(ctx, pool, a.Owner, job, note)
		}
		<-poll.C
	}
	testkit.Must(pool.Close())
}

// runAsBinding runs a job in a transaction with its reply and its ack. The transaction is rolled
// back if the worker no longer holds the job.
func runAsBinding(ctx context.Context, pool *sql.DB, worker string, job testkit.BindingJob, note func(what any, number int64)) {
	n, err := strconv.ParseInt(job.Payload, 10, 64)
	testkit.Must(err)
	note("ran", n)
	tx, err := pool.BeginTx(ctx, nil)
	testkit.Must(err)
	defer tx.Rollback()
	if hasEffect(n) {
		_, err := tx.ExecContext(ctx, addEffect, n)
		testkit.Must(err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO _honker_live (queue, payload) VALUES ('hero:q:reply:' || ?, ?)`, job.ID, job.Payload)
	testkit.Must(err)
	held, err := testkit.AckAs(ctx, tx, job.ID, worker)
	testkit.Must(err)
	if !held {
		return
	}
	testkit.Must(tx.Commit())
	note(honker.OutcomeAcked, job.ID)
}

// crowd is a set of processes that are restarted when they are killed.
type crowd struct {
	t       *testing.T
	path    string
	kinds   []string
	procs   []*testkit.Child
	started int
}

func newCrowd(t *testing.T, path string, kinds ...string) *crowd {
	c := &crowd{t: t, path: path, kinds: kinds, procs: make([]*testkit.Child, len(kinds))}
	for i := range kinds {
		c.start(i)
	}
	return c
}

// start starts a process under a new name.
func (c *crowd) start(i int) {
	c.started++
	c.procs[i] = testkit.StartChild(c.t, c.kinds[i], testkit.Task{
		Path: c.path, Owner: strconv.Itoa(c.started), Span: time.Second,
		Ledger: filepath.Join(filepath.Dir(c.path), fmt.Sprintf("ledger-%s-%d", c.kinds[i], c.started)),
	})
}

func (c *crowd) kill(i int) {
	c.procs[i].Kill()
	c.start(i)
}

func (c *crowd) end() {
	for _, p := range c.procs {
		require.Empty(c.t, p.End())
	}
}

// sendNumbered sends jobs with the arguments 1, 2, 3, … and returns the number of each job by its
// id.
func sendNumbered(t *testing.T, db *honker.DB, jobs int) map[int64]int64 {
	t.Helper()
	d := newDispatcher(db, time.Second)
	carried := make(map[int64]int64)
	for n := int64(1); n <= int64(jobs); {
		require.NoError(t, db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			for last := n + 99; n <= min(last, int64(jobs)); n++ {
				id, err := d.SendTx(ctx, tx, ofOsis, n, dispatch.With(honker.MaxAttempts(1000)))
				if err != nil {
					return err
				}
				carried[id] = n
			}
			return nil
		}))
	}
	rows, err := db.SQL().Query(testkit.Either(`SELECT job_id, sent_id FROM _honkerx_dispatch_twins`, `SELECT job_id, sent_id FROM sent_copy`))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var twin, sent int64
		require.NoError(t, rows.Scan(&twin, &sent))
		carried[twin] = carried[sent]
	}
	require.NoError(t, rows.Err())
	require.Len(t, carried, 2*jobs)
	return carried
}

// Jobs are sent to an old and a new queue at once. While actors, old workers and workers of another
// binding are killed, each job ends exactly once and none gets stuck. A server has no other bindings.
func TestDispatch_Process_DualPush_Killed(t *testing.T) {
	jobs, kills := 10_000, 24
	if testing.Short() {
		jobs, kills = brief(1000), brief(8)
	}
	path, db := openShared(t)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (number BIGINT NOT NULL)`)
	carried := sendNumbered(t, db, jobs)
	kinds := []string{"actor", "old worker"}
	if testkit.OnFile() {
		kinds = append(kinds, "foreign worker")
	}
	crowd := newCrowd(t, path, append(kinds, "actor")...)
	left := func() int64 {
		return testkit.QueryInt(t, db.SQL(), testkit.Either(`SELECT count(*) FROM _honkerx_dispatch_jobs WHERE ended_ms IS NULL`,
			`SELECT count(*) FROM sent_job WHERE ended_at IS NULL`))
	}
	for i := range kills {
		goal := int64(jobs - (i+1)*jobs/(kills+1))
		testkit.Eventually(t, testkit.Timeout, "some more have ended", func() bool { return left() <= goal })
		crowd.kill(i % len(crowd.procs))
	}
	testkit.Eventually(t, 3*testkit.Timeout, "all have ended", func() bool { return left() == 0 })
	crowd.end()

	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue NOT LIKE 'hero:q:reply:%'`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	var all []int64
	var want []string
	for n := int64(1); n <= int64(jobs); n++ {
		all = append(all, n)
		if hasEffect(n) {
			want = append(want, strconv.FormatInt(n, 10))
		}
	}
	effects, err := testkit.Rows(db.SQL(), `SELECT number FROM effects ORDER BY number`)
	require.NoError(t, err)
	require.Equal(t, want, effects)
	requireReplies(t, db, carried)
	ends := make(map[int64]int)
	dir := filepath.Dir(path)
	for _, kind := range kinds {
		acked, _ := testkit.Noted(t, filepath.Join(dir, "ledger-"+kind+"-*"), honker.OutcomeAcked)
		require.NotEmpty(t, acked, kind)
		for _, id := range acked {
			ends[carried[id]]++
		}
		t.Logf("%s: %d", kind, len(acked))
	}
	for n, times := range ends {
		require.Equal(t, 1, times, "ends of job %d", n)
	}
	ran, _ := testkit.Noted(t, filepath.Join(dir, "ledger-*"), "ran")
	again := len(ran)
	require.Equal(t, all, slices.Compact(ran))
	t.Logf("%d jobs, %d kills, %d runs again, %d ends not noted", jobs, kills, again-jobs, jobs-len(ends))
	require.NoError(t, db.Check(context.Background()))
}

// requireReplies checks that the result of each job equals its argument, whether an actor saved it
// or a worker of another binding sent it. Only old workers leave no result.
func requireReplies(t *testing.T, db *honker.DB, carried map[int64]int64) {
	t.Helper()
	d := newDispatcher(db, time.Second)
	pushed := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue LIKE 'hero:q:reply:%'`)
	saved := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`)
	require.Equal(t, testkit.OnFile(), pushed > 0)
	rows, err := testkit.Rows(db.SQL(), testkit.Either(`SELECT job_id FROM _honkerx_dispatch_jobs`, `SELECT job_id FROM sent_job`))
	require.NoError(t, err)
	replies := int64(0)
	for _, row := range rows {
		id, err := strconv.ParseInt(row, 10, 64)
		require.NoError(t, err)
		s, err := d.Status(context.Background(), id)
		require.NoError(t, err)
		if s.Output != nil {
			replies++
			require.Equal(t, strconv.FormatInt(carried[id], 10), string(s.Output))
		}
	}
	require.Equal(t, pushed+saved, replies)
	t.Logf("%d results saved, %d replies pushed, %d without", saved, pushed, int64(len(rows))-replies)
}

// actOnDemand is an actor that prints each task and ends it when it reads a line. While its name is
// taken it reports that and tries again.
func actOnDemand() {
	a, db := testkit.OpenChild(nil)
	var told sync.WaitGroup
	handle := func(ctx context.Context, t *dispatch.Task[int64]) (any, error) {
		testkit.Say("given", t.Args, t.Attempt)
		told.Go(func() {
			<-ctx.Done()
			testkit.Say("told", errors.Is(context.Cause(ctx), honker.ErrClaimLost))
		})
		testkit.ReadLine()
		return t.Args, ctx.Err()
	}
	id := dispatch.Identity{Type: "osis", Instance: a.Owner}
	actor := dispatch.NewActor(newDispatcher(db, a.Span), id, handle, &dispatch.ActorOptions{Lease: a.Span})
	for {
		err := actor.Run(testkit.ChildContext())
		if !errors.Is(err, dispatch.ErrInstanceTaken) {
			testkit.Must(err)
			break
		}
		testkit.Say("taken", time.Now().UnixMilli())
		select {
		case <-time.After(50 * time.Millisecond):
		case <-testkit.ChildContext().Done():
		}
	}
	testkit.Must(db.Close())
	told.Wait()
}

// startSlow starts an actor with the name 1. Its name and its claims remain for span after it is
// killed.
func startSlow(t *testing.T, path string, span time.Duration) *testkit.Child {
	return testkit.StartChild(t, "slow actor", testkit.Task{Path: path, Owner: "1", Span: span})
}

// presenceEnds returns the time, in Unix milliseconds, at which the presence of actor 1 expires.
func presenceEnds(t *testing.T, db *honker.DB) int64 {
	return testkit.QueryInt(t, db.SQL(), testkit.Either(`SELECT expires_ms FROM _honkerx_dispatch_presence`,
		`SELECT floor(extract(epoch FROM expires_at) * 1000)::bigint FROM actor`)+` WHERE key = 'hero:meta:actor:inst:osis:default:1'`)
}

// The name of a killed actor remains taken until its TTL has passed. Then the name is free and the
// task runs again.
func TestDispatch_Process_Killed_NameFree(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, 2*testkit.Timeout)
	d := newDispatcher(db, time.Minute)
	id, err := d.Send(ctx, dispatch.Target{Type: "osis", Instance: "1"}, int64(7))
	require.NoError(t, err)
	victim := startSlow(t, path, time.Second) // the minimum TTL
	require.Equal(t, "given 7 1", victim.Line(testkit.Timeout))
	victim.Kill()
	free := presenceEnds(t, db)
	living, err := d.Actors(ctx, ofOsis)
	require.NoError(t, err)
	if time.Now().UnixMilli() < free {
		require.Len(t, living, 1, "it counts until then")
	}

	heir := startSlow(t, path, time.Minute)
	line := heir.Line(testkit.Timeout)
	for ; !strings.HasPrefix(line, "given 7 "); line = heir.Line(testkit.Timeout) {
		var at int64
		_, err := fmt.Sscanf(line, "taken %d", &at)
		require.NoError(t, err, line)
	}
	require.GreaterOrEqual(t, time.Now().UnixMilli(), free, "the heir has begun before the name was free")
	heir.Tell("end it")
	n, err := dispatch.Await[int64](ctx, d, id)
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	require.Equal(t, []string{"told false"}, heir.End())
}

// An actor is suspended while another actor takes its name. When it resumes, its handlers are
// cancelled and their results are discarded.
func TestDispatch_Process_Stopped(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, 2*testkit.Timeout)
	d := newDispatcher(db, time.Minute)
	id, err := d.Send(ctx, dispatch.Target{Type: "osis", Instance: "1"}, int64(7))
	require.NoError(t, err)
	stale := startSlow(t, path, 9*time.Second) // refreshed and renewed every three seconds
	require.Equal(t, "given 7 1", stale.Line(testkit.Timeout))
	stopBesideWrites(t, path, stale)
	endLeases(t, db, -time.Second)
	testkit.Exec(t, db, testkit.ExpireActors, 0, "%")
	heir := startSlow(t, path, time.Minute)
	for line := ""; line != "given 7 2"; line = heir.Line(testkit.Timeout) {
	}
	stale.Cont()
	require.Equal(t, "told true", stale.Line(testkit.Timeout))
	stale.Tell("end it")
	require.Contains(t, stale.Line(testkit.Timeout), "taken")
	s, err := d.Status(ctx, id)
	require.NoError(t, err)
	require.Equal(t, dispatch.Started, s.State)
	require.Equal(t, 2, s.Attempt)
	heir.Tell("end it")
	_, err = dispatch.Await[int64](ctx, d, id)
	require.NoError(t, err)
	heir.End()
	for range stale.End() { // the actor has tried to start again meanwhile
	}
}

// idleHour counts the statements of idle actors in an hour.
type idleHour struct{ commits, statements int64 }

// idle counts the commits and statements of n actors during an hour without tasks.
func idle(t *testing.T, n int) (h idleHour) {
	var commits, statements atomic.Int64
	sqlite.Failpoint = func(text string) {
		statements.Add(1)
		if strings.HasPrefix(text, "COMMIT") {
			commits.Add(1)
		}
	}
	defer func() { sqlite.Failpoint = nil }()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		d := dispatch.New(db, nil)
		for i := range n {
			id := dispatch.Identity{Type: "osis", Instance: strconv.Itoa(i)}
			testkit.Background(t, dispatch.NewActor(d, id, func(context.Context, *dispatch.Task[int64]) (any, error) { return nil, nil }, nil).Run)
		}
		time.Sleep(time.Minute)
		living, err := d.Actors(context.Background(), ofOsis)
		require.NoError(t, err)
		require.Len(t, living, n)
		before := idleHour{commits.Load(), statements.Load()}
		time.Sleep(time.Hour)
		h = idleHour{commits.Load() - before.commits, statements.Load() - before.statements}
	})
	return h
}

// The idle actors of a process share a single write every five seconds. Fifty actors need as many
// commits and statements as a single actor.
func TestDispatch_Idle(t *testing.T) {
	testkit.FileOnly(t) // it counts statements of SQLite in a bubble
	const beats = 720
	one, fifty := idle(t, 1), idle(t, 50)
	t.Logf("one: %+v, fifty: %+v", one, fifty)
	for _, h := range []idleHour{one, fifty} {
		require.InDelta(t, beats, h.commits, 2)
		require.LessOrEqual(t, h.statements, int64(8*beats))
	}
	require.InDelta(t, one.statements, fifty.statements, 50)
}
