package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["keeper"] = sayRetention }

// sayRetention increases a stream's MaxCount by 1 and prints the retention.
func sayRetention() {
	_, db := testkit.OpenChild(nil)
	s := honker.NewStream[int](db, "orders", nil)
	r, err := s.Retention(testkit.ChildContext())
	testkit.Must(err)
	r.MaxCount++
	testkit.Must(s.SetRetention(testkit.ChildContext(), r))
	testkit.Say(r.MaxCount, r.MaxAge)
	testkit.Must(db.Close())
}

func retain[E any](t testing.TB, s *honker.Stream[E], r honker.Retention) {
	t.Helper()
	require.NoError(t, s.SetRetention(context.Background(), r))
}

func retained[E any](t testing.TB, s *honker.Stream[E]) honker.Retention {
	t.Helper()
	r, err := s.Retention(context.Background())
	require.NoError(t, err)
	return r
}

func compacted[E any](t testing.TB, s *honker.Stream[E]) honker.CompactStats {
	t.Helper()
	stats, err := s.Compact(context.Background())
	require.NoError(t, err)
	return stats
}

// stored returns the offsets of a stream's remaining events.
func stored[E any](t testing.TB, s *honker.Stream[E]) (offsets []int64) {
	t.Helper()
	for e, err := range s.Read(context.Background(), 0) {
		require.NoError(t, err)
		offsets = append(offsets, e.Offset)
	}
	return offsets
}

// span returns the numbers from first to last.
func span(first, last int64) (all []int64) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// A retention is stored in the file and applies to all handles and processes.
func TestRetention_OfFile(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := stocked(t, db, 10)
	require.Zero(t, retained(t, s), "everything, unless a retention is set")
	retain(t, s, honker.Retention{MaxCount: 4, MaxAge: 1500 * time.Millisecond})
	rounded := honker.Retention{MaxCount: 4, MaxAge: 2 * time.Second}
	require.Equal(t, rounded, retained(t, s))
	require.Equal(t, rounded, retained(t, honker.NewStream[string](honkertest.OpenFile(t, path, nil), "orders", nil)))
	require.Zero(t, retained(t, honker.NewStream[int](db, "others", nil)))
	require.Equal(t, "5 2s", testkit.StartChild(t, "keeper", testkit.Task{Path: path}).Line(testkit.Timeout))
	require.EqualValues(t, 5, retained(t, s).MaxCount)
	require.EqualValues(t, 5, compacted(t, honker.NewStream[int](honkertest.OpenFile(t, path, nil), "orders", nil)).Deleted)

	retain(t, s, honker.Retention{})
	require.Zero(t, retained(t, s))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_retention`))
	testkit.PublishRange(t, s, 11, 30)
	require.Zero(t, compacted(t, s))
	require.Len(t, stored(t, s), 25)
}

// The longest retention can be read back.
func TestRetention_Longest(t *testing.T) {
	t.Parallel()
	s := stocked(t, honkertest.Open(t, nil), 3)
	retain(t, s, honker.Retention{MaxCount: math.MaxInt64, MaxAge: math.MaxInt64})
	require.Zero(t, compacted(t, s))
	r := retained(t, s)
	require.Equal(t, int64(math.MaxInt64), r.MaxCount)
	require.Positive(t, r.MaxAge)
	retain(t, s, r)
}

// Invalid retentions are rejected.
func TestRetention_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	good := stocked(t, db, 10)
	retain(t, good, honker.Retention{MaxCount: 5})
	calls := map[string]testkit.Refusal{
		"MaxCount": func(c context.Context) error { return good.SetRetention(c, honker.Retention{MaxCount: -1}) },
		"MaxAge":   func(c context.Context) error { return good.SetRetention(c, honker.Retention{MaxAge: -1}) },
		"both":     func(c context.Context) error { return good.SetRetention(c, honker.Retention{MaxCount: 1, MaxAge: -1}) },
	}
	for what, name := range map[string]string{"pattern": "orders*", "every topic": "*", "no name": ""} {
		s := honker.NewStream[int](db, name, nil)
		calls[what+": SetRetention"] = func(c context.Context) error { return s.SetRetention(c, honker.Retention{MaxCount: 1}) }
		calls[what+": Retention"] = func(c context.Context) error { _, err := s.Retention(c); return err }
		calls[what+": Compact"] = func(c context.Context) error { _, err := s.Compact(c); return err }
	}
	testkit.RequireRefused(t, path, calls)
	require.Len(t, stored(t, good), 10)
}

// MaxCount keeps the topic's newest events.
func TestRetention_MaxCount(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	s, others := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "orders2", nil)
	require.Zero(t, compacted(t, s), "an empty topic")
	retain(t, s, honker.Retention{MaxCount: 3})
	require.Zero(t, compacted(t, s))
	for n := range 10 {
		testkit.PublishRange(t, s, n, n)
		testkit.PublishRange(t, others, n, n)
		stats := compacted(t, s)
		require.Equal(t, min(int64(n)/3, 1), stats.Deleted, "event %d", n)
	}
	require.Equal(t, []int64{15, 17, 19}, stored(t, s))
	require.Len(t, stored(t, others), 10)
	require.Zero(t, compacted(t, s))
	testkit.PublishRange(t, s, 1, 1)
	require.EqualValues(t, 21, stored(t, s)[3], "offsets are not used again")
}

// MaxAge deletes older events, with a precision of a second.
func TestRetention_MaxAge(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := honker.NewStream[int](db, "orders", nil)
		retain(t, s, honker.Retention{MaxAge: 9500 * time.Millisecond}) // rounded up to 10 s
		time.Sleep(900 * time.Millisecond)
		testkit.PublishRange(t, s, 1, 2) // at 0.9 s
		time.Sleep(5 * time.Second)
		testkit.PublishRange(t, s, 3, 3) // at 5.9 s
		time.Sleep(5*time.Second - time.Millisecond)
		require.Zero(t, compacted(t, s).Deleted)
		time.Sleep(101 * time.Millisecond) // at 11.0 s
		require.Equal(t, honker.CompactStats{Deleted: 2, Policy: 2, Cutoff: 2}, compacted(t, s))
		time.Sleep(4999 * time.Millisecond)
		require.Zero(t, compacted(t, s).Deleted)
		time.Sleep(time.Millisecond)
		require.Equal(t, honker.CompactStats{Deleted: 1, Policy: 3, Cutoff: 3}, compacted(t, s))
		require.Empty(t, stored(t, s))
	})
}

// An event beyond either limit is deleted.
func TestRetention_EitherBound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := stocked(t, db, 10)
		time.Sleep(time.Minute)
		testkit.PublishRange(t, s, 11, 20)
		retain(t, s, honker.Retention{MaxCount: 15, MaxAge: time.Hour})
		require.Equal(t, honker.CompactStats{Deleted: 5, Policy: 5, Cutoff: 5}, compacted(t, s))
		retain(t, s, honker.Retention{MaxCount: 15, MaxAge: time.Second})
		require.Equal(t, honker.CompactStats{Deleted: 5, Policy: 10, Cutoff: 10}, compacted(t, s))
		require.Equal(t, span(11, 20), stored(t, s))
	})
}

// Compact reports a reader in PinnedBy only if the reader keeps an event from being deleted.
func TestRetention_NoPins(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		others := honker.NewStream[int](db, "others", nil)
		testkit.PublishRange(t, others, 1, 10)
		s := honker.NewStream[int](db, "orders", nil)
		retain(t, s, honker.Retention{MaxAge: time.Hour})
		_, err := s.SaveOffset(context.Background(), "new", 0)
		require.NoError(t, err)
		testkit.PublishRange(t, s, 11, 12)
		require.Empty(t, compacted(t, s).PinnedBy, "all events are young")
		time.Sleep(2 * time.Hour)
		_, err = s.SaveOffset(context.Background(), "new", 12)
		require.NoError(t, err)
		testkit.PublishRange(t, others, 13, 20)
		testkit.PublishRange(t, s, 21, 22)
		stats := compacted(t, s)
		require.EqualValues(t, 2, stats.Deleted)
		require.Empty(t, stats.PinnedBy, "it has seen all that is old")
	})
}

// Compact keeps events that a consumer or group has not seen. The topic has 100 events, and the newest ten
// are retained.
func TestRetention_Compact_Unseen(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx := context.Background() // the cases wait for one another
	type stream = honker.Stream[int]
	save := func(t *testing.T, s *stream, consumer string, offset int64) {
		_, err := s.SaveOffset(ctx, consumer, offset)
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		pin    func(t *testing.T, db *honker.DB, s *stream)
		cutoff int64
		by     string
	}{
		"nobody reads": {func(*testing.T, *honker.DB, *stream) {}, 90, ""},
		"a slow consumer": {func(t *testing.T, _ *honker.DB, s *stream) {
			save(t, s, "slow", 40)
			save(t, s, "fast", 90)
		}, 40, `consumer "slow"`},
		"one that has seen enough":  {func(t *testing.T, _ *honker.DB, s *stream) { save(t, s, "fast", 90) }, 90, ""},
		"one that has seen nothing": {func(t *testing.T, _ *honker.DB, s *stream) { save(t, s, "new", 0) }, 0, `consumer "new"`},
		"one that has only subscribed": {func(t *testing.T, _ *honker.DB, s *stream) {
			done, cancel := context.WithCancel(ctx)
			defer cancel()
			for range s.Subscribe(done, "sub", nil) {
				break
			}
		}, 1, `consumer "sub"`},
		"a consumer of a pattern": {func(t *testing.T, db *honker.DB, s *stream) {
			save(t, honker.NewStream[int](db, "ord*", nil), "wide", 7)
			save(t, honker.NewStream[int](db, "orders:*", nil), "narrow", 3)
		}, 7, `consumer "wide"`},
		"a consumer of everything": {func(t *testing.T, db *honker.DB, s *stream) {
			save(t, honker.NewStream[int](db, "*", nil), "all", 8)
		}, 8, `consumer "all"`},
		"a consumer of another topic": {func(t *testing.T, db *honker.DB, s *stream) {
			save(t, honker.NewStream[int](db, "order", nil), "other", 7)
			save(t, honker.NewStream[int](db, "Orders", nil), "other", 7)
		}, 90, ""},
		"a consumer of another binding": {func(t *testing.T, db *honker.DB, s *stream) {
			testkit.Exec(t, db, `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES ('py', 'orders', 12)`)
		}, 12, `consumer "py"`},
		"a row as honker's binding for Node writes it": {func(t *testing.T, db *honker.DB, s *stream) {
			testkit.Exec(t, db, `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES ('orders', 'node', 13)`)
		}, 13, `consumer "node"`},
		"a consumer that is called like the topic": {func(t *testing.T, db *honker.DB, s *stream) {
			others := honker.NewStream[int](db, "others", nil)
			testkit.PublishRange(t, others, 1, 1)
			save(t, others, "orders", 1)
		}, 90, ""},
		"a group that has claimed nothing": {func(t *testing.T, _ *honker.DB, s *stream) {
			enrol(t, s.Group("idle", nil), "a")
		}, 0, `group "idle"`},
		"a group that begins late": {func(t *testing.T, _ *honker.DB, s *stream) {
			enrol(t, s.Group("late", &honker.GroupOptions{From: honker.Offset(70)}), "a")
		}, 70, `group "late"`},
		"leased events": {func(t *testing.T, _ *honker.DB, s *stream) {
			ds := given(t, enrol(t, s.Group("g", nil), "a"), 100)
			ackEach(t, ds[:20])
			ackEach(t, ds[30:])
		}, 20, `group "g"`},
		"leases that have run out": {func(t *testing.T, db *honker.DB, s *stream) {
			ackEach(t, given(t, enrol(t, s.Group("g", nil), "a"), 100)[1:])
			testkit.Exec(t, db, `UPDATE _honkerx_group_claims SET deadline_ms = 1`)
		}, 0, `group "g"`},
		"nacked events": {func(t *testing.T, _ *honker.DB, s *stream) {
			ds := given(t, enrol(t, s.Group("g", nil), "a"), 100)
			ackEach(t, ds[:20])
			ackEach(t, ds[21:])
			require.NoError(t, ds[20].Nack(ctx, testkit.ErrCause))
		}, 20, `group "g"`},
		"a group of a pattern": {func(t *testing.T, db *honker.DB, _ *stream) {
			ackEach(t, given(t, enrol(t, honker.NewStream[int](db, "o*", nil).Group("g", nil), "a"), 33))
		}, 33, `group "g"`},
		"a group with a filter": {func(t *testing.T, _ *honker.DB, s *stream) {
			m := enrol(t, s.Group("g", &honker.GroupOptions{Filter: honker.KeyIs("none")}), "a")
			require.Empty(t, given(t, m, 1))
		}, 90, ""},
		"the slowest of all": {func(t *testing.T, db *honker.DB, s *stream) {
			enrol(t, s.Group("g", &honker.GroupOptions{From: honker.Offset(50)}), "a")
			save(t, s, "b", 51)
			save(t, honker.NewStream[int](db, "*", nil), "c", 49)
		}, 49, `consumer "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := honkertest.Open(t, nil)
			s := stocked(t, db, 100)
			retain(t, s, honker.Retention{MaxCount: 10})
			c.pin(t, db, s)
			want := honker.CompactStats{Deleted: c.cutoff, Policy: 90, Cutoff: c.cutoff, PinnedBy: c.by}
			require.Equal(t, want, compacted(t, s))
			require.Equal(t, span(c.cutoff+1, 100), stored(t, s), "from the next one on, without a gap")
			if c.by != "" {
				want.Deleted = 0
				require.Equal(t, want, compacted(t, s), "again")
			}
		})
	}
}

// A slow consumer continues without a gap after a compaction.
func TestRetention_Compact_SlowConsumer(t *testing.T) {
	t.Parallel()
	s := stocked(t, honkertest.Open(t, nil), 1000)
	ctx := testkit.Context(t, testkit.Timeout)
	retain(t, s, honker.Retention{MaxCount: 1})
	want := int64(0)
	for e, err := range s.Subscribe(ctx, "slow", &honker.SubscribeOptions{SaveEvery: -1, SaveInterval: -1, Batch: 30}) {
		require.NoError(t, err)
		want++
		require.Equal(t, want, e.Offset)
		if want%100 == 0 {
			require.NoError(t, e.Ack(ctx))
			require.EqualValues(t, min(100, 999-want+100), compacted(t, s).Deleted)
		}
		if want == 1000 {
			break
		}
	}
	require.Equal(t, []int64{1000}, stored(t, s))
}

// A group's dead events are kept until they are settled.
func TestRetention_DeadEvents(t *testing.T) {
	t.Parallel()
	s := stocked(t, honkertest.Open(t, nil), 100)
	ctx := testkit.Context(t, testkit.Timeout)
	g := s.Group("g", &honker.GroupOptions{MaxAttempts: 1})
	m := enrol(t, g, "a")
	for _, d := range given(t, m, 100) {
		if d.Data%30 == 0 {
			require.NoError(t, d.Nack(ctx, testkit.ErrCause))
		} else {
			require.NoError(t, d.Ack(ctx))
		}
	}
	retain(t, s, honker.Retention{MaxCount: 5})
	require.Equal(t, honker.CompactStats{Deleted: 92, Policy: 95, Cutoff: 95}, compacted(t, s))
	require.Equal(t, append([]int64{30, 60, 90}, span(96, 100)...), stored(t, s))
	dead, _ := deadOf(t, g)
	require.Len(t, dead, 3)

	found, err := g.Redeliver(ctx, 60)
	require.True(t, found && err == nil, err)
	stats := compacted(t, s)
	require.Equal(t, `group "g"`, stats.PinnedBy)
	require.Zero(t, stats.Deleted)
	ackEach(t, given(t, m, 1))
	found, err = g.Discard(ctx, 30)
	require.True(t, found && err == nil, err)
	require.EqualValues(t, 2, compacted(t, s).Deleted)
	_, err = g.Delete(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, compacted(t, s).Deleted, "the group is gone, and its dead with it")
	require.Equal(t, span(96, 100), stored(t, s))
}

// Other writers get their turn during a large compaction.
func TestRetention_Compact_LetsWrite(t *testing.T) {
	testkit.FileOnly(t)
	events := 20_000
	if testing.Short() {
		events = 3000
	}
	for name, pool := range map[string]func(testing.TB, string, *honker.DB) *sql.DB{
		"the application": func(_ testing.TB, _ string, db *honker.DB) *sql.DB { return db.SQL() },
		"another program": func(t testing.TB, path string, _ *honker.DB) *sql.DB { return testkit.OpenPool(t, path) },
	} {
		t.Run(name, func(t *testing.T) {
			path, db := testkit.OpenShared(t)
			s := stocked(t, db, events)
			retain(t, s, honker.Retention{MaxCount: 1})
			other := pool(t, path, db)
			testkit.ExecAll(t, other, `CREATE TABLE notes (first INTEGER)`)
			var over atomic.Bool
			ended, ready := make(chan error, 1), make(chan struct{})
			go func() {
				pace := time.NewTicker(5 * time.Millisecond)
				defer pace.Stop()
				var err error
				for n := 0; n == 0 || err == nil && !over.Load(); n++ {
					_, err = other.Exec(`INSERT INTO notes SELECT min(offset) FROM _honker_stream WHERE topic = 'orders'`)
					if n == 0 {
						close(ready)
					}
					<-pace.C
				}
				ended <- err
			}()
			<-ready
			stats := compacted(t, s)
			over.Store(true)
			require.NoError(t, <-ended)
			last := int64(events) - 1
			require.Equal(t, honker.CompactStats{Deleted: last, Policy: last, Cutoff: last}, stats)
			between := testkit.QueryInt(t, db.SQL(), `SELECT count(DISTINCT first) FROM notes WHERE first BETWEEN 2 AND ?`, last)
			t.Logf("it wrote after %d of the commits", between)
			require.Positive(t, between, "its writes in the middle")
		})
	}
}

// weary is a ctx that ends after a number of calls to Err.
type weary struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func (w *weary) Err() error {
	if w.left.Add(-1) < 0 {
		w.cancel()
	}
	return w.Context.Err()
}

// When ctx ends, Compact ends, and the completed part remains.
func TestRetention_Compact_Context(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	events := 20_000
	if testing.Short() {
		events = 2000
	}
	db := honkertest.Open(t, nil)
	s := stocked(t, db, events)
	retain(t, s, honker.Retention{MaxCount: 1})
	midway, deleted := false, int64(0)
	for asked := int64(0); ; asked++ {
		w := new(weary)
		w.Context, w.cancel = context.WithCancel(testkit.Context(t, testkit.Timeout))
		w.left.Store(asked)
		stats, err := s.Compact(w)
		w.cancel()
		deleted += stats.Deleted
		require.EqualValues(t, int64(events)-deleted, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream`))
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "honker: compact")
		midway = midway || stats.Deleted > 0
	}
	require.True(t, midway, "some ended in the middle")
	require.Equal(t, []int64{int64(events)}, stored(t, s))
}

func init() { children["archivist"] = sayQueueRetention }

// sayQueueRetention prints a queue's retention and acks one of its jobs.
func sayQueueRetention() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	r, err := q.Retention(testkit.ChildContext())
	testkit.Must(err)
	jobs, err := q.Claim(testkit.ChildContext(), "archivist", 1)
	testkit.Must(err)
	testkit.Must(jobs[0].Ack(testkit.ChildContext()))
	testkit.Say(r.Done.MaxCount, r.Dead.MaxAge)
	testkit.Must(db.Close())
}

// everDone keeps every completed job.
var everDone = honker.QueueRetention{Done: honker.Retention{MaxCount: math.MaxInt64 / 4}}

func keepJobs[T any](t testing.TB, q *honker.Queue[T], r honker.QueueRetention) {
	t.Helper()
	require.NoError(t, q.SetRetention(context.Background(), r))
}

func keptJobs(t testing.TB, db *honker.DB) int64 {
	t.Helper()
	return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_done`)
}

// A completed job is deleted unless its queue keeps completed jobs. A kept job is shown as it was.
func TestQueue_SetRetention_Done(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	gone := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	keepJobs(t, q, everDone)
	began := time.Now().Truncate(time.Second)
	id := testkit.Enqueue(t, q, 17, honker.Priority(4), honker.Unique("order:17", nil))
	require.NoError(t, testkit.ClaimOneAs(t, q, "anna").Ack(ctx))

	_, err := db.Job(ctx, gone)
	require.ErrorIs(t, err, honker.ErrNotFound)
	job, err := db.Job(ctx, id)
	require.NoError(t, err)
	require.False(t, job.DoneAt.Before(began))
	require.Equal(t, honker.JobInfo{
		ID: id, Queue: q.Name(), State: honker.StateDone, Phase: honker.PhaseDone, Payload: []byte("17"), Priority: 4,
		Attempts: 1, MaxAttempts: 25, WorkerID: "anna", CreatedAt: job.CreatedAt, RunAt: job.RunAt, DoneAt: job.DoneAt, Unique: "order:17",
	}, *job)
	same := testkit.GetJob(t, q, id)
	require.Equal(t, job, same)
	_, err = honker.NewQueue[int](db, "others", nil).Get(ctx, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
	again := testkit.Enqueue(t, q, 18, honker.Unique("order:17", nil))
	require.NotEqual(t, id, again, "a job that is done has no key any more")
	require.NoError(t, db.Check(ctx))
}

// Every verb in this library that acks a job keeps it, in the ack's transaction.
func TestQueue_SetRetention_EveryAck(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	keepJobs(t, q, everDone)
	claim := func() *honker.Job[int] {
		testkit.Enqueue(t, q, 1)
		return testkit.ClaimOne(t, q)
	}
	kept := int64(0)
	more := func(what string) {
		t.Helper()
		kept++
		require.Equal(t, kept, keptJobs(t, db), what)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`), what)
	}
	job := claim()
	require.NoError(t, job.SetResult("x"))
	require.NoError(t, job.Ack(ctx))
	more("Ack with a result")

	job = claim()
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return job.AckTx(ctx, tx) }))
	more("AckTx")

	job = claim()
	require.Error(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, job.AckTx(ctx, tx))
		return context.Canceled
	}))
	require.Equal(t, kept, keptJobs(t, db), "rolled back")
	n, err := q.AckMany(ctx, job.WorkerID, []int64{job.ID})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	more("AckMany")

	job = claim()
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT honker_ack(?, ?)`, job.ID, job.WorkerID))
	more("honker_ack")

	testkit.Enqueue(t, q, 1)
	worked, err := q.WorkDue(ctx, testkit.Succeed[int], nil)
	require.NoError(t, err)
	require.Equal(t, 1, worked)
	more("WorkDue")

	stop := testkit.Work(t, q, testkit.Succeed[int], nil)
	ids, err := q.EnqueueMany(ctx, make([]int, 100))
	require.NoError(t, err)
	kept += int64(len(ids))
	require.Eventually(t, func() bool { return keptJobs(t, db) == kept }, testkit.Timeout, time.Millisecond)
	require.NoError(t, stop())
	require.NoError(t, db.Check(ctx))
}

// Only acked jobs are kept. Cancelled and dead jobs aren't kept as completed.
func TestQueue_SetRetention_OnlyAcks(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	keepJobs(t, q, everDone)
	_, err := q.Cancel(ctx, testkit.Enqueue(t, q, 1))
	require.NoError(t, err)
	running := testkit.Enqueue(t, q, 1)
	testkit.ClaimOne(t, q)
	_, err = q.Cancel(ctx, running)
	require.NoError(t, err)
	testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, context.Canceled))
	require.Zero(t, keptJobs(t, db))
	require.NoError(t, db.Check(ctx))
}

// A retention is stored in the file and applies to all handles and processes.
func TestQueue_SetRetention_OfFile(t *testing.T) {
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	r := honker.QueueRetention{Done: honker.Retention{MaxCount: 5}, Dead: honker.Retention{MaxAge: 1500 * time.Millisecond}}
	keepJobs(t, q, r)
	id := testkit.Enqueue(t, q, 1)
	if testkit.AsFile("times") {
		r.Dead.MaxAge = 2 * time.Second // rounded to whole seconds
	}
	require.Equal(t, fmt.Sprint("5 ", r.Dead.MaxAge), testkit.StartChild(t, "archivist", testkit.Task{Path: path}).Line(testkit.Timeout))
	require.Equal(t, honker.PhaseDone, testkit.GetJob(t, q, id).Phase)

	got, err := honker.NewQueue[string](honkertest.OpenFile(t, path, nil), "jobs", nil).Retention(context.Background())
	require.NoError(t, err)
	require.Equal(t, r, got)
	none, err := honker.NewQueue[int](db, "others", nil).Retention(context.Background())
	require.NoError(t, err)
	require.Zero(t, none)
}

// Maintain deletes jobs beyond either limit, even if the queue no longer keeps jobs.
func TestQueue_SetRetention_Maintain(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, log *testkit.Log) {
		ctx := t.Context()
		q := honker.NewQueue[int](db, "jobs", nil)
		end := func(n int) {
			for range n {
				testkit.Enqueue(t, q, 1)
				require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
				testkit.Enqueue(t, q, 1, honker.Unique("k", nil))
				require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, context.Canceled))
			}
		}
		dead := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`) }
		keepJobs(t, q, honker.QueueRetention{Done: honker.Retention{MaxCount: 5}, Dead: honker.Retention{MaxCount: 3}})
		end(8)
		require.EqualValues(t, 8, keptJobs(t, db), "up to twice as many")
		maintain(t, db)
		require.EqualValues(t, 5, keptJobs(t, db))
		require.EqualValues(t, 3, dead())
		require.EqualValues(t, 3, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_dead_job`), "nothing else of them stays")
		require.Equal(t, 1, log.Times(`"honker: dead letters deleted by the retention of their queue" queue=jobs jobs=5`))

		keepJobs(t, q, honker.QueueRetention{Done: honker.Retention{MaxAge: time.Hour}, Dead: honker.Retention{MaxAge: time.Hour}})
		time.Sleep(40 * time.Minute)
		end(2)
		time.Sleep(20*time.Minute - 5*time.Second)
		maintain(t, db)
		require.EqualValues(t, 7, keptJobs(t, db), "not an hour old")
		time.Sleep(10 * time.Second)
		maintain(t, db)
		require.EqualValues(t, 2, keptJobs(t, db))
		require.EqualValues(t, 2, dead())

		keepJobs(t, q, honker.QueueRetention{})
		maintain(t, db)
		require.Zero(t, keptJobs(t, db))
		require.EqualValues(t, 2, dead(), "all of them stay, without a bound")
		end(1)
		require.Zero(t, keptJobs(t, db))
		require.NoError(t, db.Check(ctx))
	})
}

// Maintain doesn't touch a queue without a retention. Invalid retentions are rejected.
func TestQueue_SetRetention_Invalid(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	before := testkit.Dump(t, db.SQL())
	for _, r := range []honker.QueueRetention{
		{Done: honker.Retention{MaxCount: -1}}, {Done: honker.Retention{MaxAge: -1}},
		{Dead: honker.Retention{MaxCount: -1}}, {Dead: honker.Retention{MaxAge: -1}},
	} {
		require.ErrorIs(t, q.SetRetention(ctx, r), honker.ErrInvalid)
	}
	require.ErrorIs(t, honker.NewQueue[int](db, "", nil).SetRetention(ctx, everDone), honker.ErrInvalid)
	_, err := honker.NewQueue[int](db, "", nil).Retention(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error { return q.SetRetention(ctx, everDone) }), honker.ErrInTx)
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

func compactedTo[E any](t testing.TB, s *honker.Stream[E]) int64 {
	t.Helper()
	gone, err := s.Compacted(context.Background())
	require.NoError(t, err)
	return gone
}

// consumerInfo returns a consumer's entry in Consumers.
func consumerInfo[E any](t testing.TB, s *honker.Stream[E], name string) honker.ConsumerInfo {
	t.Helper()
	infos, err := s.Consumers(context.Background())
	require.NoError(t, err)
	for _, info := range infos {
		if info.Name == name {
			return info
		}
	}
	t.Fatalf("no consumer %q", name)
	return honker.ConsumerInfo{}
}

// The file records the last event that retention has deleted from each topic, no matter which topics share the
// offsets. The record remains even when all of the topic's events are gone, and when the file is reopened.
func TestStream_Compacted(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, path := testkit.Context(t, testkit.Timeout), filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(ctx, path, nil)
	require.NoError(t, err)
	a, b, c := honker.NewStream[int](db, "orders:a", nil), honker.NewStream[int](db, "orders:b", nil), honker.NewStream[int](db, "zebra", nil)
	all := honker.NewStream[int](db, "orders:*", nil)
	testkit.PublishUpTo(t, c, 5) // offsets 1 to 5
	testkit.PublishUpTo(t, a, 5) // offsets 6 to 10
	testkit.PublishUpTo(t, b, 5) // offsets 11 to 15
	require.Zero(t, compactedTo(t, a), "a topic that begins at 6 has lost nothing")
	require.Zero(t, compactedTo(t, all))
	retain(t, a, honker.Retention{MaxCount: 5})
	compacted(t, a)
	require.Zero(t, compactedTo(t, a), "nothing was deleted")
	retain(t, a, honker.Retention{MaxCount: 2})
	compacted(t, a)
	require.EqualValues(t, 8, compactedTo(t, a))
	require.EqualValues(t, 8, compactedTo(t, all))
	require.Zero(t, compactedTo(t, b))
	require.Zero(t, compactedTo(t, c))
	retain(t, b, honker.Retention{MaxAge: time.Second})
	testkit.Exec(t, db, `UPDATE _honker_stream SET created_at = created_at - 100`)
	compacted(t, b)
	require.Empty(t, stored(t, b))
	retain(t, b, honker.Retention{})
	require.NoError(t, db.Close())

	db, err = honker.Open(ctx, path, nil)
	require.NoError(t, err)
	defer db.Close()
	b, all = honker.NewStream[int](db, "orders:b", nil), honker.NewStream[int](db, "orders:*", nil)
	require.EqualValues(t, 15, compactedTo(t, b))
	require.EqualValues(t, 15, compactedTo(t, all))
	_, err = honker.NewStream[int](db, "", nil).Compacted(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// If a consumer starts before events that retention has deleted, a warning is logged, and Consumers reports
// it until the consumer has passed them. The seek itself succeeds because the remaining events can be read.
func TestConsumer_Seek_BehindRetention(t *testing.T) {
	t.Parallel()
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		ctx, s := context.Background(), honker.NewStream[int](db, "orders", nil)
		const line = "starts before events that retention has deleted"
		testkit.PublishUpTo(t, s, 10)
		require.Equal(t, 10, len(drained(t, s, "view", nil)))
		retain(t, s, honker.Retention{MaxCount: 3})
		compacted(t, s)
		require.Zero(t, consumerInfo(t, s, "view").Gone, "it has seen all of them")
		require.NoError(t, s.Seek(ctx, "view", honker.Offset(7)))
		require.Zero(t, consumerInfo(t, s, "view").Gone)
		require.Zero(t, log.Times(line))

		require.NoError(t, s.Seek(ctx, "view", honker.Beginning))
		require.Equal(t, 1, log.Times(line))
		require.Equal(t, 1, log.Times("gone=7"))
		require.EqualValues(t, 7, consumerInfo(t, s, "view").Gone)
		require.EqualValues(t, 3, consumerInfo(t, s, "view").Lag)
		require.Equal(t, []int{7, 8, 9}, drained(t, s, "view", nil))
		require.Zero(t, consumerInfo(t, s, "view").Gone, "it is past them")

		require.Equal(t, []int{7, 8, 9}, drained(t, s, "view 2", nil), "a new one, at the beginning")
		require.Equal(t, 2, log.Times(line))
		for i, from := range []honker.From{honker.End, honker.Since(time.Now().Add(time.Hour)), honker.Offset(7)} {
			drained(t, s, fmt.Sprint("later ", i), &honker.SubscribeOptions{From: from})
		}
		require.Equal(t, 2, log.Times(line))
		_, err := s.Group("g", nil).Join(ctx, "m")
		require.NoError(t, err)
		require.Equal(t, 3, log.Times(line))
		_, err = s.Group("g", nil).Join(ctx, "n")
		require.NoError(t, err)
		require.Equal(t, 3, log.Times(line), "the group is there")
	})
}

// If all of a topic's events have been deleted, the topic ends after the deleted events.
func TestConsumer_End_OfCompacted(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, s := context.Background(), honker.NewStream[int](db, "orders", nil)
		testkit.PublishUpTo(t, s, 4)
		retain(t, s, honker.Retention{MaxAge: time.Second})
		time.Sleep(time.Minute)
		compacted(t, s)
		for _, from := range []honker.From{honker.End, honker.Since(time.Now())} {
			testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "c", 1))
			require.NoError(t, s.Seek(ctx, "c", from))
			require.EqualValues(t, 4, testkit.SavedOffset(t, s, "c"))
			require.Zero(t, consumerInfo(t, s, "c").Gone)
			testkit.RequireChanged(t, true)(s.DeleteConsumer(ctx, "c"))
		}
	})
}

// A rebuild can check for deleted events and give up in the same transaction, which then changes nothing.
func TestStream_Compacted_InTx(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 5)
	retain(t, s, honker.Retention{MaxCount: 2})
	compacted(t, s)
	testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "view", 5))
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.SeekTx(ctx, tx, "view", honker.Beginning); err != nil {
			return err
		}
		if gone, err := s.Compacted(ctx); gone > 0 || err != nil {
			return fmt.Errorf("events up to %d are gone: %w", gone, testkit.ErrCause)
		}
		return nil
	})
	require.ErrorIs(t, err, testkit.ErrCause)
	require.ErrorContains(t, err, "up to 3")
	require.EqualValues(t, 5, testkit.SavedOffset(t, s, "view"))
}
