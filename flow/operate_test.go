package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
)

// until waits until a run is in a state.
func until(t *testing.T, db *honker.DB, name, id string, state flow.State) (d flow.Detail) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		d, err = flow.Get(within(t), db, name, id)
		require.NoError(t, err)
		return d.State == state
	}, 20*time.Second, time.Millisecond)
	return d
}

// suspended waits until a run waits with a step.
func suspended(t *testing.T, db *honker.DB, name, id, step string) (d flow.Detail) {
	t.Helper()
	require.Eventually(t, func() bool {
		d = until(t, db, name, id, flow.StateWaiting)
		return len(d.Timeline) > 0 && d.Timeline[len(d.Timeline)-1].Name == step
	}, 20*time.Second, time.Millisecond)
	return d
}

// Get shows each step of a run with its state and its value, and List shows runs by flow and state.
func TestGet_Timeline(t *testing.T) {
	db := honkertest.Open(t, nil)
	child := flow.New(db, "ship", func(ctx context.Context, in int) (int, error) { return flow.Wait[int](ctx, "shipped", 0) }, nil)
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
		if _, err := flow.Version(ctx, "v", 3); err != nil {
			return 0, err
		}
		price, err := flow.Step(ctx, "price", func(context.Context) (int, error) { return in * 10, nil })
		if err != nil {
			return 0, err
		}
		if err := flow.Sleep(ctx, "rest", time.Millisecond); err != nil {
			return 0, err
		}
		if _, err := flow.Wait[string](ctx, "late", time.Millisecond); !errors.Is(err, flow.ErrTimeout) {
			return 0, err
		}
		if _, err := flow.Wait[string](ctx, "approved", 0); err != nil {
			return 0, err
		}
		n, err := flow.Call(ctx, "shipping", child, price)
		return n + price, err
	}, nil)
	work(t, f, 1)
	work(t, child, 1)
	start(t, f, "1", 4)
	d := suspended(t, db, "order", "1", "approved")
	require.Equal(t, flow.StepWaits, d.Timeline[4].State)
	require.Zero(t, d.RunAt, "it waits without a limit")
	require.Zero(t, d.Attempts)

	require.NoError(t, flow.Signal(within(t), db, "order", "1", "approved", "yes"))
	d = suspended(t, db, "order", "1", "shipping")
	require.Equal(t, map[string]json.RawMessage{"approved": json.RawMessage(`"yes"`)}, d.Signals)
	var shown []string
	for _, s := range d.Timeline {
		shown = append(shown, strings.TrimRight(s.Name+" "+s.Kind+" "+string(s.State)+" "+string(s.Value), " "))
		require.NotZero(t, s.BeganAt)
	}
	require.Equal(t, []string{"v version done 3", "price step done 40", "rest sleep done", "late wait timed out", `approved wait done "yes"`, "shipping call waits"}, shown)
	call := d.Timeline[5]
	require.Equal(t, "ship 1/shipping", call.CallFlow+" "+call.CallID)
	require.Equal(t, 6, d.Steps)

	suspended(t, db, "ship", "1/shipping", "shipped")
	all, err := flow.List(within(t), db, nil)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "ship of order/1", all[0].Flow+" of "+all[0].ParentFlow+"/"+all[0].ParentID)
	require.Equal(t, d.Run, all[1])

	require.NoError(t, flow.Signal(within(t), db, "ship", "1/shipping", "shipped", 2))
	out, err := f.Result(within(t), "1")
	require.NoError(t, err)
	require.Equal(t, 42, out)
	d = until(t, db, "order", "1", flow.StateDone)
	require.Equal(t, `2`, string(d.Timeline[5].Value))
	require.NotZero(t, d.EndedAt)
	for _, o := range []flow.ListOptions{{Flow: "order"}, {State: flow.StateDone, Limit: 1, Before: all[0].Job}} {
		some, err := flow.List(within(t), db, &o)
		require.NoError(t, err)
		require.Equal(t, []flow.Run{d.Run}, some)
	}
	some, err := flow.List(within(t), db, &flow.ListOptions{State: flow.StateFailed})
	require.NoError(t, err)
	require.Empty(t, some)
}

// A failed run restarts from a step: the earlier steps keep their results, and the later ones run again.
func TestRestartFrom_Step(t *testing.T) {
	db := honkertest.Open(t, nil)
	ran := map[string]int{}
	bad := true
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
		for _, name := range []string{"a", "b", "c"} {
			if _, err := flow.Step(ctx, name, func(context.Context) (int, error) { ran[name]++; return ran[name], nil }); err != nil {
				return 0, err
			}
		}
		if bad {
			return 0, honker.Reject(errors.New("bad"))
		}
		return flow.Wait[int](ctx, "go", 0)
	}, nil)
	stop := work(t, f, 1)
	start(t, f, "1", 1)
	d := until(t, db, "order", "1", flow.StateFailed)
	require.Equal(t, "bad", d.LastError)
	stop()
	bad = false
	ctx := honker.WithActor(within(t), "ann")
	require.NoError(t, flow.RestartFrom(ctx, db, "order", "1", "b"))
	stop = work(t, f, 1)
	suspended(t, db, "order", "1", "go")
	require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 2}, ran)

	// A suspended run restarts too.
	stop()
	require.NoError(t, flow.RestartFrom(ctx, db, "order", "1", "c"))
	require.NoError(t, flow.Signal(ctx, db, "order", "1", "go", 7))
	work(t, f, 1)
	out, err := f.Result(within(t), "1")
	require.NoError(t, err)
	require.Equal(t, 7, out)
	require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 3}, ran)
	log, err := admin.Audit(within(t), db, nil)
	require.NoError(t, err)
	var verbs []string
	for _, e := range log {
		verbs = append(verbs, e.Actor+" "+e.Verb)
	}
	require.Equal(t, []string{"ann signal flow", "ann restart flow", "ann restart flow"}, verbs)
}

// A run that was undone restarts from its first step, and takes new steps and undos.
func TestRestartFrom_Undone(t *testing.T) {
	db := honkertest.Open(t, nil)
	var log []string
	bad := true
	f := flow.New(db, "order", func(ctx context.Context, in int) (string, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := flow.Step(ctx, name, func(context.Context) (int, error) { log = append(log, name); return 0, nil }); err != nil {
				return "", err
			}
		}
		flow.Undo(ctx, "all", func(context.Context) error { log = append(log, "undo"); return nil })
		if bad {
			return "", honker.Reject(errors.New("bad"))
		}
		return "good", nil
	}, nil)
	stop := work(t, f, 1)
	start(t, f, "1", 1)
	d := until(t, db, "order", "1", flow.StateFailed)
	require.Equal(t, "bad", d.Undoing)
	stop()
	bad = false
	for _, step := range []string{"b", "undo:all"} {
		require.ErrorIs(t, flow.RestartFrom(within(t), db, "order", "1", step), honker.ErrInvalid)
	}
	require.Equal(t, d, until(t, db, "order", "1", flow.StateFailed), "nothing has changed")
	require.NoError(t, flow.RestartFrom(within(t), db, "order", "1", "a"))
	work(t, f, 1)
	out, err := f.Result(within(t), "1")
	require.NoError(t, err)
	require.Equal(t, "good", out)
	require.Equal(t, []string{"a", "b", "undo", "a", "b"}, log)
}

// A restarted run uses the run that it has called before.
func TestRestartFrom_Call(t *testing.T) {
	db := honkertest.Open(t, nil)
	calls := 0
	child := flow.New(db, "ship", func(ctx context.Context, in int) (int, error) { calls++; return in, nil }, nil)
	bad := true
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
		n, err := flow.Call(ctx, "shipping", child, in)
		if err == nil && bad {
			err = honker.Reject(errors.New("bad"))
		}
		return n, err
	}, nil)
	work(t, child, 1)
	stop := work(t, f, 1)
	start(t, f, "1", 5)
	until(t, db, "order", "1", flow.StateFailed)
	stop()
	bad = false
	require.NoError(t, flow.RestartFrom(within(t), db, "order", "1", "shipping"))
	work(t, f, 1)
	out, err := f.Result(within(t), "1")
	require.NoError(t, err)
	require.Equal(t, 5, out)
	require.Equal(t, 1, calls)
}

// Bad input of the operators' functions is refused with a typed error.
func TestOperate_BadInput(t *testing.T) {
	db := honkertest.Open(t, nil)
	_, err := flow.Get(within(t), db, "order", "1")
	require.ErrorIs(t, err, honker.ErrNotFound)
	all, err := flow.List(within(t), db, nil)
	require.NoError(t, err)
	require.Empty(t, all)
	for _, o := range []flow.ListOptions{{State: "odd"}, {Before: -1}, {Limit: -1}} {
		_, err := flow.List(within(t), db, &o)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	require.ErrorIs(t, flow.RestartFrom(within(t), db, "order", "1", ""), honker.ErrNotFound)
	cancelled, err := flow.Cancel(within(t), db, "order", "1")
	require.NoError(t, err)
	require.False(t, cancelled)

	began, release := make(chan bool), make(chan bool)
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
		return flow.Step(ctx, "a", func(context.Context) (int, error) { began <- true; <-release; return in, nil })
	}, nil)
	work(t, f, 1)
	start(t, f, "1", 1)
	<-began
	require.ErrorIs(t, flow.RestartFrom(within(t), db, "order", "1", ""), flow.ErrRunning)
	require.ErrorIs(t, flow.RestartFrom(within(t), db, "order", "1", "b"), honker.ErrNotFound)
	require.Equal(t, flow.StateRunning, until(t, db, "order", "1", flow.StateRunning).State)
	close(release)
	_, err = f.Result(within(t), "1")
	require.NoError(t, err)
	require.ErrorIs(t, flow.RestartFrom(within(t), db, "order", "1", "a"), honker.ErrNotFound)
	require.ErrorIs(t, flow.Signal(within(t), db, "order", "1", "s", 1), honker.ErrNotFound)
	require.ErrorIs(t, flow.Signal(within(t), db, "order", "1", strings.Repeat("x", 256), 1), honker.ErrInvalid)
}

// A result that cannot be stored ends the run at once with an error that says so: another attempt would not help.
func TestStep_ResultTooLarge(t *testing.T) {
	db := honkertest.Open(t, &honker.Options{MaxPayload: 1000})
	tries := map[string]int{}
	f := flow.New(db, "order", func(ctx context.Context, in int) (any, error) {
		tries[flow.ID(ctx)]++
		large := strings.Repeat("x", 2000)
		switch flow.ID(ctx) {
		case "step":
			_, err := flow.Step(ctx, "a", func(context.Context) (string, error) { return large, nil })
			return nil, err
		case "kind":
			_, err := flow.Step(ctx, "a", func(context.Context) (chan int, error) { return nil, nil })
			return nil, err
		case "name":
			_, err := flow.Step(ctx, strings.Repeat("n", 256), func(context.Context) (int, error) { return 0, nil })
			return nil, honker.Reject(err)
		case "reserved":
			_, err := flow.Step(ctx, "undo:a", func(context.Context) (int, error) { return 0, nil })
			return nil, honker.Reject(err)
		}
		return large, nil
	}, nil)
	work(t, f, 1)
	for id, want := range map[string]string{"step": "the maximum is 1000", "end": "the maximum is 1000", "kind": "chan int", "name": "the maximum is 255", "reserved": `must not begin with "undo:"`} {
		start(t, f, id, 1)
		_, err := f.Result(within(t), id)
		var failed *flow.FailedError
		require.ErrorAs(t, err, &failed, id)
		require.Contains(t, failed.LastError, want)
		require.Equal(t, 1, tries[id], id)
	}
	_, err := f.Start(within(t), strconv.Itoa(1), 1, honker.Delay(-1))
	require.ErrorIs(t, err, honker.ErrInvalid)
}
