package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A job that runs far longer than the others of its queue is a problem, with the job, its worker and a remedy. Queues whose
// usual time is unknown, and jobs of a few minutes, are not.
func TestProblems_Stuck(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		handle := func(ctx context.Context, job *honker.Job[int]) error {
			select {
			case <-time.After(time.Duration(job.Args) * time.Second):
			case <-ctx.Done():
			}
			return nil
		}
		ids := make(map[string]int64)
		for _, queue := range []string{"exports", "nightly"} {
			q := honker.NewQueue[int](db, queue, nil)
			defer testkit.Work(t, q, handle, &honker.WorkOptions{Workers: 2, WorkerID: "w-" + queue})()
			for range 3 {
				if queue == "exports" {
					_, err := q.Enqueue(t.Context(), 1)
					require.NoError(t, err)
				}
			}
			time.Sleep(10 * time.Second)
			id, err := q.Enqueue(t.Context(), 100_000)
			require.NoError(t, err)
			ids[queue] = id
		}
		stuck := func() (all []admin.Problem) {
			found, err := admin.Problems(t.Context(), db)
			require.NoError(t, err)
			for _, p := range found {
				if p.Code == admin.ProblemStuck {
					all = append(all, p)
				}
			}
			return all
		}
		time.Sleep(4 * time.Minute)
		require.Empty(t, stuck(), "for less than five minutes")
		time.Sleep(2 * time.Hour)
		all := stuck()
		require.Len(t, all, 1)
		p := all[0]
		require.Equal(t, "exports", p.Queue)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.Equal(t, honker.Count{N: 1}, p.N)
		require.Contains(t, p.Text, fmt.Sprintf("exports: job %d has run for 2h4m", ids["exports"]))
		require.Contains(t, p.Text, "on worker w-exports, others take 1s on average")
		require.Equal(t, admin.Action{Verb: admin.ActionCancelRunning, Job: ids["exports"]}, p.Actions[1])

		stats, err := admin.Queues(t.Context(), db)
		require.NoError(t, err)
		require.Len(t, stats, 2)
		for _, s := range stats {
			require.WithinDuration(t, time.Now().Add(-2*time.Hour-4*time.Minute), s.OldestStart, 15*time.Second)
		}
		usual, known, err := admin.UsualRun(t.Context(), db, "nightly")
		require.NoError(t, err)
		require.False(t, known, usual)
	})
}

// A schedule keeps its last job and its outcome. One that has skipped its last time is a problem until it fires or is
// triggered.
func TestSchedules(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
		require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: "backup", Queue: "jobs", Spec: "@every 24h", Missed: honker.Skip}))
		q := honker.NewQueue[any](db, "jobs", nil)
		report := func() admin.ScheduleReport {
			all, err := admin.Schedules(t.Context(), db)
			require.NoError(t, err)
			require.Len(t, all, 1)
			return all[0]
		}
		missed := func() (texts []string) {
			all, err := admin.Problems(t.Context(), db)
			require.NoError(t, err)
			for _, p := range all {
				if p.Code == admin.ProblemScheduleMissed {
					require.Equal(t, "backup", p.Name)
					texts = append(texts, p.Do...)
				}
			}
			return texts
		}
		due := report().NextFireAt
		require.Zero(t, report().LastFireAt)
		require.Equal(t, honker.Phase(""), report().LastPhase)
		time.Sleep(24*time.Hour + time.Minute)
		_, err := db.Scheduler().Tick(t.Context(), time.Now())
		require.NoError(t, err)
		got := report()
		require.True(t, got.LastFireAt.Equal(due))
		require.Equal(t, honker.PhaseReady, got.LastPhase)
		require.Empty(t, missed())

		jobs, err := q.Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		require.Equal(t, got.LastJob, jobs[0].ID)
		require.Equal(t, honker.PhaseRunning, report().LastPhase)
		require.NoError(t, jobs[0].Reject(t.Context(), errors.New("no space")))
		require.Equal(t, honker.PhaseDead, report().LastPhase)

		time.Sleep(49 * time.Hour)
		_, err = db.Scheduler().Tick(t.Context(), time.Now())
		require.NoError(t, err)
		got = report()
		require.True(t, got.LastFireAt.Equal(due))
		require.True(t, got.LastSkipAt.Equal(due.Add(48*time.Hour)), got.LastSkipAt)
		require.EqualValues(t, 2, got.Skipped)
		require.Equal(t, []string{`trigger schedule "backup"`}, missed())

		_, err = db.Scheduler().Trigger(t.Context(), "backup")
		require.NoError(t, err)
		require.Empty(t, missed())
		jobs, err = q.Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		require.NoError(t, jobs[0].Ack(t.Context()))
		require.Equal(t, honker.PhaseDone, report().LastPhase, "the job is gone")
		require.EqualValues(t, 2, report().Skipped)
	})
}

// The usual run of a queue includes the attempts of the last minutes. The sums of older minutes are read once, because they no
// longer change.
func TestUsualRun_ReadsPastOnce(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
		set := func(ago time.Duration, ran time.Duration) {
			for _, queue := range []string{"", "mails"} {
				_, err := db.SQL().Exec(`INSERT INTO _honkerx_minutes (minute, queue, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms)
VALUES (?, ?, 1, 1, 1, 0, 0, 0, 0, ?, 0) ON CONFLICT (minute, queue) DO UPDATE SET ran_ms = excluded.ran_ms`, time.Now().Add(-ago).Unix()/60, queue, ran.Milliseconds())
				require.NoError(t, err)
			}
		}
		usual := func() time.Duration {
			usual, known, err := admin.UsualRun(t.Context(), db, "mails")
			require.NoError(t, err)
			require.True(t, known)
			return usual
		}
		set(time.Hour, 2*time.Second)
		require.Equal(t, 2*time.Second, usual())
		set(time.Minute, 4*time.Second)
		require.Equal(t, 3*time.Second, usual(), "the last minutes are current")
		set(time.Hour, 20*time.Second)
		require.Equal(t, 3*time.Second, usual(), "the hour was read again")
		time.Sleep(time.Minute)
		require.Equal(t, 12*time.Second, usual(), "the day has moved on")
		set(24*time.Hour+time.Minute, time.Hour)
		require.Equal(t, 12*time.Second, usual(), "older than a day")
	})
}
