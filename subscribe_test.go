package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/testkit"
)

// drained returns the events that a consumer receives within a second of bubble time, which is enough for
// all stored events. It must run in a bubble.
func drained(t testing.TB, s *honker.Stream[int], consumer string, opts *honker.SubscribeOptions) (data []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for e, err := range s.Subscribe(ctx, consumer, opts) {
		require.NoError(t, err)
		data = append(data, e.Data)
	}
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded, "the loop ends with ctx, silently")
	return data
}

// A loop that has handled a page receives the next events from pages that are read while its body runs. A loop that ends
// on its first page has read no other.
func TestSubscribe_ReadsAhead(t *testing.T) {
	t.Parallel()
	const batch, events = 10, 35
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, events)
	read := make(chan int64, events)
	counted := &countedReads{StreamStore: engine.Of(db).Stores.Streams, then: func(n int64) { read <- n }}
	engine.Of(db).Stores.Streams = counted
	opts := &honker.SubscribeOptions{Batch: batch}
	for range s.Subscribe(ctx, "short", opts) {
		break
	}
	require.EqualValues(t, 1, counted.n.Load())
	require.EqualValues(t, 1, <-read)
	// The number of reads after which the body continues, at the first event of each page. One was of the loop above.
	pages := []int64{2, 4, 5, 5}
	next := 0
	for e, err := range s.Subscribe(ctx, "long", opts) {
		require.NoError(t, err)
		require.Equal(t, next, e.Data)
		for next%batch == 0 && counted.n.Load() < pages[next/batch] {
			select {
			case <-read:
			case <-ctx.Done():
				require.FailNow(t, "the next page is not read while the body runs")
			}
		}
		if next++; next == events {
			break
		}
	}
}

// No event is missed or repeated at the transition from history to live events.
func TestSubscribe_HistoryToLive(t *testing.T) {
	t.Parallel()
	const publishers = 3
	rounds, each := 150, 25
	if testing.Short() {
		rounds = 20
	}
	db, luck := honkertest.Open(t, nil), testkit.Rand(testkit.Seed(t), 0)
	for round := range rounds {
		name := fmt.Sprint("topic", round)
		s := honker.NewStream[int](db, name, &honker.StreamOptions{Batch: 1 + luck.IntN(40)})
		published := make(chan error, publishers)
		for p := range publishers {
			go func() {
				var err error
				for i := 0; i < each && err == nil; i++ {
					_, err = s.Publish(context.Background(), p*each+i)
				}
				published <- err
			}()
		}
		for range luck.IntN(3) * 100 {
			runtime.Gosched()
		}
		reader := s
		if round%3 == 0 {
			reader = honker.NewStream[int](db, name+"*", nil)
		}
		var offsets []int64
		next := make([]int, publishers)
		for _, e := range testkit.Take(t, reader, "c", nil, publishers*each) {
			offsets = append(offsets, e.Offset)
			require.Equal(t, next[e.Data/each], e.Data%each, "of publisher %d in round %d", e.Data/each, round)
			next[e.Data/each]++
		}
		require.IsIncreasing(t, offsets)
		for range publishers {
			require.NoError(t, <-published)
		}
	}
}

// Consumers are independent of each other and resume at their own offsets.
func TestSubscribe_Independent(t *testing.T) {
	t.Parallel()
	_, _, s := testkit.NewStream[int](t, "orders")
	offsets := testkit.PublishUpTo(t, s, 10)
	require.Equal(t, []int{0, 1, 2}, testkit.EventData(testkit.Take(t, s, "a", nil, 3)))
	require.Equal(t, []int{0}, testkit.EventData(testkit.Take(t, s, "b", nil, 1)))
	require.Equal(t, offsets[2], testkit.SavedOffset(t, s, "a"))
	require.Equal(t, offsets[0], testkit.SavedOffset(t, s, "b"))
	require.Equal(t, []int{3, 4, 5, 6, 7, 8, 9}, testkit.EventData(testkit.Take(t, s, "a", nil, 7)))
	require.Equal(t, []int{1, 2}, testkit.EventData(testkit.Take(t, s, "b", nil, 2)))
	require.Equal(t, offsets[9], testkit.SavedOffset(t, s, "a"))
	require.Equal(t, offsets[2], testkit.SavedOffset(t, s, "b"))
	require.Zero(t, testkit.SavedOffset(t, s, "nobody"))
}

// Consumers with the same name on different topics are different consumers.
func TestSubscribe_PerTopic(t *testing.T) {
	t.Parallel()
	_, db, s := testkit.NewStream[int](t, "orders")
	other := honker.NewStream[int](db, "other", nil)
	testkit.Publish(t, s, 1)
	testkit.Publish(t, other, 2)
	require.Equal(t, []int{1}, testkit.EventData(testkit.Take(t, s, "c", nil, 1)))
	require.Equal(t, []int{2}, testkit.EventData(testkit.Take(t, other, "c", nil, 1)))
	pattern := honker.NewStream[int](db, "o*", nil)
	require.Zero(t, testkit.SavedOffset(t, pattern, "c"))
	require.Equal(t, []int{1, 2}, testkit.EventData(testkit.Take(t, pattern, "c", nil, 2)))
}

// A new consumer's row is written immediately, and the consumer receives the events published from then on.
func TestSubscribe_New_Row(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	began := time.Now()
	got := make(chan []*honker.Event[int], 1)
	go func() { got <- testkit.Take(t, s, "c", nil, 2) }()
	testkit.Eventually(t, testkit.Timeout, "a row", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream_consumers WHERE name = 'c' AND topic = 'orders' AND offset = 0`) == 1
	})
	infos, err := s.Consumers(ctx)
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.WithinRange(t, infos[0].CreatedAt, began.Add(-time.Millisecond), time.Now())
	infos[0].CreatedAt = time.Time{}
	require.Equal(t, honker.ConsumerInfo{Name: "c", Topic: "orders"}, infos[0])
	testkit.PublishUpTo(t, s, 2)
	require.Equal(t, []int{0, 1}, testkit.EventData(<-got))
}

// ages sets events' creation times to the given seconds after from.
func ages(t testing.TB, db *honker.DB, from time.Time, offsets []int64, seconds ...int64) {
	t.Helper()
	for i, s := range seconds {
		testkit.Exec(t, db, `UPDATE _honker_stream SET created_at = ? WHERE offset = ?`, from.Unix()+s, offsets[i])
	}
}

// A new consumer begins at the given start.
func TestSubscribe_New_Start(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s, other := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "other", nil)
		began := time.Now().Add(-time.Hour)
		var offsets []int64
		for i := range 6 {
			offsets = append(offsets, testkit.Publish(t, s, i))
			testkit.Publish(t, other, -1)
		}
		ages(t, db, began, offsets, 0, 10, 10, 20, 15, 30)
		all := []int{0, 1, 2, 3, 4, 5}
		for name, c := range map[string]struct {
			from honker.From
			want []int
		}{
			"zero":                  {honker.From{}, all},
			"beginning":             {honker.Beginning, all},
			"end":                   {honker.End, nil},
			"offset 0":              {honker.Offset(0), all},
			"an offset":             {honker.Offset(offsets[2]), all[3:]},
			"an offset of others":   {honker.Offset(offsets[2] + 1), all[3:]},
			"offset of the future":  {honker.Offset(offsets[5] + 3), nil},
			"since ever":            {honker.Since(time.Time{}), all},
			"since the first":       {honker.Since(began), all},
			"since a second":        {honker.Since(began.Add(10 * time.Second)), all[1:]},
			"since within a second": {honker.Since(began.Add(10*time.Second + 999*time.Millisecond)), all[1:]},
			"since between":         {honker.Since(began.Add(11 * time.Second)), all[3:]},
			"since the last":        {honker.Since(began.Add(30 * time.Second)), all[5:]},
			"since later":           {honker.Since(began.Add(31 * time.Second)), nil},
		} {
			require.Equal(t, c.want, drained(t, s, name, &honker.SubscribeOptions{From: c.from}), name)
			require.Empty(t, drained(t, s, name, nil), name+": it is no longer new")
			var tailed []int
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			for e, err := range s.Tail(ctx, c.from, nil) {
				if err == nil {
					tailed = append(tailed, e.Data)
				}
			}
			cancel()
			require.Equal(t, c.want, tailed, name)
			patterned := honker.NewStream[int](db, "or*", nil)
			require.Equal(t, c.want, drained(t, patterned, name, &honker.SubscribeOptions{From: c.from}), name)
		}
		testkit.Publish(t, s, 6)
		require.Equal(t, []int{6}, drained(t, s, "end", nil))
		require.Empty(t, drained(t, s, "offset of the future", nil), "below where it begins")
	})
}

// Tail saves no offset.
func TestStream_Tail_SavesNothing(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 5)
	changes := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream_consumers`)
	for e, err := range s.Tail(ctx, honker.Offset(2), honker.KeyIs("")) {
		require.NoError(t, err)
		require.ErrorIs(t, e.Ack(ctx), honker.ErrInvalid)
		if e.Data == 4 {
			go func() { _, _ = s.Publish(context.Background(), 5) }()
		}
		if e.Data == 5 {
			break
		}
	}
	require.Zero(t, changes+testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream_consumers`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_consumers`))
}

// Subscribe in a transaction is rejected immediately.
func TestSubscribe_InTx_Refused(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 5)
	testkit.Take(t, s, "known", nil, 1)
	for _, consumer := range []string{"new", "known"} {
		began := time.Now()
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
			for _, err := range s.Subscribe(ctx, consumer, nil) {
				require.ErrorIs(t, err, honker.ErrInTx, consumer)
				break
			}
			return nil
		}))
		require.Less(t, time.Since(began), testkit.Timeout/2, consumer)
	}
}

// When ctx ends, a subscription ends silently, and the handled events are saved.
func TestSubscribe_Context_Silent(t *testing.T) {
	t.Parallel()
	for name, unsaved := range map[string]bool{"nothing to save": false, "something to save": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				s := honker.NewStream[int](db, "orders", nil)
				if unsaved {
					testkit.Publish(t, s, 1)
				}
				ctx, cancel := context.WithCancelCause(context.Background())
				time.AfterFunc(time.Millisecond, func() { cancel(testkit.ErrCause) })
				for e, err := range s.Subscribe(ctx, "c", nil) {
					require.NoError(t, err)
					require.NotNil(t, e)
				}
				require.ErrorIs(t, ctx.Err(), context.Canceled)
				require.Equal(t, unsaved, testkit.SavedOffset(t, s, "c") > 0, "what was handled is saved")
			})
		})
	}
}

// errorsOf calls body with the error of each iteration of a loop.
func errorsOf[E any](events iter.Seq2[*honker.Event[E], error], body func(error)) {
	for _, err := range events {
		body(err)
	}
}

// following starts subscribers of every kind. For each it returns a channel that receives the subscriber's error.
func following(t testing.TB, db *honker.DB) map[string]<-chan error {
	t.Helper()
	ctx := testkit.Context(t, testkit.Timeout)
	s, pattern := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "ord*", nil)
	testkit.PublishUpTo(t, s, 3)
	ends := map[string]<-chan error{}
	var waiting []<-chan struct{}
	for name, follow := range map[string]func(func(error)){
		"subscribe": func(body func(error)) { errorsOf(s.Subscribe(ctx, "c", nil), body) },
		"pattern":   func(body func(error)) { errorsOf(pattern.Subscribe(ctx, "c", nil), body) },
		"filter": func(body func(error)) {
			errorsOf(s.Subscribe(ctx, "f", &honker.SubscribeOptions{Filter: honker.KeyPrefix("")}), body)
		},
		"tail": func(body func(error)) { errorsOf(s.Tail(ctx, honker.Beginning, nil), body) },
	} {
		end, three := make(chan error, 1), make(chan struct{})
		n := 0
		go func() {
			var last error
			follow(func(err error) {
				if last = err; err != nil {
					return
				}
				if n++; n == 3 {
					close(three)
				}
			})
			end <- last
		}()
		ends[name] = end
		waiting = append(waiting, three)
	}
	for _, three := range waiting {
		<-three
	}
	return ends
}

// Close ends subscribers with ErrClosed.
func TestSubscribe_Close(t *testing.T) {
	t.Parallel()
	db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "file.db"), nil)
	require.NoError(t, err)
	ends := following(t, db)
	require.NoError(t, db.Close())
	for name, end := range ends {
		require.ErrorIs(t, <-end, honker.ErrClosed, name)
	}
}

// A replaced file ends subscribers and reads.
func TestSubscribe_FileReplaced(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	ends := following(t, db)
	testkit.MakeFile(t, path+".new")
	require.NoError(t, os.Rename(path+".new", path))
	for name, end := range ends {
		require.ErrorIs(t, <-end, honker.ErrDatabaseReplaced, name)
	}
	ctx, s := testkit.Context(t, testkit.Timeout), honker.NewStream[int](db, "orders", nil)
	_, err = s.Publish(ctx, 1)
	require.ErrorIs(t, err, honker.ErrDatabaseReplaced)
	require.ErrorIs(t, testkit.LastError(s.Subscribe(ctx, "c", nil)), honker.ErrDatabaseReplaced, "a later one")
}

// Publish wakes waiting subscribers.
func TestSubscribe_Wakes(t *testing.T) {
	testkit.FileOnly(t)
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int64](db, "orders:created", nil)
	foreign, attached := testkit.OpenPool(t, path), testkit.Attach(t, path, nil)
	publish := map[string]func(sent int64) error{
		"Publish":     func(sent int64) error { _, err := s.Publish(context.Background(), sent); return err },
		"PublishMany": func(sent int64) error { _, _, err := s.PublishMany(context.Background(), []int64{sent}); return err },
		"PublishTx": func(sent int64) error {
			return db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := s.PublishTx(ctx, tx, sent)
				return err
			})
		},
		"another connection": func(sent int64) error {
			_, err := foreign.Exec(`INSERT INTO _honker_stream (topic, payload) VALUES ('orders:created', ?)`, fmt.Sprint(sent))
			return err
		},
	}
	for name, sub := range map[string]*honker.Stream[int64]{
		"topic":   s,
		"pattern": honker.NewStream[int64](db, "orders:*", nil),
		"all":     honker.NewStream[int64](db, "*", nil),
		"another": honker.NewStream[int64](attached, "orders:created", nil),
	} {
		for how, publish := range publish {
			head, err := sub.Head(context.Background())
			require.NoError(t, err)
			_, err = sub.SaveOffset(context.Background(), name+how, head) // the consumer receives the events published from now on
			require.NoError(t, err)
			waiting, took := make(chan struct{}, 1), []time.Duration(nil)
			waiting <- struct{}{}
			sent := make(chan error, 1)
			go func() {
				pace := time.NewTicker(3 * time.Millisecond) // until the subscriber is asleep
				defer pace.Stop()
				for range 15 {
					<-waiting
					<-pace.C
					if err := publish(time.Now().UnixNano()); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			for e, err := range sub.Subscribe(testkit.Context(t, testkit.Timeout), name+how, strict) {
				require.NoError(t, err)
				took = append(took, time.Since(time.Unix(0, e.Data)))
				if len(took) == 15 {
					break
				}
				waiting <- struct{}{}
			}
			require.NoError(t, <-sent)
			slices.Sort(took)
			require.Less(t, took[len(took)/2], 100*time.Millisecond, "%s by %s: %v", name, how, took)
		}
	}
}

// Subscribers leave no goroutines behind.
func TestSubscribe_NoGoroutineLeft(t *testing.T) {
	// The notification goroutines start only when the watcher needs them.
	ctx, db := testkit.Context(t, testkit.Timeout), honkertest.Open(t, &honker.Options{NoFileNotices: true})
	s := honker.NewStream[int](db, "orders", nil)
	testkit.PublishUpTo(t, s, 10)
	for range db.Updates(ctx) {
		break // the watcher is running
	}
	waitOnce := func() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		defer cancel()
		_ = testkit.LastError(s.Subscribe(ctx, "sleeper", nil))
	}
	before := runtime.NumGoroutine()
	for i := range 50 {
		testkit.Take(t, s, fmt.Sprint("c", i%7), &honker.SubscribeOptions{From: honker.Beginning}, 1)
		waitOnce()
		for range s.Tail(ctx, honker.Beginning, nil) {
			break
		}
		_, err := s.DeleteConsumer(ctx, fmt.Sprint("c", i%7))
		require.NoError(t, err)
	}
	testkit.Eventually(t, testkit.Timeout, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
}

// Many subscribers each receive every event.
func TestSubscribe_Many(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		s := honker.NewStream[int](db, "orders", nil)
		got := make(chan []*honker.Event[int], 40)
		for i := range cap(got) {
			go func() { got <- testkit.Take(t, s, fmt.Sprint("c", i), nil, 100) }()
		}
		for i := range 100 {
			testkit.Publish(t, s, i)
		}
		want := testkit.EventData(<-got)
		for range cap(got) - 1 {
			require.Equal(t, want, testkit.EventData(<-got))
		}
		require.IsIncreasing(t, want)
	})
}

// neverByTime returns options that save only by count.
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

// The offset is saved after an interval, even if no events arrive.
func TestSubscribe_Save_Interval(t *testing.T) {
	testkit.FileOnly(t)
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

// A strict consumer's offset is saved only by Ack.
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

// Ack saves the offset immediately and never moves it back.
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

// An event's effect and its AckTx are committed together.
func TestSubscribe_AckTx_Effect(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Exec(t, db, `CREATE TABLE effects (n INTEGER PRIMARY KEY)`)
	testkit.PublishUpTo(t, s, 10)
	handle := func(e *honker.Event[int], end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, e.Data)
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

// Ack in a transaction is rejected immediately, and the error names AckTx.
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

// When Close ends the loop, the handled events' offset is saved.
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
