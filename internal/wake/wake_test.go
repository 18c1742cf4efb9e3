package wake

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/row"
)

// testStatements holds a real store's statements. store_test.go sets it, because this package can't import the store.
var testStatements Statements

var errReplaced = errors.New("the database was replaced")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeWatcher counts waiters and records the times passed to WakeAt.
type fakeWatcher struct {
	mu      sync.Mutex
	waiters int
	raised  Signals
	times   []time.Time
	closed  bool
}

func (w *fakeWatcher) AddWaiter(Signals)    { w.mu.Lock(); w.waiters++; w.mu.Unlock() }
func (w *fakeWatcher) RemoveWaiter(Signals) { w.mu.Lock(); w.waiters--; w.mu.Unlock() }
func (w *fakeWatcher) Committed()           {}
func (w *fakeWatcher) Raise(s Signals)      { w.raised |= s }
func (w *fakeWatcher) Close() error         { w.closed = true; return nil }
func (w *fakeWatcher) WakeAt(t time.Time) {
	w.mu.Lock()
	w.times = append(w.times, t)
	w.mu.Unlock()
}

// newNotifier returns a notifier whose sources are never queried, because the tests call Wake.
func newNotifier(t *testing.T) (*Notifier, *fakeWatcher) {
	t.Helper()
	w := new(fakeWatcher)
	n := New(Config{
		Watch:      func(Events) Watcher { return w },
		Statements: testStatements,
		Now:        time.Now,
	})
	return n, w
}

// Until calls look first, sleeps until its key is woken, and calls look again.
func TestNotifier_Until_Wake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, w := newNotifier(t)
		looks := 0
		done := make(chan error, 1)
		go func() {
			done <- n.Until(context.Background(), func() (time.Duration, error) {
				if looks++; looks == 3 {
					return Done, nil
				}
				return Forever, nil
			}, Key{Kind: QueueReady, Name: "jobs"}, Key{Kind: LockFree, Name: "a"})
		}()
		synctest.Wait()
		require.Equal(t, 1, looks)
		require.Equal(t, 1, w.waiters)
		n.Wake(Change{Kind: QueueReady, Name: "others"})
		n.Wake(Change{Kind: LockFree, Name: "jobs"})
		synctest.Wait()
		require.Equal(t, 1, looks, "woken by a key of another waiter")
		n.Wake(Change{Kind: QueueReady, Name: "jobs"})
		synctest.Wait()
		require.Equal(t, 2, looks)
		n.Wake(Change{Kind: LockFree, Name: "a"})
		require.NoError(t, <-done)
		require.Zero(t, w.waiters)
		require.Empty(t, n.waiting[QueueReady], "its subscription has ended")
	})
}

// A wake-up does not end a grace period early.
func TestGrace_EarlyWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := newNotifier(t)
		began := time.Now()
		var grace Grace
		done := make(chan error, 1)
		go func() {
			done <- n.Until(context.Background(), func() (time.Duration, error) {
				return grace.Left(time.Minute), nil
			}, Key{Kind: JobDone, Name: "7"})
		}()
		for range 5 {
			synctest.Wait()
			n.Wake(Change{Kind: JobDone, Name: "7"})
			time.Sleep(time.Second)
		}
		require.NoError(t, <-done)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// No check is requested at a time that no process lives to see, even if the stored second overflows time.Time to a moment in
// the past. Otherwise the watcher would compare the clocks for as long as it is there.
func TestNotifier_WakeAt_FarAway(t *testing.T) {
	n, w := newNotifier(t)
	n.sources.wakeAt(time.Time{})
	for _, unix := range []int64{time.Now().AddDate(100, 0, 0).Unix(), 9223371974719179008, math.MaxInt64 - 1023, math.MaxInt64} {
		n.sources.wakeAt(row.Instant(unix))
	}
	require.Empty(t, w.times)
	n.sources.wakeAt(time.Now().AddDate(49, 0, 0))
	require.Len(t, w.times, 1)
}

// Until calls look again once the time returned by look has passed, and not earlier.
func TestNotifier_Until_Time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := newNotifier(t)
		began := time.Now()
		var at []time.Duration
		err := n.Until(context.Background(), func() (time.Duration, error) {
			at = append(at, time.Since(began))
			if len(at) == 3 {
				return Done, nil
			}
			return time.Minute, nil
		}, Key{Kind: Closing})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, time.Minute, 2 * time.Minute}, at)
	})
}

// Until returns look's error, ctx's cause, or the error with which the notifier ended.
func TestNotifier_Until_Errors(t *testing.T) {
	forever := func() (time.Duration, error) { return Forever, nil }
	n, w := newNotifier(t)
	broken := errors.New("broken")
	require.ErrorIs(t, n.Until(context.Background(), func() (time.Duration, error) { return Forever, broken }), broken)

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(broken)
	err := n.Until(ctx, forever)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, context.Canceled)

	n.end(errReplaced)
	require.ErrorIs(t, n.Until(context.Background(), forever, Key{Kind: LockFree, Name: "a"}), errReplaced)
	require.NoError(t, n.Close())
	require.ErrorIs(t, n.Err(), errReplaced, "the first reason stays")
	require.True(t, w.closed)
}

// A topic pattern is woken by the topics that it matches.
func TestNotifier_Wake_Patterns(t *testing.T) {
	n, _ := newNotifier(t)
	exact, pattern, other := n.Subscribe(Key{Kind: TopicEvent, Name: "orders:new"}), n.Subscribe(Key{Kind: TopicEvent, Name: "orders:*"}), n.Subscribe(Key{Kind: TopicEvent, Name: "users"})
	defer exact.Close()
	defer pattern.Close()
	defer other.Close()
	n.Wake(Change{Kind: TopicEvent, Name: "orders:new"})
	require.Len(t, exact.C(), 1)
	require.Len(t, pattern.C(), 1)
	require.Empty(t, other.C())
}

// A commit raises the signals that its waiters are waiting for, and no two kinds share a signal.
func TestSignals_Kinds(t *testing.T) {
	var taken Signals
	for kind := range kinds {
		of := signalsOfKind(kind)
		require.Zero(t, taken&of, "kind %d", kind)
		taken |= of
		for _, name := range []string{"", "a", "orders:new", "17", "orders:*"} {
			waits := signalsOf(kind, name)
			require.Equal(t, waits, waits&raisedBy(kind, name))
			require.Equal(t, waits, waits&of)
			require.Equal(t, of == 0, waits == 0)
		}
	}
	require.Equal(t, AllSignals, taken)
	require.NotZero(t, raisedBy(TopicEvent, "orders:new")&signalsOf(TopicEvent, "orders:*"))
	// The values are fixed, because processes of other versions work on the same file.
	require.Equal(t, Signals(1)<<10, signalsOf(QueueReady, "mail"))
}

// A filter is woken by the events that match it. A pattern with a filter is woken by matching events of its topics.
func TestNotifier_Wake_Filters(t *testing.T) {
	n, w := newNotifier(t)
	is := func(key string) *row.Filter { return &row.Filter{Op: row.KeyIs, Key: key} }
	waiters := map[string]*Waiter{
		"orders":    n.Subscribe(Key{Kind: TopicEvent, Name: "orders"}),
		"orders/a":  n.Subscribe(Key{Kind: TopicEvent, Name: "orders", Filter: is("a")}),
		"orders/a2": n.Subscribe(Key{Kind: TopicEvent, Name: "orders", Filter: is("a")}),
		"orders/b":  n.Subscribe(Key{Kind: TopicEvent, Name: "orders", Filter: is("b")}),
		"ord*/a":    n.Subscribe(Key{Kind: TopicEvent, Name: "ord*", Filter: is("a")}),
		"ord*/b":    n.Subscribe(Key{Kind: TopicEvent, Name: "ord*", Filter: is("b")}),
	}
	n.Wake(Change{Kind: TopicEvent, Name: "orders", EventKey: "a"})
	require.Equal(t, signalsOf(TopicEvent, "orders")|signalOfPatterns, w.raised)
	for name, waiter := range waiters {
		require.Equal(t, name != "orders/b" && name != "ord*/b", len(waiter.C()) == 1, name)
		waiter.Close()
	}
	require.Empty(t, n.sparse)
}

// The index of sparse selections finds the same IDs as a check of every selection.
func TestSparse_Concerned_All(t *testing.T) {
	keys := []string{"", "a", "ab", "b", "\x00", "{}"}
	topics := []string{"orders", "ord", "o*", "*"}
	filters := []*row.Filter{nil, {Op: row.KeyPrefix, Key: "a"}, {Op: row.KeyPrefix}, {Op: row.Or}, {Op: row.And}}
	for _, key := range keys {
		filters = append(filters, &row.Filter{Op: row.KeyIs, Key: key},
			&row.Filter{Op: row.Or, Of: []row.Filter{{Op: row.KeyIs, Key: key}, {Op: row.KeyIs, Key: "b"}}})
	}
	all, ids := sparse{}, map[string]selection{}
	for _, topic := range topics {
		for _, filter := range filters {
			s := selection{Topic: topic, Filter: filter}
			require.NotContains(t, ids, s.id())
			ids[s.id()] = s
			all.add(s.id(), s)
		}
	}
	for _, topic := range []string{"orders", "ord", "other", ""} {
		for _, key := range keys {
			added := row.Added{topic: {key: true}, "else": {"else": true}}
			found := all.concerned(added)
			for id, s := range ids {
				require.Equal(t, row.Selection(s).Gained(added), slices.Contains(found, id), "%q of %q %q", id, topic, key)
			}
		}
	}
}

// A name subscribed to after the log was read gets no earlier rows, and an earlier subscription gets
// each row once.
func TestLogTail_Gained_Once(t *testing.T) {
	rows := []string{"a", "b"}
	tail := logTail{Log: Log{
		Head: func(context.Context, row.Querier) (int64, error) { return int64(len(rows)), nil },
		Since: func(_ context.Context, _ row.Querier, after int64, limit int) (row.Added, int, int64, error) {
			added := row.Added{}
			for _, r := range rows[after:min(int(after)+limit, len(rows))] {
				added[r] = map[string]bool{"": true}
			}
			return added, min(len(rows)-int(after), limit), int64(len(rows)), nil
		},
	}}
	gained := func() []string {
		added, n, err := tail.gained(context.Background(), nil, tailPage)
		require.NoError(t, err)
		if added == nil {
			return []string{"any"}
		}
		require.GreaterOrEqual(t, n, len(added))
		return slices.Collect(maps.Keys(added))
	}
	require.Equal(t, []string{"any"}, gained(), "at first any of them may have changed")
	require.Empty(t, gained())
	rows = append(rows, "c")
	require.Equal(t, []string{"c"}, gained())
	require.Empty(t, gained())
	for range tailPage - 1 {
		rows = append(rows, "a")
	}
	require.Equal(t, []string{"a"}, gained())
	for range tailPage {
		rows = append(rows, "d")
	}
	require.Equal(t, []string{"any"}, gained(), "a page is full, and there may be more")
	require.Empty(t, gained())
}

// If a query fails, all names are woken, so that each waiter encounters the error itself.
func TestNotifier_Changed_Error(t *testing.T) {
	n, _ := newNotifier(t)
	w := n.Subscribe(Key{Kind: QueueReady, Name: "jobs"})
	defer w.Close()
	require.Equal(t, 1, n.wakeAll(AllSignals))
	require.Len(t, w.C(), 1)
}

// Entries leave a FIFO in order of arrival, or when they are removed.
func TestFIFO_Order(t *testing.T) {
	var f FIFO[int]
	require.True(t, f.Empty("a"))
	require.True(t, f.Push("a", 1))
	require.False(t, f.Push("a", 2))
	require.False(t, f.Push("a", 3))
	require.True(t, f.Push("b", 4))
	found, next, hasNext := f.Remove("a", 1)
	require.True(t, found)
	require.True(t, hasNext)
	require.Equal(t, 2, next)
	found, _, hasNext = f.Remove("a", 3)
	require.True(t, found)
	require.False(t, hasNext, "2 has been first before")
	v, ok := f.Pop("a")
	require.True(t, ok)
	require.Equal(t, 2, v)
	_, ok = f.Pop("a")
	require.False(t, ok)
	found, _, _ = f.Remove("a", 2)
	require.False(t, found)
	require.False(t, f.Empty("b"))
	require.Len(t, f.byName, 1, "an empty list is not kept")
}

// A KeyedMutex is granted in order of arrival to a single holder at a time, and names are independent.
func TestKeyedMutex_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m KeyedMutex
		unlock, err := m.Lock(context.Background(), "a")
		require.NoError(t, err)
		other, err := m.Lock(context.Background(), "b")
		require.NoError(t, err)
		other()
		granted := make(chan int, 3)
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 3 {
			all.Go(func() {
				unlock, err := m.Lock(context.Background(), "a")
				if err == nil {
					granted <- i
					time.Sleep(time.Second)
					unlock()
				}
			})
			synctest.Wait()
		}
		require.Empty(t, granted)
		unlock()
		for i := range 3 {
			require.Equal(t, i, <-granted)
		}
	})
}

// A Lock call whose ctx ends leaves the queue and doesn't block the next waiter.
func TestKeyedMutex_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m KeyedMutex
		unlock, err := m.Lock(context.Background(), "a")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = m.Lock(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		done := make(chan error, 1)
		go func() {
			unlock, err := m.Lock(context.Background(), "a")
			unlock()
			done <- err
		}()
		unlock()
		require.NoError(t, <-done)
	})
}
