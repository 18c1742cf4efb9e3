package honker_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
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
)

// attempts collects the log lines of a Log middleware.
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
// has the matching level, the error, and nothing of the arguments.
func TestLog_Outcome(t *testing.T) {
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
			settled := make(chan honker.Settled, 9)
			db := honkertest.Open(t, &honker.Options{Observer: &honker.Observer{Settled: func(s honker.Settled) { settled <- s }}})
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

// The last attempt of a job is logged as dead, an attempt of WorkTx as acked, and an attempt that did not
// finish before the end of the drain as released.
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

// Only a sample of the acked attempts is logged, plus each slow attempt. All other attempts are logged.
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

// The log handler and Attrs receive the ctx of the attempt, and the levels can be configured. A panic in
// either does not fail the job.
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
