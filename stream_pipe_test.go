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
)

// double is what most pipes here do.
func double(_ context.Context, e *honker.Event[int]) (int, error) { return 2 * e.Data, nil }

// numbersAndDoubles are the ends of a pipe.
func numbersAndDoubles(db *honker.DB) (from, to *honker.Stream[int]) {
	return honker.NewStream[int](db, "numbers", nil), honker.NewStream[int](db, "doubles", nil)
}

// doubles are the first n numbers, each doubled.
func doubles(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 2 * i
	}
	return out
}

func TestPipeFollowsNewEventsAndKeepsTheirKeysAndOrder(t *testing.T) {
	t.Parallel()
	ctx, db, _ := streamOf[int](t, "unused")
	from, to := numbersAndDoubles(db)
	keys := []string{"", "k", "ü%_\U0010FFFF", strings.Repeat("k", 1024)}
	send := func(i int) { emit(t, from, i, honker.EventKey(keys[i%len(keys)])) }
	for i := range 600 {
		send(i)
	}
	stop := background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "doubler", to, double) })
	for i := 600; i < 700; i++ {
		send(i)
	}
	got := take(t, to, "reader", nil, 700)
	require.Equal(t, doubles(700), dataOf(got))
	for i, e := range got {
		require.Equal(t, keys[i%len(keys)], e.Key)
		require.Equal(t, "doubles", e.Topic)
	}
	require.NoError(t, stop())
	require.EqualValues(t, 700, countEvents(t, db)-int64(len(kept(t, from))))
	infos, err := from.Consumers(ctx)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.Equal(t, "doubler", infos[0].Name)
	require.Zero(t, infos[0].Lag)
}

func TestEventWithoutAKeyHasASuccessorWithoutOne(t *testing.T) {
	t.Parallel()
	_, db, _ := streamOf[int](t, "unused")
	from, to := numbersAndDoubles(db)
	emitUpTo(t, from, 3)
	background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "doubler", to, double) })
	take(t, to, "reader", nil, 3)
	require.EqualValues(t, 6, number(t, db.SQL(), `SELECT count(*) FROM _honker_stream WHERE key IS NULL`))
}

func TestPipesInARowDeliverToTheLast(t *testing.T) {
	t.Parallel()
	_, db, _ := streamOf[int](t, "unused")
	stages := []*honker.Stream[int]{}
	for _, name := range []string{"a", "b", "c", "d"} {
		stages = append(stages, honker.NewStream[int](db, name, nil))
	}
	for i, s := range stages[1:] {
		background(t, func(ctx context.Context) error { return honker.Pipe(ctx, stages[i], "pipe", s, double) })
	}
	for i := range 50 {
		emit(t, stages[0], i)
	}
	for i, e := range take(t, stages[3], "reader", nil, 50) {
		require.Equal(t, 8*i, e.Data)
	}
}

func TestPipeOfAPatternKeepsTheOneOrder(t *testing.T) {
	t.Parallel()
	ctx, db, _ := streamOf[int](t, "unused")
	type labelled struct {
		Topic string
		N     int
	}
	from, to := honker.NewStream[int](db, "orders:*", nil), honker.NewStream[labelled](db, "labelled", nil)
	var want []labelled
	for i := range 300 {
		topic := fmt.Sprint("orders:", i%7)
		emit(t, honker.NewStream[int](db, topic, nil), i)
		emit(t, honker.NewStream[int](db, "other", nil), i)
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
	require.Equal(t, want[:299], kept(t, to))
}

func TestPipeEndsWithTheFirstErrorAndGoesOnThereNextTime(t *testing.T) {
	t.Parallel()
	ctx, db, _ := streamOf[int](t, "unused")
	from, to := numbersAndDoubles(db)
	offsets := emitUpTo(t, from, 400)
	for _, at := range []int{0, 100, 100, 399} {
		err := honker.Pipe(ctx, from, "doubler", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
			if e.Data == at {
				return 0, errCause
			}
			return double(ctx, e)
		})
		require.ErrorIs(t, err, errCause)
		require.ErrorContains(t, err, fmt.Sprintf(`honker: pipe "numbers": event %d: `, offsets[at]))
		require.Equal(t, doubles(at), append([]int{}, kept(t, to)...))
		require.Equal(t, offsets[at]-1, offsetOf(t, from, "doubler"))
	}
}

func TestPipePassesOverWhatItsFunctionSkips(t *testing.T) {
	t.Parallel()
	_, db, _ := streamOf[int](t, "unused")
	from, to := numbersAndDoubles(db)
	stop := background(t, func(ctx context.Context) error {
		return honker.Pipe(ctx, from, "doubler", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
			if e.Data%3 > 0 {
				return 0, fmt.Errorf("of no interest: %w", honker.ErrSkip)
			}
			return double(ctx, e)
		})
	})
	offsets := emitUpTo(t, from, 300)
	eventually(t, patient, "all of them handled", func() bool { return offsetOf(t, from, "doubler") == offsets[299] })
	require.NoError(t, stop())
	var want []int
	for i := 0; i < 300; i += 3 {
		want = append(want, 2*i)
	}
	require.Equal(t, want, kept(t, to))
}

func TestPipeEndsAtAnEventThatDoesNotDecodeOrEncode(t *testing.T) {
	t.Parallel()
	ctx := bounded(t, patient)
	db := honkertest.Open(t, &honker.Options{MaxPayload: 100})
	from, to := honker.NewStream[int](db, "numbers", nil), honker.NewStream[any](db, "out", nil)
	emit(t, from, 0)
	foreignEvent(t, db, "numbers", `NULL`, `'no number'`, `1`)
	last := emit(t, from, 2)
	results := map[int]any{0: "fine"}
	turn := func(_ context.Context, e *honker.Event[int]) (any, error) { return results[e.Data], nil }
	for range 2 {
		err := honker.Pipe(ctx, from, "c", to, turn)
		require.ErrorContains(t, err, "does not decode")
		require.ErrorContains(t, err, "event 2")
		require.EqualValues(t, 1, offsetOf(t, from, "c"))
	}
	require.NoError(t, from.Seek(ctx, "c", honker.Offset(2)))
	for _, bad := range []any{make(chan int), []byte("x"), strings.Repeat("x", 200)} {
		results[2] = bad
		err := honker.Pipe(ctx, from, "c", to, turn)
		require.ErrorIs(t, err, honker.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprint("event ", last))
	}
	require.Equal(t, []any{"fine"}, kept(t, to))
}

func TestPipeRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	other := honkertest.Open(t, nil)
	pipe := func(from, to *honker.Stream[int]) refusal {
		return func(c context.Context) error { return honker.Pipe(c, from, "c", to, double) }
	}
	s := func(name string) *honker.Stream[int] { return honker.NewStream[int](db, name, nil) }
	refuses(t, path, map[string]refusal{
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
		"no consumer":           func(c context.Context) error { return honker.Pipe(c, s("a"), "", s("b"), double) },
		"bytes": func(c context.Context) error {
			return honker.Pipe(c, s("a"), "c", honker.NewStream[[]byte](db, "b", nil),
				func(context.Context, *honker.Event[int]) ([]byte, error) { return nil, nil })
		},
	})
}

func TestPipeInATxIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, db, _ := streamOf[int](t, "unused")
	from, to := numbersAndDoubles(db)
	_, err := from.SaveOffset(ctx, "old", 0)
	require.NoError(t, err)
	for _, consumer := range []string{"new", "old"} {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, honker.Pipe(ctx, from, consumer, to, double), honker.ErrInTx, consumer)
			return nil
		}))
	}
}

// blockAt doubles the numbers up to one, and then says so and waits for the end.
func blockAt(n int, blocked chan<- struct{}) func(context.Context, *honker.Event[int]) (int, error) {
	return func(ctx context.Context, e *honker.Event[int]) (int, error) {
		if e.Data == n {
			close(blocked)
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return double(ctx, e)
	}
}

func TestPipeReturnsNilWhenItsContextEndsAndKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	_, db, _ := streamOf[int](t, "unused")
	from, to := numbersAndDoubles(db)
	offsets := emitUpTo(t, from, 10)
	blocked := make(chan struct{})
	stop := background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, blockAt(7, blocked)) })
	<-blocked
	require.NoError(t, stop())
	require.Equal(t, doubles(7), kept(t, to))
	require.Equal(t, offsets[6], offsetOf(t, from, "c"))

	stop = background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, double) })
	eventually(t, patient, "the rest", func() bool { return len(kept(t, to)) == 10 })
	require.NoError(t, stop(), "while it waits")
	require.Equal(t, doubles(10), kept(t, to))
	ended, end := context.WithCancel(context.Background())
	end()
	require.NoError(t, honker.Pipe(ended, from, "c", to, double), "before it begins")
	require.Equal(t, doubles(10), kept(t, to))
}

func TestCloseEndsAPipeWithErrClosedAndKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	from, to := numbersAndDoubles(db)
	emitUpTo(t, from, 10)
	busy, ended := make(chan struct{}), make(chan error, 2)
	go func() { ended <- honker.Pipe(context.Background(), from, "c", to, blockAt(7, busy)) }()
	idle := honker.NewStream[int](db, "idle", nil)
	go func() { ended <- honker.Pipe(context.Background(), idle, "c", to, double) }()
	<-busy
	require.NoError(t, db.Close())
	for range cap(ended) {
		require.ErrorIs(t, <-ended, honker.ErrClosed)
	}
	db = honkertest.OpenFile(t, path, nil)
	from, to = numbersAndDoubles(db)
	require.Equal(t, doubles(7), kept(t, to))
	require.EqualValues(t, 7, offsetOf(t, from, "c"))
}

func TestPanicInAPipeLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	from, to := numbersAndDoubles(db)
	emitUpTo(t, from, 10)
	require.PanicsWithValue(t, "7", func() {
		_ = honker.Pipe(context.Background(), from, "c", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
			if e.Data == 7 {
				panic("7")
			}
			return double(ctx, e)
		})
	})
	stop := background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, double) })
	eventually(t, patient, "all of them", func() bool { return len(kept(t, to)) >= 10 })
	require.NoError(t, stop())
	require.Equal(t, doubles(10), kept(t, to))
	require.NoError(t, db.Close(), "it does not wait for the one that has panicked")
}

func TestPipesOfOneConsumerMakeOneSuccessorOfEachEvent(t *testing.T) {
	t.Parallel()
	events := 3000
	if testing.Short() {
		events = 400
	}
	path, db := shared(t)
	from, to := numbersAndDoubles(db)
	emitUpTo(t, from, events/2)
	var mu sync.Mutex
	took := map[int]int{}
	for i, db := range []*honker.DB{db, db, honkertest.OpenFile(t, path, nil), attach(t, path)} {
		from, to := numbersAndDoubles(db)
		stop := background(t, func(ctx context.Context) error {
			return honker.Pipe(ctx, from, "doubler", to, func(ctx context.Context, e *honker.Event[int]) (int, error) {
				mu.Lock()
				took[i]++
				mu.Unlock()
				return double(ctx, e)
			})
		})
		defer func() { require.NoError(t, stop()) }()
	}
	for i := events / 2; i < events; i++ {
		emit(t, from, i)
	}
	require.Equal(t, doubles(events), dataOf(take(t, to, "reader", nil, events)))
	eventually(t, patient, "the offset", func() bool { return offsetOf(t, from, "doubler") > 0 })
	require.Len(t, kept(t, to), events)
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(took), 1, "they must compete: %v", took)
}

func TestPipeGoesOnWhereItsConsumerWasMovedTo(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		ctx := context.Background()
		from, to := numbersAndDoubles(db)
		emitUpTo(t, from, 3)
		stop := background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, double) })
		synctest.Wait()
		require.Equal(t, []int{0, 2, 4}, kept(t, to))
		require.NoError(t, from.Seek(ctx, "c", honker.Offset(1)))
		emit(t, from, 3)
		synctest.Wait()
		require.Equal(t, []int{0, 2, 4, 2, 4, 6}, kept(t, to), "back")

		head, err := to.Head(ctx)
		require.NoError(t, err)
		require.NoError(t, from.Seek(ctx, "c", honker.Offset(head+2)))
		emit(t, from, 4) // at head+1
		emit(t, from, 5) // at head+2, or above a successor
		emit(t, from, 6)
		synctest.Wait()
		all := kept(t, to)
		require.NotContains(t, all, 8, "forth")
		require.Equal(t, 12, all[len(all)-1])
		require.NoError(t, stop())
	})
}

func TestObserverIsToldOfThePipesSuccessors(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []honker.Published
	db := honkertest.Open(t, &honker.Options{Observer: &honker.Observer{Published: func(p honker.Published) {
		mu.Lock()
		defer mu.Unlock()
		if p.Topic == "doubles" {
			told = append(told, p)
		}
	}}})
	from, to := numbersAndDoubles(db)
	emitUpTo(t, from, 700)
	stop := background(t, func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, double) })
	take(t, to, "reader", nil, 700)
	require.NoError(t, stop())
	next := int64(701)
	for _, p := range told {
		require.Equal(t, next, p.First)
		require.False(t, p.Tx)
		next = p.Last + 1
	}
	require.EqualValues(t, 1401, next)
}
