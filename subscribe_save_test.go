package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// neverByTime returns options that save by count only.
func neverByTime(count int) *honker.SubscribeOptions {
	return &honker.SubscribeOptions{SaveEvery: count, SaveInterval: -1}
}

// strict disables automatic saves.
var strict = &honker.SubscribeOptions{SaveEvery: -1, SaveInterval: -1}

// The offset is saved after the given number of events.
func TestSubscribe_Save_EveryN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ every, events int }{{1, 5}, {5, 12}, {10, 25}, {10, 10}, {7, 70}, {1000, 30}, {0, 1100}} {
		_, db, s := testkit.NewStream[int](t, "orders")
		offsets := testkit.PublishUpTo(t, s, c.events)
		testkit.PublishUpTo(t, honker.NewStream[int](db, "other", nil), 5)
		every := c.every
		if every == 0 {
			every = 1000
		}
		handled := 0
		for e, err := range s.Subscribe(testkit.Context(t, testkit.Timeout), "c", neverByTime(c.every)) {
			require.NoError(t, err)
			saved := int64(0)
			if n := handled / every * every; n > 0 {
				saved = offsets[n-1]
			}
			if handled%every < 2 || handled%every == every-1 {
				require.Equal(t, saved, testkit.SavedOffset(t, s, "c"), "every %d: in the body of event %d", every, handled)
			}
			if handled++; handled == c.events {
				require.Equal(t, offsets[c.events-1], e.Offset)
				break
			}
		}
		require.Equal(t, offsets[c.events-1], testkit.SavedOffset(t, s, "c"), "break counts as handled")
	}
}

// The offset is saved after an interval, even while no event arrives.
func TestSubscribe_Save_Interval(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interval, want time.Duration
		options        honker.SubscribeOptions
	}{
		"default": {want: time.Second},
		"given":   {want: 5 * time.Second, options: honker.SubscribeOptions{SaveInterval: 5 * time.Second}},
		"alone":   {want: time.Minute, options: honker.SubscribeOptions{SaveEvery: -1, SaveInterval: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				s := honker.NewStream[int](db, "orders", nil)
				offsets := testkit.PublishUpTo(t, s, 3)
				stop := testkit.Background(t, func(ctx context.Context) error { return testkit.LastError(s.Subscribe(ctx, "c", &c.options)) })
				time.Sleep(c.want - time.Millisecond)
				require.Zero(t, testkit.SavedOffset(t, s, "c"))
				time.Sleep(2 * time.Millisecond)
				require.Equal(t, offsets[2], testkit.SavedOffset(t, s, "c"))

				before := testkit.QueryInt(t, db.SQL(), `SELECT last_ack_ms FROM _honkerx_consumers`)
				time.Sleep(10 * c.want)
				require.Equal(t, before, testkit.QueryInt(t, db.SQL(), `SELECT last_ack_ms FROM _honkerx_consumers`), "nothing to save")
				next := testkit.Publish(t, s, 3)
				time.Sleep(c.want + time.Millisecond)
				require.Equal(t, next, testkit.SavedOffset(t, s, "c"))
				require.NoError(t, stop(), "the loop ends with ctx, silently")
			})
		})
	}
}

// A saved offset never covers an event before the loop's body has returned.
func TestSubscribe_Save_AfterBody(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := honker.NewStream[int](db, "orders", nil)
		other, luck := honker.NewStream[int](db, "other", nil), testkit.Rand(testkit.Seed(t), 0)
		for i := range 200 {
			testkit.Publish(t, s, i)
			testkit.Publish(t, other, i)
		}
		steps := []time.Duration{0, time.Millisecond, 900 * time.Millisecond, 3 * time.Second}
		for e, err := range s.Subscribe(t.Context(), "c", &honker.SubscribeOptions{SaveEvery: 3, Batch: 7}) {
			require.NoError(t, err)
			require.Less(t, testkit.SavedOffset(t, s, "c"), e.Offset, "at once")
			time.Sleep(steps[luck.IntN(len(steps))])
			require.Less(t, testkit.SavedOffset(t, s, "c"), e.Offset, "after a while")
			if e.Data == 199 {
				break
			}
		}
	})
}

// The offset is saved when a long-running body returns.
func TestSubscribe_Save_LongBody(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := honker.NewStream[int](db, "orders", nil)
		offsets := testkit.PublishUpTo(t, s, 2)
		for e, err := range s.Subscribe(t.Context(), "c", nil) {
			require.NoError(t, err)
			if e.Data == 1 {
				require.Equal(t, offsets[0], testkit.SavedOffset(t, s, "c"))
				break
			}
			time.Sleep(time.Minute)
		}
	})
}

// If a body panics or ends its goroutine, its event does not count as handled.
func TestSubscribe_Save_Panic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func()
		save *honker.SubscribeOptions
		want int // events handled before
	}{
		"panic":              {func() { panic("body") }, nil, 2},
		"panic when strict":  {func() { panic("body") }, strict, 0},
		"goexit":             {nil, nil, 2},
		"goexit when strict": {nil, strict, 0},
	} {
		_, _, s := testkit.NewStream[int](t, "orders")
		offsets := append([]int64{0}, testkit.PublishUpTo(t, s, 5)...)
		ended := make(chan any)
		go func() {
			returned := errors.New("goexit")
			defer func() {
				p := recover()
				if p == nil {
					p = returned
				}
				ended <- p
			}()
			for e, err := range s.Subscribe(testkit.Context(t, testkit.Timeout), "c", c.save) {
				if err == nil && e.Data == 2 {
					if c.end == nil {
						runtime.Goexit()
					}
					c.end()
				}
			}
			returned = nil
		}()
		require.NotNil(t, <-ended, name)
		require.Equal(t, offsets[c.want], testkit.SavedOffset(t, s, "c"), name)
		require.Equal(t, c.want, testkit.Take(t, s, "c", nil, 1)[0].Data, "%s: it comes again", name)
	}
}

// The offset of a strict consumer is saved only by Ack.
func TestSubscribe_Ack_Strict(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := honker.NewStream[int](db, "orders", nil)
		offsets := testkit.PublishUpTo(t, s, 2500)
		for e, err := range s.Subscribe(t.Context(), "c", strict) {
			require.NoError(t, err)
			if e.Data == 10 {
				require.NoError(t, e.Ack(t.Context()))
				time.Sleep(time.Hour)
			}
			if e.Data > 10 {
				require.Equal(t, offsets[10], testkit.SavedOffset(t, s, "c"))
			}
			if e.Data == 2400 {
				break
			}
		}
		require.Equal(t, offsets[10], testkit.SavedOffset(t, s, "c"))
		require.Len(t, drained(t, s, "c", strict), 2489)
		require.Len(t, drained(t, s, "c", strict), 2489, "nor at the end of ctx")
	})
}

// Ack saves the offset at once and never moves it back.
func TestSubscribe_Ack_NeverBack(t *testing.T) {
	t.Parallel()
	ctx, _, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 5)
	events := testkit.Take(t, s, "c", strict, 5)
	require.Zero(t, testkit.SavedOffset(t, s, "c"))
	require.NoError(t, events[3].Ack(ctx))
	require.Equal(t, events[3].Offset, testkit.SavedOffset(t, s, "c"))
	require.NoError(t, events[1].Ack(ctx), "an earlier one is covered")
	require.NoError(t, events[3].Ack(ctx), "again")
	require.Equal(t, events[3].Offset, testkit.SavedOffset(t, s, "c"))
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		require.ErrorIs(t, e.Ack(ctx), honker.ErrInvalid, "nobody's event")
		require.ErrorContains(t, e.Ack(ctx), "honker: ack event ")
	}
}

// The effect of an event and its AckTx are committed together.
func TestSubscribe_AckTx_Effect(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Exec(t, db, `CREATE TABLE effects (n INTEGER PRIMARY KEY)`)
	testkit.PublishUpTo(t, s, 10)
	handle := func(e *honker.Event[int], end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, e.Data)
			require.NoError(t, err)
			require.NoError(t, e.AckTx(ctx, tx))
			return end
		})
	}
	for e, err := range s.Subscribe(ctx, "c", strict) {
		require.NoError(t, err)
		if e.Data == 6 {
			require.ErrorIs(t, handle(e, testkit.ErrCause), testkit.ErrCause)
			break
		}
		require.NoError(t, handle(e, nil))
		require.Equal(t, e.Offset, testkit.SavedOffset(t, s, "c"))
	}
	require.EqualValues(t, 6, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
	for e, err := range s.Subscribe(ctx, "c", strict) {
		require.NoError(t, err)
		require.NoError(t, handle(e, nil), "the primary key would refuse a second one")
		if e.Data == 9 {
			break
		}
	}
	require.EqualValues(t, 10, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
}

// Ack in a transaction is refused at once, and the error names AckTx.
func TestSubscribe_Ack_InTx(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Publish(t, s, 1)
	e := testkit.Take(t, s, "c", strict, 1)[0]
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := e.Ack(ctx)
		require.ErrorIs(t, err, honker.ErrInTx)
		require.ErrorContains(t, err, "AckTx")
		return nil
	}))
	require.ErrorIs(t, e.AckTx(ctx, nil), honker.ErrInvalid)
}

// When Close ends the loop, the offset of the handled events is saved.
func TestSubscribe_Save_Close(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	synctest.Test(t, func(t *testing.T) {
		open := func() (*honker.DB, *honker.Stream[int]) {
			db, err := honker.Open(context.Background(), path, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			return db, honker.NewStream[int](db, "orders", nil)
		}
		db, s := open()
		offsets := testkit.PublishUpTo(t, s, 3)
		stop := testkit.Background(t, func(ctx context.Context) error { return testkit.LastError(s.Subscribe(ctx, "c", nil)) })
		synctest.Wait() // the subscriber has seen the events and sleeps
		require.NoError(t, db.Close())
		require.ErrorIs(t, stop(), honker.ErrClosed)
		_, s = open()
		require.Equal(t, offsets[2], testkit.SavedOffset(t, s, "c"))
	})
}
