package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Call returns the handler's result, and Await returns a result that was saved before the call.
func TestCall_Reply(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	ctx := testkit.Context(t, testkit.Timeout)
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	n, err := dispatch.Call[int](ctx, d, typeOsis, args{7})
	require.NoError(t, err)
	require.Equal(t, 7, n)
	id := send(t, d, typeOsis, 8)
	s := waitState(t, d, id, dispatch.Finished)
	require.JSONEq(t, "8", string(s.Output))
	require.False(t, s.SentAt.IsZero() || s.StartedAt.Before(s.SentAt) || s.EndedAt.Before(s.StartedAt), "%+v", s)
	n, err = dispatch.Await[int](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	_, err = dispatch.Await[string](ctx, d, id)
	require.ErrorContains(t, err, "cannot decode")
	_, err = dispatch.Await[int](ctx, d, 1000)
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// Await returns ErrNoResult if the worker saves no result. A handler that returns nil has a result.
func TestCall_StatusOnly(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return honker.NewQueue[args](db, d.Keys().Work(typeOsis), nil).Work(ctx, func(context.Context, *honker.Job[args]) error { return nil }, nil)
	})
	_, err := dispatch.Call[int](ctx, d, typeOsis, args{7})
	require.ErrorIs(t, err, dispatch.ErrNoResult)
	require.NoError(t, stop())
	start(t, d, osis("1"), func(context.Context, *dispatch.Task[args]) (any, error) { return nil, nil }, nil)
	n, err := dispatch.Call[int](ctx, d, typeOsis, args{7})
	require.NoError(t, err)
	require.Zero(t, n)
}

// Await returns an error if the job fails or is stopped.
func TestCall_Failed(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	ctx := testkit.Context(t, testkit.Timeout)
	start(t, d, osis("1"), func(context.Context, *dispatch.Task[args]) (any, error) { return nil, honker.Reject(testkit.ErrCause) }, nil)
	_, err := dispatch.Call[int](ctx, d, typeOsis, args{7})
	var failed *honker.JobFailedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, testkit.ErrCause.Error(), failed.LastError)
	require.Equal(t, 1, failed.Attempts)
	s, err := d.Status(ctx, failed.ID)
	require.NoError(t, err)
	require.Equal(t, dispatch.Failed, s.State)
	require.Equal(t, testkit.ErrCause.Error(), s.Error)

	ended := make(chan error, 1)
	id := send(t, d, dispatch.Target{Type: "none"}, 1)
	go func() { _, err := dispatch.Await[int](ctx, d, id); ended <- err }()
	_, err = d.StopJob(ctx, id)
	require.NoError(t, err)
	require.ErrorIs(t, <-ended, honker.ErrCancelled)
}

// The job keeps running if Await's ctx ends.
func TestCall_CtxEnds(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	began, release := make(chan int, 100), make(chan struct{})
	start(t, d, osis("1"), blocked(began, release), nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { _, err := dispatch.Call[int](ctx, d, typeOsis, args{7}); ended <- err }()
	<-began
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	close(release)
	waitState(t, d, 1, dispatch.Finished)
}

// While a job waits for a retry, its status has the error of its last attempt.
func TestStatus_Retried(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
		if task.Attempt == 1 {
			return nil, honker.RetryAfter(time.Hour, testkit.ErrCause)
		}
		return nil, nil
	}, nil)
	id := send(t, d, typeOsis, 1)
	var s dispatch.Status
	testkit.Eventually(t, testkit.Timeout, "failed once", func() bool {
		s = waitState(t, d, id, dispatch.Dispatched)
		return s.Error != ""
	})
	require.Equal(t, testkit.ErrCause.Error(), s.Error)
	require.Equal(t, 1, s.Attempt)
	require.False(t, s.StartedAt.IsZero())
	require.True(t, s.EndedAt.IsZero())
}
