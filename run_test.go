package honker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// untilEnd is a loop that returns the error of its ctx.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("loop: %w", ctx.Err())
}

// Run ends with its ctx, after all loops have returned. The end of ctx is not an error.
func TestRun_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cause := range []error{nil, errors.New("shutdown")} {
			ctx, cancel := context.WithCancelCause(t.Context())
			drained := 0
			slow := func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				drained++
				return context.Cause(ctx)
			}
			done := make(chan error, 1)
			go func() { done <- honker.Run(ctx, untilEnd, slow, func(context.Context) error { return nil }) }()
			time.Sleep(time.Hour)
			require.Empty(t, done, "a loop that returns nil does not end the others")
			cancel(cause)
			require.NoError(t, <-done)
			require.Equal(t, 1, drained)
		}
		require.NoError(t, honker.Run(t.Context()))
	})
}

// The first failure ends the other loops and is returned, even if they fail later or the failure looks like
// the end of another ctx.
func TestRun_Failure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cause := range []error{io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded} {
			began := time.Now()
			err := honker.Run(t.Context(), untilEnd, func(context.Context) error {
				time.Sleep(time.Second)
				return cause
			}, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				return errors.New("too late")
			})
			require.Equal(t, cause, err)
			require.Equal(t, 2*time.Second, time.Since(began))
		}
	})
}

// A loop that ends its goroutine has failed. The other loops do not go on without it.
func TestRun_Goexit(t *testing.T) {
	t.Parallel()
	err := honker.Run(testkit.Context(t, testkit.Timeout), untilEnd, func(context.Context) error {
		runtime.Goexit()
		return nil
	})
	require.ErrorContains(t, err, "runtime.Goexit")
}

// A nil loop and a nil ctx are refused before any loop starts.
func TestRun_Invalid(t *testing.T) {
	began := false
	loop := func(context.Context) error { began = true; return nil }
	require.ErrorIs(t, honker.Run(t.Context(), loop, nil), honker.ErrInvalid)
	var none context.Context
	require.ErrorIs(t, honker.Run(none, loop), honker.ErrInvalid)
	require.False(t, began)
}

// The loops of a DB end without an error when ctx ends, and with ErrClosed when the DB is closed.
func TestRun_Loops(t *testing.T) {
	t.Parallel()
	_, db, q := testkit.NewQueue[int](t, nil)
	o := honker.NewOutbox(db, "mails", func(context.Context, int) error { return nil }, nil)
	loops := []func(context.Context) error{
		func(ctx context.Context) error { return q.Work(ctx, testkit.Succeed[int], nil) },
		func(ctx context.Context) error { return o.Run(ctx, nil) },
		func(ctx context.Context) error { return db.Maintain(ctx, nil) },
		db.Scheduler().Run,
	}
	stop := testkit.Background(t, func(ctx context.Context) error { return honker.Run(ctx, loops...) })
	testkit.Enqueue(t, q, 1)
	require.NoError(t, stop())
	done := make(chan error, 1)
	go func() { done <- honker.Run(context.Background(), loops...) }()
	require.NoError(t, db.Close())
	require.ErrorIs(t, <-done, honker.ErrClosed)
}
