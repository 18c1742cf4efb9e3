package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// lookAt opens the file read-only and describes job 1.
func lookAt(path string) string {
	db, err := honker.Open(context.Background(), path, &honker.Options{ReadOnly: true})
	if err != nil {
		return fmt.Sprint(errors.Is(err, honker.ErrUnsupported), " ", err)
	}
	defer db.Close()
	job, err := db.Job(context.Background(), 1)
	if err != nil {
		return err.Error()
	}
	return string(job.Phase)
}

// stockedFile returns the path of a closed file with a job, an event, a consumer, a group, a schedule, a
// notification and a result.
func stockedFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(t.Context(), path, nil)
	require.NoError(t, err)
	stockUp(t, db)
	require.NoError(t, db.Close())
	return path
}

func stockUp(t testing.TB, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	id := testkit.Enqueue(t, q, 1)
	require.NoError(t, q.SaveResult(ctx, id, 7, time.Hour))
	_, err := s.Publish(ctx, 1)
	require.NoError(t, err)
	_, err = s.SaveOffset(ctx, "mail", 0)
	require.NoError(t, err)
	m, err := s.Group("g", nil).Join(ctx, "one")
	require.NoError(t, err)
	require.NoError(t, m.Leave(ctx))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "daily", Queue: "jobs", Spec: "@daily"}))
	_, err = db.Notify(ctx, "news", 1)
	require.NoError(t, err)
}

func openReadOnly(t testing.TB, path string) *honker.DB {
	t.Helper()
	db, err := honker.Open(context.Background(), path, &honker.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// verbTable classifies types' verbs by their behavior on a read-only DB.
type verbTable struct {
	writes map[string]func(ctx context.Context) error // return ErrReadOnly
	reads  map[string]func(ctx context.Context) error // return nil
	silent map[string]bool                            // do not access the file
}

// requireComplete checks that the table contains each verb. A new verb must be classified.
func (v verbTable) requireComplete(t *testing.T, types map[string]any) {
	t.Helper()
	for name, value := range types {
		typ := reflect.TypeOf(value)
		for i := range typ.NumMethod() {
			verb := name + "." + typ.Method(i).Name
			require.True(t, v.writes[verb] != nil || v.reads[verb] != nil || v.silent[verb], "%s is not in the table", verb)
		}
	}
}

func readOnlyVerbs(db *honker.DB, tx honker.Tx) (verbTable, map[string]any) {
	q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	g, sch, rate := s.Group("g", nil), db.Scheduler(), db.RateLimit("calls", 5, time.Minute)
	workers := testkit.Workers(db, nil, []string{"empty", "empty2"}, testkit.Succeed[int])
	out := honker.NewOutbox(db, "outbox", func(context.Context, int) error { return nil }, nil)
	batch := db.Batch(1)
	type ctx = context.Context
	succeed, succeedTx := testkit.Succeed[int], testkit.SucceedTx[int]
	v := verbTable{
		writes: map[string]func(ctx) error{
			"DB.Lock":               func(c ctx) error { _, err := db.Lock(c, "l", nil); return err },
			"DB.TryLock":            func(c ctx) error { _, err := db.TryLock(c, "l", nil); return err },
			"DB.NewBatch":           func(c ctx) error { _, err := db.NewBatch(c, nil); return err },
			"DB.NewBatchTx":         func(c ctx) error { _, err := db.NewBatchTx(c, tx, nil); return err },
			"Batch.Seal":            func(c ctx) error { return batch.Seal(c) },
			"Batch.SealTx":          func(c ctx) error { return batch.SealTx(c, tx) },
			"Batch.Cancel":          func(c ctx) error { _, err := batch.Cancel(c); return err },
			"DB.Maintain":           func(c ctx) error { return db.Maintain(c, nil) },
			"DB.Notify":             func(c ctx) error { _, err := db.Notify(c, "news", 1); return err },
			"DB.NotifyTx":           func(c ctx) error { _, err := db.NotifyTx(c, tx, "news", 1); return err },
			"DB.PruneNotifications": func(c ctx) error { _, err := db.PruneNotifications(c, time.Hour, 0); return err },
			"DB.SweepRateLimits":    func(c ctx) error { _, err := db.SweepRateLimits(c, time.Hour); return err },
			"DB.Tx":                 func(c ctx) error { return db.Tx(c, func(ctx, *sql.Tx) error { return nil }) },

			"Queue.AckMany":         func(c ctx) error { _, err := q.AckMany(c, "w", []int64{1}); return err },
			"Queue.Cancel":          func(c ctx) error { _, err := q.Cancel(c, 1); return err },
			"Queue.CancelTx":        func(c ctx) error { _, err := q.CancelTx(c, tx, 1); return err },
			"Queue.Claim":           func(c ctx) error { _, err := honker.NewQueue[int](db, "empty", nil).Claim(c, "w", 1); return err },
			"Queue.Enqueue":         func(c ctx) error { _, err := q.Enqueue(c, 1); return err },
			"Queue.EnqueueTx":       func(c ctx) error { _, err := q.EnqueueTx(c, tx, 1); return err },
			"Queue.EnqueueMany":     func(c ctx) error { _, err := q.EnqueueMany(c, []int{1}); return err },
			"Queue.EnqueueManyTx":   func(c ctx) error { _, err := q.EnqueueManyTx(c, tx, []int{1}); return err },
			"Queue.Jobs":            func(c ctx) error { return testkit.LastError(q.Jobs(c, "w")) },
			"Queue.Pause":           func(c ctx) error { _, err := q.Pause(c, nil); return err },
			"Queue.PauseTx":         func(c ctx) error { _, err := q.PauseTx(c, tx, nil); return err },
			"Queue.ResumeTx":        func(c ctx) error { _, err := q.ResumeTx(c, tx); return err },
			"Queue.ResumeKeyTx":     func(c ctx) error { _, err := q.ResumeKeyTx(c, tx, "k"); return err },
			"Queue.SetLimitsTx":     func(c ctx) error { return q.SetLimitsTx(c, tx, honker.Limits{}) },
			"Queue.SetRetentionTx":  func(c ctx) error { return q.SetRetentionTx(c, tx, honker.QueueRetention{}) },
			"Queue.ReleaseUniqueTx": func(c ctx) error { _, err := q.ReleaseUniqueTx(c, tx, "k"); return err },
			"Queue.Resume":          func(c ctx) error { _, err := q.Resume(c); return err },
			"Queue.ResumeKey":       func(c ctx) error { _, err := q.ResumeKey(c, "k"); return err },
			"Queue.SetLimits":       func(c ctx) error { return q.SetLimits(c, honker.Limits{}) },
			"Queue.ReleaseUnique":   func(c ctx) error { _, err := q.ReleaseUnique(c, "k"); return err },
			"Queue.SaveResult":      func(c ctx) error { return q.SaveResult(c, 1, 1, 0) },
			"Queue.SaveResultTx":    func(c ctx) error { return q.SaveResultTx(c, tx, 1, 1, 0) },
			"Queue.SetRetention":    func(c ctx) error { return q.SetRetention(c, honker.QueueRetention{}) },
			"Queue.SweepExpired":    func(c ctx) error { _, err := q.SweepExpired(c); return err },
			"Queue.Work":            func(c ctx) error { return honker.NewQueue[int](db, "empty", nil).Work(c, succeed, nil) },
			"Queue.WorkTx":          func(c ctx) error { return honker.NewQueue[int](db, "empty", nil).WorkTx(c, succeedTx, nil) },
			"Queue.WorkDue": func(c ctx) error {
				_, err := honker.NewQueue[int](db, "empty", nil).WorkDue(c, succeed, nil)
				return err
			},
			"Queue.WorkDueTx": func(c ctx) error {
				_, err := honker.NewQueue[int](db, "empty", nil).WorkDueTx(c, succeedTx, nil)
				return err
			},
			"Workers.Work":    func(c ctx) error { return workers.Work(c, nil) },
			"Workers.WorkDue": func(c ctx) error { _, err := workers.WorkDue(c, nil); return err },
			"Outbox.Run":      func(c ctx) error { return out.Run(c, nil) },
			"Outbox.Send":     func(c ctx) error { _, err := out.Send(c, 1); return err },
			"Outbox.SendTx":   func(c ctx) error { _, err := out.SendTx(c, tx, 1); return err },

			"RateLimit.Allow":   func(c ctx) error { _, err := rate.Allow(c); return err },
			"RateLimit.AllowTx": func(c ctx) error { _, err := rate.AllowTx(c, tx); return err },
			"RateLimit.Wait":    func(c ctx) error { return rate.Wait(c) },

			"Scheduler.Pause":    func(c ctx) error { _, err := sch.Pause(c, "daily"); return err },
			"Scheduler.Resume":   func(c ctx) error { _, err := sch.Resume(c, "daily"); return err },
			"Scheduler.Register": func(c ctx) error { return sch.Register(c, honker.Schedule{Name: "x", Queue: "jobs", Spec: "@daily"}) },
			"Scheduler.RegisterTx": func(c ctx) error {
				return sch.RegisterTx(c, tx, honker.Schedule{Name: "x", Queue: "jobs", Spec: "@daily"})
			},
			"Scheduler.Run":          func(c ctx) error { return sch.Run(c) },
			"Scheduler.Tick":         func(c ctx) error { _, err := sch.Tick(c, time.Now()); return err },
			"Scheduler.Trigger":      func(c ctx) error { _, err := sch.Trigger(c, "daily"); return err },
			"Scheduler.Unregister":   func(c ctx) error { _, err := sch.Unregister(c, "daily"); return err },
			"Scheduler.Update":       func(c ctx) error { _, err := sch.Update(c, "daily", honker.ScheduleChange{}); return err },
			"Scheduler.PauseTx":      func(c ctx) error { _, err := sch.PauseTx(c, tx, "daily"); return err },
			"Scheduler.ResumeTx":     func(c ctx) error { _, err := sch.ResumeTx(c, tx, "daily"); return err },
			"Scheduler.TriggerTx":    func(c ctx) error { _, err := sch.TriggerTx(c, tx, "daily"); return err },
			"Scheduler.UnregisterTx": func(c ctx) error { _, err := sch.UnregisterTx(c, tx, "daily"); return err },
			"Scheduler.UpdateTx":     func(c ctx) error { _, err := sch.UpdateTx(c, tx, "daily", honker.ScheduleChange{}); return err },

			"Stream.Compact": func(c ctx) error { _, err := s.Compact(c); return err },
			"Stream.Consume": func(c ctx) error {
				return s.Consume(c, "mail", func(ctx, *honker.Event[int]) error { return nil }, nil)
			},
			"Stream.DeleteConsumer":   func(c ctx) error { _, err := s.DeleteConsumer(c, "mail"); return err },
			"Stream.Publish":          func(c ctx) error { _, err := s.Publish(c, 1); return err },
			"Stream.PublishTx":        func(c ctx) error { _, err := s.PublishTx(c, tx, 1); return err },
			"Stream.PublishMany":      func(c ctx) error { _, _, err := s.PublishMany(c, []int{1}); return err },
			"Stream.PublishManyTx":    func(c ctx) error { _, _, err := s.PublishManyTx(c, tx, []int{1}); return err },
			"Stream.SaveOffset":       func(c ctx) error { _, err := s.SaveOffset(c, "mail", 1); return err },
			"Stream.SaveOffsetTx":     func(c ctx) error { _, err := s.SaveOffsetTx(c, tx, "mail", 1); return err },
			"Stream.Seek":             func(c ctx) error { return s.Seek(c, "mail", honker.Offset(0)) },
			"Stream.SeekTx":           func(c ctx) error { return s.SeekTx(c, tx, "mail", honker.Offset(0)) },
			"Stream.DeleteConsumerTx": func(c ctx) error { _, err := s.DeleteConsumerTx(c, tx, "mail"); return err },
			"Stream.SetRetentionTx":   func(c ctx) error { return s.SetRetentionTx(c, tx, honker.Retention{}) },
			"Group.DiscardTx":         func(c ctx) error { _, err := g.DiscardTx(c, tx, 1); return err },
			"Group.RedeliverTx":       func(c ctx) error { _, err := g.RedeliverTx(c, tx, 1); return err },
			"Stream.SetRetention":     func(c ctx) error { return s.SetRetention(c, honker.Retention{}) },
			"Stream.Subscribe":        func(c ctx) error { return testkit.LastError(s.Subscribe(c, "mail", nil)) },
			"Group.Delete":            func(c ctx) error { _, err := g.Delete(c); return err },
			"Group.Discard":           func(c ctx) error { _, err := g.Discard(c, 1); return err },
			"Group.Join":              func(c ctx) error { _, err := g.Join(c, "two"); return err },
			"Group.Redeliver":         func(c ctx) error { _, err := g.Redeliver(c, 1); return err },
			"Group.Work": func(c ctx) error {
				return g.Work(c, func(ctx, *honker.Delivery[int]) error { return nil }, nil)
			},
			"Pipe": func(c ctx) error {
				return honker.Pipe(c, s, "pipe", honker.NewStream[int](db, "others", nil), func(ctx, *honker.Event[int]) (int, error) { return 1, nil })
			},
		},
		reads: map[string]func(ctx) error{
			"DB.Check":   func(c ctx) error { return db.Check(c) },
			"DB.Job":     func(c ctx) error { _, err := db.Job(c, 1); return err },
			"DB.Listen":  func(c ctx) error { l, err := db.Listen(c, "news"); return errors.Join(err, l.Close()) },
			"DB.SQL":     func(c ctx) error { return db.SQL().PingContext(c) },
			"DB.Updates": func(c ctx) error { return first(db.Updates(c)) },

			"Queue.Get":         func(c ctx) error { _, err := q.Get(c, 1); return err },
			"Queue.Keys":        func(c ctx) error { _, err := q.Keys(c); return err },
			"Queue.Limits":      func(c ctx) error { _, err := q.Limits(c); return err },
			"Queue.NextClaimAt": func(c ctx) error { _, err := q.NextClaimAt(c); return err },
			"Queue.Retention":   func(c ctx) error { _, err := q.Retention(c); return err },
			"Queue.Stats":       func(c ctx) error { _, err := q.Stats(c); return err },

			"RateLimit.Remaining": func(c ctx) error { _, _, err := rate.Remaining(c); return err },
			"Scheduler.List":      func(c ctx) error { _, err := sch.List(c); return err },
			"Scheduler.Next":      func(c ctx) error { _, err := sch.Next(c, "daily", 1); return err },
			"Scheduler.Soonest":   func(c ctx) error { _, err := sch.Soonest(c); return err },

			"Stream.Consumers": func(c ctx) error { _, err := s.Consumers(c); return err },
			"Stream.Compacted": func(c ctx) error { _, err := s.Compacted(c); return err },
			"Stream.Groups":    func(c ctx) error { _, err := s.Groups(c); return err },
			"Stream.Head":      func(c ctx) error { _, err := s.Head(c); return err },
			"Stream.Offset":    func(c ctx) error { _, err := s.Offset(c, "mail"); return err },
			"Stream.Read":      func(c ctx) error { return first(s.Read(c, 0)) },
			"Stream.Retention": func(c ctx) error { _, err := s.Retention(c); return err },
			"Stream.Tail":      func(c ctx) error { return first(s.Tail(c, honker.Offset(0), nil)) },
			"Group.Dead":       func(c ctx) error { return testkit.LastError(g.Dead(c)) },
			"Group.Info":       func(c ctx) error { _, err := g.Info(c); return err },
			"Result":           func(c ctx) error { _, err := honker.Result[int](c, db, 1); return err },
			"WaitResult":       func(c ctx) error { _, err := honker.WaitResult[int](c, db, 1); return err },
		},
		silent: map[string]bool{"DB.Close": true, "DB.Batch": true, "DB.RateLimit": true, "DB.Scheduler": true, "Queue.Name": true, "Queue.DB": true, "Stream.Name": true,
			"Stream.Group": true, "Outbox.Name": true, "Outbox.Queue": true},
	}
	return v, map[string]any{"DB": db, "Queue": q, "Stream": s, "Group": g, "Scheduler": sch, "RateLimit": rate, "Workers": workers, "Outbox": out, "Batch": batch}
}

// first returns the error of the first element of a sequence.
func first[V any](seq func(func(V, error) bool)) (first error) {
	first = errors.New("it is empty")
	seq(func(_ V, err error) bool { first = err; return false })
	return first
}

// tryReadOnly asserts that verbs that write are refused, and that the others work and write nothing.
func tryReadOnly(t *testing.T, db *honker.DB, file *sql.DB) {
	ctx := testkit.Context(t, testkit.Timeout)
	tx, err := db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer tx.Rollback()
	table, types := readOnlyVerbs(db, tx)
	table.requireComplete(t, types)
	before := testkit.Dump(t, file)
	for verb, call := range table.writes {
		require.ErrorIs(t, call(ctx), honker.ErrReadOnly, verb)
	}
	for verb, call := range table.reads {
		require.NoError(t, call(ctx), verb)
	}
	require.Equal(t, before, testkit.Dump(t, file))
}

// The verbs of a read-only DB of a database in use are refused if they write.
func TestReadOnly_Verbs_InUse(t *testing.T) {
	path, writer := testkit.OpenShared(t)
	stockUp(t, writer)
	tryReadOnly(t, openReadOnly(t, path), writer.SQL())
}

// On a read-only DB, every verb that only reads works, and every verb that may write is rejected. Neither the file
// nor those next to it change, whether opened or attached.
func TestReadOnly_Verbs(t *testing.T) {
	testkit.FileOnly(t)
	t.Run("closed file", func(t *testing.T) {
		path := stockedFile(t)
		sum, dir := testkit.FileSum(t, path), testkit.ListDir(t, filepath.Dir(path))
		db, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true})
		require.NoError(t, err)
		tryReadOnly(t, db, db.SQL())
		require.Equal(t, dir, testkit.ListDir(t, filepath.Dir(path)), "no log, no index, no directory of wakes")
		require.NoError(t, db.Close())
		require.Equal(t, sum, testkit.FileSum(t, path))
		require.Equal(t, dir, testkit.ListDir(t, filepath.Dir(path)))
	})
	t.Run("attached", func(t *testing.T) {
		path := stockedFile(t)
		pool := testkit.OpenPool(t, path)
		db, err := honker.Attach(t.Context(), pool, &honker.Options{ReadOnly: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		tryReadOnly(t, db, pool)
	})
}

// The application's own statements can read through a read-only DB but cannot write, not even with honker's
// SQL functions.
func TestReadOnly_SQL(t *testing.T) {
	testkit.FileOnly(t)
	path, writer := testkit.OpenShared(t)
	stockUp(t, writer)
	closed := stockedFile(t)
	for _, db := range []*honker.DB{openReadOnly(t, path), openReadOnly(t, closed)} {
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
		before := testkit.Dump(t, db.SQL())
		for _, statement := range []string{
			`DELETE FROM _honker_live`, `CREATE TABLE t (a)`, `SELECT honker_enqueue('jobs', '1', NULL, NULL, 0, 3, NULL)`, `SELECT notify('news', '1')`, `BEGIN IMMEDIATE`, `PRAGMA user_version = 7`,
		} {
			_, err := db.SQL().ExecContext(t.Context(), statement)
			require.ErrorIs(t, err, honker.ErrReadOnly, statement)
		}
		_, err := db.SQL().BeginTx(t.Context(), nil)
		require.ErrorIs(t, err, honker.ErrReadOnly)
		require.Equal(t, before, testkit.Dump(t, db.SQL()))
	}
}

// A read-only DB on a file in use sees other processes' commits, and its waiters wake.
func TestReadOnly_Follows(t *testing.T) {
	path, writer := testkit.OpenShared(t)
	stockUp(t, writer)
	db := openReadOnly(t, path)
	ctx := testkit.Context(t, testkit.Timeout)
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()
	_, err = writer.Notify(ctx, "news", "hello")
	require.NoError(t, err)
	n, err := l.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, `"hello"`, string(n.Payload))
	id := testkit.Enqueue(t, honker.NewQueue[int](writer, "jobs", nil), 2)
	job, err := db.Job(ctx, id)
	require.NoError(t, err)
	require.Equal(t, honker.PhaseReady, job.Phase)
}

// A file that isn't in use is read as an immutable copy. When another process begins to write to it, verbs report
// that the file was replaced, because old and new pages must not be mixed.
func TestReadOnly_CopyChanges(t *testing.T) {
	testkit.FileOnly(t)
	path := stockedFile(t)
	db := openReadOnly(t, path)
	ctx := testkit.Context(t, testkit.Timeout)
	_, err := db.Job(ctx, 1)
	require.NoError(t, err)
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()
	heard := make(chan error, 1)
	go func() { _, err := l.Next(ctx); heard <- err }()

	writer, err := honker.Open(ctx, path, nil)
	require.NoError(t, err)
	_, err = writer.Notify(ctx, "news", 1)
	require.NoError(t, err)
	_, err = db.Job(ctx, 1)
	require.ErrorIs(t, err, honker.ErrDatabaseReplaced)
	require.ErrorIs(t, <-heard, honker.ErrDatabaseReplaced)
	require.Equal(t, "ready", lookAt(path), "open it again")
	require.NoError(t, writer.Close())
	_, err = db.Job(ctx, 1)
	require.ErrorIs(t, err, honker.ErrDatabaseReplaced, "it has changed")
}

// A file that isn't a honker file of this version is rejected, with the reason, and left unchanged.
func TestReadOnly_Refused(t *testing.T) {
	testkit.FileOnly(t)
	made := func(statements ...string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { testkit.ExecAll(t, testkit.OpenPool(t, path), statements...) }
	}
	for what, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"nothing":     {func(*testing.T, string) {}, "no such file"},
		"a directory": {func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) }, "is a directory, not a file"},
		"text": {func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("text", 1000)), 0o600))
		},
			"is not a SQLite database"},
		"empty":             {func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, nil, 0o600)) }, "it has no honker tables"},
		"an application's":  {made(`CREATE TABLE orders (id)`), "it has no honker tables"},
		"another binding's": {made(`CREATE TABLE _honker_live (id)`), "lacks this library's tables"},
		"older": {func(t *testing.T, path string) {
			testkit.MakeFile(t, path)
			made(`UPDATE _honkerx_meta SET value = '3' WHERE key = 'schema_version'`)(t, path)
		}, "its schema has version 3, and this library needs version 9: open it once for writing"},
		"newer": {func(t *testing.T, path string) {
			testkit.MakeFile(t, path)
			made(`UPDATE _honkerx_meta SET value = '99' WHERE key = 'schema_version'`)(t, path)
		}, "newer than this version"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "app.db")
			t.Run("made", func(t *testing.T) { c.make(t, path) })
			before := testkit.ListDir(t, dir)
			_, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true})
			require.ErrorContains(t, err, c.want)
			require.True(t, errors.Is(err, honker.ErrUnsupported) || errors.Is(err, honker.ErrSchemaTooNew) || errors.Is(err, fs.ErrNotExist))
			var old *honker.OldSchemaError
			if errors.As(err, &old) {
				want := map[string]honker.OldSchemaError{"older": {Version: 3, Current: 9}, "another binding's": {Current: 9}}
				require.Equal(t, want[what], *old)
			}
			require.Equal(t, what == "older" || what == "another binding's", old != nil)
			require.Equal(t, before, testkit.ListDir(t, dir))
		})
	}
}
