package dispatch_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

type args struct{ N int }

// ran records which instance ran each task, by task number.
type ran struct {
	mu sync.Mutex
	by map[int][]string
}

func (r *ran) note(n int, by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = make(map[int][]string)
	}
	r.by[n] = append(r.by[n], by)
}

// counts returns the number of tasks per instance.
func (r *ran) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]int)
	for _, all := range r.by {
		for _, by := range all {
			counts[by]++
		}
	}
	return counts
}

func (r *ran) len() (n int) {
	for _, c := range r.counts() {
		n += c
	}
	return n
}

// handler returns a handler that records which tasks an instance runs and returns each task's number.
func (r *ran) handler(instance string) func(context.Context, *dispatch.Task[args]) (any, error) {
	return func(_ context.Context, t *dispatch.Task[args]) (any, error) {
		r.note(t.Args.N, instance)
		return t.Args.N, nil
	}
}

func osis(instance string) dispatch.Identity {
	return dispatch.Identity{Type: "osis", Group: "default", Instance: instance, Version: "v1", Capabilities: []string{"math"}}
}

var typeOsis = dispatch.Target{Type: "osis"}

// start runs an actor until stop is called or the test ends. It returns once the actor is registered.
func start(t testing.TB, d *dispatch.Dispatcher, id dispatch.Identity, h func(context.Context, *dispatch.Task[args]) (any, error), o *dispatch.ActorOptions) (stop func() error) {
	t.Helper()
	stop = testkit.Background(t, dispatch.NewActor(d, id, h, o).Run)
	at := dispatch.Target{Type: id.Type, Group: id.Group, Instance: id.Instance}
	testkit.Eventually(t, testkit.Timeout, "registered", func() bool { return len(actors(t, d, at)) == 1 })
	return stop
}

func actors(t testing.TB, d *dispatch.Dispatcher, at dispatch.Target) []dispatch.Presence {
	t.Helper()
	all, err := d.Actors(context.Background(), at)
	require.NoError(t, err)
	return all
}

func send(t testing.TB, d *dispatch.Dispatcher, to dispatch.Target, n int, opts ...dispatch.SendOption) int64 {
	t.Helper()
	id, err := d.Send(context.Background(), to, args{n}, opts...)
	require.NoError(t, err)
	return id
}

func waitState(t testing.TB, d *dispatch.Dispatcher, id int64, want dispatch.State) dispatch.Status {
	t.Helper()
	var s dispatch.Status
	testkit.Eventually(t, testkit.Timeout, fmt.Sprint(want), func() bool {
		var err error
		s, err = d.Status(context.Background(), id)
		require.NoError(t, err)
		return s.State == want
	})
	return s
}

// blocked returns a handler that signals its start and then waits until it is released or its ctx
// ends.
func blocked(began chan int, release chan struct{}) func(context.Context, *dispatch.Task[args]) (any, error) {
	return func(ctx context.Context, t *dispatch.Task[args]) (any, error) {
		began <- t.Args.N
		select {
		case <-release:
			return t.Args.N, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Two instances of a type share its jobs. Each runs more than 30 percent of them.
func TestActor_Type_Shared(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	var r ran
	for n := range 1000 {
		send(t, d, typeOsis, n)
	}
	for _, i := range []string{"1", "2"} {
		start(t, d, osis(i), r.handler(i), nil)
	}
	testkit.Eventually(t, testkit.Timeout, "all ran", func() bool { return r.len() == 1000 })
	for i, n := range r.counts() {
		require.Greater(t, n, 300, "instance %s of %v", i, r.counts())
	}
	require.Len(t, r.by, 1000)
}

// Jobs run in level order and, within a level, in the order instance, group, type. The order in which
// they were sent does not matter.
func TestActor_Run_Order(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), &dispatch.Options{Prios: 2})
	n := 5
	for _, prio := range []int{1, 0} {
		for _, to := range []dispatch.Target{{Type: "osis"}, {Type: "osis", Group: "default"}, {Type: "osis", Group: "default", Instance: "1"}} {
			to.Prio = prio
			send(t, d, to, n)
			send(t, d, to, n)
			n--
		}
	}
	var mu sync.Mutex
	var order []int
	start(t, d, osis("1"), func(_ context.Context, t *dispatch.Task[args]) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, t.Args.N)
		return nil, nil
	}, &dispatch.ActorOptions{Workers: 1})
	testkit.Eventually(t, testkit.Timeout, "all ran", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == 12
	})
	require.Equal(t, []int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, order)
}

// An idle actor wakes up for a commit to any of its queues, and when a delayed job becomes due.
func TestActor_Run_Wakes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		d := dispatch.New(db, &dispatch.Options{Prios: 2, Legacy: dispatch.LegacyReadOnly})
		got := make(chan time.Time, 1)
		start(t, d, osis("1"), func(context.Context, *dispatch.Task[args]) (any, error) {
			got <- time.Now()
			return nil, nil
		}, nil)
		for _, to := range []dispatch.Target{typeOsis, {Type: "osis", Group: "default"}, {Type: "osis", Instance: "1"}} {
			for to.Prio = range 2 {
				time.Sleep(time.Hour)
				send(t, d, to, 1)
				require.WithinDuration(t, time.Now(), <-got, time.Second)
			}
		}
		time.Sleep(time.Hour)
		_, err := honker.NewQueue[args](db, "hero:job:actor_queue:osis", nil).Enqueue(context.Background(), args{1})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), <-got, time.Second)
		due := time.Now().Add(30 * time.Minute)
		send(t, d, typeOsis, 1, dispatch.With(honker.RunAt(due)))
		require.WithinDuration(t, due, <-got, 2*time.Second)
	})
}

// Jobs for an instance do not run on other instances, even if those are idle.
func TestActor_Instance_Pinned(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	var r ran
	for _, i := range []string{"1", "2", "3", "4"} {
		start(t, d, dispatch.Identity{Type: "sal", Group: "io", Instance: i}, r.handler(i), nil)
	}
	for n := range 100 {
		send(t, d, dispatch.Target{Type: "sal", Group: "io", Instance: "3"}, n)
	}
	testkit.Eventually(t, testkit.Timeout, "all ran", func() bool { return r.len() == 100 })
	require.Equal(t, map[string]int{"3": 100}, r.counts())
}

// Task.Target is the target that the job was sent to.
func TestActor_Task_Target(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), &dispatch.Options{Prios: 2})
	got := make(chan *dispatch.Task[args], 1)
	start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
		got <- task
		return nil, nil
	}, nil)
	for _, to := range []dispatch.Target{typeOsis, {Type: "osis", Group: "default"}, {Type: "osis", Group: "default", Instance: "1", Prio: 1}} {
		id := send(t, d, to, 5)
		task := <-got
		require.Equal(t, to, task.Target)
		require.Equal(t, id, task.ID)
		require.Equal(t, 5, task.Args.N)
		require.Equal(t, 1, task.Attempt)
	}
}

// A second actor with the same name fails while the first is alive and starts after it has ended.
func TestActor_Run_NameTaken(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	var r ran
	stop := start(t, d, osis("1"), r.handler("1"), nil)
	err := dispatch.NewActor(d, osis("1"), r.handler("1"), nil).Run(context.Background())
	require.ErrorIs(t, err, dispatch.ErrInstanceTaken)
	require.ErrorContains(t, err, "osis/default/1")
	require.NoError(t, stop())
	require.Empty(t, actors(t, d, typeOsis), "it has gone with its clean end")
	start(t, d, osis("1"), r.handler("1"), nil)
}

// An actor whose presence has expired is not listed, and its name is free.
func TestActor_Killed_NameFree(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{TTL: time.Second})
	var r ran
	stop := start(t, d, osis("1"), r.handler("1"), nil)
	require.NoError(t, stop())
	// Simulate a killed process.
	testkit.Exec(t, db, testkit.AddActor, "hero:meta:actor:inst:osis:default:1",
		time.Now().Add(time.Hour).UnixMilli())
	require.Len(t, actors(t, d, typeOsis), 1)
	run := dispatch.NewActor(d, osis("1"), r.handler("1"), nil).Run
	require.ErrorIs(t, run(context.Background()), dispatch.ErrInstanceTaken)
	testkit.Exec(t, db, testkit.ExpireActors, time.Now().UnixMilli()-1, "%")
	require.Empty(t, actors(t, d, typeOsis))
	start(t, d, osis("1"), r.handler("1"), nil)
}

// An actor that was suspended while another actor took its name ends with ErrInstanceTaken.
func TestActor_Run_NameLost(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{TTL: time.Second})
	var r ran
	ended := make(chan error, 1)
	go func() { ended <- dispatch.NewActor(d, osis("1"), r.handler("1"), nil).Run(context.Background()) }()
	testkit.Eventually(t, testkit.Timeout, "registered", func() bool { return len(actors(t, d, typeOsis)) == 1 })
	testkit.Exec(t, db, testkit.StealActors, time.Now().Add(time.Hour).UnixMilli())
	require.ErrorIs(t, testkit.Within(context.Background(), ended, testkit.Timeout), dispatch.ErrInstanceTaken)
	require.Len(t, actors(t, d, typeOsis), 1, "the other's")
}

// An actor registers again after its presence row was deleted.
func TestActor_Run_Swept(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{TTL: time.Second})
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	testkit.Exec(t, db, testkit.SweepActors)
	testkit.Eventually(t, testkit.Timeout, "again there", func() bool { return len(actors(t, d, typeOsis)) == 1 })
}

// An actor whose presence row was deleted keeps running if it cannot register again immediately.
func TestActor_Run_Swept_Refused(t *testing.T) {
	log := new(testkit.Log)
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	d := dispatch.New(db, &dispatch.Options{TTL: time.Second})
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	testkit.Exec(t, db, testkit.RefuseActors)
	testkit.Exec(t, db, testkit.SweepActors)
	testkit.Eventually(t, testkit.Timeout, "refused", func() bool { return log.Times("could not be registered again") > 0 })
	testkit.Exec(t, db, testkit.AllowActors)
	testkit.Eventually(t, testkit.Timeout, "again there", func() bool { return len(actors(t, d, typeOsis)) == 1 })
	waitState(t, d, send(t, d, typeOsis, 1), dispatch.Finished)
}

// Invalid names and options are rejected before anything is written.
func TestActor_BadInput(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	var r ran
	ctx := context.Background()
	for _, id := range []dispatch.Identity{{}, {Type: "a"}, {Type: "a:b", Instance: "1"}, {Type: "a", Instance: ":"},
		{Type: "a", Group: "x:y", Instance: "1"}, {Type: strings.Repeat("a", 256), Instance: "1"}} {
		require.ErrorIs(t, dispatch.NewActor(d, id, r.handler(""), nil).Run(ctx), honker.ErrInvalid)
	}
	require.ErrorIs(t, dispatch.NewActor[args](d, osis("1"), nil, nil).Run(ctx), honker.ErrInvalid)
	for _, o := range []dispatch.ActorOptions{{Workers: -1}, {Lease: -1}, {DrainTimeout: -1}, {Middleware: []honker.Middleware{nil}}} {
		require.ErrorIs(t, dispatch.NewActor(d, osis("1"), r.handler(""), &o).Run(ctx), honker.ErrInvalid)
	}
	for _, o := range []dispatch.Options{{Prefix: "*"}, {Prios: -1}, {Prios: 9}, {Legacy: 7}, {Legacy: -1}, {IfAbsent: 9}, {TTL: time.Millisecond}} {
		bad := dispatch.New(db, &o)
		require.ErrorIs(t, dispatch.NewActor(bad, osis("1"), r.handler(""), nil).Run(ctx), honker.ErrInvalid)
		_, err := bad.Send(ctx, typeOsis, args{})
		require.ErrorIs(t, err, honker.ErrInvalid)
		_, err = bad.Stats(ctx)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	for _, mode := range []dispatch.LegacyMode{-1, 3} {
		require.ErrorIs(t, d.SetLegacy(mode), honker.ErrInvalid)
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountSent))
}

// Other writes in FinishTx's transaction are committed along with the end of the task or not at all.
func TestTask_FinishTx(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	testkit.Exec(t, db, `CREATE TABLE effects (n INTEGER)`)
	fails := true
	start(t, d, osis("1"), func(ctx context.Context, task *dispatch.Task[args]) (any, error) {
		return nil, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, task.Args.N); err != nil {
				return err
			}
			if err := task.FinishTx(ctx, tx, "done"); err != nil || !fails {
				return err
			}
			fails = false
			return errors.New("rolled back")
		})
	}, &dispatch.ActorOptions{Backoff: honker.Constant(0)})
	out, err := dispatch.Call[string](testkit.Context(t, testkit.Timeout), d, typeOsis, args{1})
	require.NoError(t, err)
	require.Equal(t, "done", out)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
}

// When Run's ctx ends, handlers may still finish. After DrainTimeout, their ctx is canceled, and the
// task is released without using up an attempt.
func TestActor_Run_Drain(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	began, release := make(chan int, 100), make(chan struct{})
	id := send(t, d, typeOsis, 1)
	stop := start(t, d, osis("1"), blocked(began, release), &dispatch.ActorOptions{DrainTimeout: time.Millisecond})
	<-began
	require.NoError(t, stop())
	s, err := d.Status(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, dispatch.Dispatched, s.State)
	require.Zero(t, s.Attempt)
	close(release)
	start(t, d, osis("1"), blocked(began, release), nil)
	<-began
	waitState(t, d, id, dispatch.Finished)
}

// If a handler ignores its ctx, Run does not return, but the task is released and can run elsewhere.
func TestActor_Run_Drain_IgnoresContext(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		d := dispatch.New(db, nil)
		began, released, late := make(chan int, 1), make(chan struct{}), make(chan error, 1)
		release := sync.OnceFunc(func() { close(released) })
		defer release()
		id := send(t, d, typeOsis, 1)
		stop := start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
			began <- task.Args.N
			<-released
			late <- db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error { return task.FinishTx(ctx, tx, "late") })
			return nil, nil
		}, &dispatch.ActorOptions{Lease: 3 * time.Second, DrainTimeout: 10 * time.Second})
		<-began
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		time.Sleep(10 * time.Second)
		waitState(t, d, id, dispatch.Started)
		time.Sleep(2 * time.Second)
		s := waitState(t, d, id, dispatch.Dispatched)
		require.Zero(t, s.Attempt)
		var r ran
		start(t, d, osis("2"), r.handler("2"), nil)
		waitState(t, d, id, dispatch.Finished)
		require.Empty(t, ended)
		require.Len(t, actors(t, d, typeOsis), 2, "it lives")
		release()
		require.ErrorIs(t, <-late, honker.ErrClaimLost)
		require.NoError(t, <-ended)
		require.Equal(t, map[string]int{"2": 1}, r.counts())
		require.Equal(t, 1, log.Times("still running after its context was cancelled"))
	})
}

// Run returns when the DB is closed.
func TestActor_Run_Closed(t *testing.T) {
	db, err := honker.Open(context.Background(), t.TempDir()+"/app.db", nil)
	require.NoError(t, err)
	d := dispatch.New(db, nil)
	var r ran
	ended := make(chan error, 1)
	go func() { ended <- dispatch.NewActor(d, osis("1"), r.handler("1"), nil).Run(context.Background()) }()
	testkit.Eventually(t, testkit.Timeout, "registered", func() bool { return len(actors(t, d, typeOsis)) == 1 })
	require.NoError(t, db.Close())
	require.ErrorIs(t, <-ended, honker.ErrClosed)
}

// Run returns nil when ctx ends, even if the actor is not registered yet.
func TestActor_Run_CtxEnded(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	var r ran
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, dispatch.NewActor(d, osis("1"), r.handler("1"), nil).Run(ctx))
	require.Empty(t, actors(t, d, typeOsis))
}

// A process refreshes the presence of all its actors with a single write.
func TestActor_Presence_OneWrite(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{TTL: time.Second})
	var r ran
	for i := range 20 {
		start(t, d, osis(fmt.Sprint(i)), r.handler(""), nil)
	}
	beat := func() (all map[time.Time]bool) {
		all = make(map[time.Time]bool)
		for _, p := range actors(t, d, typeOsis) {
			all[p.LastHeartbeat] = true
		}
		return all
	}
	testkit.Eventually(t, testkit.Timeout, "all by one", func() bool { return len(beat()) == 1 })
	var p dispatch.Presence
	heard := func() bool { // false if the presence has expired on a slow machine
		found := actors(t, d, dispatch.Target{Type: "osis", Instance: "0"})
		if len(found) == 1 {
			p = found[0]
		}
		return len(found) == 1
	}
	testkit.Eventually(t, testkit.Timeout, "it lives", heard)
	require.Equal(t, osis("0"), p.Identity)
	require.NotZero(t, p.PID)
	require.NotEmpty(t, p.Hostname)
	require.WithinDuration(t, time.Now(), p.StartedAt, time.Minute)
	first := p.LastHeartbeat
	testkit.Eventually(t, testkit.Timeout, "again", func() bool { return heard() && p.LastHeartbeat.After(first) })
}
