package honker_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
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

// progressNow returns a job's done, total and note as stored in the file.
func progressNow(t testing.TB, db *honker.DB, id int64) string {
	t.Helper()
	job, err := db.Job(context.Background(), id)
	require.NoError(t, err)
	if job.Progress == nil {
		return ""
	}
	return fmt.Sprint(job.Progress.Done, "/", job.Progress.Total, " ", job.Progress.Note)
}

// Progress is written together with lease renewals, in a single commit for all jobs, no matter how often SetProgress
// is called.
func TestJob_SetProgress_WithRenewal(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
		q := honker.NewQueue[int](db, "jobs", nil)
		end := make(chan struct{})
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			for i := range int64(100_000) {
				job.SetProgress(i, 100_000, "first")
			}
			time.Sleep(15 * time.Second)
			job.SetProgress(int64(job.Args), 0, "second")
			<-end
			return nil
		}, &honker.WorkOptions{Workers: 3, Lease: 30 * time.Second})
		ids, err := q.EnqueueMany(t.Context(), []int{7, 8, 9})
		require.NoError(t, err)
		conn, err := db.SQL().Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		last, commits := 0, 0
		sleep := func(seconds int) {
			for range 10 * seconds {
				time.Sleep(100 * time.Millisecond)
				var version int
				require.NoError(t, conn.QueryRowContext(t.Context(), `PRAGMA data_version`).Scan(&version))
				commits += version - last // at most one commit in such a short time
				last = version
			}
		}
		sleep(1)
		commits = 0
		for _, id := range ids {
			require.Empty(t, progressNow(t, db, id), "before the first renewal")
		}
		sleep(2)
		for _, id := range ids {
			require.Equal(t, "99999/100000 first", progressNow(t, db, id))
		}
		require.Equal(t, 1, commits, "one commit for all, when their starts are saved after two seconds")
		sleep(20)
		job := testkit.GetJob(t, q, ids[1])
		require.Equal(t, &honker.Progress{Done: 8, Note: "second", At: job.Progress.At}, job.Progress)
		require.InDelta(t, 8, time.Since(job.Progress.At).Seconds(), 0.01)
		sleep(20)
		require.Equal(t, 5, commits, "one for each third of the lease besides")
		finish()
		require.NoError(t, stop())
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job`))
		requireSound(t, db)
	})
}

// With a short lease, which is renewed often, progress is written at most once a second.
func TestJob_SetProgress_OnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		q := honker.NewQueue[int](db, "jobs", nil)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			for i := range int64(1000) {
				job.SetProgress(i, 1000, "")
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		}, &honker.WorkOptions{Lease: time.Second})
		id := testkit.Enqueue(t, q, 1)
		seen := make(map[string]bool)
		for range 95 {
			time.Sleep(100 * time.Millisecond)
			seen[progressNow(t, db, id)] = true
		}
		require.LessOrEqual(t, len(seen), 11)
		require.Greater(t, len(seen), 7)
		require.NoError(t, stop())
	})
}

// A job that fails, dies, or is done and kept retains its last progress. A settle writes any progress that no renewal
// has written yet.
func TestJob_SetProgress_Kept(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	job.SetProgress(1, 3, "one")
	require.Empty(t, progressNow(t, db, id), "by itself it writes nothing")
	require.NoError(t, job.Extend(ctx, time.Minute))
	require.Equal(t, "1/3 one", progressNow(t, db, id))
	job.SetProgress(2, 3, "two")
	require.NoError(t, job.Retry(ctx, 0, errors.New("a")))
	require.Equal(t, "2/3 two", progressNow(t, db, id))
	job = testkit.ClaimOne(t, q)
	require.Equal(t, "2/3 two", progressNow(t, db, id), "until the next attempt tells of its own")
	job.SetProgress(0, 3, "again")
	require.NoError(t, job.Snooze(ctx, 0))
	require.Equal(t, "0/3 again", progressNow(t, db, id))
	job = testkit.ClaimOne(t, q)
	job.SetProgress(3, 3, strings.Repeat("ä", 1000)+"\x00")
	require.NoError(t, job.Reject(ctx, errors.New("b")))
	require.Equal(t, "3/3 "+strings.Repeat("ä", 256), progressNow(t, db, id), "a dead one")

	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
	id = testkit.Enqueue(t, q, 1)
	job = testkit.ClaimOne(t, q)
	job.SetProgress(3, 3, "done")
	require.NoError(t, job.Ack(ctx))
	require.Equal(t, "3/3 done", progressNow(t, db, id))
	id = testkit.Enqueue(t, q, 1)
	_, err := q.WorkDue(ctx, func(_ context.Context, job *honker.Job[int]) error { job.SetProgress(1, 1, "done in Work"); return nil }, nil)
	require.NoError(t, err)
	require.Equal(t, "1/1 done in Work", progressNow(t, db, id))

	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{}))
	testkit.Enqueue(t, q, 1)
	job = testkit.ClaimOne(t, q)
	job.SetProgress(1, 1, "")
	require.NoError(t, job.Ack(ctx))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job`))
	requireSound(t, db)
}

// A handler that has returned or lost its claim can no longer set progress.
func TestJob_SetProgress_NotMine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		var first *honker.Job[int]
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			if first == nil {
				first = job
				return honker.RetryAfter(0, errors.New("again"))
			}
			for range 10 {
				first.SetProgress(66, 66, "late")
				time.Sleep(10 * time.Second)
			}
			return honker.Reject(errors.New("no"))
		}, nil)
		id := testkit.Enqueue(t, q, 1)
		time.Sleep(50 * time.Second)
		require.Empty(t, progressNow(t, db, id))
		time.Sleep(time.Minute)
		require.Empty(t, progressNow(t, db, id))
		require.NoError(t, stop())

		id = testkit.Enqueue(t, q, 2)
		lost := testkit.ClaimOneAs(t, q, "lost")
		time.Sleep(10 * time.Minute)
		testkit.ClaimOneAs(t, q, "other")
		lost.SetProgress(1, 2, "lost")
		require.ErrorIs(t, lost.Extend(t.Context(), time.Hour), honker.ErrClaimLost)
		require.ErrorIs(t, lost.Retry(t.Context(), 0, errors.New("lost")), honker.ErrClaimLost)
		require.Empty(t, progressNow(t, db, id))
	})
}

// resume claims the only job and returns it with the checkpoint of an earlier attempt.
func resume(t testing.TB, q *honker.Queue[int]) (job *honker.Job[int], page map[string]int) {
	t.Helper()
	job = testkit.ClaimOne(t, q)
	_, err := job.Checkpointed(&page)
	require.NoError(t, err)
	return job, page
}

// Until the job is done, the next attempt has the previous attempt's checkpoint, no matter how that attempt ended.
func TestJob_Checkpoint_NextAttempt(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	h := headers{"a": "[1]"}
	id := testkit.Enqueue(t, q, 1, honker.Headers(h))
	for n, end := range []func(*honker.Job[int]) error{
		func(job *honker.Job[int]) error { return job.Retry(ctx, 0, errors.New("a")) },
		func(job *honker.Job[int]) error { return job.Snooze(ctx, 0) },
		func(*honker.Job[int]) error { testkit.ExpireClaim(t, db, id); return nil },
		func(job *honker.Job[int]) error { return job.Ack(ctx) },
	} {
		job, page := resume(t, q)
		require.Equal(t, h, job.Headers)
		if n == 0 {
			require.Nil(t, page)
		} else {
			require.Equal(t, map[string]int{"page": n}, page)
		}
		require.NoError(t, job.Checkpoint(ctx, "another type"))
		require.NoError(t, job.Checkpoint(ctx, map[string]int{"page": n + 1}), "the last one counts")
		var now map[string]int
		some, err := job.Checkpointed(&now)
		require.NoError(t, err)
		require.Equal(t, n > 0, some, "it is for the next attempt")
		require.Equal(t, page, now)
		require.NoError(t, end(job))
		requireSound(t, db)
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job`))

	testkit.Enqueue(t, q, 1) // without headers, in Work
	for want := range 3 {
		_, err := q.WorkDue(ctx, func(ctx context.Context, job *honker.Job[int]) error {
			var n int
			some, err := job.Checkpointed(&n)
			require.NoError(t, err)
			require.Equal(t, want > 0, some)
			require.Equal(t, want, n)
			require.NoError(t, job.Checkpoint(ctx, n+1))
			return honker.Snooze(time.Hour)
		}, nil)
		require.NoError(t, err)
		testkit.Exec(t, db, `UPDATE _honker_live SET run_at = unixepoch()`)
	}
}

// Only the claim's holder can write a checkpoint. The checkpoint is committed together with its
// transaction's other writes.
func TestJob_Checkpoint_Fenced(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	stale := testkit.ClaimOneAs(t, q, "me")
	testkit.ExpireClaim(t, db, id)
	job := testkit.ClaimOneAs(t, q, "me")
	require.NoError(t, job.Checkpoint(ctx, 1))
	before := testkit.Dump(t, db.SQL())
	require.ErrorIs(t, stale.Checkpoint(ctx, 2), honker.ErrClaimLost)
	inTx := func(of *honker.Job[int], n int, end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			require.ErrorIs(t, of.Checkpoint(ctx, 4), honker.ErrInTx)
			if err := of.CheckpointTx(ctx, tx, n); err != nil {
				return err
			}
			return end
		})
	}
	undo := errors.New("undo")
	require.ErrorIs(t, inTx(stale, 2, nil), honker.ErrClaimLost)
	require.ErrorIs(t, inTx(job, 2, undo), undo)
	for what, v := range map[string]any{"no JSON": make(chan int), "bytes": []byte("x"), "too large": strings.Repeat("x", 1<<20)} {
		require.ErrorIs(t, job.Checkpoint(ctx, v), honker.ErrInvalid, what)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()), "nothing was changed")
	require.NoError(t, inTx(job, 3, nil))
	require.NoError(t, job.Retry(ctx, 0, nil))
	require.ErrorIs(t, job.Checkpoint(ctx, 5), honker.ErrClaimLost, "settled")
	require.ErrorIs(t, job.CheckpointTx(ctx, db.SQL(), 5), honker.ErrClaimLost)

	job = testkit.ClaimOne(t, q)
	n, text := 0, "as it was"
	some, err := job.Checkpointed(&n)
	require.NoError(t, err)
	require.True(t, some)
	require.Equal(t, 3, n)
	some, err = job.Checkpointed(&text)
	require.Error(t, err)
	require.False(t, some)
	require.Equal(t, "as it was", text)
}

// A waiting job whose arguments are replaced loses its checkpoint.
func TestJob_Checkpoint_Replaced(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	u := honker.Unique("k", &honker.Uniqueness{Conflict: honker.ReplaceWaiting})
	p := place(t, q, 1, u)
	job := testkit.ClaimOne(t, q)
	require.NoError(t, job.Checkpoint(ctx, map[string]int{"page": 1}))
	job.SetProgress(1, 2, "of the first")
	require.NoError(t, job.Retry(ctx, 0, errors.New("a")))
	place(t, q, 2, u)
	require.Empty(t, progressNow(t, db, p.ID))
	_, page := resume(t, q)
	require.Nil(t, page)
}

// Text that another program wrote to the progress and checkpoint columns is ignored and does no harm.
func TestJob_Checkpoint_ForeignText(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	id := testkit.Enqueue(t, q, 1, honker.Headers(headers{"a": "b"}))
	for _, text := range []string{"no JSON", "[", "1", "{}", "null", `[1,2]`, `["a","b","c","d"]`} {
		testkit.Exec(t, db, `UPDATE _honkerx_job SET headers = ?, progress = ?, checkpoint = ?`, text, text, text)
		job := testkit.ClaimOne(t, q)
		require.Equal(t, id, job.ID, text)
		_, _ = job.Checkpointed(new(int))
		info, err := db.Job(t.Context(), id)
		require.NoError(t, err, text)
		require.Empty(t, info.Headers, text)
		require.NoError(t, job.Snooze(t.Context(), 0), text)
	}
}

// attempts collects a Log middleware's lines.
type attempts struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (a *attempts) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.Write(p)
}

func (a *attempts) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(a, nil)) }

// line is a single log line.
type line struct {
	Level, Msg, Queue, Outcome, Error, Trace string
	Job, Attempt                             int64
	Wait, Ran                                time.Duration
}

func (a *attempts) lines(t *testing.T) (all []line) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for text := range strings.Lines(a.text.String()) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l), text)
		all = append(all, l)
	}
	return all
}

// The logged outcome of each attempt is the outcome that the observer receives after the commit. The line
// has the matching level and the error, but none of the arguments.
func TestLog_Outcome(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	type handler = func(ctx context.Context, db *honker.DB, job *honker.Job[string]) error
	tx := func(settle func(*honker.Job[string], context.Context, *sql.Tx) error, then error) handler {
		return func(ctx context.Context, db *honker.DB, job *honker.Job[string]) error {
			return errors.Join(db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(settle(job, ctx, tx), then)
			}))
		}
	}
	returns := func(err error) handler {
		return func(context.Context, *honker.DB, *honker.Job[string]) error { return err }
	}
	for name, c := range map[string]struct {
		handle handler
		level  string
		error  string
	}{
		"acked":                    {returns(nil), "INFO", ""},
		"retried":                  {returns(testkit.ErrCause), "WARN", testkit.ErrCause.Error()},
		"retried after":            {returns(honker.RetryAfter(time.Hour, testkit.ErrCause)), "WARN", testkit.ErrCause.Error()},
		"died":                     {returns(honker.Reject(testkit.ErrCause)), "ERROR", testkit.ErrCause.Error()},
		"snoozed":                  {returns(honker.Snooze(time.Hour)), "INFO", "snooze for 1h0m0s"},
		"snoozed to slow down":     {returns(honker.SlowDown(time.Hour, testkit.ErrCause)), "INFO", "snooze for 1h0m0s"},
		"retried by panic":         {func(context.Context, *honker.DB, *honker.Job[string]) error { panic("secret") }, "WARN", "the handler panicked or called runtime.Goexit"},
		"retried by the end of it": {func(context.Context, *honker.DB, *honker.Job[string]) error { runtime.Goexit(); return nil }, "WARN", "the handler panicked or called runtime.Goexit"},
		"died by the handler":      {func(ctx context.Context, _ *honker.DB, j *honker.Job[string]) error { return j.Reject(ctx, nil) }, "ERROR", ""},
		"snoozed by the handler":   {func(ctx context.Context, _ *honker.DB, j *honker.Job[string]) error { return j.Snooze(ctx, time.Hour) }, "INFO", ""},
		"acked by a transaction":   {tx(func(j *honker.Job[string], ctx context.Context, tx *sql.Tx) error { return j.AckTx(ctx, tx) }, nil), "INFO", ""},
		"retried by a transaction": {tx(func(j *honker.Job[string], ctx context.Context, tx *sql.Tx) error {
			return j.RetryTx(ctx, tx, time.Hour, nil)
		}, nil), "WARN", ""},
		"retried after its rolled back": {tx(func(j *honker.Job[string], ctx context.Context, tx *sql.Tx) error { return j.AckTx(ctx, tx) }, testkit.ErrCause), "WARN", testkit.ErrCause.Error()},
		"cancelled": {func(ctx context.Context, db *honker.DB, j *honker.Job[string]) error {
			_, err := honker.NewQueue[string](db, "jobs", nil).Cancel(ctx, j.ID)
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}, "INFO", "context canceled"},
		"lost": {func(ctx context.Context, db *honker.DB, j *honker.Job[string]) error {
			_, err := db.SQL().ExecContext(ctx, `UPDATE _honker_live SET worker_id = 'other'`)
			return errors.Join(err, j.Ack(ctx))
		}, "WARN", "honker: ack job 1: claim lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a attempts
			settled := make(chan observe.Settled, 9)
			db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Settled: func(s observe.Settled) { settled <- s }}})
			q := honker.NewQueue[string](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
			stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[string]) error { return c.handle(ctx, db, job) },
				&honker.WorkOptions{Middleware: []honker.Middleware{honker.Log(a.logger(), nil)}})
			id := testkit.Enqueue(t, q, "secret")
			testkit.Eventually(t, testkit.Timeout, "a line and a settle", func() bool { return len(a.lines(t)) == 1 && len(settled) > 0 })
			_ = stop()
			outcome, _, _ := strings.Cut(name, " ")
			require.EqualValues(t, outcome, (<-settled).Outcome, "this test is right")
			got := a.lines(t)[0]
			require.NotContains(t, a.text.String(), "secret")
			got.Wait, got.Ran = 0, 0
			require.Equal(t, line{Level: c.level, Msg: "honker: attempt", Queue: "jobs", Job: id, Attempt: 1, Outcome: outcome, Error: c.error}, got)
		})
	}
}

// A job's last attempt is logged as dead, a WorkTx attempt as acked, and an attempt that did not finish
// before the end of the drain as released.
func TestLog_Ends(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		var a attempts
		log := &honker.WorkOptions{Middleware: []honker.Middleware{honker.Log(a.logger(), nil)}, Workers: 1, DrainTimeout: time.Second}
		q := honker.NewQueue[string](db, "jobs", &honker.QueueOptions{MaxAttempts: 2, Backoff: honker.Constant(time.Minute)})
		testkit.Enqueue(t, q, "x")
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[string]) error {
			time.Sleep(time.Second)
			return testkit.ErrCause
		}, log)
		time.Sleep(2 * time.Minute)
		require.NoError(t, stop())
		got := a.lines(t)
		require.Len(t, got, 2)
		require.Equal(t, []string{"retried", "died"}, []string{got[0].Outcome, got[1].Outcome})
		require.Equal(t, time.Second, got[1].Ran)
		require.Less(t, got[1].Wait, time.Second)

		testkit.Enqueue(t, q, "x", honker.Delay(time.Minute))
		stopTx := testkit.Background(t, func(ctx context.Context) error { return q.WorkTx(ctx, testkit.SucceedTx, log) })
		time.Sleep(2 * time.Minute)
		require.NoError(t, stopTx())
		require.Equal(t, "acked", a.lines(t)[2].Outcome)

		testkit.Enqueue(t, q, "x")
		stop = testkit.Work(t, q, func(ctx context.Context, _ *honker.Job[string]) error { <-ctx.Done(); return ctx.Err() }, log)
		synctest.Wait()
		require.NoError(t, stop())
		require.Equal(t, "released", a.lines(t)[3].Outcome)
	})
}

// Of the acked attempts, only a sample is logged, plus each slow attempt. All other attempts are logged.
func TestLog_OneIn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		var a attempts
		q := honker.NewQueue[int](db, "jobs", nil)
		for i := range 400 {
			testkit.Enqueue(t, q, i)
		}
		n, err := q.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
			switch {
			case job.Args < 10:
				time.Sleep(time.Second)
			case job.Args < 20:
				return honker.Reject(testkit.ErrCause)
			}
			return nil
		}, &honker.WorkOptions{Middleware: []honker.Middleware{honker.Log(a.logger(), &honker.LogOptions{OneIn: 10, Slow: time.Second})}})
		require.NoError(t, err)
		require.Equal(t, 400, n)
		count := map[string]int{}
		for _, l := range a.lines(t) {
			count[l.Outcome]++
			if l.Ran >= time.Second {
				count["slow"]++
			}
		}
		require.Equal(t, 10, count["died"])
		require.Equal(t, 10, count["slow"])
		require.InDelta(t, 48, count["acked"], 35, "10 and a tenth of 380")
	})
}

// The log handler and Attrs receive the attempt's ctx, and the levels can be configured. A panic in either
// does not fail the job.
func TestLog_Options(t *testing.T) {
	t.Parallel()
	type traceKey struct{}
	ctx, _, q := testkit.NewQueue[int](t, nil)
	var a attempts
	trace := func(next honker.WorkFunc) honker.WorkFunc {
		return func(ctx context.Context, job *honker.JobInfo) error {
			return next(context.WithValue(ctx, traceKey{}, "4711"), job)
		}
	}
	o := &honker.LogOptions{
		Level: func(o honker.Outcome) slog.Level {
			require.Equal(t, honker.OutcomeAcked, o)
			return slog.LevelDebug
		},
		Attrs: func(ctx context.Context) []slog.Attr {
			return []slog.Attr{slog.String("trace", ctx.Value(traceKey{}).(string))}
		},
	}
	logger := slog.New(slog.NewJSONHandler(&a, &slog.HandlerOptions{Level: slog.LevelDebug}))
	handled := 0
	work := func(first ...honker.Middleware) {
		testkit.Enqueue(t, q, 1)
		_, err := q.WorkDue(ctx, func(context.Context, *honker.Job[int]) error { handled++; return nil },
			&honker.WorkOptions{Middleware: append(first, honker.Log(logger, o))})
		require.NoError(t, err)
	}
	work(trace)
	require.Equal(t, "4711", a.lines(t)[0].Trace)
	require.Equal(t, "DEBUG", a.lines(t)[0].Level)
	work() // Attrs panics here, and no trace is logged
	require.Equal(t, 2, handled)
	require.Len(t, a.lines(t), 1)
	require.NoError(t, honker.Log(nil, nil)(func(context.Context, *honker.JobInfo) error { return nil })(ctx, &honker.JobInfo{}), "a job of a test's own")
}
