package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// misbehaving returns an observer with a single field set. That function calls end on its first
// three calls.
func misbehaving(t *testing.T, field string, end func()) (o *observe.Observer, times *atomic.Int64) {
	t.Helper()
	o, times = new(observe.Observer), new(atomic.Int64)
	f := reflect.ValueOf(o).Elem().FieldByName(field)
	f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
		if times.Add(1) <= 3 {
			end()
		}
		out := make([]reflect.Value, f.Type().NumOut())
		for i := range out {
			out[i] = reflect.Zero(f.Type().Out(i))
		}
		return out
	}))
	return o, times
}

// apart runs f in a new goroutine and waits for it. f may call runtime.Goexit.
func apart(f func()) {
	ended := make(chan struct{})
	go func() { defer close(ended); f() }()
	<-ended
}

// useAll uses a DB until each function of its observer has been called, and then until all jobs are
// settled. times is the counter returned by misbehaving.
func useAll(t *testing.T, db *honker.DB, times *atomic.Int64) {
	t.Helper()
	ctx, q := testkit.Context(t, testkit.Timeout), honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(0), MaxAttempts: 100})
	news, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer news.Close()
	listening, stop := context.WithCancel(ctx)
	heard := testkit.Background(t, func(context.Context) error {
		for range news.All(listening) {
		}
		return nil
	})
	testkit.Register(t, db, testkit.Every("tea", "@every 1s"))
	tick := time.Now()
	steps := flow.New(db, "steps", func(ctx context.Context, in int) (int, error) {
		return flow.Step(ctx, "one", func(context.Context) (int, error) { return in, nil })
	}, nil)
	round := func() {
		for _, verb := range []func(){
			func() { _, _ = q.EnqueueMany(ctx, make([]int, 10)) },
			func() { _, _ = q.Enqueue(ctx, 1, honker.Unique("one", nil)) },
			func() { _, _ = q.Enqueue(ctx, 1, honker.Unique("one", nil)) },
			func() { _, _ = honker.NewStream[int](db, "orders", nil).Publish(ctx, 1) },
			func() { tick = tick.Add(time.Minute); _, _ = db.Scheduler().Tick(ctx, tick) },
			func() { _, _ = db.Notify(ctx, "news", 1) },
			func() {
				_, _ = db.SQL().ExecContext(ctx, `INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '1')`)
			},
			func() { _, _ = q.Pause(ctx, nil) },
			func() { _, _ = q.Resume(ctx) },
			func() { // handles jobs with all outcomes until the queue is empty
				_, _ = q.WorkDue(ctx, func(_ context.Context, job *honker.Job[int]) error {
					switch job.ID % 4 {
					case 0:
						return honker.Reject(testkit.ErrCause)
					case 1:
						if job.Attempts == 1 {
							panic("in the handler")
						}
					}
					return nil
				}, nil)
			},
			func() {
				_, _ = admin.Requeue(ctx, db, admin.JobFilter{Queues: []string{"jobs"}}, &admin.RequeueOptions{Limit: 1})
			},
			func() { _, _ = admin.Discard(ctx, db, admin.JobFilter{Queues: []string{"jobs"}}, nil) },
			func() { _, _ = steps.Start(ctx, strconv.FormatInt(tick.Unix(), 10), 1) },
			func() { _, _ = steps.WorkDue(ctx, nil) },
			func() { _, _ = q.Enqueue(ctx, 1, honker.Delay(time.Hour)) },
			func() {
				_, _ = admin.Cancel(ctx, db, admin.JobFilter{Queues: []string{"jobs"}, Phases: []honker.Phase{honker.PhaseScheduled}}, nil)
			},
			func() {
				ctx, end := context.WithTimeout(ctx, 20*time.Millisecond)
				defer end()
				_ = db.Maintain(ctx, &honker.MaintainOptions{Every: time.Millisecond})
			},
			func() {
				_ = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { _, err := q.EnqueueTx(ctx, tx, 2); return err })
			},
		} {
			apart(verb)
		}
	}
	testkit.Eventually(t, testkit.Timeout, "the observer is called", func() bool { round(); return times.Load() > 0 })
	times.Store(0)
	crowd(ctx, q)
	workToTheEnd(t, ctx, db, q)
	stop()
	require.NoError(t, heard())
	last := testkit.Listen(t, db, "last")
	testkit.Exec(t, db, `INSERT INTO _honker_notifications (channel, payload) VALUES ('last', '1')`)
	_, err = last.Next(ctx)
	require.NoError(t, err, "commits wake waiters")
}

// crowd enqueues from many goroutines at once, so that they share commits.
func crowd(ctx context.Context, q *honker.Queue[int]) {
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { _, _ = q.Enqueue(ctx, 1) })
	}
	all.Wait()
}

// workToTheEnd runs Work until no job is left, restarting it when it ends. The leases are long
// enough not to lapse.
func workToTheEnd(t *testing.T, ctx context.Context, db *honker.DB, q *honker.Queue[int]) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var works sync.WaitGroup
	works.Go(func() {
		for ctx.Err() == nil {
			apart(func() {
				_ = q.Work(ctx, func(context.Context, *honker.Job[int]) error { return nil },
					&honker.WorkOptions{Workers: 4, Lease: time.Hour, DrainTimeout: testkit.Timeout})
			})
		}
	})
	testkit.Eventually(t, testkit.Timeout, "all jobs are settled", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue = 'jobs'`) == 0
	})
	cancel()
	works.Wait()
}

// A panic in an observer is logged and has no other effect: no job stays claimed, and Work and
// Close return.
func TestObserver_Panics_Contained(t *testing.T) {
	t.Parallel()
	for field := range reflect.TypeFor[observe.Observer]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			t.Parallel()
			log := new(testkit.Log)
			o, times := misbehaving(t, field.Name, func() { panic("in " + field.Name) })
			db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil)), Observer: o})
			useAll(t, db, times)
			require.Positive(t, log.Times("Observer."+field.Name+" panicked"))
			require.NoError(t, db.Close())
		})
	}
}

// An observer may call runtime.Goexit, as t.FailNow does. The jobs claimed before are still
// handled, other writers and waiters continue, and Work and Close return.
func TestObserver_Goexit(t *testing.T) {
	t.Parallel()
	for field := range reflect.TypeFor[observe.Observer]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			t.Parallel()
			o, times := misbehaving(t, field.Name, runtime.Goexit)
			var db *honker.DB
			for db == nil { // Open calls the observer's Tx, too
				apart(func() { db = honkertest.Open(t, &honker.Options{Logger: slog.New(slog.DiscardHandler), Observer: o}) })
			}
			useAll(t, db, times)
			require.NoError(t, db.Close())
		})
	}
}

// A panic in the logger does not affect the process: all jobs are settled.
func TestOptions_Logger_Panics(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(panickingHandler{}).With("a", 1)})
	ctx, q := testkit.Context(t, testkit.Timeout), honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(0), MaxAttempts: 3})
	_, err := q.EnqueueMany(ctx, make([]int, 8))
	require.NoError(t, err)
	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
		switch {
		case job.ID%4 == 0 && job.Attempts == 1:
			panic("in the handler")
		case job.ID%4 == 1:
			return errors.New("failed")
		case job.ID%4 == 2:
			return honker.Reject(testkit.ErrCause)
		}
		return nil
	}, &honker.WorkOptions{Lease: time.Hour, OnError: func(context.Context, *honker.JobInfo, error) { panic("in OnError") }})
	testkit.Eventually(t, testkit.Timeout, "all jobs are settled", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0
	})
	require.NoError(t, stop())
	require.EqualValues(t, 4, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	require.NoError(t, db.Close())
}

// panickingHandler is a slog.Handler whose methods panic.
type panickingHandler struct{}

func (panickingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panickingHandler) Handle(context.Context, slog.Record) error { panic("in Handle") }
func (panickingHandler) WithAttrs([]slog.Attr) slog.Handler        { return panickingHandler{} }
func (panickingHandler) WithGroup(string) slog.Handler             { return panickingHandler{} }
