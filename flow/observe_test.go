package flow_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/observe"
)

// The observer hears of each function that runs, and not of steps that are recorded. The function gets the observer's ctx.
func TestStep_Observed(t *testing.T) {
	type key struct{}
	var began []observe.Step
	var ended []error
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{BeginStep: func(ctx context.Context, s observe.Step) (context.Context, func(observe.StepEnd)) {
		began = append(began, s)
		return context.WithValue(ctx, key{}, s.Name), func(e observe.StepEnd) { ended = append(ended, e.Err) }
	}}})
	seen := func(ctx context.Context, name string) {
		t.Helper()
		require.Equal(t, name, ctx.Value(key{}))
	}
	failed := errors.New("not yet")
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
		_, err := flow.Step(ctx, "first", func(ctx context.Context) (int, error) { seen(ctx, "first"); return in, nil })
		if err != nil {
			return 0, err
		}
		flow.Undo(ctx, "first", func(ctx context.Context) error { seen(ctx, "first"); return nil })
		if _, err := flow.Version(ctx, "v", 1); err != nil {
			return 0, err
		}
		return flow.StepTx(ctx, "second", func(ctx context.Context, _ *sql.Tx) (int, error) { seen(ctx, "second"); return 0, failed })
	}, &flow.Options{Queue: honker.QueueOptions{MaxAttempts: 2, Backoff: honker.Constant(0)}})
	start(t, f, "1", 7)
	n, err := f.WorkDue(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	job := began[0].Job
	require.Equal(t, []observe.Step{
		{Flow: "order", Run: "1", Name: "first", Job: job, Attempt: 1}, {Flow: "order", Run: "1", Name: "second", Job: job, Attempt: 1},
		{Flow: "order", Run: "1", Name: "second", Job: job, Attempt: 2}, {Flow: "order", Run: "1", Name: "first", Undo: true, Job: job, Attempt: 2},
	}, began)
	require.Equal(t, []error{nil, failed, failed, nil}, ended)
}

// A step whose function panics is reported as such, and a panic of the observer does not matter.
func TestStep_ObservedPanics(t *testing.T) {
	var ended []error
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{BeginStep: func(context.Context, observe.Step) (context.Context, func(observe.StepEnd)) {
		return nil, func(e observe.StepEnd) { ended = append(ended, e.Err); panic("no ink") }
	}}})
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
		return flow.Step(ctx, "first", func(context.Context) (int, error) { panic("no paper") })
	}, quick(1))
	start(t, f, "1", 7)
	_, err := f.WorkDue(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []error{observe.ErrPanicked}, ended)
	run, err := flow.Get(t.Context(), db, "order", "1")
	require.NoError(t, err)
	require.Contains(t, run.LastError, "panic: no paper")
}
