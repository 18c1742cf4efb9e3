package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// A pipe follows new events and preserves their keys and order.
func TestPipe_FollowsInOrder(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	from, to := testkit.DoublingStreams(db)
	keys := []string{"", "k", "ü%_\U0010FFFF", strings.Repeat("k", 1024)}
	send := func(i int) { testkit.Publish(t, from, i, honker.EventKey(keys[i%len(keys)])) }
	for i := range 600 {
		send(i)
	}
	stop := testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "doubler", to, testkit.Double) })
	for i := 600; i < 700; i++ {
		send(i)
	}
	got := testkit.Take(t, to, "reader", nil, 700)
	require.Equal(t, testkit.Doubles(700), testkit.EventData(got))
	for i, e := range got {
		require.Equal(t, keys[i%len(keys)], e.Key)
		require.Equal(t, "doubles", e.Topic)
	}
	require.NoError(t, stop())
	require.EqualValues(t, 700, countEvents(t, db)-len(testkit.StreamData(t, from)))
	infos, err := from.Consumers(ctx)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.Equal(t, "doubler", infos[0].Name)
	require.Zero(t, infos[0].Lag)
}

// If an event has no key, its successor has no key either.
func TestPipe_NoKey(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	_, db, _ := testkit.NewStream[int](t, "unused")
	from, to := testkit.DoublingStreams(db)
	testkit.PublishUpTo(t, from, 3)
	testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "doubler", to, testkit.Double) })
	testkit.Take(t, to, "reader", nil, 3)
	require.EqualValues(t, 6, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream WHERE key IS NULL`))
}

// Chained pipes deliver to the last stream.
func TestPipe_Chain(t *testing.T) {
	t.Parallel()
	_, db, _ := testkit.NewStream[int](t, "unused")
	stages := []*honker.Stream[int]{}
	for _, name := range []string{"a", "b", "c", "d"} {
		stages = append(stages, honker.NewStream[int](db, name, nil))
	}
	for i, s := range stages[1:] {
		testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, stages[i], "pipe", s, testkit.Double) })
	}
	for i := range 50 {
		testkit.Publish(t, stages[0], i)
	}
	for i, e := range testkit.Take(t, stages[3], "reader", nil, 50) {
		require.Equal(t, 8*i, e.Data)
	}
}

// A pipe that reads a pattern preserves the total order.
func TestPipe_Pattern(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	type labelled struct {
		Topic string
		N     int
	}
	from, to := honker.NewStream[int](db, "orders:*", nil), honker.NewStream[labelled](db, "labelled", nil)
	var want []labelled
	for i := range 300 {
		topic := fmt.Sprint("orders:", i%7)
		testkit.Publish(t, honker.NewStream[int](db, topic, nil), i)
		testkit.Publish(t, honker.NewStream[int](db, "other", nil), i)
		want = append(want, labelled{topic, i})
	}
	stop := errors.New("enough")
	err := honker.Pipe(ctx, from, "c", to, func(_ context.Context, e *honker.Event[int]) (labelled, error) {
		if e.Data == 299 {
			return labelled{}, stop
		}
		return labelled{e.Topic, e.Data}, nil
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, want[:299], testkit.StreamData(t, to))
}

// A pipe ends at the first error and resumes at the same event the next time.
func TestPipe_Error_GoesOnThere(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	from, to := testkit.DoublingStreams(db)
	offsets := testkit.PublishUpTo(t, from, 400)
	for _, at := range []int{0, 100, 100, 399} {
		err := honker.Pipe(ctx, from, "doubler", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
			if e.Data == at {
				return 0, testkit.ErrCause
			}
			return testkit.Double(ctx, e)
		})
		require.ErrorIs(t, err, testkit.ErrCause)
		require.ErrorContains(t, err, fmt.Sprintf(`honker: pipe "numbers": event %d: `, offsets[at]))
		require.Equal(t, testkit.Doubles(at), append([]int{}, testkit.StreamData(t, to)...))
		require.Equal(t, offsets[at]-1, testkit.SavedOffset(t, from, "doubler"))
	}
}

// A pipe whose consumer is moved goes on at the new position, also if it has begun to read the page after the old one.
func TestPipe_SeekWhileReadingAhead(t *testing.T) {
	t.Parallel()
	for _, to := range []int{2, 17, 33} {
		ctx, db, _ := testkit.NewStream[int](t, "unused")
		numbers, out := honker.NewStream[int](db, "numbers", &honker.StreamOptions{Batch: 10}), honker.NewStream[int](db, "out", nil)
		offsets := testkit.PublishUpTo(t, numbers, 100)
		moved, begun := false, 0
		stop := testkit.Background(t, func(ctx context.Context) error {
			return honker.Pipe(ctx, numbers, "c", out, func(ctx context.Context, e *honker.Event[int]) (int, error) {
				if e.Data == 15 && !moved {
					moved, begun = true, len(testkit.StreamData(t, out))
					return e.Data, numbers.Seek(ctx, "c", honker.Offset(offsets[to]-1))
				}
				return e.Data, nil
			})
		})
		testkit.Eventually(t, testkit.Timeout, "all of them handled", func() bool { return testkit.SavedOffset(t, numbers, "c") == offsets[99] })
		require.NoError(t, stop())
		var want []int
		for n := to; n < 100; n++ {
			want = append(want, n)
		}
		require.Equal(t, want, testkit.StreamData(t, out)[begun:])
		require.NoError(t, ctx.Err())
	}
}

// A pipe skips events for which its function returns ErrSkip.
func TestPipe_Skip(t *testing.T) {
	t.Parallel()
	_, db, _ := testkit.NewStream[int](t, "unused")
	from, to := testkit.DoublingStreams(db)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return honker.Pipe(ctx, from, "doubler", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
			if e.Data%3 > 0 {
				return 0, fmt.Errorf("of no interest: %w", honker.ErrSkip)
			}
			return testkit.Double(ctx, e)
		})
	})
	offsets := testkit.PublishUpTo(t, from, 300)
	testkit.Eventually(t, testkit.Timeout, "all of them handled", func() bool { return testkit.SavedOffset(t, from, "doubler") == offsets[299] })
	require.NoError(t, stop())
	var want []int
	for i := 0; i < 300; i += 3 {
		want = append(want, 2*i)
	}
	require.Equal(t, want, testkit.StreamData(t, to))
}

// A pipe ends at an event that doesn't decode or whose successor doesn't encode.
func TestPipe_Undecodable(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, &honker.Options{MaxPayload: 100})
	from, to := honker.NewStream[int](db, "numbers", nil), honker.NewStream[any](db, "out", nil)
	testkit.Publish(t, from, 0)
	foreignEvent(t, db, "numbers", `NULL`, `'no number'`, `1`)
	last := testkit.Publish(t, from, 2)
	results := map[int]any{0: "fine"}
	turn := func(_ context.Context, e *honker.Event[int]) (any, error) { return results[e.Data], nil }
	for range 2 {
		err := honker.Pipe(ctx, from, "c", to, turn)
		require.ErrorContains(t, err, "cannot decode")
		require.ErrorContains(t, err, "event 2")
		require.EqualValues(t, 1, testkit.SavedOffset(t, from, "c"))
	}
	require.NoError(t, from.Seek(ctx, "c", honker.Offset(2)))
	for _, bad := range []any{make(chan int), []byte("x"), strings.Repeat("x", 200)} {
		results[2] = bad
		err := honker.Pipe(ctx, from, "c", to, turn)
		require.ErrorIs(t, err, honker.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprint("event ", last))
	}
	require.Equal(t, []any{"fine"}, testkit.StreamData(t, to))
}

// A pipe rejects invalid input.
func TestPipe_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.Open(t, nil)
	pipe := func(from, to *honker.Stream[int]) testkit.Refusal {
		return func(c context.Context) error { return honker.Pipe(c, from, "c", to, testkit.Double) }
	}
	s := func(name string) *honker.Stream[int] { return honker.NewStream[int](db, name, nil) }
	testkit.RequireRefused(t, path, map[string]testkit.Refusal{
		"nil function":          func(c context.Context) error { return honker.Pipe[int, int](c, s("a"), "c", s("b"), nil) },
		"itself":                pipe(s("a"), s("a")),
		"its own pattern":       pipe(s("orders:*"), s("orders:out")),
		"everything":            pipe(s("*"), s("a")),
		"a pattern as target":   pipe(s("a"), s("b:*")),
		"a pattern to itself":   pipe(s("a*"), s("a*")),
		"another database":      pipe(s("a"), honker.NewStream[int](other, "b", nil)),
		"from another database": pipe(honker.NewStream[int](other, "a", nil), s("b")),
		"no name":               pipe(s(""), s("b")),
		"no target":             pipe(s("a"), s("")),
		"no consumer":           func(c context.Context) error { return honker.Pipe(c, s("a"), "", s("b"), testkit.Double) },
		"bytes": func(c context.Context) error {
			return honker.Pipe(c, s("a"), "c", honker.NewStream[[]byte](db, "b", nil),
				func(context.Context, *honker.Event[int]) ([]byte, error) { return nil, nil })
		},
	})
}

// A pipe in a transaction is rejected immediately.
func TestPipe_InTx_Refused(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	from, to := testkit.DoublingStreams(db)
	_, err := from.SaveOffset(ctx, "old", 0)
	require.NoError(t, err)
	for _, consumer := range []string{"new", "old"} {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, honker.Pipe(ctx, from, consumer, to, testkit.Double), honker.ErrInTx, consumer)
			return nil
		}))
	}
}

// blockAt returns a function that doubles numbers below n. At n it closes blocked and waits for its ctx to
// end.
func blockAt(n int, blocked chan<- struct{}) func(context.Context, *honker.Event[int]) (int, error) {
	return func(ctx context.Context, e *honker.Event[int]) (int, error) {
		if e.Data == n {
			close(blocked)
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return testkit.Double(ctx, e)
	}
}

// A pipe returns nil when its context ends, and keeps the completed work.
func TestPipe_Context(t *testing.T) {
	t.Parallel()
	_, db, _ := testkit.NewStream[int](t, "unused")
	from, to := testkit.DoublingStreams(db)
	offsets := testkit.PublishUpTo(t, from, 10)
	blocked := make(chan struct{})
	stop := testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, blockAt(7, blocked)) })
	<-blocked
	require.NoError(t, stop())
	require.Equal(t, testkit.Doubles(7), testkit.StreamData(t, to))
	require.Equal(t, offsets[6], testkit.SavedOffset(t, from, "c"))

	stop = testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, testkit.Double) })
	testkit.Eventually(t, testkit.Timeout, "the rest", func() bool { return len(testkit.StreamData(t, to)) == 10 })
	require.NoError(t, stop(), "while it waits")
	require.Equal(t, testkit.Doubles(10), testkit.StreamData(t, to))
	ended, end := context.WithCancel(context.Background())
	end()
	require.NoError(t, honker.Pipe(ended, from, "c", to, testkit.Double), "before it begins")
	require.Equal(t, testkit.Doubles(10), testkit.StreamData(t, to))
}

// Close ends a pipe with ErrClosed, and the completed work is kept.
func TestPipe_Close(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	from, to := testkit.DoublingStreams(db)
	testkit.PublishUpTo(t, from, 10)
	busy, ended := make(chan struct{}), make(chan error, 2)
	go func() { ended <- honker.Pipe(context.Background(), from, "c", to, blockAt(7, busy)) }()
	idle := honker.NewStream[int](db, "idle", nil)
	go func() { ended <- honker.Pipe(context.Background(), idle, "c", to, testkit.Double) }()
	<-busy
	require.NoError(t, db.Close())
	for range cap(ended) {
		require.ErrorIs(t, <-ended, honker.ErrClosed)
	}
	db = honkertest.OpenFile(t, path, nil)
	from, to = testkit.DoublingStreams(db)
	require.Equal(t, testkit.Doubles(7), testkit.StreamData(t, to))
	require.EqualValues(t, 7, testkit.SavedOffset(t, from, "c"))
}

// A panic in a pipe neither loses nor repeats any event.
func TestPipe_Panic(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	from, to := testkit.DoublingStreams(db)
	testkit.PublishUpTo(t, from, 10)
	require.PanicsWithValue(t, "7", func() {
		_ = honker.Pipe(context.Background(), from, "c", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
			if e.Data == 7 {
				panic("7")
			}
			return testkit.Double(ctx, e)
		})
	})
	stop := testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, testkit.Double) })
	testkit.Eventually(t, testkit.Timeout, "all of them", func() bool { return len(testkit.StreamData(t, to)) >= 10 })
	require.NoError(t, stop())
	require.Equal(t, testkit.Doubles(10), testkit.StreamData(t, to))
	require.NoError(t, db.Close(), "it does not wait for the one that has panicked")
}

// Pipes with the same consumer publish a single successor of each event.
func TestPipe_SameConsumer(t *testing.T) {
	t.Parallel()
	events := 3000
	if testing.Short() {
		events = 400
	}
	path, db := testkit.OpenShared(t)
	from, to := testkit.DoublingStreams(db)
	testkit.PublishUpTo(t, from, events/2)
	var mu sync.Mutex
	took, competing := map[int]int{}, make(chan struct{})
	for i, db := range []*honker.DB{db, db, honkertest.OpenFile(t, path, nil), testkit.Attach(t, path, nil)} {
		from, to := testkit.DoublingStreams(db)
		stop := testkit.Background(t, func(ctx context.Context) error {
			return honker.Pipe(ctx, from, "doubler", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
				mu.Lock()
				if took[i]++; took[i] == 1 && len(took) == 2 {
					close(competing)
				}
				mu.Unlock()
				select {
				case <-competing: // neither pipe continues alone
				case <-ctx.Done():
				}
				return testkit.Double(ctx, e)
			})
		})
		defer func() { require.NoError(t, stop()) }()
	}
	for i := events / 2; i < events; i++ {
		testkit.Publish(t, from, i)
	}
	require.Equal(t, testkit.Doubles(events), testkit.EventData(testkit.Take(t, to, "reader", nil, events)))
	testkit.Eventually(t, testkit.Timeout, "the offset", func() bool { return testkit.SavedOffset(t, from, "doubler") > 0 })
	require.Len(t, testkit.StreamData(t, to), events)
	mu.Lock()
	defer mu.Unlock()
	t.Logf("events by pipe: %v", took)
}

// A pipe continues at the offset to which its consumer was moved.
func TestPipe_Seek(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		from, to := testkit.DoublingStreams(db)
		testkit.PublishUpTo(t, from, 3)
		stop := testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, testkit.Double) })
		synctest.Wait()
		require.Equal(t, []int{0, 2, 4}, testkit.StreamData(t, to))
		require.NoError(t, from.Seek(ctx, "c", honker.Offset(1)))
		testkit.Publish(t, from, 3)
		synctest.Wait()
		require.Equal(t, []int{0, 2, 4, 2, 4, 6}, testkit.StreamData(t, to), "back")

		head, err := to.Head(ctx)
		require.NoError(t, err)
		require.NoError(t, from.Seek(ctx, "c", honker.Offset(head+2)))
		testkit.Publish(t, from, 4) // at head+1
		testkit.Publish(t, from, 5) // at head+2, or above a successor
		testkit.Publish(t, from, 6)
		synctest.Wait()
		all := testkit.StreamData(t, to)
		require.NotContains(t, all, 8, "forth")
		require.Equal(t, 12, all[len(all)-1])
		require.NoError(t, stop())
	})
}

// The observer is told about the successors that a pipe publishes.
func TestObserver_Pipe(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []observe.Published
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Published: func(p observe.Published) {
		mu.Lock()
		defer mu.Unlock()
		if p.Topic == "doubles" {
			told = append(told, p)
		}
	}}})
	from, to := testkit.DoublingStreams(db)
	testkit.PublishUpTo(t, from, 700)
	stop := testkit.Background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, testkit.Double) })
	testkit.Take(t, to, "reader", nil, 700)
	require.NoError(t, stop())
	next := int64(701)
	for _, p := range told {
		require.Equal(t, next, p.First)
		require.False(t, p.Tx)
		next = p.Last + 1
	}
	require.EqualValues(t, 1401, next)
}
