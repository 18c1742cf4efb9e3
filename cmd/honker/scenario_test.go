package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// operator is a person at a terminal who knows only the output of the commands.
type operator struct {
	*session
	typed int // number of commands
}

// types runs a command line that was printed before, or the first.
func (o *operator) types(line string) string {
	o.t.Helper()
	o.typed++
	got := o.run(strings.Fields(strings.TrimPrefix(line, "honker "))...)
	require.NotEqual(o.t, codeUsage, got.code, "%s: %s", line, got.err)
	return got.out + got.err
}

// read returns the command line in text that begins with these words.
func (o *operator) read(text, words string) string {
	o.t.Helper()
	_, line, found := strings.Cut(text, words)
	require.True(o.t, found, "%q is not in:\n%s", words, text)
	line, _, _ = strings.Cut(line, "\n")
	return words + line
}

// inTrouble runs f on a file with the trouble that begin makes. The first row of doctor, status and top must name it, and f must
// end it with a single further command, which the output of doctor names.
func inTrouble(t *testing.T, begin func(t *testing.T, db *honker.DB), first string, f func(o *operator, doctor string)) {
	inFile(t, func(t *testing.T, s *session) {
		require.NoError(t, removeAll(t))
		db := open(t, "app.db")
		defer func() { require.NoError(t, db.Close()) }()
		begin(t, db)
		s.atTerm, s.stdin = true, "y\n"
		o := &operator{session: s}
		require.Contains(t, strings.Split(s.run("top", "--once").out, "\n")[1], first)
		status, _, _ := strings.Cut(s.run("status").out, "\n")
		require.Contains(t, status, first)
		doctor := o.types("honker doctor")
		row, _, _ := strings.Cut(doctor, "\n")
		require.Contains(t, row, first)
		f(o, doctor)
		require.LessOrEqual(t, o.typed, 2)
	})
}

// removeAll deletes the jobs and schedules that inFile has made.
func removeAll(t *testing.T) error {
	db := open(t, "app.db")
	var errs []error
	for _, table := range []string{"_honker_live", "_honker_dead", "_honker_scheduler_tasks", "_honkerx_minutes", "_honkerx_job"} {
		_, err := db.SQL().ExecContext(t.Context(), "DELETE FROM "+table)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, db.Close())...)
}

// tenants adds queues with a ready job and without a worker.
func tenants(t *testing.T, db *honker.DB) {
	for n := range 50 {
		_, err := honker.NewQueue[int](db, fmt.Sprintf("a-tenant-%d", n), nil).Enqueue(t.Context(), n)
		require.NoError(t, err)
	}
	time.Sleep(time.Hour)
}

// A: most e-mails fail.
func TestScenario_FailingQueue(t *testing.T) {
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		tenants(t, db)
		emails := honker.NewQueue[int](db, "emails", nil)
		for n := range 60 {
			_, err := emails.Enqueue(t.Context(), n, honker.MaxAttempts(1+n%2))
			require.NoError(t, err)
		}
		_, err := emails.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
			if job.Args == 7 {
				return nil
			}
			return fmt.Errorf("550 5.7.1 relaying of message %d denied", job.Args)
		}, nil)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
	}, "emails: 98 % of 60 attempts failed", func(o *operator, doctor string) {
		require.Contains(o.t, doctor, "550 5.7.1 relaying of message")
		paused := o.types(o.read(doctor, "honker queue pause emails"))
		require.NotContains(o.t, o.run("doctor").out, "emails: 98 %")

		o.typed = 0 // the mail server works again
		resumed := o.types(o.read(paused, "honker queue resume emails"))
		require.Contains(o.t, o.types(o.read(resumed, "honker dead requeue --queue emails")), "requeued 30 dead jobs")
		require.Empty(o.t, o.run("dead", "--queue", "emails", "-o", "name").out)
	})
}

// B: an export never ran, because the job before it is dead.
func TestScenario_JobNeverRan(t *testing.T) {
	var export int64
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		tenants(t, db)
		require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true}))
		q := honker.NewQueue[string](db, "exports", nil)
		collect, err := q.Enqueue(t.Context(), "collect")
		require.NoError(t, err)
		export, err = q.Enqueue(t.Context(), "export", honker.After(collect))
		require.NoError(t, err)
		_, err = q.WorkDue(t.Context(), func(context.Context, *honker.Job[string]) error { return honker.Reject(errors.New("no rows")) }, nil)
		require.NoError(t, err)
		for n := range 50 {
			_, err := honker.NewQueue[int](db, fmt.Sprintf("a-tenant-%d", n), nil).Pause(t.Context(), nil)
			require.NoError(t, err)
		}
	}, "exports: job", func(o *operator, doctor string) {
		require.Contains(o.t, doctor, "which is dead")
		requeue := o.read(doctor, "honker dead requeue")
		require.Contains(o.t, o.run("job", "why", fmt.Sprint(export)).out, requeue, "the job itself leads to the same command")
		o.types(requeue)
		require.NotContains(o.t, o.run("doctor").out, "which is dead")
	})
}

// C: a job runs for three hours.
func TestScenario_StuckJob(t *testing.T) {
	var stop func() error
	var cause error
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "exports", &honker.QueueOptions{Lease: time.Minute})
		stop = testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			select {
			case <-ctx.Done():
				cause = context.Cause(ctx)
			case <-time.After(time.Duration(job.Args) * time.Second):
			}
			return nil
		}, &honker.WorkOptions{WorkerID: "w-17"})
		for _, seconds := range []int{1, 1, 1, 100_000} {
			_, err := q.Enqueue(t.Context(), seconds)
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(3 * time.Hour)
	}, "has run for 3h", func(o *operator, doctor string) {
		require.Contains(o.t, o.types(o.read(doctor, "honker job cancel --running")), "cancelled 1 job")
		require.NotContains(o.t, o.run("doctor").out, "has run for")
		time.Sleep(2 * time.Minute)
		require.NoError(o.t, stop())
		require.ErrorIs(o.t, cause, honker.ErrCancelled)
	})
}

// D: a consumer is far behind.
func TestScenario_SlowConsumer(t *testing.T) {
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		orders := honker.NewStream[int](db, "orders", nil)
		for n := range 300 {
			_, err := orders.Publish(t.Context(), n)
			require.NoError(t, err)
			if n > 200 {
				_, err = orders.SaveOffset(t.Context(), "warehouse", int64(n-200))
				require.NoError(t, err)
			}
			time.Sleep(time.Minute)
		}
	}, "orders: consumer warehouse is 3h", func(o *operator, doctor string) {
		require.Contains(o.t, doctor, "201 events to read")
		moved := o.types(o.read(doctor, "honker consumer seek orders warehouse end"))
		require.Contains(o.t, moved, "warehouse moved from offset 99 to 300, and does not read the events in between")
		require.NotContains(o.t, o.run("doctor").out, "warehouse")
	})
}

// E: the retention of a topic frees nothing, because of a consumer.
func TestScenario_PinnedTopic(t *testing.T) {
	var stop func() error
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		stop = testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		events := honker.NewStream[int](db, "audit-log", nil)
		require.NoError(t, events.SetRetention(t.Context(), honker.Retention{MaxCount: 10}))
		_, err := events.SaveOffset(t.Context(), "siem", 1)
		require.NoError(t, err)
		testkit.PublishRange(t, events, 1, 500)
		time.Sleep(3 * time.Minute)
	}, "audit-log: consumer siem keeps 489 events beyond the retention", func(o *operator, doctor string) {
		o.types(o.read(doctor, "honker consumer rm audit-log siem"))
		time.Sleep(3 * time.Minute)
		require.Contains(o.t, o.run("streams", "--columns", "events", "-q").out, "10")
		require.NoError(o.t, stop())
	})
}

// E: the file fills the disk.
func TestScenario_FullDisk(t *testing.T) {
	testkit.Disk(t, 100<<20, 100<<30, nil)
	var stop func() error
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		testkit.PublishRange(t, honker.NewStream[int](db, "audit-log", nil), 1, 5000)
		time.Sleep(40 * 24 * time.Hour)
		stop = testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		time.Sleep(time.Second)
	}, "the disk is nearly full", func(o *operator, doctor string) {
		require.Contains(o.t, doctor, "topic audit-log takes")
		require.Contains(o.t, o.types(o.read(doctor, "honker stream retention audit-log --age 30d")), "30d")
		time.Sleep(10 * time.Minute)
		require.Contains(o.t, o.run("streams", "--columns", "events", "-q").out, "-")
		require.NoError(o.t, stop())
	})
}

// F: a schedule did not fire last night.
func TestScenario_MissedSchedule(t *testing.T) {
	inTrouble(t, func(t *testing.T, db *honker.DB) {
		for _, name := range []string{"hourly", "nightly-backup"} {
			require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: name, Queue: "backups", Spec: "30 2 * * *", Missed: honker.Skip}))
		}
		_, err := db.Scheduler().Unregister(t.Context(), "hourly")
		require.NoError(t, err)
		time.Sleep(14 * time.Hour)
		require.NoError(t, testkit.Background(t, func(ctx context.Context) error { return db.Scheduler().Run(ctx) })())
	}, "nightly-backup", func(o *operator, doctor string) {
		o.types(o.read(doctor, "honker schedule trigger nightly-backup"))
		require.Contains(o.t, o.run("jobs", "--queue", "backups", "-o", "jsonl").out, `"phase":"ready"`)
	})
}
