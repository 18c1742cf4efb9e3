package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// events collects the events of one kind that an observer received.
type events[E any] struct {
	mu   sync.Mutex
	told []E
}

func (e *events[E]) add(one E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, one)
}

func (e *events[E]) take() (told []E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	told, e.told = e.told, nil
	return told
}

func watched(t *testing.T, o *honker.Observer) *honker.DB {
	t.Helper()
	return honkertest.Open(t, &honker.Options{Observer: o, NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
}

// The observer hears of each transaction that held the writer, with its waiting time and run time.
func TestObserver_Tx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended events[honker.TxEnded]
		db := watched(t, &honker.Observer{Tx: ended.add})
		ctx, q := t.Context(), honker.NewQueue[int](db, "jobs", nil)
		tx := func(result error) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				time.Sleep(500 * time.Millisecond)
				_, err := q.EnqueueTx(ctx, tx, 1)
				require.NoError(t, err)
				return result
			})
		}
		ended.take()
		testkit.Enqueue(t, q, 1)
		require.Equal(t, []honker.TxEnded{{Committed: true}}, ended.take())
		_, err := q.EnqueueMany(ctx, make([]int, 300))
		require.NoError(t, err)
		require.Equal(t, []honker.TxEnded{{Committed: true}}, ended.take())
		_, err = db.SQL().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
		require.NoError(t, err)
		require.Equal(t, []honker.TxEnded{{Committed: true}}, ended.take())
		require.NoError(t, tx(nil))
		require.Equal(t, []honker.TxEnded{{Ran: 500 * time.Millisecond, Committed: true}}, ended.take())
		require.ErrorIs(t, tx(testkit.ErrCause), testkit.ErrCause)
		require.Equal(t, []honker.TxEnded{{Ran: 500 * time.Millisecond}}, ended.take())
		_, err = db.SQL().ExecContext(ctx, `INSERT INTO orders VALUES ('no number')`)
		require.Error(t, err)
		require.Equal(t, []honker.TxEnded{{}}, ended.take())
		_, err = admitted(ctx, db)
		require.NoError(t, err)
		require.Empty(t, ended.take(), "a read holds no writer")

		waits := testkit.Background(t, func(context.Context) error { return tx(nil) })
		synctest.Wait() // the goroutine sleeps in its transaction
		time.Sleep(100 * time.Millisecond)
		testkit.Enqueue(t, q, 1)
		require.NoError(t, waits())
		require.ElementsMatch(t, []honker.TxEnded{
			{Ran: 500 * time.Millisecond, Committed: true}, {Wait: 400 * time.Millisecond, Committed: true},
		}, ended.take())
	})
}

// admitted counts the jobs through the application's own pool.
func admitted(ctx context.Context, db *honker.DB) (n int, err error) {
	err = db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM _honker_live`).Scan(&n)
	return n, err
}

// The observer hears of the start and end of each Work, and of each handler that returns, in whatever way.
func TestObserver_WorkingAndReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working events[honker.Working]
		var started events[honker.Started]
		var returned events[honker.Returned]
		db := watched(t, &honker.Observer{Working: working.add, Started: started.add, Returned: returned.add})
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
		ends := []func() error{
			func() error { return nil },
			func() error { return testkit.ErrCause },
			func() error { panic("no") },
			func() error { runtime.Goexit(); return nil },
		}
		for i := range ends {
			testkit.Enqueue(t, q, i)
		}
		testkit.Enqueue(t, honker.NewQueue[string](db, "jobs", nil), "does not decode")
		handle := func(_ context.Context, job *honker.Job[int]) error {
			time.Sleep(20 * time.Millisecond)
			return ends[job.Args]()
		}
		stop := testkit.Work(t, q, handle, &honker.WorkOptions{WorkerID: "crew", Workers: 3})
		time.Sleep(time.Minute)
		require.Equal(t, []honker.Working{{Queues: []string{"jobs"}, Worker: "crew", Slots: 3}}, working.take())
		require.NoError(t, stop())
		require.Equal(t, []honker.Working{{Queues: []string{"jobs"}, Worker: "crew", Slots: 3, Ended: true}}, working.take())
		told := returned.take()
		require.Len(t, told, len(started.take()))
		require.Len(t, told, 5)
		for _, r := range told {
			ran := 20 * time.Millisecond
			if r.ID == 5 {
				ran = 0
			}
			require.Equal(t, honker.Returned{Queue: "jobs", ID: r.ID, Worker: "crew", Attempt: 1, Ran: ran}, r)
		}

		testkit.Enqueue(t, q, 0)
		_, err := q.WorkDue(t.Context(), handle, &honker.WorkOptions{WorkerID: "once"})
		require.NoError(t, err)
		require.Equal(t, []honker.Working{
			{Queues: []string{"jobs"}, Worker: "once", Slots: 1}, {Queues: []string{"jobs"}, Worker: "once", Slots: 1, Ended: true},
		}, working.take())
		lanes := honker.NewLanes[int](db, []string{"jobs", "mails"}, nil)
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 0)
		returned.take()
		stop = testkit.Background(t, func(ctx context.Context) error {
			return lanes.Work(ctx, handle, &honker.WorkOptions{WorkerID: "both", Workers: 2})
		})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, honker.Working{Queues: []string{"jobs", "mails"}, Worker: "both", Slots: 2}, working.take()[0])
		require.Equal(t, "mails", returned.take()[0].Queue)
	})
}

// The observer hears of the pauses that this process begins and ends, with the operator.
func TestObserver_Paused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused events[honker.Paused]
		db := watched(t, &honker.Observer{Paused: paused.add})
		ctx, q := honker.WithActor(t.Context(), "ada"), honker.NewQueue[int](db, "jobs", nil)
		until := time.Now().Add(time.Hour)
		_, err := q.Pause(ctx, &honker.PauseOptions{Until: until})
		require.NoError(t, err)
		_, err = q.Pause(t.Context(), &honker.PauseOptions{Key: "acme"})
		require.NoError(t, err)
		_, err = q.ResumeKey(t.Context(), "acme")
		require.NoError(t, err)
		_, err = q.Resume(ctx)
		require.NoError(t, err)
		_, err = q.Resume(ctx) // the queue was not paused
		require.NoError(t, err)
		_, err = q.Pause(ctx, &honker.PauseOptions{Until: time.Now()})
		require.ErrorIs(t, err, honker.ErrInvalid)
		told := paused.take()
		require.True(t, told[0].Until.Equal(until))
		told[0].Until = time.Time{}
		require.Equal(t, []honker.Paused{
			{Queue: "jobs", Actor: "ada"}, {Queue: "jobs", Key: "acme"},
			{Queue: "jobs", Key: "acme", Resumed: true}, {Queue: "jobs", Actor: "ada", Resumed: true},
		}, told)
	})
}

// The observer hears of each round of Maintain and of its failed chores.
func TestObserver_Maintained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds events[honker.Maintained]
		db := watched(t, &honker.Observer{Maintained: rounds.add})
		testkit.Exec(t, db, `CREATE TRIGGER no BEFORE DELETE ON _honker_results BEGIN SELECT RAISE(ABORT, 'no'); END`)
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		time.Sleep(90 * time.Second)
		require.Equal(t, []honker.Maintained{{}, {}}, rounds.take())
		require.NoError(t, honker.NewQueue[int](db, "jobs", nil).SaveResult(t.Context(), 1, 1, time.Second))
		time.Sleep(time.Minute)
		require.Equal(t, []honker.Maintained{{Failed: []string{"results"}}}, rounds.take())
		require.NoError(t, stop())
	})
}

type beganKey struct{}

// Begin is called at the start of each verb that adds jobs or events. The verb continues with the returned
// ctx, and the returned function is called at its end.
func TestObserver_Begin(t *testing.T) {
	type told struct {
		op  honker.Operation
		end honker.OperationEnd
	}
	var ops events[told]
	began := 0
	db := honkertest.Open(t, &honker.Options{
		Observer: &honker.Observer{Begin: func(ctx context.Context, op honker.Operation) (context.Context, func(honker.OperationEnd)) {
			began++
			return context.WithValue(ctx, beganKey{}, fmt.Sprint(began)), func(e honker.OperationEnd) { ops.add(told{op, e}) }
		}},
		Headers: func(ctx context.Context) map[string]string {
			began, ok := ctx.Value(beganKey{}).(string)
			if !ok { // for a batch without jobs
				return nil
			}
			return map[string]string{"began": began}
		},
	})
	ctx, q, s := t.Context(), honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	one := testkit.Enqueue(t, q, 1)
	_, err := q.EnqueueMany(ctx, []int{2, 3})
	require.NoError(t, err)
	_, err = q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	_, err = q.Enqueue(ctx, 4, honker.MaxAttempts(0))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 5)
		require.NoError(t, err)
		_, err = q.EnqueueManyTx(ctx, tx, []int{6, 7})
		require.NoError(t, err)
		_, err = s.PublishTx(ctx, tx, 1)
		return err
	}))
	_, _, err = s.PublishMany(ctx, []int{2, 3})
	require.NoError(t, err)
	all := ops.take()
	require.ErrorIs(t, all[2].end.Err, honker.ErrInvalid)
	all[2].end.Err = nil
	require.Equal(t, []told{
		{honker.Operation{Verb: "enqueue", Name: "jobs", N: 1}, honker.OperationEnd{First: one, Last: one}},
		{honker.Operation{Verb: "enqueue", Name: "jobs", N: 2}, honker.OperationEnd{First: 2, Last: 3}},
		{op: honker.Operation{Verb: "enqueue", Name: "jobs", N: 1}},
		{honker.Operation{Verb: "enqueue", Name: "jobs", N: 1, Tx: true}, honker.OperationEnd{First: 4, Last: 4}},
		{honker.Operation{Verb: "enqueue", Name: "jobs", N: 2, Tx: true}, honker.OperationEnd{First: 5, Last: 6}},
		{honker.Operation{Verb: "publish", Name: "orders", N: 1, Tx: true}, honker.OperationEnd{First: 1, Last: 1}},
		{honker.Operation{Verb: "publish", Name: "orders", N: 2}, honker.OperationEnd{First: 2, Last: 3}},
	}, all)
	for id, header := range map[int64]string{one: "1", 2: "2", 3: "2", 4: "4", 6: "5"} {
		job, err := q.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, header, job.Headers["began"])
	}
}

// A Begin that panics or returns nil does not affect the verb.
func TestObserver_Begin_Contained(t *testing.T) {
	log := new(testkit.Log)
	begin := func(context.Context, honker.Operation) (context.Context, func(honker.OperationEnd)) { return nil, nil }
	db := honkertest.Open(t, &honker.Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Observer: &honker.Observer{Begin: func(ctx context.Context, op honker.Operation) (context.Context, func(honker.OperationEnd)) {
			return begin(ctx, op)
		}},
	})
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, q, 1)
	begin = func(context.Context, honker.Operation) (context.Context, func(honker.OperationEnd)) {
		panic("in Begin")
	}
	testkit.Enqueue(t, q, 1)
	begin = func(ctx context.Context, _ honker.Operation) (context.Context, func(honker.OperationEnd)) {
		return ctx, func(honker.OperationEnd) { panic("at the end") }
	}
	testkit.Enqueue(t, q, 1)
	var none context.Context // the verb refuses it without a call of Begin
	_, err := q.Enqueue(none, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, 2, log.Times("Observer.Begin panicked"))
}

// Observers calls the observers in order. Each field is called only for the observers that set it, and a
// field that none of them sets is nil.
func TestObservers_Order(t *testing.T) {
	var told []string
	note := func(who string) *honker.Observer {
		return &honker.Observer{Enqueued: func(honker.Enqueued) { told = append(told, who) }}
	}
	all := honker.Observers(note("first"), nil, &honker.Observer{Tx: func(honker.TxEnded) { told = append(told, "tx") }}, note("last"))
	all.Enqueued(honker.Enqueued{})
	all.Tx(honker.TxEnded{})
	require.Equal(t, []string{"first", "last", "tx"}, told)
	require.Nil(t, all.Settled)
	require.Nil(t, all.Begin)

	nested := func(name string) *honker.Observer {
		return &honker.Observer{Begin: func(ctx context.Context, _ honker.Operation) (context.Context, func(honker.OperationEnd)) {
			outer, _ := ctx.Value(beganKey{}).(string)
			return context.WithValue(ctx, beganKey{}, outer+name), func(honker.OperationEnd) { told = append(told, "end "+name) }
		}}
	}
	told = nil
	ctx, end := honker.Observers(nested("a"), note("first"), nested("b")).Begin(t.Context(), honker.Operation{})
	require.Equal(t, "ab", ctx.Value(beganKey{}))
	end(honker.OperationEnd{})
	require.Equal(t, []string{"end b", "end a"}, told)
	require.Nil(t, honker.Observers().Tx)
}

// Observers forwards every field. A field that is added to Observer and forgotten in Observers would be
// silent.
func TestObservers_EachField(t *testing.T) {
	one, fields := new(honker.Observer), reflect.TypeFor[honker.Observer]()
	for i := range fields.NumField() {
		none := func([]reflect.Value) []reflect.Value { return nil }
		reflect.ValueOf(one).Elem().Field(i).Set(reflect.MakeFunc(fields.Field(i).Type, none))
	}
	all := reflect.ValueOf(honker.Observers(one)).Elem()
	for i := range fields.NumField() {
		require.False(t, all.Field(i).IsNil(), fields.Field(i).Name)
	}
}

// Claims and settles carry the headers of their jobs, however the jobs were enqueued, and settles also
// carry their time. A claim of jobs without headers has no headers, and a death that was found by
// a sweep has neither.
func TestObserver_Headers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, q, s := observed(t, nil)
		want := map[string]string{"traceparent": "00-1"}
		testkit.Enqueue(t, q, 1, honker.Headers(want))
		testkit.Enqueue(t, q, 2)
		for _, job := range testkit.Claim(t, q, 2) {
			require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return job.AckTx(ctx, tx) }))
		}
		began := time.Now()
		lanes := honker.NewLanes[int](db, []string{"jobs", "others"}, nil)
		stop := testkit.Background(t, func(ctx context.Context) error { return lanes.Work(ctx, testkit.Succeed[int], nil) })
		synctest.Wait()
		testkit.Enqueue(t, q, 3, honker.Headers(want)) // handed to an idle worker
		synctest.Wait()
		require.NoError(t, stop())
		testkit.Enqueue(t, q, 4, honker.MaxAttempts(1), honker.Headers(want))
		testkit.ClaimOne(t, q)
		time.Sleep(time.Hour)
		require.Empty(t, testkit.Claim(t, q, 1), "the last attempt has lapsed")

		var claimed [][]map[string]string
		for _, e := range testkit.Recorded(s, &s.Claimed) {
			claimed = append(claimed, e.Headers())
		}
		require.Equal(t, [][]map[string]string{{want}, {want}, {want}}, claimed)
		settled := testkit.Recorded(s, &s.Settled)
		require.Len(t, settled, 4)
		for i, headers := range []map[string]string{want, nil, want, nil} {
			require.Equal(t, headers, settled[i].Headers())
			require.Equal(t, i == 3, settled[i].At.IsZero())
		}
		require.Equal(t, began, settled[2].At)
	})
}
