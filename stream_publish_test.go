package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func countEvents(t testing.TB, db *honker.DB) int64 {
	t.Helper()
	return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream`)
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

// The offsets of a batch are consecutive.
func TestStream_PublishMany_Offsets(t *testing.T) {
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

// The batches of concurrent writers are not interleaved.
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
			case 1:
				first, last, err = s.PublishMany(ctx, batch)
			default:
				err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					first, last, err = s.PublishManyTx(ctx, tx, batch)
					return err
				})
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

// An empty batch is refused with ErrInvalid.
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
		Observer:   &honker.Observer{Published: func(p honker.Published) { told.Store(p, true) }},
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

// A batch that the file refuses halfway publishes nothing and does not affect other writers.
func TestStream_PublishMany_Halfway(t *testing.T) {
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

// An event of a transaction exists after the commit and never after a rollback.
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
			require.Equal(t, []int64{one + 1, one + 300}, []int64{first, last})
			head, err := s.Head(context.Background())
			require.NoError(t, err)
			require.Less(t, head, one, "not committed yet")
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

// An event cannot be published in a transaction of another file.
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

// EventKeys needs as many keys as events and cannot be combined with EventKey. A single bad key refuses the
// whole batch.
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

// Bad keys and bytes are refused.
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
