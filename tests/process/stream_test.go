//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["publisher"] = publishAndNote
	children["subscriber"] = subscribeAndNote
	children["pipe"] = pipeNumbers
}

// publishAndNote publishes to "orders" from five goroutines in different ways, and notes each
// committed offset. It publishes all events even if its stdin is closed, which happens once the
// readers have received all of "orders".
func publishAndNote() {
	a, db := testkit.OpenChild(nil)
	ctx := context.Background()
	note := testkit.ChildLedger(a.Ledger)
	s, other := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "other", nil)
	var all sync.WaitGroup
	for g := range 5 {
		all.Go(func() {
			for made := 0; made < a.Jobs; {
				first, last, err := publishSomehow(ctx, db, s, min(1+made%9, a.Jobs-made), made+g)
				testkit.Must(err)
				for o := first; o <= last; o++ {
					note("published", o)
				}
				made += int(last-first) + 1
				if made%5 == 0 {
					_, err := other.Publish(ctx, g)
					testkit.Must(err)
				}
			}
		})
	}
	all.Wait()
	testkit.Must(db.Close())
}

// publishSomehow publishes alone, in a batch, or in a transaction, depending on how. On a server, a transaction does not
// know its offsets.
func publishSomehow(ctx context.Context, db *honker.DB, s *honker.Stream[int], n, how int) (first, last int64, err error) {
	ways := 3
	if !testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
		ways = 2
	}
	switch how % ways {
	case 0:
		first, err = s.Publish(ctx, how)
		return first, first, err
	case 1:
		return s.PublishMany(ctx, make([]int, n))
	}
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		first, last, err = s.PublishManyTx(ctx, tx, make([]int, n))
		return err
	})
	return first, last, err
}

// Readers in several processes receive every event once and in order.
func TestStream_Process_Readers(t *testing.T) {
	each := 300
	if testing.Short() {
		each = 50
	}
	path, db := openShared(t)
	dir := filepath.Dir(path)
	var writers []*testkit.Child
	for i := range 2 {
		a := testkit.Task{Path: path, Jobs: each, Ledger: filepath.Join(dir, fmt.Sprint("ledger", i))}
		writers = append(writers, testkit.StartChild(t, "publisher", a))
	}
	total := 10 * each
	seen := make(chan []int64, 2)
	for _, topic := range []string{"orders", "ord*"} {
		go func() {
			var offsets []int64
			for e, err := range honker.NewStream[int](db, topic, nil).Subscribe(testkit.Context(t, 3*testkit.Timeout), "c", nil) {
				if err != nil || len(offsets) > 0 && e.Offset <= offsets[len(offsets)-1] {
					t.Errorf("%v after %v: %v", e, offsets, err)
					break
				}
				if offsets = append(offsets, e.Offset); len(offsets) == total {
					break
				}
			}
			seen <- offsets
		}()
	}
	first, second := <-seen, <-seen
	for _, w := range writers {
		require.Empty(t, w.End())
	}
	published, by := testkit.Noted(t, filepath.Join(dir, "ledger*"), "published")
	require.Equal(t, 2, by)
	require.Len(t, published, total)
	require.Equal(t, published, first)
	require.Equal(t, published, second)
}

// window is the number of events between two saves of the subscriber's offset.
const window = 10

// subscribeAndNote subscribes to "orders" as consumer "c".
func subscribeAndNote() {
	a, db := testkit.OpenChild(nil)
	note := testkit.ChildLedger(a.Ledger)
	s := honker.NewStream[int](db, "orders", nil)
	last := int64(0)
	for e, err := range s.Subscribe(testkit.ChildContext(), "c", &honker.SubscribeOptions{SaveEvery: window}) {
		if testkit.ChildContext().Err() != nil {
			break
		}
		testkit.Must(err)
		if e.Offset <= last {
			testkit.Must(fmt.Errorf("event %d after %d", e.Offset, last))
		}
		last = e.Offset
		note("handled", e.Offset)
	}
	testkit.Must(db.Close())
}

// killings repeatedly starts a child and kills it after some progress. The last child may finish.
func killings(t *testing.T, name string, all int, child func(i int) testkit.Task, progress func() int) {
	t.Helper()
	kills := 15
	if testing.Short() {
		kills = 3
	}
	luck := testkit.Rand(testkit.Seed(t), 0)
	for i := range kills {
		victim := testkit.StartChild(t, name, child(i))
		goal := min(progress()+1+luck.IntN(all/kills), all)
		testkit.Eventually(t, testkit.Timeout, "progress", func() bool { return progress() >= goal })
		victim.Kill()
	}
	survivor := testkit.StartChild(t, name, child(kills))
	testkit.Eventually(t, testkit.Timeout, "all done", func() bool { return progress() == all })
	require.Empty(t, survivor.End())
}

// A killed subscriber misses no event and repeats at most the events since its last save.
func TestSubscribe_Process_Killed(t *testing.T) {
	events := 4000
	if testing.Short() {
		events = 1000
	}
	path, db := openShared(t)
	dir := filepath.Dir(path)
	s := honker.NewStream[int](db, "orders", nil)
	offsets := testkit.PublishUpTo(t, s, events/2)
	live := make(chan error, 1)
	go func() {
		var err error
		for i := events / 2; i < events && err == nil; i++ {
			_, err = s.Publish(context.Background(), i)
		}
		live <- err
	}()
	ledger := func(i int) string { return filepath.Join(dir, fmt.Sprintf("ledger%02d", i)) }
	killings(t, "subscriber", events,
		func(i int) testkit.Task { return testkit.Task{Path: path, Ledger: ledger(i)} },
		func() int { return int(testkit.SavedOffset(t, s, "c")) })
	require.NoError(t, <-live)

	repeated, before := 0, []int64(nil)
	var all []int64
	ledgers, err := filepath.Glob(filepath.Join(dir, "ledger*"))
	require.NoError(t, err)
	for i, file := range ledgers { // in their order; a process that was killed at its start may have none
		run, found := testkit.Noted(t, file, "handled")
		if found == 0 {
			continue
		}
		for j := range run[1:] {
			require.Equal(t, run[j]+1, run[j+1], "a gap in run %d", i)
		}
		if len(before) > 0 {
			last := before[len(before)-1]
			require.LessOrEqual(t, run[0], last+1, "a gap before run %d", i)
			require.Less(t, last-run[0], int64(window), "run %d repeats more than it had not saved", i)
			repeated += int(last - run[0] + 1)
		}
		all, before = append(all, run...), run
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), events)
	require.Equal(t, offsets[0], all[0])
	t.Logf("%d events came again", repeated)
}

// pipeNumbers runs a Pipe from "numbers" to "doubles".
func pipeNumbers() {
	_, db := testkit.OpenChild(nil)
	from, to := testkit.DoublingStreams(db)
	testkit.Must(honker.Pipe(testkit.ChildContext(), from, "doubler", to, testkit.Double))
	testkit.Must(db.Close())
}

// A pipe that is killed still publishes exactly one result per event, in order.
func TestPipe_Process_Killed(t *testing.T) {
	events := 20_000
	if testing.Short() {
		events = 1000
	}
	path, db := openShared(t)
	from, to := testkit.DoublingStreams(db)
	testkit.PublishUpTo(t, from, events/2)
	live := make(chan error, 1)
	go func() {
		var err error
		for i := events / 2; i < events && err == nil; i += 50 {
			batch := make([]int, 50)
			for j := range batch {
				batch[j] = i + j
			}
			_, _, err = from.PublishMany(context.Background(), batch)
		}
		live <- err
	}()
	killings(t, "pipe", events, func(int) testkit.Task { return testkit.Task{Path: path} }, func() int {
		return int(testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream WHERE topic = 'numbers'
			AND "offset" <= (SELECT "offset" FROM _honker_stream_consumers WHERE name = 'doubler')`))
	})
	require.NoError(t, <-live)
	require.Equal(t, testkit.Doubles(events), testkit.StreamData(t, to))
	require.Len(t, testkit.StreamData(t, from), events)
}
