package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A failed step is logged and retried after increasing pauses. The pauses start over after a
// success.
func TestRetry_After_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := Retry{Log: slog.New(slog.NewTextHandler(&log, nil)), Message: "step failed, retrying", Attrs: []any{"queue", "mail"}}
		broken := errors.New("broken")
		pause := func() time.Duration {
			began := time.Now()
			require.NoError(t, r.After(context.Background(), broken))
			return time.Since(began)
		}
		require.Equal(t, 100*time.Millisecond, pause())
		require.Equal(t, 200*time.Millisecond, pause())
		require.Equal(t, 2, r.Failures())
		for range 60 {
			pause()
		}
		require.Equal(t, 5*time.Second, pause())
		r.Reset()
		require.Equal(t, 100*time.Millisecond, pause())
		require.Contains(t, log.String(), `level=ERROR msg="honker: step failed, retrying" error=broken queue=mail`)
	})
}

// A retry ends immediately after a final error or when ctx ends.
func TestRetry_After_Final(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := Retry{Log: slog.New(slog.NewTextHandler(&log, nil))}
		began := time.Now()
		require.ErrorIs(t, r.After(context.Background(), Wrap("claim", "jobs", ErrClosed)), ErrClosed)
		require.ErrorIs(t, r.After(context.Background(), ErrDatabaseReplaced), ErrDatabaseReplaced)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		broken := errors.New("broken")
		require.ErrorIs(t, r.After(ctx, broken), broken)
		require.Zero(t, time.Since(began))
		require.Empty(t, log.String())

		ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, r.After(ctx, broken), context.DeadlineExceeded, "ctx ends in the pause")
		require.Equal(t, time.Millisecond, time.Since(began))
	})
}

// Every pauses for as long as its function returns. It ends when the function returns 0 or ctx
// ends.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		pauses := []time.Duration{time.Minute, time.Second, 0}
		Every(context.Background(), time.Hour, func() time.Duration {
			at = append(at, time.Since(began))
			return pauses[len(at)-1]
		})
		require.Equal(t, []time.Duration{time.Hour, time.Hour + time.Minute, time.Hour + time.Minute + time.Second}, at)

		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		began = time.Now()
		calls := 0
		Every(ctx, time.Minute, func() time.Duration { calls++; return time.Minute })
		require.Equal(t, 1, calls)
		require.Equal(t, 90*time.Second, time.Since(began))
	})
}

// The innermost verb adds its operation and name to an error. Outer verbs add nothing.
func TestWrap_Once(t *testing.T) {
	err := Wrap("enqueue", "jobs", ErrInvalid)
	require.EqualError(t, err, `honker: enqueue "jobs": invalid argument`)
	require.Equal(t, err, Wrap("send", "mail", err))
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, Wrap("enqueue", "jobs", nil))
	require.EqualError(t, WrapID("ack job", 7, ErrClaimLost), "honker: ack job 7: claim lost")
	require.NoError(t, WrapID("ack job", 7, nil))
}

// Durations are rounded up, and the longest duration does not overflow.
func TestSeconds_RoundUp(t *testing.T) {
	now := time.Unix(1000, 1)
	require.EqualValues(t, 1, Seconds(time.Nanosecond))
	require.EqualValues(t, 1, Seconds(time.Second))
	require.EqualValues(t, 2, Seconds(time.Second+1))
	require.EqualValues(t, 1001, UnixUp(now))
	require.EqualValues(t, 1_000_001, DeadlineMS(now, 0))
	require.Positive(t, DeadlineMS(now, math.MaxInt64))
	require.Equal(t, 2*time.Second, row.Span(2))
	require.Positive(t, row.Span(math.MaxInt64))
	require.Negative(t, row.Span(math.MinInt64))
	require.Positive(t, row.Milliseconds(math.MaxInt64))
	require.EqualValues(t, 1000, UnixAfter(now, 0))
	require.EqualValues(t, 1001, UnixAfter(now, time.Second-1))
	require.EqualValues(t, 1002, UnixAfter(now, time.Second))
	require.Greater(t, UnixAfter(now, math.MaxInt64), now.Unix())
	require.Zero(t, Expiry(now, 0))
	require.Zero(t, Expiry(now, -1))
	require.EqualValues(t, 1001, Expiry(now, 1))
}
