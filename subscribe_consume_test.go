package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// consumeUntil runs Consume, collects the numbers, and returns ErrCause from fn at the number end.
func consumeUntil(t testing.TB, s *honker.Stream[int], opts *honker.SubscribeOptions, end int) (data []int) {
	t.Helper()
	err := s.Consume(testkit.Context(t, testkit.Timeout), "c", func(_ context.Context, e *honker.Event[int]) error {
		if e.Data == end {
			return testkit.ErrCause
		}
		data = append(data, e.Data)
		return nil
	}, opts)
	require.ErrorIs(t, err, testkit.ErrCause)
	return data
}

// Consume calls fn in order, for existing events and for new events.
func TestStream_Consume_Order(t *testing.T) {
	t.Parallel()
	_, _, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 300)
	seen := make(chan int, 600)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return s.Consume(ctx, "c", func(_ context.Context, e *honker.Event[int]) error { seen <- e.Data; return nil }, nil)
	})
	for i := 300; i < 600; i++ {
		testkit.Publish(t, s, i)
	}
	for i := range 600 {
		require.Equal(t, i, <-seen)
	}
	require.NoError(t, stop())
	head, err := s.Head(context.Background())
	require.NoError(t, err)
	require.Equal(t, head, testkit.SavedOffset(t, s, "c"))
}

// An error from fn ends Consume with that error. The offset of its event is not saved; the offset of the
// events before it is.
func TestStream_Consume_ErrorEndsIt(t *testing.T) {
	t.Parallel()
	ctx, _, s := testkit.NewStream[int](t, "orders")
	offsets := testkit.PublishUpTo(t, s, 30)
	for _, at := range []int{0, 20, 20} {
		err := s.Consume(ctx, "c", func(_ context.Context, e *honker.Event[int]) error {
			if e.Data == at {
				return testkit.ErrCause
			}
			return nil
		}, nil)
		require.ErrorIs(t, err, testkit.ErrCause)
		require.ErrorContains(t, err, fmt.Sprintf(`honker: consume "orders": event %d: `, offsets[at]))
		require.Equal(t, offsets[at]-1, testkit.SavedOffset(t, s, "c"))
	}
	require.Equal(t, []int{20, 21, 22, 23, 24}, consumeUntil(t, s, nil, 25), "it goes on there")
}

// An event that does not decode ends Consume like an error from fn.
func TestStream_Consume_UndecodableEndsIt(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Publish(t, s, 1)
	testkit.Exec(t, db, `INSERT INTO _honker_stream (topic, payload) VALUES ('orders', 'no number')`)
	testkit.Publish(t, s, 3)
	for range 2 {
		err := s.Consume(ctx, "c", func(context.Context, *honker.Event[int]) error { return nil }, nil)
		require.ErrorContains(t, err, `honker: consume "orders": event 2: cannot decode payload`)
		require.EqualValues(t, 1, testkit.SavedOffset(t, s, "c"))
	}
	require.NoError(t, s.Seek(ctx, "c", honker.Offset(2)))
	require.Empty(t, consumeUntil(t, s, nil, 3))
}

// Consume saves the offset like Subscribe: by count, by time, or not at all.
func TestStream_Consume_Saves(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, s := t.Context(), honker.NewStream[int](db, "orders", nil)
		offsets := testkit.PublishUpTo(t, s, 10)
		err := s.Consume(ctx, "c", func(_ context.Context, e *honker.Event[int]) error {
			require.Less(t, testkit.SavedOffset(t, s, "c"), e.Offset)
			switch e.Data {
			case 5:
				require.Equal(t, offsets[3], testkit.SavedOffset(t, s, "c"), "by count")
				time.Sleep(time.Second)
			case 6:
				require.Equal(t, offsets[5], testkit.SavedOffset(t, s, "c"), "by time")
				return testkit.ErrCause
			}
			return nil
		}, &honker.SubscribeOptions{SaveEvery: 4})
		require.ErrorIs(t, err, testkit.ErrCause)
		require.Equal(t, []int{6, 7}, consumeUntil(t, s, strict, 8))
		require.Equal(t, offsets[5], testkit.SavedOffset(t, s, "c"), "by hand")
		err = s.Consume(ctx, "c", func(ctx context.Context, e *honker.Event[int]) error {
			switch e.Data {
			case 6:
				return e.Ack(ctx)
			case 7:
				return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return e.AckTx(ctx, tx) })
			}
			return testkit.ErrCause
		}, strict)
		require.ErrorIs(t, err, testkit.ErrCause)
		require.Equal(t, offsets[7], testkit.SavedOffset(t, s, "c"))
	})
}

// It isn't an error if ctx ends, and the events that fn has handled by then are saved.
func TestStream_Consume_EndOfContext(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := honker.NewStream[int](db, "orders", nil)
		offsets := testkit.PublishUpTo(t, s, 5)
		returns := func(result func(context.Context) error) error {
			stop := testkit.Background(t, func(ctx context.Context) error {
				return s.Consume(ctx, "c", func(ctx context.Context, e *honker.Event[int]) error {
					if e.Data < 3 {
						return nil
					}
					<-ctx.Done()
					return result(ctx)
				}, nil)
			})
			synctest.Wait()
			return stop()
		}
		require.NoError(t, returns(func(ctx context.Context) error { return fmt.Errorf("printing: %w", ctx.Err()) }))
		require.Equal(t, offsets[2], testkit.SavedOffset(t, s, "c"))
		require.ErrorIs(t, returns(func(context.Context) error { return testkit.ErrCause }), testkit.ErrCause)
		require.Equal(t, offsets[2], testkit.SavedOffset(t, s, "c"))
		require.NoError(t, returns(func(context.Context) error { return nil }))
		require.Equal(t, offsets[3], testkit.SavedOffset(t, s, "c"), "it was handled")

		stop := testkit.Background(t, func(ctx context.Context) error {
			return s.Consume(ctx, "c", func(context.Context, *honker.Event[int]) error { return nil }, nil)
		})
		synctest.Wait()
		require.NoError(t, stop(), "while it waits")
		require.Equal(t, offsets[4], testkit.SavedOffset(t, s, "c"))
		ended, end := context.WithCancel(context.Background())
		end()
		require.NoError(t, s.Consume(ended, "c", func(context.Context, *honker.Event[int]) error { return nil }, nil), "before it begins")
	})
}

// Close ends fn's ctx, waits for Consume, and lets it save its offset.
func TestStream_Consume_Close(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	s := honker.NewStream[int](db, "orders", nil)
	offsets := testkit.PublishUpTo(t, s, 5)
	busy, ended := make(chan struct{}), make(chan error, 2)
	returned := false
	go func() {
		ended <- s.Consume(context.Background(), "c", func(ctx context.Context, e *honker.Event[int]) error {
			if e.Data < 3 {
				return nil
			}
			close(busy)
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
			returned = errors.Is(context.Cause(ctx), honker.ErrClosed)
			return ctx.Err()
		}, nil)
	}()
	go func() {
		ended <- honker.NewStream[int](db, "idle", nil).Consume(context.Background(), "c",
			func(context.Context, *honker.Event[int]) error { return nil }, nil)
	}()
	<-busy
	require.NoError(t, db.Close())
	require.True(t, returned, "Close waits for fn")
	for range cap(ended) {
		require.ErrorIs(t, <-ended, honker.ErrClosed)
	}
	err = s.Consume(context.Background(), "c", func(context.Context, *honker.Event[int]) error { return nil }, nil)
	require.ErrorIs(t, err, honker.ErrClosed)
	db, err = honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, offsets[2], testkit.SavedOffset(t, honker.NewStream[int](db, "orders", nil), "c"))
}

// A panic in fn propagates to the caller, and its event does not count as handled.
func TestStream_Consume_Panic(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db, err := honker.Open(ctx, filepath.Join(t.TempDir(), "file.db"), nil)
	require.NoError(t, err)
	s := honker.NewStream[int](db, "orders", nil)
	offsets := testkit.PublishUpTo(t, s, 5)
	require.PanicsWithValue(t, "two", func() {
		_ = s.Consume(ctx, "c", func(_ context.Context, e *honker.Event[int]) error {
			if e.Data == 2 {
				panic("two")
			}
			return nil
		}, nil)
	})
	require.Equal(t, offsets[1], testkit.SavedOffset(t, s, "c"))
	require.NoError(t, db.Close(), "it does not wait for the one that has panicked")
}

func TestStream_Consume_Refuses(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	none := func(context.Context, *honker.Event[int]) error { return nil }
	calls := map[string]testkit.Refusal{
		"nil function": func(c context.Context) error { return s.Consume(c, "c", nil, nil) },
		"batch": func(c context.Context) error {
			return s.Consume(c, "c", none, &honker.SubscribeOptions{Batch: -1})
		},
		"from": func(c context.Context) error {
			return s.Consume(c, "c", none, &honker.SubscribeOptions{From: honker.Offset(-1)})
		},
		"bytes": func(c context.Context) error {
			return honker.NewStream[[]byte](db, "orders", nil).Consume(c, "c", func(context.Context, *honker.Event[[]byte]) error { return nil }, nil)
		},
	}
	for what, name := range badNames {
		calls["consumer "+what] = func(c context.Context) error { return s.Consume(c, name, none, nil) }
		calls["topic "+what] = func(c context.Context) error {
			return honker.NewStream[int](db, name, nil).Consume(c, "c", none, nil)
		}
	}
	testkit.RequireRefused(t, path, calls)
	ctx := testkit.Context(t, testkit.Timeout)
	_, err := s.SaveOffset(ctx, "old", 0)
	require.NoError(t, err)
	for _, consumer := range []string{"new", "old"} {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
			require.ErrorIs(t, s.Consume(ctx, consumer, none, nil), honker.ErrInTx)
			return nil
		}))
	}
}
