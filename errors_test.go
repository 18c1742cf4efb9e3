package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// inOwnTx runs an XTx verb in a transaction that is committed even if the verb fails.
func inOwnTx(db *honker.DB, call func(context.Context, *sql.Tx) error) testkit.Refusal {
	return func(ctx context.Context) (refused error) {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			refused = call(ctx, tx)
			return nil
		})
		if err != nil {
			return err
		}
		return refused
	}
}

// badHandle returns every verb of a handle that should reject its input.
func badHandle[T any](db *honker.DB, q *honker.Queue[T]) map[string]testkit.Refusal {
	type c = context.Context
	var zero T
	work := func(c, *honker.Job[T]) error { return nil }
	workTx := func(c, *sql.Tx, *honker.Job[T]) error { return nil }
	return map[string]testkit.Refusal{
		"Enqueue":       func(c c) error { _, err := q.Enqueue(c, zero); return err },
		"EnqueueTx":     inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := q.EnqueueTx(c, tx, zero); return err }),
		"EnqueueMany":   func(c c) error { _, err := q.EnqueueMany(c, []T{zero}); return err },
		"EnqueueManyTx": inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := q.EnqueueManyTx(c, tx, []T{zero}); return err }),
		"Claim":         func(c c) error { _, err := q.Claim(c, "w", 1); return err },
		"Jobs":          func(c c) error { return testkit.LastError(q.Jobs(c, "w")) },
		"Work":          func(c c) error { return q.Work(c, work, nil) },
		"WorkTx":        func(c c) error { return q.WorkTx(c, workTx, nil) },
		"AckMany":       func(c c) error { _, err := q.AckMany(c, "w", []int64{1}); return err },
		"Get":           func(c c) error { _, err := q.Get(c, 1); return err },
		"Cancel":        func(c c) error { _, err := q.Cancel(c, 1); return err },
		"CancelTx":      inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := q.CancelTx(c, tx, 1); return err }),
		"SweepExpired":  func(c c) error { _, err := q.SweepExpired(c); return err },
		"NextClaimAt":   func(c c) error { _, err := q.NextClaimAt(c); return err },
		"SaveResult":    func(c c) error { return q.SaveResult(c, 1, 1, 0) },
		"SaveResultTx":  inOwnTx(db, func(c c, tx *sql.Tx) error { return q.SaveResultTx(c, tx, 1, 1, 0) }),
	}
}

var badNames = map[string]string{
	"empty":      "",
	"too long":   strings.Repeat("x", 1025),
	"NUL":        "a\x00b",
	"no UTF-8":   "a\xffb",
	"half a ü":   "ü"[:1],
	"surrogates": "\xed\xa0\x80",
}

// Every verb rejects bad names.
func TestDB_Input_BadNames(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	good := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, good, 1)
	type c = context.Context
	for kind, name := range badNames {
		t.Run(kind, func(t *testing.T) {
			q := honker.NewQueue[int](db, name, nil)
			require.Equal(t, name, q.Name())
			testkit.RequireRefused(t, path, badHandle(db, q))
			calls := map[string]testkit.Refusal{
				"Notify":         func(c c) error { _, err := db.Notify(c, name, 1); return err },
				"NotifyTx":       inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := db.NotifyTx(c, tx, name, 1); return err }),
				"Listen":         func(c c) error { _, err := db.Listen(c, name); return err },
				"Listen, second": func(c c) error { _, err := db.Listen(c, "news", name); return err },
				"Claim by":       func(c c) error { _, err := good.Claim(c, name, 1); return err },
				"Jobs by":        func(c c) error { return testkit.LastError(good.Jobs(c, name)) },
				"AckMany by":     func(c c) error { _, err := good.AckMany(c, name, []int64{1}); return err },
			}
			if name != "" { // the empty name selects the default
				calls["Work by"] = workWith(good, honker.WorkOptions{WorkerID: name})
			}
			testkit.RequireRefused(t, path, calls)
		})
	}
}

// Arbitrary names are kept byte for byte.
func TestDB_Input_AnyNames(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	for _, name := range []string{
		`'; DROP TABLE _honker_live; --`, `"quoted" and 'quoted' and [x] ` + "`y`", `\u0041 \n \\`, "<&>\u2028\u2029",
		" space \t\r\n ", "\x01\x1f\x7f", "ü 日本 🦆 \ufffd \ufeff", "%_*?", "null", `["a","b"]`, "0", strings.Repeat("x", 1024),
	} {
		q := honker.NewQueue[string](db, name, nil)
		l := testkit.Listen(t, db, name)
		id := testkit.Enqueue(t, q, name)
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue = ? AND typeof(queue) = 'text'`, name))
		for job, err := range q.Jobs(ctx, name) {
			require.NoError(t, err)
			require.Equal(t, name, job.Args)
			require.Equal(t, name, job.Queue)
			require.Equal(t, name, testkit.GetJob(t, q, id).WorkerID)
			require.NoError(t, job.Ack(ctx))
			break
		}
		sent := testkit.Notify(t, db, name, name)
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, sent, n.ID)
		require.Equal(t, name, n.Channel)
	}
}

// Bad numbers and durations are rejected.
func TestDB_Input_BadNumbers(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, q, 1, honker.MaxAttempts(1))
	job := testkit.ClaimOne(t, q)
	testkit.Enqueue(t, q, 2)
	type c = context.Context
	calls := map[string]testkit.Refusal{
		"listen to nothing": func(c c) error { _, err := db.Listen(c); return err },
	}
	for _, d := range []time.Duration{0, time.Minute} {
		calls[fmt.Sprint("Delay cannot be combined with RunAt ", d)] = enqueueWith(q, honker.RunAt(time.Now().Add(time.Hour)), honker.Delay(d))
		calls[fmt.Sprint("RunAt together with Delay ", d)] = enqueueWith(q, honker.Delay(d), honker.RunAt(time.Time{}))
	}
	calls["Work with a nil function"] = func(c c) error { return q.Work(c, nil, nil) }
	calls["WorkTx with a nil function"] = func(c c) error { return q.WorkTx(c, nil, nil) }
	calls["a nil Middleware"] = workWith(q, honker.WorkOptions{Middleware: []honker.Middleware{nil}})
	for _, n := range []int{0, -1, math.MinInt} {
		calls[fmt.Sprint("Claim of ", n)] = func(c c) error { _, err := q.Claim(c, "w", n); return err }
		calls[fmt.Sprint("MaxAttempts ", n)] = enqueueWith(q, honker.MaxAttempts(n))
		if n < 0 {
			calls[fmt.Sprint("Workers ", n)] = workWith(q, honker.WorkOptions{Workers: n})
			maps(calls, fmt.Sprint("queue MaxAttempts ", n, ": "), badHandle(db, honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: n})))
		}
	}
	for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		calls[fmt.Sprint("ExpiresIn ", d)] = enqueueWith(q, honker.ExpiresIn(d))
		calls[fmt.Sprint("Extend ", d)] = func(c c) error { return job.Extend(c, d) }
		if d == 0 {
			continue
		}
		calls[fmt.Sprint("Delay ", d)] = enqueueWith(q, honker.Delay(d))
		calls[fmt.Sprint("Delay beside Priority ", d)] = enqueueWith(q, honker.Delay(d), honker.Priority(1))
		calls[fmt.Sprint("Retry ", d)] = func(c c) error { return job.Retry(c, d, nil) }
		calls[fmt.Sprint("Snooze ", d)] = func(c c) error { return job.Snooze(c, d) }
		calls[fmt.Sprint("SaveResult ", d)] = func(c c) error { return q.SaveResult(c, 1, 1, d) }
		calls[fmt.Sprint("SaveResultTx ", d)] = inOwnTx(db, func(c c, tx *sql.Tx) error { return q.SaveResultTx(c, tx, 1, 1, d) })
		calls[fmt.Sprint("Prune ", d)] = func(c c) error { _, err := db.PruneNotifications(c, d, 0); return err }
		calls[fmt.Sprint("Lease ", d)] = workWith(q, honker.WorkOptions{Lease: d})
		calls[fmt.Sprint("DrainTimeout ", d)] = workWith(q, honker.WorkOptions{DrainTimeout: d})
		for _, o := range []honker.QueueOptions{{Lease: d}, {Timeout: d}} {
			maps(calls, fmt.Sprintf("%+v: ", o), badHandle(db, honker.NewQueue[int](db, "jobs", &o)))
		}
	}
	testkit.RequireRefused(t, path, calls)
}

// maps adds the entries of from to calls, with prefix before their names.
func maps(calls map[string]testkit.Refusal, prefix string, from map[string]testkit.Refusal) {
	for name, call := range from {
		calls[prefix+name] = call
	}
}

func enqueueWith(q *honker.Queue[int], opts ...honker.EnqueueOption) testkit.Refusal {
	return func(ctx context.Context) error {
		if _, err := q.EnqueueMany(ctx, []int{1, 2}, opts...); err == nil {
			return nil
		}
		_, err := q.Enqueue(ctx, 1, opts...)
		return err
	}
}

func workWith(q *honker.Queue[int], opts honker.WorkOptions) testkit.Refusal {
	return func(ctx context.Context) error {
		return q.Work(ctx, func(context.Context, *honker.Job[int]) error { return nil }, &opts)
	}
}

// The longest durations do not overflow.
func TestDB_Input_LongestSpans(t *testing.T) {
	t.Parallel()
	const ever = time.Duration(math.MaxInt64)
	ctx, db, q := testkit.NewQueue[int](t, &honker.QueueOptions{Lease: ever, ResultTTL: ever})
	far := time.Now().Add(290 * 365 * 24 * time.Hour)
	id := testkit.Enqueue(t, q, 1, honker.ExpiresIn(ever))
	require.True(t, testkit.GetJob(t, q, id).ExpiresAt.After(far))
	job := testkit.ClaimOne(t, q)
	require.True(t, job.ClaimExpiresAt.After(far))
	require.NoError(t, job.Extend(ctx, ever))
	require.True(t, testkit.GetJob(t, q, id).ClaimExpiresAt.After(far))
	require.NoError(t, job.Extend(ctx, ever-24*time.Hour)) // so that the claim ends before the job expires
	next, err := q.NextClaimAt(ctx)
	require.NoError(t, err)
	require.True(t, next.After(far))
	require.NoError(t, job.Snooze(ctx, ever))
	require.True(t, testkit.GetJob(t, q, id).RunAt.After(far))
	require.Empty(t, testkit.Claim(t, q, 1))
	testkit.MakeDue(t, db, id)
	job = testkit.ClaimOne(t, q)
	require.NoError(t, job.SetResult(1))
	require.NoError(t, job.Retry(ctx, ever, nil))
	require.True(t, testkit.GetJob(t, q, id).RunAt.After(far))
	require.NoError(t, q.SaveResult(ctx, id, 2, ever))
	_, err = honker.Result[int](ctx, db, id)
	require.NoError(t, err)
	for _, opt := range []honker.EnqueueOption{
		honker.Delay(ever), honker.RunAt(far.AddDate(5000, 0, 0)), honker.RunAt(time.Unix(1<<55, 0)),
	} {
		require.True(t, testkit.GetJob(t, q, testkit.Enqueue(t, q, 1, opt)).RunAt.After(far.AddDate(0, 0, -1)))
	}
	require.Empty(t, testkit.Claim(t, q, 10))
}

// Payloads that aren't JSON are rejected.
func TestDB_Input_NoJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db := honkertest.OpenFile(t, path, &honker.Options{MaxPayload: 10})
	testkit.Enqueue(t, honker.NewQueue[int](db, "claimed", nil), 1)
	job := testkit.ClaimOne(t, honker.NewQueue[int](db, "claimed", nil))
	type named []byte
	for what, v := range map[string]any{
		"raw text":        json.RawMessage(`{`),
		"raw nothing":     json.RawMessage(``),
		"two raw values":  json.RawMessage(`1 2`),
		"raw no UTF-8":    json.RawMessage("\"\xff\""),
		"NaN":             math.NaN(),
		"infinity":        math.Inf(1),
		"channel":         make(chan int),
		"function":        func() {},
		"inside a struct": struct{ C chan int }{},
		"too large":       "123456789",
		"too large raw":   json.RawMessage(`[1,2,3,4,5]`),
		"bytes":           []byte(`1`),
		"named bytes":     named(`1`),
	} {
		t.Run(what, func(t *testing.T) {
			q := honker.NewQueue[any](db, "any", nil)
			type c = context.Context
			testkit.RequireRefused(t, path, map[string]testkit.Refusal{
				"Notify":        func(c c) error { _, err := db.Notify(c, "news", v); return err },
				"NotifyTx":      inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := db.NotifyTx(c, tx, "news", v); return err }),
				"SaveResult":    func(c c) error { return q.SaveResult(c, 1, v, 0) },
				"SaveResultTx":  inOwnTx(db, func(c c, tx *sql.Tx) error { return q.SaveResultTx(c, tx, 1, v, 0) }),
				"SetResult":     func(c) error { return job.SetResult(v) },
				"Enqueue":       func(c c) error { _, err := q.Enqueue(c, v); return err },
				"EnqueueTx":     inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := q.EnqueueTx(c, tx, v); return err }),
				"EnqueueMany":   func(c c) error { _, err := q.EnqueueMany(c, []any{1, v}); return err },
				"EnqueueManyTx": inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := q.EnqueueManyTx(c, tx, []any{1, v}); return err }),
			})
		})
	}
	testkit.Enqueue(t, honker.NewQueue[string](db, "jobs", nil), "12345678") // the largest payload allowed
}

// Every verb rejects []byte as the payload type.
func TestDB_Input_Bytes(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	type named []byte
	testkit.RequireRefused(t, path, badHandle(db, honker.NewQueue[[]byte](db, "jobs", nil)))
	testkit.RequireRefused(t, path, badHandle(db, honker.NewQueue[named](db, "jobs", nil)))
}

// A pointer to bytes is rejected like bytes.
func TestDB_Input_PointerToBytes(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	b := []byte("would be base64")
	testkit.RequireRefused(t, path, badHandle(db, honker.NewQueue[*[]byte](db, "jobs", nil)))
	testkit.RequireRefused(t, path, map[string]testkit.Refusal{
		"Notify": func(ctx context.Context) error { _, err := db.Notify(ctx, "news", &b); return err },
	})
}

// Open with bad options creates no file.
func TestDB_Open_BadOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, o := range []honker.Options{
		{Durability: 2}, {Durability: -1}, {BusyTimeout: -1}, {PollInterval: -1}, {Readers: -1}, {IdleConns: -1}, {MaxPayload: -1},
	} {
		path := filepath.Join(dir, "file.db")
		_, err := honker.Open(context.Background(), path, &o)
		require.ErrorIs(t, err, honker.ErrInvalid, "%+v", o)
		_, err = honker.Connector(path, &o)
		require.ErrorIs(t, err, honker.ErrInvalid, "%+v", o)
		require.Empty(t, testkit.ListDir(t, dir))
	}
	_, err := honker.Attach(context.Background(), nil, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// When ctx ends, verbs that are waiting for the writer return its cause, as reads do.
func TestWrite_EndOfCtx_Cause(t *testing.T) {
	testkit.Differs(t, "ctx ends, or Close is called, while a verb waits for a lock of the server")
	t.Parallel()
	path, db := testkit.OpenShared(t)
	q, why := honker.NewQueue[int](db, "jobs", nil), errors.New("why")
	enqueue := func(ctx context.Context) error { _, err := q.Enqueue(ctx, 1); return err }
	begin := func(ctx context.Context) error {
		return db.Tx(ctx, func(context.Context, *sql.Tx) error { return nil })
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 4)
	_, err := q.Get(ctx, 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	testkit.HoldWriter(t, path)
	for _, verb := range []func(context.Context) error{enqueue, begin} {
		go func() { ended <- verb(ctx) }()
	}
	time.Sleep(50 * time.Millisecond)
	cancel(why)
	ended <- enqueue(ctx)
	ended <- begin(ctx)
	for range 4 {
		err := testkit.Within(context.Background(), ended, testkit.Timeout)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// Close ends a wait for the writer with ErrClosed, even in loops.
func TestClose_WhileTheWriterIsTaken(t *testing.T) {
	testkit.Differs(t, "ctx ends, or Close is called, while a verb waits for a lock of the server")
	t.Parallel()
	for name, wait := range map[string]func(context.Context, *honker.DB) error{
		"lock": func(ctx context.Context, db *honker.DB) error { _, err := db.Lock(ctx, "l", nil); return err },
		"consume": func(ctx context.Context, db *honker.DB) error {
			fn := func(context.Context, *honker.Event[int]) error { return nil }
			return honker.NewStream[int](db, "s", nil).Consume(ctx, "c", fn, nil)
		},
		"scheduler": func(ctx context.Context, db *honker.DB) error { return db.Scheduler().Run(ctx) },
		"maintain":  func(ctx context.Context, db *honker.DB) error { return db.Maintain(ctx, nil) },
		"group": func(ctx context.Context, db *honker.DB) error {
			fn := func(context.Context, *honker.Delivery[int]) error { return nil }
			return honker.NewStream[int](db, "s", nil).Group("g", nil).Work(ctx, fn, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(context.Background(), path, nil)
			require.NoError(t, err)
			release := testkit.HoldWriter(t, path)
			ended := make(chan error, 1)
			go func() { ended <- wait(context.Background(), db) }()
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, db.Close())
			require.ErrorIs(t, testkit.Within(context.Background(), ended, testkit.Timeout), honker.ErrClosed)
			release()
		})
	}
}

// Every verb rejects a nil context, and later calls aren't affected.
func TestDB_Input_NilContext(t *testing.T) {
	_, db := testkit.OpenShared(t)
	tx, err := db.SQL().BeginTx(context.Background(), nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	tx, err = db.SQL().BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer tx.Rollback()
	verbs := everyVerb(t, db, tx)
	s := honker.NewStream[int](db, "events", nil)
	g, sched := s.Group("g", nil), db.Scheduler()
	m := enrol(t, g, "m")
	from, to := testkit.DoublingStreams(db)
	l, err := db.Listen(context.Background(), "news")
	require.NoError(t, err)
	type ctx = context.Context
	handle := func(ctx, *honker.Event[int]) error { return nil }
	for name, verb := range map[string]func(ctx) error{
		"Publish":        func(c ctx) error { _, err := s.Publish(c, 1); return err },
		"PublishTx":      func(c ctx) error { _, err := s.PublishTx(c, tx, 1); return err },
		"Head":           func(c ctx) error { _, err := s.Head(c); return err },
		"Read":           func(c ctx) error { return testkit.LastError(s.Read(c, 0)) },
		"Tail":           func(c ctx) error { return testkit.LastError(s.Tail(c, honker.End, nil)) },
		"Subscribe":      func(c ctx) error { return testkit.LastError(s.Subscribe(c, "c", nil)) },
		"Consume":        func(c ctx) error { return s.Consume(c, "c", handle, nil) },
		"Pipe":           func(c ctx) error { return honker.Pipe(c, from, "c", to, testkit.Double) },
		"Offset":         func(c ctx) error { _, err := s.Offset(c, "c"); return err },
		"SaveOffset":     func(c ctx) error { _, err := s.SaveOffset(c, "c", 1); return err },
		"SaveOffsetTx":   func(c ctx) error { _, err := s.SaveOffsetTx(c, tx, "c", 1); return err },
		"Consumers":      func(c ctx) error { _, err := s.Consumers(c); return err },
		"DeleteConsumer": func(c ctx) error { _, err := s.DeleteConsumer(c, "c"); return err },
		"Compact":        func(c ctx) error { _, err := s.Compact(c); return err },
		"Groups":         func(c ctx) error { _, err := s.Groups(c); return err },
		"Join":           func(c ctx) error { _, err := g.Join(c, "n"); return err },
		"Group Work": func(c ctx) error {
			return g.Work(c, func(ctx, *honker.Delivery[int]) error { return nil }, nil)
		},
		"Info":       func(c ctx) error { _, err := g.Info(c); return err },
		"Group Dead": func(c ctx) error { return testkit.LastError(g.Dead(c)) },
		"Redeliver":  func(c ctx) error { _, err := g.Redeliver(c, 1); return err },
		"Discard":    func(c ctx) error { _, err := g.Discard(c, 1); return err },
		"Delete":     func(c ctx) error { _, err := g.Delete(c); return err },
		"Claim":      func(c ctx) error { _, err := m.Claim(c, 1); return err },
		"All":        func(c ctx) error { return testkit.LastError(m.All(c)) },
		"Leave":      func(c ctx) error { return m.Leave(c) },
		"Register": func(c ctx) error {
			return sched.Register(c, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@every 1h"})
		},
		"Trigger":      func(c ctx) error { _, err := sched.Trigger(c, "s"); return err },
		"List":         func(c ctx) error { _, err := sched.List(c); return err },
		"Soonest":      func(c ctx) error { _, err := sched.Soonest(c); return err },
		"Tick":         func(c ctx) error { _, err := sched.Tick(c, time.Now()); return err },
		"Run schedule": func(c ctx) error { return sched.Run(c) },
		"Maintain":     func(c ctx) error { return db.Maintain(c, nil) },
		"Listener All": func(c ctx) error { return testkit.LastError(l.All(c)) },
	} {
		verbs[name] = verb
	}
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			require.NotPanics(t, func() { require.ErrorIs(t, verb(nil), honker.ErrInvalid) })
		})
	}
	testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 1)
}

// A nil handle, option or function is rejected by the call that it is passed to.
func TestDB_Input_Nil(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	s := honker.NewStream[int](db, "events", nil)
	var tx *sql.Tx
	var conn *sql.Conn
	for name, verb := range map[string]func() error{
		"nil Tx":      func() error { _, err := q.EnqueueTx(ctx, nil, 1); return err },
		"nil *sql.Tx": func() error { _, err := q.EnqueueTx(ctx, tx, 1); return err },
		"nil Conn":    func() error { _, err := s.PublishTx(ctx, conn, 1); return err },
		"option":      func() error { _, err := q.Enqueue(ctx, 1, nil); return err },
		"of Publish":  func() error { _, err := s.Publish(ctx, 1, nil); return err },
		"function":    func() error { return db.Tx(ctx, nil) },
		"pool":        func() error { _, err := honker.Attach(ctx, nil, nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			err := verb()
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.ErrorContains(t, err, "nil ")
		})
	}
	require.PanicsWithValue(t, "honker: NewQueue: nil *DB", func() { honker.NewQueue[int](nil, "q", nil) })
	require.PanicsWithValue(t, "honker: NewStream: nil *DB", func() { honker.NewStream[int](nil, "q", nil) })
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// ErrorType never returns any part of the error's text. A postponed job doesn't count as failed.
func TestErrorType(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "/secret", Err: fs.ErrNotExist}
	for want, errs := range map[string][]error{
		"":                    {nil, honker.Snooze(time.Second), fmt.Errorf("later: %w", honker.SlowDown(time.Second, path))},
		"busy":                {honker.ErrBusy, fmt.Errorf("enqueue: %w", honker.ErrBusy)},
		"claim_lost":          {honker.ErrClaimLost},
		"timeout":             {context.DeadlineExceeded, fmt.Errorf("get: %w", context.DeadlineExceeded)},
		"context_canceled":    {context.Canceled},
		"*fs.PathError":       {path, honker.Reject(path), honker.RetryAfter(time.Second, fmt.Errorf("read: %w", path))},
		"*errors.errorString": {errors.New("no such address")},
	} {
		for _, err := range errs {
			require.Equal(t, want, honker.ErrorType(err), "%v", err)
		}
	}
}
