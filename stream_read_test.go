package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/testkit"
)

// Read ends at the last event that was stored when it began.
func TestStream_Read_Ends(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 2, 100} {
		db := honkertest.Open(t, nil)
		s := honker.NewStream[int](db, "orders", &honker.StreamOptions{Batch: batch})
		testkit.PublishUpTo(t, s, 10)
		var got []int
		for e, err := range s.Read(testkit.Context(t, testkit.Timeout), 0) {
			require.NoError(t, err)
			got = append(got, e.Data)
			testkit.Publish(t, s, 100+e.Data)
		}
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, got)
		require.Len(t, testkit.StreamData(t, s), 20)
	}
}

// Reading an empty stream yields nothing.
func TestStream_Read_Nothing(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	require.Empty(t, testkit.StreamData(t, s))
	testkit.Publish(t, honker.NewStream[int](db, "other", nil), 1)
	require.Empty(t, testkit.StreamData(t, s))
	last := testkit.Publish(t, s, 2)
	for _, after := range []int64{last, last + 1, math.MaxInt64} {
		for range s.Read(ctx, after) {
			t.Errorf("an event after %d", after)
		}
	}
}

// Read yields the events after any offset, with pages of any size.
func TestStream_Read_AnyOffset(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	s, other := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "other", nil)
	var offsets []int64
	for i := range 40 {
		offsets = append(offsets, testkit.Publish(t, s, i))
		testkit.PublishUpTo(t, other, 1+i%3)
	}
	head, err := other.Head(ctx)
	require.NoError(t, err)
	for _, name := range []string{"orders", "orders*"} {
		for _, batch := range []int{0, 1, 2, 3, 7, 39, 40, 41} {
			s := honker.NewStream[int](db, name, &honker.StreamOptions{Batch: batch})
			for after := range head + 1 {
				var got []int64
				for e, err := range s.Read(ctx, after) {
					require.NoError(t, err)
					require.Equal(t, e.Offset, offsets[e.Data])
					got = append(got, e.Offset)
				}
				i, found := slices.BinarySearch(offsets, after)
				if found {
					i++
				}
				require.Equal(t, offsets[i:], append([]int64{}, got...), "%s by %d after %d", name, batch, after)
			}
		}
	}
}

// Large events are read in pages of limited size.
func TestStream_Read_LargeEvents(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[string](t, "orders")
	var data []string
	for i := range 30 {
		data = append(data, strings.Repeat(string(rune('a'+i%26)), 1+i*i%7*100_000))
	}
	_, _, err := s.PublishMany(ctx, data)
	require.NoError(t, err)
	for _, name := range []string{"orders", "*"} {
		require.Equal(t, data, testkit.StreamData(t, honker.NewStream[string](db, name, nil)), name)
	}
}

// Events remain valid after the loop.
func TestStream_Read_Outlive(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	s := honker.NewStream[json.RawMessage](db, "orders", &honker.StreamOptions{Batch: 4})
	var events []*honker.Event[json.RawMessage]
	for i := range 40 {
		testkit.Publish(t, s, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), honker.EventKey(fmt.Sprint("k", i)))
	}
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		events = append(events, e)
	}
	for i, e := range events {
		require.Equal(t, fmt.Sprintf(`{"n":%d}`, i), string(e.Data))
		require.Equal(t, fmt.Sprint("k", i), e.Key)
		require.Equal(t, e.Data, e.Payload)
	}
}

// A negative offset is rejected with ErrInvalid.
func TestStream_Read_NegativeOffset(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, s, 1)
	from := honker.Offset(-1)
	testkit.RequireRefused(t, path, map[string]testkit.Refusal{
		"Read":       func(c context.Context) error { return testkit.LastError(s.Read(c, -1)) },
		"Tail":       func(c context.Context) error { return testkit.LastError(s.Tail(c, from, nil)) },
		"SaveOffset": func(c context.Context) error { _, err := s.SaveOffset(c, "c", -1); return err },
		"Seek":       func(c context.Context) error { return s.Seek(c, "c", from) },
		"SaveOffsetTx": inOwnTx(db, func(c context.Context, tx *sql.Tx) error {
			_, err := s.SaveOffsetTx(c, tx, "c", math.MinInt64)
			return err
		}),
		"Subscribe": func(c context.Context) error {
			return testkit.LastError(s.Subscribe(c, "c", &honker.SubscribeOptions{From: from}))
		},
		"Batch": func(c context.Context) error {
			return testkit.LastError(s.Subscribe(c, "c", &honker.SubscribeOptions{Batch: -1}))
		},
	})
}

// pulled returns a function that steps through events. The test's cleanup ends the loop.
func pulled[E any](t testing.TB, events iter.Seq2[*honker.Event[E], error]) (next func() (*honker.Event[E], error)) {
	step, stop := iter.Pull2(events)
	t.Cleanup(stop)
	return func() (*honker.Event[E], error) {
		e, err, ok := step()
		require.True(t, ok, "the loop has ended")
		return e, err
	}
}

// foreignEvent inserts an event as another binding might.
func foreignEvent(t testing.TB, db *honker.DB, topic, key, payload, created string) {
	t.Helper()
	testkit.Exec(t, db, fmt.Sprintf(`INSERT INTO _honker_stream (topic, key, payload, created_at) VALUES ('%s', %s, %s, %s)`,
		topic, key, payload, created))
}

// An event that does not decode is yielded with an error, and the loop continues.
func TestStream_Read_Undecodable(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[map[string]int](t, "orders")
	bad := []string{`'no JSON'`, `''`, `'[1]'`, `x'ff00'`, `'{"a":1} x'`, `'{"a":1.5}'`, `17`}
	testkit.Publish(t, s, map[string]int{"a": 0})
	for i, payload := range bad {
		foreignEvent(t, db, "orders", `'k'`, payload, `unixepoch()`)
		testkit.Publish(t, s, map[string]int{"a": i + 1})
	}
	for name, events := range map[string]func() (next func() (*honker.Event[map[string]int], error)){
		"Read": func() func() (*honker.Event[map[string]int], error) { return pulled(t, s.Read(ctx, 0)) },
		"Subscribe": func() func() (*honker.Event[map[string]int], error) {
			return pulled(t, s.Subscribe(ctx, "c", nil))
		},
	} {
		next := events()
		for i := range bad {
			e, err := next()
			require.NoError(t, err, name)
			require.Equal(t, i, e.Data["a"])
			e, err = next()
			require.ErrorContains(t, err, fmt.Sprintf("honker: read event %d: cannot decode payload", e.Offset), name)
			require.EqualValues(t, 2*i+2, e.Offset)
			require.Equal(t, "orders k", e.Topic+" "+e.Key)
			require.NotNil(t, e.Payload)
		}
		e, err := next()
		require.NoError(t, err, name)
		require.Equal(t, len(bad), e.Data["a"])
	}
}

// An event written by another program can be read in any storage class.
func TestStream_Read_Foreign(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[json.RawMessage](t, "orders")
	foreignEvent(t, db, "orders", `x'6b'`, `x'7b7d'`, `unixepoch()`) // key and payload are BLOBs
	foreignEvent(t, db, "orders", `7`, `8`, `'some day'`)
	foreignEvent(t, db, "orders", `NULL`, `'null'`, `1.5`)
	foreignEvent(t, db, "orders", `CAST(x'ff' AS TEXT)`, `CAST(x'22ff22' AS TEXT)`, `-1`)
	var keys, payloads []string
	for e, err := range s.Read(ctx, 0) {
		require.NotNil(t, e, "%v", err)
		keys, payloads = append(keys, e.Key), append(payloads, string(e.Payload))
	}
	require.Equal(t, []string{"k", "7", "", "\xff"}, keys)
	require.Equal(t, []string{`{}`, `8`, `null`, "\"\xff\""}, payloads)
}

// noReader checks that no read transaction is open. An open transaction would prevent the log from being
// truncated.
func noReader(t testing.TB, db *honker.DB) {
	t.Helper()
	var busy, pages, moved int
	require.NoError(t, db.SQL().QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved))
	require.Zero(t, busy, "a read transaction is held")
}

// Breaking out of a read releases all its resources.
func TestStream_Read_Break(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 3000)
	for range 50 {
		for e, err := range s.Read(ctx, 0) {
			require.NoError(t, err)
			require.Equal(t, 0, e.Data)
			break
		}
	}
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		if e.Data%1000 == 500 {
			testkit.Publish(t, s, -1)
			noReader(t, db)
		}
	}
	func() {
		defer func() { require.Equal(t, "body", recover()) }()
		for range s.Read(ctx, 0) {
			panic("body")
		}
	}()
	noReader(t, db)
}

// When ctx ends, a read ends with ctx's error.
func TestStream_Read_Context(t *testing.T) {
	t.Parallel()
	_, db, _ := testkit.NewStream[int](t, "unused")
	s := honker.NewStream[int](db, "orders", &honker.StreamOptions{Batch: 5})
	testkit.PublishUpTo(t, s, 100)
	ctx, cancel := context.WithCancelCause(testkit.Context(t, testkit.Timeout))
	defer cancel(nil)
	var last error
	seen := 0
	for e, err := range s.Read(ctx, 0) {
		if last = err; err != nil {
			require.Nil(t, e)
			continue
		}
		if seen++; seen == 12 {
			cancel(testkit.ErrCause)
		}
	}
	require.ErrorIs(t, last, context.Canceled)
	require.ErrorIs(t, last, testkit.ErrCause)
	require.ErrorContains(t, last, `honker: read "orders": `)
	require.LessOrEqual(t, seen, 15, "at most the page that was read")
	require.ErrorIs(t, testkit.LastError(s.Read(ctx, 0)), context.Canceled, "ended before")
}

// Read continues past events that are deleted while it runs.
func TestStream_Read_Deleted(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	s := honker.NewStream[int](db, "orders", &honker.StreamOptions{Batch: 10})
	testkit.PublishUpTo(t, s, 500)
	require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxCount: 100}))
	var got []int
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		got = append(got, e.Data)
		switch e.Data {
		case 42:
			stats, err := s.Compact(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 400, stats.Deleted)
		case 450:
			testkit.Exec(t, db, `DELETE FROM _honker_stream WHERE offset > 480`)
		}
	}
	require.IsIncreasing(t, got)
	require.Equal(t, 50+80, len(got), "a page, and what was left")
	require.Equal(t, 479, got[len(got)-1])
	next := testkit.Publish(t, s, 500)
	require.EqualValues(t, 501, next, "offsets are not given twice")
}

// Read within a transaction sees only committed events.
func TestStream_Read_InTx(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Publish(t, s, 1)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.PublishTx(ctx, tx, 2)
		require.NoError(t, err)
		require.Equal(t, []int{1}, testkit.StreamData(t, s))
		return nil
	}))
	require.Equal(t, []int{1, 2}, testkit.StreamData(t, s))
}

// A read ends with ErrClosed when its DB is closed.
func TestStream_Read_ClosedDB(t *testing.T) {
	t.Parallel()
	path, _ := testkit.OpenShared(t)
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	s := honker.NewStream[int](db, "orders", &honker.StreamOptions{Batch: 1})
	testkit.PublishUpTo(t, s, 3)
	var last error
	for e, err := range s.Read(testkit.Context(t, testkit.Timeout), 0) {
		if last = err; e != nil {
			require.NoError(t, db.Close())
		}
	}
	require.True(t, errors.Is(last, honker.ErrClosed), "%v", last)
}

// streamVerbs returns all of a stream's verbs. Tx verbs run in tx, or in their own transaction if tx is
// nil.
func streamVerbs[E any](t testing.TB, db *honker.DB, s *honker.Stream[E], tx *sql.Tx) map[string]testkit.Refusal {
	t.Helper()
	type c = context.Context
	var zero E
	in := func(call func(c, *sql.Tx) error) testkit.Refusal {
		if tx == nil {
			return inOwnTx(db, call)
		}
		return func(ctx c) error { return call(ctx, tx) }
	}
	return map[string]testkit.Refusal{
		"Publish":          func(c c) error { _, err := s.Publish(c, zero); return err },
		"PublishTx":        in(func(c c, tx *sql.Tx) error { _, err := s.PublishTx(c, tx, zero); return err }),
		"PublishMany":      func(c c) error { _, _, err := s.PublishMany(c, []E{zero}); return err },
		"PublishManyTx":    in(func(c c, tx *sql.Tx) error { _, _, err := s.PublishManyTx(c, tx, []E{zero}); return err }),
		"Read":             func(c c) error { return testkit.LastError(s.Read(c, 0)) },
		"Subscribe":        func(c c) error { return testkit.LastError(s.Subscribe(c, "verb", nil)) },
		"Tail":             func(c c) error { return testkit.LastError(s.Tail(c, honker.Beginning, nil)) },
		"Offset":           func(c c) error { _, err := s.Offset(c, "verb"); return err },
		"SaveOffset":       func(c c) error { _, err := s.SaveOffset(c, "verb", 1); return err },
		"SaveOffsetTx":     in(func(c c, tx *sql.Tx) error { _, err := s.SaveOffsetTx(c, tx, "verb", 1); return err }),
		"Seek":             func(c c) error { return s.Seek(c, "verb", honker.Beginning) },
		"Consumers":        func(c c) error { _, err := s.Consumers(c); return err },
		"SeekTx":           in(func(c c, tx *sql.Tx) error { return s.SeekTx(c, tx, "verb", honker.Beginning) }),
		"DeleteConsumer":   func(c c) error { _, err := s.DeleteConsumer(c, "verb"); return err },
		"DeleteConsumerTx": in(func(c c, tx *sql.Tx) error { _, err := s.DeleteConsumerTx(c, tx, "verb"); return err }),
		"Head":             func(c c) error { _, err := s.Head(c); return err },
	}
}

// Every verb rejects invalid topics and options.
func TestStream_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	for what, name := range badNames {
		testkit.RequireRefused(t, path, streamVerbs(t, db, honker.NewStream[int](db, name, nil), nil))
		consumer := honker.NewStream[int](db, "orders", nil)
		testkit.RequireRefused(t, path, map[string]testkit.Refusal{
			"Subscribe " + what:      func(c context.Context) error { return testkit.LastError(consumer.Subscribe(c, name, nil)) },
			"Offset " + what:         func(c context.Context) error { _, err := consumer.Offset(c, name); return err },
			"SaveOffset " + what:     func(c context.Context) error { _, err := consumer.SaveOffset(c, name, 1); return err },
			"Seek " + what:           func(c context.Context) error { return consumer.Seek(c, name, honker.End) },
			"DeleteConsumer " + what: func(c context.Context) error { _, err := consumer.DeleteConsumer(c, name); return err },
		})
	}
	testkit.RequireRefused(t, path, streamVerbs(t, db, honker.NewStream[int](db, "orders", &honker.StreamOptions{Batch: -1}), nil))
}

// A pattern can only be read.
func TestStream_Pattern_ReadOnly(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	for _, pattern := range []string{"orders:*", "*", "**"} {
		verbs := streamVerbs(t, db, honker.NewStream[int](db, pattern, nil), nil)
		for verb := range verbs {
			if !strings.HasPrefix(verb, "Publish") {
				delete(verbs, verb)
			}
		}
		require.Len(t, verbs, 4)
		testkit.RequireRefused(t, path, verbs)
	}
}

// Topics with arbitrary names are kept separate.
func TestStream_AnyTopics(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewStream[int](t, "unused")
	topics := []string{"orders", "orders:created", "orders:created:eu", "orders:", ":", "a*b", " ", "ORDERS", "ü",
		"orders%", "order_", "*orders", "\U0010FFFF", strings.Repeat("t", 1024), "'; --"}
	for i, topic := range topics {
		testkit.Publish(t, honker.NewStream[int](db, topic, nil), i)
	}
	for i, topic := range topics {
		for e, err := range honker.NewStream[int](db, topic, nil).Read(ctx, 0) {
			require.NoError(t, err)
			require.Equal(t, topic, e.Topic)
			require.Equal(t, i, e.Data)
		}
		require.Equal(t, []int{i}, testkit.StreamData(t, honker.NewStream[int](db, topic, nil)), topic)
	}
}

// Plain stream verbs in a transaction are rejected immediately, and the error names the Tx form.
func TestStream_InTx_NamesTwin(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	_, err := s.SaveOffset(ctx, "verb", 0)
	require.NoError(t, err)
	twins := map[string]string{
		"Publish": "PublishTx", "PublishMany": "PublishManyTx", "SaveOffset": "SaveOffsetTx",
		"Seek": "SeekTx", "DeleteConsumer": "DeleteConsumerTx",
	}
	began := time.Now()
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		verbs := streamVerbs(t, db, s, tx)
		for verb, twin := range twins {
			err := verbs[verb](ctx)
			require.ErrorIs(t, err, honker.ErrInTx, verb)
			require.ErrorContains(t, err, twin, verb)
		}
		for _, verb := range []string{"PublishTx", "PublishManyTx", "SaveOffsetTx", "SeekTx", "DeleteConsumerTx", "Read", "Offset", "Consumers", "Head"} {
			require.NoError(t, verbs[verb](ctx), verb)
		}
		return nil
	}))
	require.Less(t, time.Since(began), testkit.Timeout/2)
	require.EqualValues(t, 2, countEvents(t, db))
}

// Every stream verb on a closed DB returns ErrClosed.
func TestStream_Closed(t *testing.T) {
	t.Parallel()
	db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "file.db"), nil)
	require.NoError(t, err)
	s := honker.NewStream[int](db, "orders", nil)
	verbs := streamVerbs(t, db, s, nil)
	verbs["Pipe"] = func(c context.Context) error {
		return honker.Pipe(c, s, "verb", honker.NewStream[int](db, "to", nil),
			func(context.Context, *honker.Event[int]) (int, error) { return 0, nil })
	}
	require.NoError(t, db.Close())
	for verb, call := range verbs {
		assert.ErrorIs(t, call(testkit.Context(t, testkit.Timeout)), honker.ErrClosed, verb)
	}
}

// A stream verb with an ended context writes nothing.
func TestStream_EndedContext(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	unchanged := testkit.WatchFile(t, path)
	ended, end := context.WithCancel(context.Background())
	end()
	verbs := streamVerbs(t, db, s, nil)
	for _, reads := range []string{"Offset", "Consumers", "Head"} {
		delete(verbs, reads)
	}
	for _, endless := range []string{"Subscribe", "Tail", "All"} { // these verbs end silently
		if call, ok := verbs[endless]; ok {
			assert.NoError(t, call(ended), endless)
			unchanged(endless)
			delete(verbs, endless)
		}
	}
	for verb, call := range verbs {
		assert.ErrorIs(t, call(ended), context.Canceled, verb)
		unchanged(verb)
	}
}

// If honker's tables are missing, each verb returns an error that names the operation. No verb hangs,
// panics, or returns an empty result.
func TestDB_TablesGone_EveryVerb(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	type c = context.Context
	ctx := testkit.Context(t, testkit.Timeout)
	db, err := honker.Open(ctx, filepath.Join(t.TempDir(), "file.db"), nil)
	require.NoError(t, err)
	defer db.Close()
	s := honker.NewStream[int](db, "orders", nil)
	testkit.PublishRange(t, s, 1, 4)
	g := s.Group("g", &honker.GroupOptions{MaxAttempts: 1})
	m, err := g.Join(ctx, "a")
	require.NoError(t, err)
	ds, err := m.Claim(ctx, 2)
	require.NoError(t, err)
	require.Len(t, ds, 2)
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	scheduler := db.Scheduler()
	require.NoError(t, scheduler.Register(ctx, honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 1h"}))

	verbs := streamVerbs(t, db, s, nil)
	for verb, call := range map[string]testkit.Refusal{
		"RetryTx":     inOwnTx(db, func(c c, tx *sql.Tx) error { return job.RetryTx(c, tx, 0, nil) }),
		"SnoozeTx":    inOwnTx(db, func(c c, tx *sql.Tx) error { return job.SnoozeTx(c, tx, 0) }),
		"RejectTx":    inOwnTx(db, func(c c, tx *sql.Tx) error { return job.RejectTx(c, tx, nil) }),
		"Extend":      func(c c) error { return job.Extend(c, time.Minute) },
		"Retry":       func(c c) error { return job.Retry(c, 0, nil) },
		"Get":         func(c c) error { _, err := q.Get(c, 1); return err },
		"Claim":       func(c c) error { _, err := q.Claim(c, "w", 1); return err },
		"Jobs":        func(c c) error { return testkit.LastError(q.Jobs(c, "w")) },
		"NextClaimAt": func(c c) error { _, err := q.NextClaimAt(c); return err },
		"EnqueueTx":   inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := q.EnqueueTx(c, tx, 1); return err }),
		"EnqueueMany": func(c c) error { _, err := q.EnqueueMany(c, []int{1, 2}); return err },
		"EnqueueManyTx": inOwnTx(db, func(c c, tx *sql.Tx) error {
			_, err := q.EnqueueManyTx(c, tx, []int{1, 2})
			return err
		}),
		"SweepExpired":    func(c c) error { _, err := q.SweepExpired(c); return err },
		"WaitResult":      func(c c) error { _, err := honker.WaitResult[int](c, db, 1); return err },
		"Result":          func(c c) error { _, err := honker.Result[int](c, db, 1); return err },
		"Join":            func(c c) error { _, err := g.Join(c, "b"); return err },
		"Info":            func(c c) error { _, err := g.Info(c); return err },
		"Groups":          func(c c) error { _, err := s.Groups(c); return err },
		"Dead":            func(c c) error { return testkit.LastError(g.Dead(c)) },
		"Redeliver":       func(c c) error { _, err := g.Redeliver(c, 1); return err },
		"Discard":         func(c c) error { _, err := g.Discard(c, 1); return err },
		"Delete":          func(c c) error { _, err := g.Delete(c); return err },
		"Member.Claim":    func(c c) error { _, err := m.Claim(c, 1); return err },
		"Member.All":      func(c c) error { return testkit.LastError(m.All(c)) },
		"Leave":           m.Leave,
		"Delivery.Ack":    ds[0].Ack,
		"Delivery.AckTx":  inOwnTx(db, func(c c, tx *sql.Tx) error { return ds[1].AckTx(c, tx) }),
		"Delivery.Nack":   func(c c) error { return ds[1].Nack(c, testkit.ErrCause) },
		"Delivery.NackTx": inOwnTx(db, func(c c, tx *sql.Tx) error { return ds[1].NackTx(c, tx, testkit.ErrCause) }),
		"Delivery.Extend": func(c c) error { return ds[1].Extend(c, time.Minute) },
		"Consume":         func(ctx c) error { return s.Consume(ctx, "new", func(c, *honker.Event[int]) error { return nil }, nil) },
		"SetRetention":    func(c c) error { return s.SetRetention(c, honker.Retention{MaxCount: 1}) },
		"Retention":       func(c c) error { _, err := s.Retention(c); return err },
		"Compact":         func(c c) error { _, err := s.Compact(c); return err },
		"Register": func(c c) error {
			return scheduler.Register(c, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@every 1h"})
		},
		"Pause": func(c c) error { _, err := scheduler.Pause(c, "tea"); return err },
		"Update": func(c c) error {
			n := 1
			_, err := scheduler.Update(c, "tea", honker.ScheduleChange{Priority: &n})
			return err
		},
		"List":               func(c c) error { _, err := scheduler.List(c); return err },
		"Soonest":            func(c c) error { _, err := scheduler.Soonest(c); return err },
		"Tick":               func(c c) error { _, err := scheduler.Tick(c, time.Now()); return err },
		"Trigger":            func(c c) error { _, err := scheduler.Trigger(c, "tea"); return err },
		"TryLock":            func(c c) error { _, err := db.TryLock(c, "l", nil); return err },
		"Lock":               func(c c) error { _, err := db.Lock(c, "l", nil); return err },
		"Allow":              func(c c) error { _, err := db.RateLimit("r", 1, time.Hour).Allow(c); return err },
		"Wait":               func(c c) error { return db.RateLimit("r", 1, time.Hour).Wait(c) },
		"Remaining":          func(c c) error { _, _, err := db.RateLimit("r", 1, time.Hour).Remaining(c); return err },
		"Listen":             func(c c) error { _, err := db.Listen(c, "news"); return err },
		"Notify":             func(c c) error { _, err := db.Notify(c, "news", 1); return err },
		"PruneNotifications": func(c c) error { _, err := db.PruneNotifications(c, 0, 0); return err },
		"Check":              db.Check,
	} {
		verbs[verb] = call
	}
	rows, err := db.SQL().Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE '\_honker%' ESCAPE '\'`)
	require.NoError(t, err)
	var tables []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Close())
	require.Greater(t, len(tables), 9)
	for _, table := range tables {
		testkit.ExecAll(t, db.SQL(), `DROP TABLE `+table)
	}
	for verb, call := range verbs {
		err := call(ctx)
		require.ErrorContains(t, err, "honker: ", verb)
		require.ErrorContains(t, err, "no such table", verb)
	}
}

// A missing table that only a later statement of a verb needs also causes an error.
func TestDB_OneTableGone(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db, err := honker.Open(ctx, filepath.Join(t.TempDir(), "file.db"), nil)
	require.NoError(t, err)
	defer db.Close()
	s := honker.NewStream[int](db, "orders", nil)
	require.Equal(t, "orders", s.Name())
	testkit.PublishRange(t, s, 1, 2)
	_, err = s.SaveOffset(ctx, "c", 1)
	require.NoError(t, err)
	g := s.Group("g", nil)
	_, err = g.Join(ctx, "a")
	require.NoError(t, err)
	for _, table := range []string{"_honkerx_group_members", "_honkerx_group_claims", "_honker_stream"} {
		testkit.Exec(t, db, `DROP TABLE `+table)
		_, err = g.Info(ctx)
		require.ErrorContains(t, err, "no such table", table)
		_, err = s.Groups(ctx)
		require.ErrorContains(t, err, "no such table", table)
		_, err = g.Join(ctx, "b")
		require.ErrorContains(t, err, "no such table", table)
	}
	_, err = s.Consumers(ctx)
	require.ErrorContains(t, err, `honker: list consumers "orders": `)
	require.ErrorContains(t, s.Seek(ctx, "c", honker.Since(time.Now())), `honker: seek "orders": `)
	require.ErrorContains(t, testkit.LastError(honker.NewStream[int](db, "ord*", nil).Read(ctx, 0)), "no such table")
	_, err = honker.NewStream[int](db, "", nil).Groups(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A rejected Tx verb leaves its transaction unchanged.
func TestTxVerbs_Refused(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	s := honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, s, 1)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.ErrorIs(t, job.RetryTx(ctx, tx, -1, nil), honker.ErrInvalid)
		require.ErrorIs(t, job.SnoozeTx(ctx, tx, -1), honker.ErrInvalid)
		ids, err := q.EnqueueManyTx(ctx, tx, nil)
		require.NoError(t, err)
		require.Empty(t, ids)
		return nil
	}))
	for e, err := range s.Read(ctx, 0) {
		require.NoError(t, err)
		require.ErrorIs(t, inOwnTx(db, func(ctx context.Context, tx *sql.Tx) error { return e.AckTx(ctx, tx) })(ctx), honker.ErrInvalid)
	}
	for e, err := range s.Subscribe(ctx, "c", nil) {
		require.NoError(t, err)
		require.NoError(t, e.Ack(ctx))
		require.ErrorIs(t, inOwnTx(db, func(ctx context.Context, tx *sql.Tx) error { return e.AckTx(ctx, tx) })(ctx), honker.ErrClaimLost)
		break
	}
	require.NoError(t, job.Ack(ctx), "none of them has settled it")
}

// The packages in this module that build on the root package can access a DB's engine.
func TestEngine_Of(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewQueue[int](t, nil)
	e := engine.Of(db)
	require.NoError(t, e.Usable(ctx, ""))
	require.NoError(t, e.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		rows, err := q.QueryContext(ctx, `SELECT 1`)
		if err != nil {
			return err
		}
		return rows.Close()
	}))
}

// Check returns the violated rules.
func TestDB_Check_Broken(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db, err := honker.Open(ctx, filepath.Join(t.TempDir(), "file.db"), nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Check(ctx))
	testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload, state) VALUES ('jobs', '1', 'processing')`)
	err = db.Check(ctx)
	require.ErrorContains(t, err, "the file breaks 1 rules: [\"a processing job has a worker and a deadline: row 1\"]")
	var broken *honker.BrokenError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, []string{"a processing job has a worker and a deadline: row 1"}, broken.Rules)
}
