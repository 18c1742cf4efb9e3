package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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

// The tests in this file cover requirements of an event bus that no other test covers.

// An acked event is not delivered again after the file has been reopened.
func TestSubscribe_Ack_Reopened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	for run := range 4 {
		db, err := honker.Open(context.Background(), path, nil)
		require.NoError(t, err)
		s := honker.NewStream[int](db, "orders", nil)
		if run == 0 {
			testkit.PublishUpTo(t, s, 10)
			require.Zero(t, testkit.SavedOffset(t, s, "c"), "nobody has acked anything")
		}
		events := testkit.Take(t, s, "c", strict, 3)
		require.Equal(t, []int{2 * run, 2*run + 1, 2*run + 2}, testkit.EventData(events))
		require.NoError(t, events[1].Ack(testkit.Context(t, testkit.Timeout))) // does not ack the third event
		require.NoError(t, db.Close())
	}
}

// A caller that reads repeatedly from its last offset misses no event and sees none twice. No event appears
// below an offset that was already seen.
func TestStream_Read_Loop(t *testing.T) {
	t.Parallel()
	const publishers, each = 4, 100
	ctx, db, s := testkit.NewStream[int](t, "orders")
	published := make(chan error, publishers)
	for p := range publishers {
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				if i%2 == 0 {
					_, err = s.Publish(ctx, p*each+i)
				} else {
					err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
						_, err := s.PublishTx(ctx, tx, p*each+i)
						return err
					})
				}
			}
			published <- err
		}()
	}
	seen, last := map[int]bool{}, int64(0)
	testkit.Eventually(t, testkit.Timeout, "all are seen", func() bool {
		for e, err := range s.Read(ctx, last) {
			require.NoError(t, err)
			require.Greater(t, e.Offset, last)
			require.False(t, seen[e.Data], "event %d came twice", e.Data)
			seen[e.Data], last = true, e.Offset
		}
		return len(seen) == publishers*each
	})
	for range publishers {
		require.NoError(t, <-published)
	}
}

// Without file system notifications, a subscriber doesn't see other connections' events until PollInterval has
// passed.
func TestSubscribe_Polling(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	const poll = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		db := honkertest.OpenFile(t, path, &honker.Options{NoFileNotices: true, PollInterval: poll})
		other := testkit.OpenPool(t, path)
		s := honker.NewStream[int](db, "orders", nil)
		heard := make(chan time.Time, 2)
		stop := testkit.Background(t, func(ctx context.Context) error {
			for _, err := range s.Subscribe(ctx, "c", nil) {
				if err != nil {
					return err
				}
				heard <- time.Now()
			}
			return nil
		})
		synctest.Wait() // the first poll is over
		began := time.Now()
		for n := range 2 {
			time.Sleep(3 * time.Second)
			testkit.ExecAll(t, other, `INSERT INTO _honker_stream (topic, payload) VALUES ('orders', '1')`)
			synctest.Wait()
			require.Empty(t, heard, "it has not looked again")
			require.Equal(t, time.Duration(n+1)*poll, (<-heard).Sub(began))
		}
		testkit.Publish(t, s, 2)
		require.Equal(t, 2*poll, (<-heard).Sub(began), "of this process it hears at once")
		require.NoError(t, stop(), "the loop ends with ctx, silently")
	})
}

// A single commit wakes waiting subscribers to all topics, no matter how they are waiting.
func TestSubscribe_OneCommitWakesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		ctx := testkit.Context(t, time.Minute)
		const topics = 10
		got := make(chan int, 3*topics)
		for i := range topics {
			s := honker.NewStream[int](db, fmt.Sprint("topic", i), nil)
			m := enrol(t, s.Group("g", nil), "a")
			go func() { got <- testkit.Take(t, s, "c", nil, 1)[0].Data }()
			go func() {
				for e, err := range s.Tail(ctx, honker.Beginning, nil) {
					require.NoError(t, err)
					got <- e.Data
					return
				}
			}()
			go func() {
				for d, err := range m.All(ctx) {
					require.NoError(t, err)
					require.NoError(t, d.Ack(ctx))
					got <- d.Data
					return
				}
			}()
		}
		synctest.Wait() // all subscribers are sleeping
		began := time.Now()
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for i := range topics {
				_, err := honker.NewStream[int](db, fmt.Sprint("topic", i), nil).PublishTx(ctx, tx, i)
				require.NoError(t, err)
			}
			return nil
		}))
		count := map[int]int{}
		for range cap(got) {
			count[<-got]++
		}
		for i := range topics {
			require.Equal(t, 3, count[i], "of topic %d", i)
		}
		require.Less(t, time.Since(began), time.Second)
	})
}

// A single member claims twenty events in order.
func TestMember_Claim_TwentyInOrder(t *testing.T) {
	t.Parallel()
	g := stocked(t, honkertest.Open(t, nil), 20).Group("g", nil)
	m := enrol(t, g, "a")
	for n := 1; n <= 20; n++ {
		ds := given(t, m, 1)
		require.Equal(t, []int{n}, contentsOf(ds))
		require.Equal(t, 1, ds[0].Attempts)
		ackEach(t, ds)
		require.EqualValues(t, n, testkit.GroupInfo(t, g).LowWater)
	}
	require.Empty(t, given(t, m, 1))
	require.Equal(t, honker.GroupInfo{Name: "g", Topic: "orders", Cursor: 20, LowWater: 20, Members: []string{"a"}}, testkit.GroupInfo(t, g))
}

// nested returns a filter with the given number of levels.
func nested(depth int) honker.Filter {
	f := honker.KeyIs("a")
	for i := range depth - 1 {
		if i%2 == 0 {
			f = honker.And(f)
		} else {
			f = honker.Or(honker.KeyIs("x"), f)
		}
	}
	return f
}

// wide returns a filter with the given number of parts, including the filter itself.
func wide(join func(...honker.Filter) honker.Filter, leaf func(string) honker.Filter, parts int) honker.Filter {
	of := make([]honker.Filter, parts-1)
	for i := range of {
		of[i] = leaf("a")
	}
	return join(of...)
}

// A filter's depth and number of parts are limited.
func TestStream_Filter_Bounded(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, s, 0, honker.EventKey("b"))
	testkit.Publish(t, s, 1, honker.EventKey("a"))
	for name, f := range map[string]honker.Filter{
		"depth":           nested(32),
		"or of keys":      wide(honker.Or, honker.KeyIs, 1000),
		"and of keys":     wide(honker.And, honker.KeyIs, 1000),
		"or of prefixes":  wide(honker.Or, honker.KeyPrefix, 1000),
		"and of prefixes": wide(honker.And, honker.KeyPrefix, 1000),
		"both": honker.And(honker.Or(honker.And(wide(honker.Or, honker.KeyPrefix, 400)), nested(28)),
			wide(honker.And, honker.KeyPrefix, 500)),
		"nil": honker.And(nil, honker.KeyIs("a"), nil),
	} {
		require.Equal(t, []int{1}, testkit.EventData(testkit.Take(t, s, name, &honker.SubscribeOptions{Filter: f}, 1)), name)
	}
	calls := map[string]testkit.Refusal{}
	for name, f := range map[string]honker.Filter{
		"depth":        nested(33),
		"parts":        wide(honker.Or, honker.KeyIs, 1001),
		"parts below":  honker.And(wide(honker.Or, honker.KeyIs, 500), wide(honker.And, honker.KeyPrefix, 500)),
		"is NUL":       honker.KeyIs("a\x00"),
		"prefix NUL":   honker.KeyPrefix("\x00"),
		"is no UTF-8":  honker.KeyIs("\xff"),
		"prefix UTF-8": honker.Or(honker.And(honker.KeyPrefix("ü"[:1]))),
		"too long":     honker.KeyIs(strings.Repeat("x", 1025)),
	} {
		calls["Subscribe "+name] = func(c context.Context) error {
			return testkit.LastError(s.Subscribe(c, "refused", &honker.SubscribeOptions{Filter: f}))
		}
		calls["Tail "+name] = func(c context.Context) error { return testkit.LastError(s.Tail(c, honker.Beginning, f)) }
	}
	testkit.RequireRefused(t, path, calls)
}

// A pattern's topics are read in a single total order.
func TestStream_Pattern_TotalOrder(t *testing.T) {
	t.Parallel()
	const publishers, each = 6, 60
	db := honkertest.Open(t, nil)
	published := make(chan error, publishers)
	for p := range publishers {
		topic := []string{"orders:a", "orders:b", "orders:", "orders", "ordersx", "Orders:a"}[p]
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				_, err = honker.NewStream[int](db, topic, nil).Publish(context.Background(), i)
			}
			published <- err
		}()
	}
	for pattern, topics := range map[string][]string{
		"orders:*":  {"orders:a", "orders:b", "orders:"},
		"orders:a*": {"orders:a"},
		"orders*":   {"orders:a", "orders:b", "orders:", "orders", "ordersx"},
		"*":         {"orders:a", "orders:b", "orders:", "orders", "ordersx", "Orders:a"},
	} {
		events := testkit.Take(t, honker.NewStream[int](db, pattern, nil), "c", nil, each*len(topics))
		next := map[string]int{}
		last := int64(0)
		for _, e := range events {
			require.Greater(t, e.Offset, last)
			require.Equal(t, next[e.Topic], e.Data, e.Topic)
			last = e.Offset
			next[e.Topic]++
		}
		require.Len(t, next, len(topics), pattern)
		for _, topic := range topics {
			require.Equal(t, each, next[topic], topic)
		}
	}
	for range publishers {
		require.NoError(t, <-published)
	}
}

// A pattern is a byte prefix without wildcards.
func TestStream_Pattern_PrefixOnly(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	_, db, _ := testkit.NewStream[int](t, "unused")
	topics := []string{"a%", "a%b", "axb", "a_", "a_b", "A%b", "a*", "a*b", "ä", "äb", "ab\U0010FFFF", "ab\U0010FFFFx", "b"}
	for i, topic := range topics { // only another binding can publish to a topic that ends with *
		testkit.Exec(t, db, `INSERT INTO _honker_stream (topic, payload) VALUES (?, ?)`, topic, fmt.Sprint(i))
	}
	for _, prefix := range []string{"", "a", "a%", "a_", "a*", "A", "ä", "ab\U0010FFFF", "c", "*"} {
		var want []int
		for i, topic := range topics {
			if strings.HasPrefix(topic, prefix) {
				want = append(want, i)
			}
		}
		s := honker.NewStream[int](db, prefix+"*", nil)
		require.Equal(t, want, testkit.StreamData(t, s), prefix)
		head, err := s.Head(context.Background())
		require.NoError(t, err)
		require.Equal(t, len(want) > 0, head > 0)
		if head > 0 {
			require.EqualValues(t, want[len(want)-1]+1, head)
		}
	}
}

// noise publishes n events at once and returns the last offset.
func noise(t testing.TB, db *honker.DB, topic, key string, n int) (last int64) {
	t.Helper()
	_, last, err := honker.NewStream[int](db, topic, nil).PublishMany(context.Background(), slices.Repeat([]int{-1}, n), honker.EventKey(key))
	require.NoError(t, err)
	return last
}

// A consumer gets past a long run of events that its filter excludes, and its offset is saved after them.
func TestConsumer_Filter_LongRun(t *testing.T) {
	t.Parallel()
	run := 50_000
	if testing.Short() {
		run = 5_000
	}
	for name, c := range map[string]struct {
		topic  string
		filter honker.Filter
	}{
		"filter":             {"orders:a", honker.KeyIs("match")},
		"prefix":             {"orders:a", honker.KeyPrefix("m")},
		"pattern":            {"orders:*", nil},
		"pattern and filter": {"orders:*", honker.KeyPrefix("match")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				follow := func(ctx context.Context, got *[]int) error {
					s := honker.NewStream[int](db, c.topic, nil)
					var last error
					for e, err := range s.Subscribe(ctx, "c", &honker.SubscribeOptions{Filter: c.filter}) {
						if last = err; err == nil {
							*got = append(*got, e.Data)
						}
					}
					return last
				}
				s, reader := honker.NewStream[int](db, "orders:a", nil), honker.NewStream[int](db, c.topic, nil)
				topic, key := "orders:a", "noise"
				if c.filter == nil {
					topic = "other"
				}
				testkit.Publish(t, s, 0, honker.EventKey("match"))
				noise(t, db, topic, key, run)
				testkit.Publish(t, s, 1, honker.EventKey("match"))
				end := noise(t, db, topic, key, run)
				var got []int
				stop := testkit.Background(t, func(ctx context.Context) error { return follow(ctx, &got) })
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait() // the subscriber has handled its events
				require.Equal(t, []int{0, 1}, got)
				require.Equal(t, end, testkit.SavedOffset(t, reader, "c"), "the run is behind it")
				end = noise(t, db, topic, key, run)
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait() // the subscriber has handled its events
				require.Equal(t, end, testkit.SavedOffset(t, reader, "c"), "also without a match, and while nothing comes")
				match := testkit.Publish(t, s, 2, honker.EventKey("match"))
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait() // the subscriber has handled its events
				require.NoError(t, stop(), "the loop ends with ctx, silently")
				require.Equal(t, []int{0, 1, 2}, got)
				require.Equal(t, match, testkit.SavedOffset(t, reader, "c"))

				end = noise(t, db, topic, key, run)
				stop = testkit.Background(t, func(ctx context.Context) error { return follow(ctx, &got) })
				synctest.Wait()
				require.NoError(t, stop(), "the loop ends with ctx, silently")
				require.Equal(t, []int{0, 1, 2}, got, "nothing comes again")
				require.Equal(t, end, testkit.SavedOffset(t, reader, "c"), "at the end of the loop, too")
			})
		})
	}
}

// Lag counts the events that the consumer hasn't seen and that match its filter.
func TestConsumer_Lag_Filtered(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	s := honker.NewStream[int](db, "orders", nil)
	noise(t, db, "orders", "noise", 40)
	noise(t, db, "orders", "match", 10)
	noise(t, db, "other", "match", 30)
	lags := func(db *honker.DB, topic string) map[string]int64 {
		infos, err := honker.NewStream[string](db, topic, nil).Consumers(ctx)
		require.NoError(t, err)
		lags := map[string]int64{}
		for _, i := range infos {
			lags[i.Name] = i.Lag
			require.Equal(t, topic, i.Topic)
		}
		return lags
	}
	filtered := &honker.SubscribeOptions{Filter: honker.KeyPrefix("mat")}
	testkit.Take(t, s, "all", nil, 5)
	testkit.Take(t, s, "filtered", filtered, 3)
	testkit.Take(t, honker.NewStream[int](db, "o*", nil), "all", nil, 1)
	testkit.Take(t, honker.NewStream[int](db, "o*", nil), "filtered", filtered, 1)
	other := honkertest.OpenFile(t, path, nil) // knows only the contents of the file
	for _, db := range []*honker.DB{db, other, testkit.Attach(t, path, nil)} {
		require.Equal(t, map[string]int64{"all": 45, "filtered": 7}, lags(db, "orders"))
		require.Equal(t, map[string]int64{"all": 79, "filtered": 39}, lags(db, "o*"))
	}
	testkit.Take(t, s, "filtered", filtered, 7)
	testkit.Take(t, s, "all", nil, 45)
	noise(t, db, "other", "match", 1000)
	noise(t, db, "orders", "noise", 20)
	require.Equal(t, map[string]int64{"all": 20, "filtered": 0}, lags(other, "orders"))
	testkit.Take(t, s, "filtered", nil, 1) // the filter is replaced by the last Subscribe's filter
	require.Equal(t, map[string]int64{"all": 20, "filtered": 19}, lags(other, "orders"))
	noise(t, db, "orders", "match", 1)
	testkit.Take(t, s, "filtered", filtered, 1)
	require.Equal(t, map[string]int64{"all": 21, "filtered": 0}, lags(other, "orders"))
}

// A subscriber receives the existing events and then each new event.
func TestSubscribe_HistoryThenNew(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	first, last, err := s.PublishMany(ctx, []int{0, 1, 2})
	require.NoError(t, err)
	require.EqualValues(t, 2, last-first)
	var got []int
	for e, err := range s.Subscribe(ctx, "c", nil) {
		require.NoError(t, err)
		got = append(got, e.Data)
		if len(got) == 3 {
			go func() { _, _ = s.Publish(context.Background(), 3) }()
		}
		if len(got) == 4 {
			break
		}
	}
	require.Equal(t, []int{0, 1, 2, 3}, got)
	offset, err := s.Offset(ctx, "c")
	require.NoError(t, err)
	require.EqualValues(t, last+1, offset)
}

// A deadline of ctx ends a subscription silently.
func TestSubscribe_Context_Deadline(t *testing.T) {
	s := honker.NewStream[int](honkertest.Open(t, nil), "orders", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.NoError(t, testkit.LastError(s.Subscribe(ctx, "c", nil)))
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

// countEvents returns the number of stored events of all topics.
func countEvents(t testing.TB, db *honker.DB) int {
	t.Helper()
	return len(testkit.StreamData(t, honker.NewStream[json.RawMessage](db, "*", nil)))
}

// A published event is read as it was published.
func TestStream_Publish_RoundTrip(t *testing.T) {
	t.Parallel()
	ctx, _, s := testkit.NewStream[map[string]any](t, "orders")
	began := time.Now()
	data := map[string]any{"a": []any{1.5, "x", nil}, "ü": "\u2028 <>& \x00"}
	offset := testkit.Publish(t, s, data, honker.EventKey("created"))
	require.EqualValues(t, 1, offset)
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, offset, e.Offset)
		require.Equal(t, "orders", e.Topic)
		require.Equal(t, "created", e.Key)
		require.Equal(t, data, e.Data)
		require.True(t, json.Valid(e.Payload))
		after(t, began, 0, e.CreatedAt)
	}
	head, err := s.Head(ctx)
	require.NoError(t, err)
	require.Equal(t, offset, head)
}

// A raw event passes through byte for byte.
func TestStream_Publish_Raw(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[json.RawMessage](t, "orders")
	raw := json.RawMessage(" {\"b\" : 1.0,\n \"a\":\"\\u00fc\"} ")
	testkit.Publish(t, s, raw)
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, string(raw), string(e.Data))
		require.Equal(t, string(raw), string(e.Payload))
	}
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT typeof(payload) = 'text' FROM _honker_stream`))
}

// A batch's offsets are consecutive.
func TestStream_PublishMany_Offsets(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	_, db, s := testkit.NewStream[int](t, "orders")
	var want []int
	last := int64(0)
	for _, size := range []int{1, 2, 3, 31, 255, 256, 257, 511, 600, 1500} {
		offsets := testkit.PublishUpTo(t, s, size, honker.EventKey("k"))
		require.Equal(t, last+1, offsets[0])
		last = offsets[size-1]
		for i := range size {
			want = append(want, i)
		}
	}
	require.Equal(t, want, testkit.StreamData(t, s))
	require.EqualValues(t, len(want), testkit.QueryInt(t, db.SQL(),
		`SELECT count(*) FROM _honker_stream WHERE topic = 'orders' AND key = 'k'`))
}

// Concurrent writers' batches are not interleaved.
func TestStream_PublishMany_Concurrent(t *testing.T) {
	t.Parallel()
	const writers = 8
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	ctx, db, s := testkit.NewStream[string](t, "orders")
	seed := testkit.Seed(t)
	write := func(w int) error {
		luck := testkit.Rand(seed, uint64(w))
		for i := range rounds {
			batch := make([]string, 1+luck.IntN(700))
			for j := range batch {
				batch[j] = fmt.Sprint(w, " ", i, " ", j, " of ", len(batch))
			}
			var first, last int64
			var err error
			switch i % 3 {
			case 0:
				batch = batch[:1]
				batch[0] = fmt.Sprint(w, " ", i, " 0 of 1")
				first, err = s.Publish(ctx, batch[0])
				last = first
			case 2:
				if !testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
					first, last, err = s.PublishMany(ctx, batch)
					break
				}
				err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					first, last, err = s.PublishManyTx(ctx, tx, batch)
					return err
				})
			default:
				first, last, err = s.PublishMany(ctx, batch)
			}
			if err == nil && int(last-first)+1 != len(batch) {
				err = fmt.Errorf("%d events from %d to %d", len(batch), first, last)
			}
			for e, failed := range s.Read(ctx, first-1) {
				if err = errors.Join(err, failed); err != nil || e.Offset > last {
					break
				}
				if e.Data != batch[e.Offset-first] {
					err = fmt.Errorf("%q at %d of the batch from %d", e.Data, e.Offset, first)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	ended := make(chan error, writers)
	for w := range writers {
		go func() { ended <- write(w) }()
	}
	for range writers {
		require.NoError(t, <-ended)
	}
	all := testkit.StreamData(t, s)
	require.Len(t, count(all), len(all), "each event is there once")
	head, err := s.Head(ctx)
	require.NoError(t, err)
	require.EqualValues(t, len(all), head)
}

// An empty batch is rejected with ErrInvalid.
func TestStream_PublishMany_Empty(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	testkit.RequireRefused(t, path, map[string]testkit.Refusal{
		"nil":   func(c context.Context) error { _, _, err := s.PublishMany(c, nil); return err },
		"empty": func(c context.Context) error { _, _, err := s.PublishMany(c, []int{}); return err },
		"in a transaction": inOwnTx(db, func(c context.Context, tx *sql.Tx) error {
			_, _, err := s.PublishManyTx(c, tx, nil)
			return err
		}),
	})
}

// A batch with a single bad event publishes nothing.
func TestStream_PublishMany_BadEvent(t *testing.T) {
	t.Parallel()
	var told sync.Map
	path := filepath.Join(t.TempDir(), "file.db")
	db := honkertest.OpenFile(t, path, &honker.Options{
		MaxPayload: 100,
		Observer:   &observe.Observer{Published: func(p observe.Published) { told.Store(p, true) }},
	})
	s := honker.NewStream[any](db, "orders", nil)
	calls := map[string]testkit.Refusal{}
	for what, bad := range map[string]any{
		"no JSON":   make(chan int),
		"bytes":     []byte("x"),
		"too large": strings.Repeat("x", 99),
		"bad raw":   json.RawMessage(`{`),
		"no UTF-8":  json.RawMessage("\"\xff\""),
	} {
		batch := []any{1, 2, bad, 4}
		calls[what] = func(c context.Context) error {
			_, _, err := s.PublishMany(c, batch)
			require.ErrorContains(t, err, "event 3 of 4", what)
			return err
		}
		calls[what+" in a transaction"] = inOwnTx(db, func(c context.Context, tx *sql.Tx) error {
			_, _, err := s.PublishManyTx(c, tx, batch)
			return err
		})
		calls[what+" alone"] = func(c context.Context) error { _, err := s.Publish(c, bad); return err }
		calls[what+" alone in a transaction"] = inOwnTx(db, func(c context.Context, tx *sql.Tx) error {
			_, err := s.PublishTx(c, tx, bad)
			return err
		})
	}
	testkit.RequireRefused(t, path, calls)
	told.Range(func(p, _ any) bool { t.Errorf("the observer was told of %v", p); return true })
	testkit.Publish(t, s, any(strings.Repeat("x", 98)))
}

// A batch that the file rejects halfway through publishes nothing and doesn't affect other writers.
func TestStream_PublishMany_Halfway(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	other := honker.NewStream[int](db, "other", nil)
	testkit.Exec(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON _honker_stream WHEN NEW.topic = 'orders' AND NEW.payload = '599'
		BEGIN SELECT raise(ABORT, 'no 599'); END`)
	others := make(chan error, 4)
	for range cap(others) {
		go func() {
			var err error
			for i := 0; i < 50 && err == nil; i++ {
				_, _, err = other.PublishMany(ctx, []int{1, 2})
			}
			others <- err
		}()
	}
	for range 20 {
		_, _, err := s.PublishMany(ctx, make([]int, 1))
		require.NoError(t, err)
		data := make([]int, 700)
		data[650] = 599
		_, _, err = s.PublishMany(ctx, data)
		require.ErrorContains(t, err, "no 599")
	}
	for range cap(others) {
		require.NoError(t, <-others)
	}
	require.Len(t, testkit.StreamData(t, s), 20)
	require.Len(t, testkit.StreamData(t, other), 400)
}

// A transaction's event exists after the commit and never after a rollback.
func TestStream_PublishTx_AtCommit(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Exec(t, db, `CREATE TABLE effects (n INTEGER)`)
	publish := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`)
			require.NoError(t, err)
			one, err := s.PublishTx(ctx, tx, 1)
			require.NoError(t, err)
			first, last, err := s.PublishManyTx(ctx, tx, make([]int, 300))
			require.NoError(t, err)
			if testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
				require.Equal(t, []int64{one + 1, one + 300}, []int64{first, last})
			} else {
				require.Equal(t, []int64{0, 0, 0}, []int64{one, first, last})
			}
			require.Zero(t, countEvents(t, db), "not committed yet")
			return end
		})
	}
	require.ErrorIs(t, publish(testkit.ErrCause), testkit.ErrCause)
	require.Zero(t, countEvents(t, db))
	require.NoError(t, publish(nil))
	require.EqualValues(t, 301, countEvents(t, db))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))

	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = s.PublishTx(ctx, tx, 2)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 301, countEvents(t, db))
	_, err = s.PublishTx(ctx, tx, 2)
	require.ErrorIs(t, err, sql.ErrTxDone)
	_, err = s.PublishTx(ctx, nil, 2)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// An event cannot be published in another file's transaction.
func TestStream_PublishTx_OtherFile(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	other := honkertest.Open(t, nil)
	tx, err := other.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = s.PublishTx(ctx, tx, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, _, err = s.PublishManyTx(ctx, tx, []int{1})
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = s.SaveOffsetTx(ctx, tx, "c", 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.NoError(t, tx.Commit())
	require.Zero(t, countEvents(t, db)+countEvents(t, other))
}

// An event without a key has NULL in the file.
func TestStream_Publish_NoKey(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Publish(t, s, 1)
	testkit.PublishUpTo(t, s, 5)
	require.EqualValues(t, 6, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream WHERE key IS NULL`))
	testkit.Publish(t, s, 2, honker.EventKey(""))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream WHERE key = ''`))
	keys := []string{"a:b", "*", "ü\U0010FFFF", strings.Repeat("k", 1024), "% _ ' \" \n"}
	for _, key := range keys {
		testkit.Publish(t, s, 3, honker.EventKey(key))
	}
	var got []string
	for e, err := range s.Read(ctx, 7) {
		require.NoError(t, err)
		got = append(got, e.Key)
	}
	require.Equal(t, keys, got)
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		if e.Offset <= 7 {
			require.Empty(t, e.Key)
		}
	}
}

// EventKeys assigns each event of a batch its own key, which is stored in the file. "" is the empty key.
func TestStream_PublishMany_EventKeys(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	data, keys := make([]int, 1200), make([]string, 1200)
	for i := range data {
		data[i], keys[i] = i, fmt.Sprint("k", i%700)
	}
	keys[7] = ""
	first, last, err := s.PublishMany(ctx, data, honker.EventKeys(keys...))
	require.NoError(t, err)
	require.Equal(t, int64(len(data)), last-first+1)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, _, err := s.PublishManyTx(ctx, tx, []int{1200, 1201}, honker.EventKeys("a", "b"))
		return err
	}))
	_, err = s.Publish(ctx, 1202, honker.EventKeys("one"))
	require.NoError(t, err)
	_, _, err = s.PublishMany(ctx, []int{1203}, honker.EventKeys("x", "y", "z"), honker.EventKeys("last"))
	require.NoError(t, err, "the last counts")
	keys = append(keys, "a", "b", "one", "last")
	n := 0
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, n, e.Data)
		require.Equal(t, keys[n], e.Key)
		n++
	}
	require.Len(t, keys, n)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream WHERE key IS NULL`))
}

// EventKeys needs as many keys as events and cannot be combined with EventKey. A single bad key causes the
// whole batch to be rejected.
func TestStream_PublishMany_EventKeysRefused(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	keys, key := honker.EventKeys, honker.EventKey
	calls := map[string]testkit.Refusal{}
	for what, opts := range map[string][]honker.PublishOption{
		"none":               {keys()},
		"too few":            {keys("a")},
		"too many":           {keys("a", "b", "c")},
		"with EventKey":      {keys("a", "b"), key("k")},
		"with EventKey \"\"": {key(""), keys("a", "b")},
		"a bad one":          {keys("a", "\x00")},
		"a bad one before":   {keys("a", "\x00"), keys("a", "b")},
	} {
		calls["PublishMany "+what] = func(c context.Context) error { _, _, err := s.PublishMany(c, []int{1, 2}, opts...); return err }
		calls["PublishManyTx "+what] = inOwnTx(db, func(c context.Context, tx *sql.Tx) error {
			_, _, err := s.PublishManyTx(c, tx, []int{1, 2}, opts...)
			return err
		})
	}
	calls["Publish none"] = func(c context.Context) error { _, err := s.Publish(c, 1, keys()); return err }
	calls["Publish two"] = func(c context.Context) error { _, err := s.Publish(c, 1, keys("a", "b")); return err }
	calls["Publish both"] = func(c context.Context) error { _, err := s.Publish(c, 1, keys("a"), key("a")); return err }
	testkit.RequireRefused(t, path, calls)
}

// Bad keys and bytes are rejected.
func TestStream_Publish_BadKeys(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s, bytes := honker.NewStream[int](db, "orders", nil), honker.NewStream[[]byte](db, "orders", nil)
	pointers := honker.NewStream[*[]byte](db, "orders", nil)
	calls := streamVerbs(t, db, bytes, nil)
	calls["pointer to bytes"] = func(c context.Context) error { _, err := pointers.Publish(c, nil); return err }
	for what, key := range badNames {
		if key == "" {
			continue
		}
		calls["key "+what] = func(c context.Context) error { _, err := s.Publish(c, 1, honker.EventKey(key)); return err }
		calls["keys "+what] = func(c context.Context) error {
			_, _, err := s.PublishMany(c, []int{1}, honker.EventKey(key))
			return err
		}
	}
	testkit.RequireRefused(t, path, calls)
}

// PublishMany returns the offsets of its first and last event even if a trigger inserts events of its own.
// If a trigger drops an event, PublishMany returns an error.
func TestStream_PublishMany_Triggers(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.ExecAll(t, db.SQL(), `CREATE TRIGGER mirror AFTER INSERT ON _honker_stream WHEN NEW.topic = 'orders'
BEGIN SELECT honker_stream_publish('mirror', NULL, NEW.payload); END`,
		`CREATE TRIGGER no13 BEFORE INSERT ON _honker_stream WHEN NEW.payload = '13' BEGIN SELECT RAISE(IGNORE); END`)
	for _, opts := range [][]honker.PublishOption{nil, {honker.EventKeys("a", "b", "c")}} {
		before := testkit.QueryInt(t, db.SQL(), `SELECT coalesce(max(offset), 0) FROM _honker_stream`)
		first, last, err := s.PublishMany(ctx, []int{1, 2, 3}, opts...)
		require.NoError(t, err)
		require.Equal(t, []int64{before + 1, before + 5}, []int64{first, last})
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT topic = 'orders' FROM _honker_stream WHERE offset = ?`, last))
	}
	events := countEvents(t, db)
	_, _, err := s.PublishMany(ctx, []int{1, 13})
	require.ErrorIs(t, err, honker.ErrNotInserted)
	_, err = s.Publish(ctx, 13)
	require.ErrorIs(t, err, honker.ErrNotInserted)
	require.Equal(t, events, countEvents(t, db))
	testkit.Exec(t, db, `CREATE TRIGGER hush BEFORE INSERT ON _honker_notifications BEGIN SELECT RAISE(IGNORE); END`)
	_, err = db.Notify(ctx, "news", 1)
	require.ErrorIs(t, err, honker.ErrNotInserted)
}
