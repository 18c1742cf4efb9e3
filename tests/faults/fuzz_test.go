package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// refusedOrNot reports whether err is not nil, and fails the test if it is not ErrInvalid.
func refusedOrNot(t *testing.T, err error) (refused bool) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	return err != nil
}

// A name is either rejected or stored unchanged.
func FuzzName_Kept(f *testing.F) {
	for _, name := range []string{"", "a", "a:b", "'; DROP TABLE _honker_live;--", `"`, "%", "_", "*", "a*", "\x00", "a\x00b",
		"\xff", "żółć 🐎", "\n", "\u202e", strings.Repeat("x", 1024), strings.Repeat("x", 1025), "_outbox:x", "honker-scheduler"} {
		f.Add(name)
	}
	db := honkertest.Open(f, &honker.Options{NoFileNotices: true})
	f.Fuzz(func(t *testing.T, name string) {
		ctx := testkit.Context(t, testkit.Timeout)
		good := name != "" && len(name) <= 1024 && utf8.ValidString(name) && !strings.Contains(name, "\x00")

		id, err := honker.NewQueue[int](db, name, nil).Enqueue(ctx, 1)
		require.Equal(t, !good, refusedOrNot(t, err), "%q", name)
		if err == nil {
			info, err := honker.NewQueue[int](db, name, nil).Get(ctx, id)
			require.NoError(t, err)
			require.Equal(t, name, info.Queue)
		}
		s := honker.NewStream[int](db, name, nil)
		if _, err := s.Publish(ctx, 1); !refusedOrNot(t, err) {
			for e, err := range s.Read(ctx, 0) {
				require.NoError(t, err)
				require.Equal(t, name, e.Topic)
			}
		}
		lock, err := db.TryLock(ctx, name, nil)
		if !refusedOrNot(t, err) {
			require.NoError(t, lock.Unlock(ctx))
		}
		_, err = db.Notify(ctx, name, 1)
		refusedOrNot(t, err)
		_, err = db.RateLimit(name, 1, time.Hour).Allow(ctx)
		refusedOrNot(t, err)
		_, err = honker.NewStream[int](db, "s", nil).SaveOffset(ctx, name, 1)
		refusedOrNot(t, err)
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM sqlite_schema WHERE name = '_honker_live'`))
	})
}

// A payload is either rejected or read back with the same meaning, from jobs, events and messages.
func FuzzPayload_RoundTrip(f *testing.F) {
	for _, text := range []string{"", "null", "1", `"a"`, `{"a":1,"a":2}`, "[1", `"\ud800"`, "\"\xff\"", `"\u0000"`, " 1 ", "1e999", "-0",
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), "{} {}", "NaN", "\ufeff1"} {
		f.Add([]byte(text))
	}
	db := honkertest.Open(f, &honker.Options{NoFileNotices: true, MaxPayload: 1 << 16})
	q := honker.NewQueue[json.RawMessage](db, "q", nil)
	s := honker.NewStream[json.RawMessage](db, "s", nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		ctx := testkit.Context(t, testkit.Timeout)
		payload := json.RawMessage(text)
		id, err := q.Enqueue(ctx, payload)
		offset, published := s.Publish(ctx, payload)
		_, notified := db.Notify(ctx, "n", payload)
		refused := refusedOrNot(t, err)
		require.Equal(t, refused, refusedOrNot(t, published))
		require.Equal(t, refused, refusedOrNot(t, notified))
		if refused {
			return
		}
		jobs, err := q.Claim(ctx, "w", 1)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		require.Equal(t, id, jobs[0].ID)
		sameJSON(t, text, jobs[0].Args)
		require.NoError(t, jobs[0].Ack(ctx))
		for e, err := range s.Read(ctx, offset-1) {
			require.NoError(t, err)
			sameJSON(t, text, e.Data)
		}
	})
}

// sameJSON asserts that two JSON texts have the same value. An empty text is null.
func sameJSON(t *testing.T, want, got []byte) {
	t.Helper()
	if len(want) == 0 {
		want = []byte("null")
	}
	var a, b any
	if json.Unmarshal(want, &a) != nil { // numbers like 1e999, which no float can hold, are stored as they are
		require.Equal(t, strings.TrimSpace(string(want)), strings.TrimSpace(string(got)))
		return
	}
	require.NoError(t, json.Unmarshal(got, &b))
	require.Equal(t, a, b)
}

// fuzzFilter decodes a filter from bytes, and returns the equivalent function as well.
func fuzzFilter(program *[]byte, depth int) (honker.Filter, func(key string) bool) {
	take := func() byte {
		if len(*program) == 0 {
			return 0
		}
		b := (*program)[0]
		*program = (*program)[1:]
		return b
	}
	op := take()
	if depth > 4 {
		op %= 2
	}
	switch op % 4 {
	case 0, 1:
		n := min(int(take()%8), len(*program))
		text := string((*program)[:n])
		*program = (*program)[n:]
		if op%4 == 0 {
			return honker.KeyIs(text), func(key string) bool { return key == text }
		}
		return honker.KeyPrefix(text), func(key string) bool { return strings.HasPrefix(key, text) }
	}
	var filters []honker.Filter
	var picks []func(string) bool
	for range take() % 4 {
		f, pick := fuzzFilter(program, depth+1)
		filters, picks = append(filters, f), append(picks, pick)
	}
	if op%4 == 2 {
		return honker.And(filters...), func(key string) bool {
			for _, pick := range picks {
				if !pick(key) {
					return false
				}
			}
			return true
		}
	}
	return honker.Or(filters...), func(key string) bool {
		for _, pick := range picks {
			if pick(key) {
				return true
			}
		}
		return false
	}
}

// A filter selects the same events in SQL and in Go.
func FuzzFilter_SameInFile(f *testing.F) {
	for _, program := range []string{"", "\x00\x01a", "\x01\x01a", "\x02\x00", "\x03\x00", "\x02\x02\x01\x01a\x00\x02ab", "\x03\x02\x00\x01%\x01\x01_",
		"\x01\x02\xf4\x8f", "\x01\x01\x7f", "\x00\x01'", "\x02\x03\x03\x01\x00\x00\x01\x00\x02\x00"} {
		f.Add([]byte(program))
	}
	db := honkertest.Open(f, &honker.Options{NoFileNotices: true})
	s := honker.NewStream[string](db, "s", nil)
	keys := []string{"", "a", "ab", "abc", "b", "A", "%", "_", "'", "a%", "\U0010ffff", "\x7f", "ż", "a\U0010ffffb"}
	for _, key := range append(keys, "the end") {
		_, err := s.Publish(context.Background(), key, honker.EventKey(key))
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		filter, pick := fuzzFilter(&program, 0)
		var want, got []string
		for _, key := range keys {
			if pick(key) {
				want = append(want, key)
			}
		}
		ctx := testkit.Context(t, testkit.Timeout)
		for e, err := range s.Tail(ctx, honker.Beginning, honker.Or(filter, honker.KeyIs("the end"))) {
			if err != nil {
				refusedOrNot(t, err)
				return
			}
			if e.Key == "the end" {
				break
			}
			got = append(got, e.Data)
		}
		require.Equal(t, want, got)
	})
}

// Options of any size are either rejected or respected. No arithmetic overflows.
func FuzzOptions_NoOverflow(f *testing.F) {
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, int64(time.Hour), 1 << 62, math.MaxInt32} {
		f.Add(n, n)
		f.Add(n, int64(1))
	}
	db := honkertest.Open(f, &honker.Options{NoFileNotices: true})
	f.Fuzz(func(t *testing.T, a, b int64) {
		ctx := testkit.Context(t, testkit.Timeout)
		q := honker.NewQueue[int](db, "q", &honker.QueueOptions{Lease: time.Duration(a), MaxAttempts: int(b)})
		id, err := q.Enqueue(ctx, 1, honker.Delay(time.Duration(a)), honker.Priority(int(b)))
		if !refusedOrNot(t, err) {
			info, err := q.Get(ctx, id)
			require.NoError(t, err)
			require.False(t, info.RunAt.Before(info.CreatedAt), "%v", info)
		}
		id, err = q.Enqueue(ctx, 1, honker.ExpiresIn(time.Duration(a)))
		if !refusedOrNot(t, err) {
			info, err := q.Get(ctx, id)
			require.NoError(t, err)
			require.True(t, info.ExpiresAt.After(info.CreatedAt), "%v", info)
		}
		jobs, err := q.Claim(ctx, "w", 1)
		if !refusedOrNot(t, err) && len(jobs) == 1 {
			require.NoError(t, jobs[0].Extend(ctx, time.Hour))
			if !refusedOrNot(t, jobs[0].Retry(ctx, time.Duration(a), nil)) {
				require.ErrorIs(t, jobs[0].Ack(ctx), honker.ErrClaimLost)
			}
		}
		_, err = db.RateLimit("r", int(b), time.Duration(a)).Allow(ctx)
		refusedOrNot(t, err)
		_, err = db.PruneNotifications(ctx, time.Duration(a), int(b))
		refusedOrNot(t, err)
		refusedOrNot(t, q.SaveResult(ctx, 1, 1, time.Duration(a)))
		_, err = honker.NewStream[int](db, "s", &honker.StreamOptions{Batch: int(b)}).SaveOffset(ctx, "c", a)
		refusedOrNot(t, err)
		refusedOrNot(t, honker.NewStream[int](db, "s", nil).SetRetention(ctx, honker.Retention{MaxAge: time.Duration(a), MaxCount: b}))
		lock, err := db.TryLock(ctx, "l", &honker.LockOptions{TTL: time.Duration(a)})
		if !refusedOrNot(t, err) {
			require.NoError(t, lock.Unlock(ctx))
		}
		refusedOrNot(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "n", Queue: "q", Spec: "* * * * *", ExpiresIn: time.Duration(a), MaxAttempts: int(b)}))
	})
}

// A file with arbitrary bytes is either rejected or works. Nothing hangs or panics.
func FuzzFile_AnyBytes(f *testing.F) {
	path := filepath.Join(f.TempDir(), "good.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(f, err)
	require.NoError(f, db.Close())
	good, err := os.ReadFile(path)
	require.NoError(f, err)
	for _, header := range []string{"", "SQLite format 3\x00", "garbage", strings.Repeat("\xff", 100)} {
		f.Add([]byte(header), uint(0))
	}
	f.Add([]byte{9, 9}, uint(18)) // another journal mode
	f.Add([]byte{0xff, 0xff}, uint(16))
	f.Add([]byte{0, 0, 0, 1}, uint(28)) // a wrong database size
	f.Add([]byte{5}, uint(100))
	f.Fuzz(func(t *testing.T, bytes []byte, at uint) {
		path := filepath.Join(t.TempDir(), "fuzzed.db")
		text := append([]byte(nil), good...)
		copy(text[min(int(at%4096), len(text)):], bytes)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		ctx := testkit.Context(t, testkit.Timeout)
		db, err := honker.Open(ctx, path, &honker.Options{NoFileNotices: true, BusyTimeout: time.Second})
		if err != nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			return
		}
		_, err = honker.NewQueue[int](db, "q", nil).Enqueue(ctx, 1)
		require.False(t, errors.Is(err, context.DeadlineExceeded))
		_ = db.Check(ctx) // may report damage
		require.NoError(t, db.Close())
	})
}
