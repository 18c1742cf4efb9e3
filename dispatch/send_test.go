package dispatch_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// queueOf returns the queue that a job was sent to.
func queueOf(t testing.TB, d *dispatch.Dispatcher, id int64) string {
	t.Helper()
	s, err := d.Status(context.Background(), id)
	require.NoError(t, err)
	return s.Queue
}

// A job goes to the queue for the most specific part of its target.
func TestSend_Queue(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), &dispatch.Options{Prios: 3})
	for queue, to := range map[string]dispatch.Target{
		"hero:q:work:type:osis":                             {Type: "osis"},
		"hero:q:work:type:osis:group:io":                    {Type: "osis", Group: "io"},
		"hero:q:work:type:osis:group:io:inst:2":             {Type: "osis", Group: "io", Instance: "2"},
		"hero:q:work:type:osis:group:default:inst:2":        {Type: "osis", Instance: "2"},
		"hero:q:work:type:osis:prio:1":                      {Type: "osis", Prio: 1},
		"hero:q:work:type:osis:group:io:prio:2":             {Type: "osis", Group: "io", Prio: 2},
		"hero:q:work:type:osis:group:io:inst:2:prio:1":      {Type: "osis", Group: "io", Instance: "2", Prio: 1},
		"hero:q:work:type:osis:group:default:inst:2:prio:2": {Type: "osis", Instance: "2", Prio: 2},
	} {
		require.Equal(t, queue, queueOf(t, d, send(t, d, to, 1)))
	}
}

// With Fallback, a job is sent to the group if its instance is not alive, and to the type if no actor
// of the group is alive.
func TestSend_IfAbsent_Fallback(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{IfAbsent: dispatch.Fallback})
	began, release := make(chan int, 100), make(chan struct{})
	defer close(release)
	two := dispatch.Target{Type: "osis", Instance: "2"}
	require.Equal(t, "hero:q:work:type:osis", queueOf(t, d, send(t, d, two, 1, dispatch.With(honker.Delay(time.Hour)))))
	stop := start(t, d, osis("1"), blocked(began, release), nil)
	require.Equal(t, "hero:q:work:type:osis:group:default", queueOf(t, d, send(t, d, two, 1, dispatch.With(honker.Delay(time.Hour)))))
	start(t, d, osis("2"), blocked(began, release), nil)
	require.Equal(t, "hero:q:work:type:osis:group:default:inst:2", queueOf(t, d, send(t, d, two, 1, dispatch.With(honker.Delay(time.Hour)))))
	require.NoError(t, stop())
	require.Equal(t, "hero:q:work:type:osis", queueOf(t, d,
		send(t, d, dispatch.Target{Type: "osis", Group: "io"}, 1, dispatch.With(honker.Delay(time.Hour)))))
}

// With LeastLoaded, a job is sent to the instance with the fewest jobs, but not to a paused instance.
func TestSend_IfAbsent_LeastLoaded(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{IfAbsent: dispatch.LeastLoaded})
	began, release := make(chan int, 100), make(chan struct{})
	defer close(release)
	require.Equal(t, "hero:q:work:type:osis", queueOf(t, d, send(t, d, typeOsis, 0, dispatch.With(honker.Delay(time.Hour)))), "none lives")
	for i := range 3 {
		start(t, d, osis(fmt.Sprint(i)), blocked(began, release), nil)
	}
	used := make(map[string]int)
	for range 3 {
		used[queueOf(t, d, send(t, d, typeOsis, 1))]++
		<-began
	}
	require.Len(t, used, 3, "each that runs nothing: %v", used)
	for range 3 {
		used[queueOf(t, d, send(t, d, typeOsis, 1))]++
	}
	for queue, n := range used {
		require.Equal(t, 2, n, queue)
	}
	n, err := d.Pause(context.Background(), dispatch.Target{Type: "osis", Instance: "0"})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	testkit.Eventually(t, testkit.Timeout, "paused", func() bool {
		return actors(t, d, dispatch.Target{Type: "osis", Instance: "0"})[0].Paused
	})
	for range 4 {
		require.NotContains(t, queueOf(t, d, send(t, d, typeOsis, 1)), "inst:0")
	}
	require.Contains(t, queueOf(t, d, send(t, d, dispatch.Target{Type: "osis", Instance: "1"}, 1)), "inst:1", "the one that was named")
}

// A job's destination depends on the state seen by its transaction. An actor deleted in the
// transaction is ignored; after a rollback it is alive again.
func TestSendTx_IfAbsent_InTx(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{IfAbsent: dispatch.Fallback})
	began, release := make(chan int, 100), make(chan struct{})
	defer close(release)
	start(t, d, osis("1"), blocked(began, release), nil)
	start(t, d, osis("2"), blocked(began, release), nil)
	two := dispatch.Target{Type: "osis", Instance: "2"}
	later := dispatch.With(honker.Delay(time.Hour))
	sendTx := func(without string, outcome error) (queue string) {
		err := db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, tx *sql.Tx) error {
			_, err := testkit.Rows(tx, testkit.ExpireActors, 1, without)
			require.NoError(t, err)
			id, err := d.SendTx(ctx, tx, two, args{1}, later)
			require.NoError(t, err)
			rows, err := testkit.Rows(tx, testkit.QueueOf, id)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			queue = rows[0]
			return outcome
		})
		require.ErrorIs(t, err, outcome)
		return queue
	}
	undo := errors.New("undo")
	require.Equal(t, "hero:q:work:type:osis:group:default", sendTx("%:2", undo))
	require.Equal(t, "hero:q:work:type:osis", sendTx("%", undo))
	require.Equal(t, "hero:q:work:type:osis:group:default:inst:2", sendTx("", nil))
}

// A job sent in a transaction that is rolled back does not exist.
func TestSendTx_Rollback(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush, Log: true})
	ctx := testkit.Context(t, testkit.Timeout)
	stop := errors.New("no")
	var id int64
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		_, err = d.Send(ctx, typeOsis, args{1})
		require.ErrorIs(t, err, honker.ErrInTx)
		require.ErrorContains(t, err, "SendTx")
		id, err = d.SendTx(ctx, tx, typeOsis, args{1}, dispatch.ReplyTo("replies"))
		require.NoError(t, err)
		return stop
	}), stop)
	_, err := d.Status(ctx, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = d.SendTx(ctx, tx, typeOsis, args{1})
		return err
	}))
	waitState(t, d, id, dispatch.Dispatched)
	require.NoError(t, db.Check(ctx))
}

// Invalid targets, options and payloads are rejected and nothing is written.
func TestSend_BadInput(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	ctx := context.Background()
	long := strings.Repeat("a", 256)
	for _, to := range []dispatch.Target{{}, {Group: "g"}, {Type: "a:group:b"}, {Type: "a", Group: ":"}, {Type: "a", Instance: "1:prio:0"},
		{Type: long}, {Type: "a", Group: long}, {Type: "a", Instance: long}, {Type: "a*"}, {Type: "a", Instance: "\x00"}, {Type: "\xff"},
		{Type: "a", Prio: 1}, {Type: "a", Prio: -1}} {
		_, err := d.Send(ctx, to, args{})
		require.ErrorIs(t, err, honker.ErrInvalid, "%v", to)
		require.ErrorContains(t, err, "honker: dispatch send")
		for _, verb := range []func(context.Context, dispatch.Target) (int, error){d.Stop, d.Pause, d.Resume} {
			_, err := verb(ctx, dispatch.Target{Type: to.Type, Group: to.Group, Instance: to.Instance})
			if to.Prio == 0 {
				require.ErrorIs(t, err, honker.ErrInvalid, "%v", to)
			}
		}
	}
	_, err := d.Send(ctx, typeOsis, func() {})
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = d.Send(ctx, typeOsis, []byte("x"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	for _, o := range []dispatch.SendOption{nil, dispatch.ReplyTo(""), dispatch.ReplyToStream("a:*"), dispatch.With(honker.Delay(-1))} {
		_, err := d.Send(ctx, typeOsis, args{}, o)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err = d.Actors(ctx, dispatch.Target{Type: ":"})
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Zero(t, live(t, db))
	_, err = d.Status(ctx, 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	stopped, err := d.StopJob(ctx, 1)
	require.NoError(t, err)
	require.False(t, stopped)
}

// Methods called within DB.Tx return ErrInTx and do not deadlock on its write lock.
func TestSend_InTx(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	id := send(t, d, typeOsis, 1)
	waitState(t, d, id, dispatch.Finished)
	require.NoError(t, db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, _ *sql.Tx) error {
		for name, verb := range map[string]func() error{
			"Send":    func() error { _, err := d.Send(ctx, typeOsis, args{1}); return err },
			"Call":    func() error { _, err := dispatch.Call[int](ctx, d, typeOsis, args{1}); return err },
			"Await":   func() error { _, err := dispatch.Await[int](ctx, d, id); return err },
			"Stop":    func() error { _, err := d.Stop(ctx, typeOsis); return err },
			"Pause":   func() error { _, err := d.Pause(ctx, typeOsis); return err },
			"Resume":  func() error { _, err := d.Resume(ctx, typeOsis); return err },
			"Ping":    func() error { _, err := d.Ping(ctx, typeOsis); return err },
			"StopJob": func() error { _, err := d.StopJob(ctx, id); return err },
			"Run":     func() error { return dispatch.NewActor(d, osis("2"), r.handler("2"), nil).Run(ctx) },
		} {
			require.ErrorIs(t, verb(), honker.ErrInTx, name)
		}
		return nil
	}))
	require.Len(t, actors(t, d, typeOsis), 1)
}

// For every final state, the outcome is sent to ReplyTo's queue and ReplyToStream's topic.
func TestSend_ReplyTo(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	to := []dispatch.SendOption{dispatch.ReplyTo("replies"), dispatch.ReplyToStream("replied"), dispatch.With(honker.MaxAttempts(1))}
	ok, bad, never := send(t, d, typeOsis, 1, to...), send(t, d, typeOsis, 2, to...), send(t, d, dispatch.Target{Type: "none"}, 3, to...)
	start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
		if task.Args.N == 2 {
			return nil, testkit.ErrCause
		}
		return task.Args, nil
	}, nil)
	waitState(t, d, ok, dispatch.Finished)
	waitState(t, d, bad, dispatch.Failed)
	_, err := d.StopJob(ctx, never)
	require.NoError(t, err)
	type outcome = dispatch.Outcome[json.RawMessage]
	want := map[int64]outcome{
		ok:    {ID: ok, State: dispatch.Finished, Output: json.RawMessage(`{"N":1}`)},
		bad:   {ID: bad, State: dispatch.Failed, Error: testkit.ErrCause.Error()},
		never: {ID: never, State: dispatch.Stopped},
	}
	got := make(map[int64]outcome)
	jobs, err := honker.NewQueue[outcome](db, "replies", nil).Claim(ctx, "w", 10)
	require.NoError(t, err)
	for _, j := range jobs {
		got[j.Args.ID] = j.Args
	}
	require.Equal(t, want, got)
	clear(got)
	for e, err := range honker.NewStream[outcome](db, "replied", nil).Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, string(e.Data.State), e.Key)
		got[e.Data.ID] = e.Data
	}
	require.Equal(t, want, got)
}

// The event log contains every state of each job, in order.
func TestSend_Log(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Log: true})
	ctx := testkit.Context(t, testkit.Timeout)
	first := true
	ok := send(t, d, typeOsis, 1)
	bad := send(t, d, typeOsis, 2, dispatch.With(honker.MaxAttempts(1)))
	never := send(t, d, dispatch.Target{Type: "none"}, 3)
	start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
		if task.Args.N == 2 || first {
			first = false
			return nil, testkit.ErrCause
		}
		return nil, nil
	}, &dispatch.ActorOptions{Backoff: honker.Constant(0)})
	waitState(t, d, ok, dispatch.Finished)
	waitState(t, d, bad, dispatch.Failed)
	_, err := d.StopJob(ctx, never)
	require.NoError(t, err)
	lives := make(map[int64][]string)
	for e, err := range honker.NewStream[dispatch.Event](db, "hero:events", nil).Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, string(e.Data.State), e.Key)
		lives[e.Data.ID] = append(lives[e.Data.ID], fmt.Sprint(e.Data.State, " ", e.Data.Attempt, e.Data.Error))
	}
	require.Equal(t, map[int64][]string{
		ok:    {"dispatched 0", "started 1", "dispatched 1", "started 2", "finished 2"},
		bad:   {"dispatched 0", "started 1", "failed 1" + testkit.ErrCause.Error()},
		never: {"dispatched 0", "stopped 0"},
	}, lives)
}

// A Send with a unique key that is in use returns the existing job and adds no copies.
func TestSend_Unique(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush, Log: true})
	ctx := testkit.Context(t, testkit.Timeout)
	unique := dispatch.With(honker.Unique("k", nil))
	id := send(t, d, typeOsis, 1, unique)
	require.Equal(t, id, send(t, d, typeOsis, 2, unique))
	require.EqualValues(t, 2, live(t, db))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountEvents))
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	n, err := dispatch.Await[int](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NotEqual(t, id, send(t, d, typeOsis, 3, unique))
}
