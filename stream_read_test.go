package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
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

// Read of an empty stream yields nothing.
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

// Large events are read in pages of bounded size.
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

// A negative offset is refused with ErrInvalid.
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

// An event of a foreign writer can be read in any storage class.
func TestStream_Read_Foreign(t *testing.T) {
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

// noReader checks that no read transaction is open. An open transaction would prevent the truncation of the
// log.
func noReader(t testing.TB, db *honker.DB) {
	t.Helper()
	var busy, pages, moved int
	require.NoError(t, db.SQL().QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved))
	require.Zero(t, busy, "a read transaction is held")
}

// Breaking out of a read releases all of its resources.
func TestStream_Read_Break(t *testing.T) {
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

// The end of ctx ends a read with its error.
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

// Read continues past events that are deleted meanwhile.
func TestStream_Read_Deleted(t *testing.T) {
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
