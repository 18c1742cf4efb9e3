package admin_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// problems returns db's problems.
func problems(t *testing.T, db *honker.DB) []admin.Problem {
	t.Helper()
	all, err := admin.Problems(t.Context(), db)
	require.NoError(t, err)
	return all
}

// only returns db's problem and requires that there are no others.
func only(t *testing.T, db *honker.DB) admin.Problem {
	t.Helper()
	all := problems(t, db)
	require.Len(t, all, 1)
	return all[0]
}

// inBubble runs fn in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, db *honker.DB, q *honker.Queue[int])) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		fn(t, db, honker.NewQueue[int](db, "jobs", nil))
	})
}

// slowly returns a handler that takes d.
func slowly(d time.Duration) honkertest.Handler[int] {
	return func(ctx context.Context, _ *honker.Job[int]) error {
		time.Sleep(d)
		return nil
	}
}

// A new file has no problems, and neither does a busy, healthy one.
func TestProblems_None(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.Empty(t, problems(t, db))
		stop := testkit.Work(t, q, testkit.Succeed[int], nil)
		testkit.Enqueue(t, q, 1)
		testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
		time.Sleep(30 * time.Minute)
		require.Empty(t, problems(t, db))
		require.NoError(t, stop())
	})
}

// Ready jobs without a worker are a problem after a minute, until a worker starts.
func TestProblems_NoWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		began := time.Now().Truncate(time.Second)
		for n := range 3 {
			testkit.Enqueue(t, q, n)
		}
		time.Sleep(time.Minute)
		require.Empty(t, problems(t, db), "a worker of another binding may be there, and take it")
		time.Sleep(2 * time.Second)
		p := only(t, db)
		require.WithinDuration(t, began, p.Since, 0)
		p.Since = time.Time{}
		require.Equal(t, admin.Problem{
			Code: admin.ProblemNoWorker, Severity: admin.SeverityError, Queue: "jobs", N: honker.Count{N: 3},
			Text:    "jobs: 3 jobs ready, but no worker runs",
			Actions: []admin.Action{{Verb: admin.ActionListWorkers, Queue: "jobs"}, {Verb: admin.ActionListJobs, Queue: "jobs", Phase: honker.PhaseReady}},
			Do:      []string{`list the workers of queue "jobs"`, `list the ready jobs of queue "jobs"`},
		}, p)
		_, err := q.Pause(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, problems(t, db), "it was meant")
		_, err = q.Resume(t.Context())
		require.NoError(t, err)
		require.Len(t, problems(t, db), 1)

		other := honkertest.Foreign(t, db, "jobs")
		require.Len(t, other.Claim(1, time.Minute), 1)
		require.Empty(t, problems(t, db), "one that holds a job lives")
		time.Sleep(2 * time.Minute)
		require.NotEmpty(t, problems(t, db))
		stop := testkit.Work(t, q, testkit.Succeed[int], nil)
		time.Sleep(time.Second)
		require.Empty(t, problems(t, db))
		require.NoError(t, stop())
	})
}

// A killed worker does not count as a worker.
func TestProblems_NoWorker_Gone(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		const another = `INSERT INTO _honkerx_workers (worker, queue, host, boot, pid_space, pid, pid_start, since_ms, seen_ms) VALUES `
		testkit.ExecAll(t, db.SQL(), another+`('gone', 'jobs', 'h', 'another', 's', 1, 1, 1, 1)`)
		testkit.Enqueue(t, q, 1)
		time.Sleep(2 * time.Minute)
		require.Equal(t, admin.ProblemNoWorker, only(t, db).Code)
		testkit.ExecAll(t, db.SQL(), another+`('unknown', 'jobs', 'h', NULL, NULL, NULL, NULL, 1, 1)`)
		require.Empty(t, problems(t, db), "it may live")
	})
}

// A job is late after ten times the usual wait, or after five minutes if the usual wait is unknown.
func TestProblems_Late(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		stop := testkit.Work(t, q, slowly(20*time.Second), &honker.WorkOptions{Workers: 1})
		for n := range 30 {
			testkit.Enqueue(t, q, n)
		}
		time.Sleep(5*time.Minute + 10*time.Second)
		p := only(t, db)
		require.Equal(t, admin.ProblemLate, p.Code)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.Equal(t, "jobs", p.Queue)
		require.Equal(t, "jobs: 14 jobs ready, and the workers do not keep up", p.Text)
		time.Sleep(10 * time.Minute)
		require.Empty(t, problems(t, db))

		// By now the jobs have waited for five minutes on average.
		for n := range 90 {
			testkit.Enqueue(t, q, n)
		}
		time.Sleep(25 * time.Minute)
		require.Empty(t, problems(t, db))
		require.NoError(t, stop())
	})
}

// The usual wait is computed per queue. A job that waits for minutes is late in a queue where jobs
// usually don't wait.
func TestProblems_Late_Usual(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		stop := testkit.Work(t, q, slowly(90*time.Second), &honker.WorkOptions{Workers: 1})
		for n := range 3 {
			testkit.Enqueue(t, q, n)
			time.Sleep(2 * time.Minute)
		}
		testkit.Enqueue(t, q, 1)
		testkit.Enqueue(t, q, 2)
		time.Sleep(62 * time.Second)
		p := only(t, db)
		require.Equal(t, admin.ProblemLate, p.Code)
		require.Regexp(t, `\(average wait \d+m?s\)$`, p.Text)
		require.NoError(t, stop())
	})
}

// An expired claim is a problem if no worker picks up the job within a minute.
func TestProblems_Lapsed(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		testkit.Enqueue(t, q, 1)
		job := testkit.ClaimOne(t, q)
		time.Sleep(time.Until(job.ClaimExpiresAt) + time.Minute)
		require.Empty(t, problems(t, db))
		time.Sleep(5 * time.Second)
		p := only(t, db)
		require.Equal(t, admin.ProblemLapsed, p.Code)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.WithinDuration(t, job.ClaimExpiresAt, p.Since, time.Second)
		require.Equal(t, honker.Count{N: 1}, p.N)
		require.NoError(t, func() error { _, err := q.Pause(t.Context(), nil); return err }())
		require.Empty(t, problems(t, db))
	})
}

// Jobs that wait for a dead job are a problem immediately, except with EvenIfDead.
func TestProblems_WaitsForDead(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		dead := bury(t, q, 1, "no")
		first := testkit.Enqueue(t, q, 2, honker.After(dead))
		testkit.Enqueue(t, q, 3, honker.After(dead))
		testkit.Enqueue(t, honker.NewQueue[int](db, "others", nil), 4, honker.After(dead), honker.EvenIfDead())
		all := problems(t, db)
		require.Len(t, all, 2, "and that it died")
		p := all[0]
		require.Equal(t, admin.ProblemWaitsForDead, p.Code)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.Equal(t, honker.Count{N: 2}, p.N)
		require.False(t, p.Since.IsZero())
		require.Equal(t, fmt.Sprintf("jobs: 2 jobs wait for dead jobs: job %d for job %d, which is dead", first, dead), p.Text)
		require.Contains(t, p.Actions, admin.Action{Verb: admin.ActionRequeueJob, Job: dead})
	})
}

// Deaths are a problem for an hour.
func TestProblems_Dead(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		began := time.Now()
		bury(t, q, 1, "no")
		bury(t, honker.NewQueue[int](db, "it's", nil), 1, "no")
		time.Sleep(30 * time.Minute)
		bury(t, q, 2, "no")
		all := problems(t, db)
		require.Len(t, all, 2)
		require.Equal(t, []string{"jobs", "it's"}, []string{all[0].Queue, all[1].Queue}, "more jobs first")
		require.Equal(t, admin.Action{Verb: admin.ActionGroupDead, Queue: "it's", Since: time.Hour}, all[1].Actions[0])
		require.Equal(t, admin.ProblemDead, all[0].Code)
		require.Equal(t, admin.SeverityWarn, all[0].Severity)
		require.Equal(t, honker.Count{N: 2}, all[0].N)
		require.WithinDuration(t, began, all[0].Since, time.Second)
		time.Sleep(31 * time.Minute)
		require.Equal(t, honker.Count{N: 1}, only(t, db).N)
		time.Sleep(30 * time.Minute)
		require.Empty(t, problems(t, db))
	})
}

// A schedule is overdue one minute after it was due. The problem names the leader that fails to
// fire it.
func TestProblems_Overdue(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: "nightly", Queue: "jobs", Spec: "@every 10m"}))
		time.Sleep(11 * time.Minute)
		require.Empty(t, problems(t, db))
		time.Sleep(3 * time.Second)
		p := only(t, db)
		require.Equal(t, admin.ProblemOverdue, p.Code)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.Equal(t, "nightly", p.Name)
		require.Equal(t, "schedule nightly is overdue: no process runs the scheduler", p.Text)
		held, err := db.TryLock(t.Context(), "honker-scheduler", &honker.LockOptions{Owner: "p1"})
		require.NoError(t, err)
		require.Equal(t, "schedule nightly is overdue: the leader p1 does not fire it", only(t, db).Text)
		require.NoError(t, held.Unlock(t.Context()))
		_, err = db.Scheduler().Pause(t.Context(), "nightly")
		require.NoError(t, err)
		require.Empty(t, problems(t, db))
	})
}

// A consumer that reads nothing, or a group without a member, is a problem after an hour.
func TestProblems_Behind(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
		orders := honker.NewStream[int](db, "orders", nil)
		ctx := t.Context()
		for n := range 3 {
			_, err := orders.Publish(ctx, n)
			require.NoError(t, err)
		}
		for consumer, offset := range map[string]int64{"slow": 1, "up to date": 3} {
			_, err := orders.SaveOffset(ctx, consumer, offset)
			require.NoError(t, err)
		}
		member, err := orders.Group("team", nil).Join(ctx, "m")
		require.NoError(t, err)
		time.Sleep(59 * time.Minute)
		require.Empty(t, problems(t, db))
		time.Sleep(2 * time.Minute)
		all := problems(t, db)
		require.Len(t, all, 2)
		require.Equal(t, "orders: group team has not read 3 events, and has no live member", all[0].Text)
		require.Equal(t, "orders: consumer slow has not read 2 events, and has not saved its offset", all[1].Text)
		require.Equal(t, admin.ProblemBehind, all[1].Code)
		require.Equal(t, admin.SeverityWarn, all[1].Severity)
		require.Equal(t, honker.Count{N: 2}, all[1].N)
		require.Equal(t, []string{"orders", "slow"}, []string{all[1].Topic, all[1].Name})

		_, err = orders.SaveOffset(ctx, "slow", 2)
		require.NoError(t, err)
		_, err = member.Claim(ctx, 1)
		require.NoError(t, err)
		require.Empty(t, problems(t, db), "both have begun to read")
	})
}

// A reader that keeps events beyond the retention of their topic is a problem at once, whether or not it reads.
func TestProblems_Pinned(t *testing.T) {
	for name, want := range map[string]struct {
		honker.Retention
		text string
	}{
		"age":   {honker.Retention{MaxAge: time.Minute}, "orders: consumer slow keeps 2 events beyond the retention"},
		"count": {honker.Retention{MaxCount: 1}, "orders: consumer slow keeps 1 event beyond the retention"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
				stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
				orders := honker.NewStream[int](db, "orders", nil)
				ctx := t.Context()
				require.NoError(t, orders.SetRetention(ctx, want.Retention))
				_, err := orders.SaveOffset(ctx, "slow", 1)
				require.NoError(t, err)
				_, err = orders.SaveOffset(ctx, "up to date", 3)
				require.NoError(t, err)
				for n := range 3 {
					testkit.Publish(t, orders, n)
				}
				time.Sleep(time.Second) // Maintain has begun
				require.Empty(t, problems(t, db))
				time.Sleep(3 * time.Minute)
				p := only(t, db)
				require.Equal(t, admin.ProblemPinned, p.Code)
				require.Equal(t, want.text, p.Text)
				require.Equal(t, []string{`move consumer "slow" of orders to the end`, `delete consumer "slow" of orders`}, p.Do)
				time.Sleep(2 * time.Hour)
				require.Equal(t, admin.ProblemPinned, only(t, db).Code, "it is not reported twice")
				_, err = orders.DeleteConsumer(ctx, "slow")
				require.NoError(t, err)
				require.Empty(t, problems(t, db))
				require.NoError(t, stop())
			})
		})
	}
}

// A group, and a reader of a pattern, keep events as a consumer does.
func TestProblems_PinnedByOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		orders, all := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "*", nil)
		ctx := t.Context()
		require.NoError(t, orders.SetRetention(ctx, honker.Retention{MaxCount: 1}))
		_, err := orders.Group("team", nil).Join(ctx, "m")
		require.NoError(t, err)
		for n := range 3 {
			testkit.Publish(t, orders, n)
		}
		time.Sleep(2 * time.Minute)
		p := only(t, db)
		require.Equal(t, "orders: group team keeps 2 events beyond the retention", p.Text)
		require.Equal(t, []string{`delete group "team" of orders`}, p.Do)
		_, err = orders.Group("team", nil).Delete(ctx)
		require.NoError(t, err)
		_, err = all.SaveOffset(ctx, "audit", 1)
		require.NoError(t, err)
		require.Equal(t, `delete consumer "audit" of *`, only(t, db).Do[1])
		require.NoError(t, stop())
	})
}

// A consumer that is an hour behind is a problem unless it has come closer in ten minutes. Both positions are in the file, so a
// process that has just been started reports it as well.
func TestProblems_Slow(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
		orders := honker.NewStream[int](db, "orders", nil)
		ctx := t.Context()
		offset := int64(0)
		live := func(minutes int, perMinute int64) {
			for range minutes {
				testkit.Publish(t, orders, 1)
				if offset += perMinute; perMinute > 0 {
					_, err := orders.SaveOffset(ctx, "billing", offset)
					require.NoError(t, err)
				}
				time.Sleep(time.Minute)
			}
		}
		live(30, 0)
		live(30, 1)
		require.Empty(t, problems(t, db), "half an hour is fine")
		live(40, 0)
		live(15, 1)
		p := only(t, db)
		require.Equal(t, admin.ProblemSlow, p.Code)
		require.Equal(t, admin.SeverityWarn, p.Severity)
		require.Equal(t, []string{"orders", "billing"}, []string{p.Topic, p.Name})
		require.Equal(t, honker.Count{N: 70}, p.N)
		require.Regexp(t, `^orders: consumer billing is 1h10m behind and does not catch up, with 70 events to read \(it reads 0.0\d+ a second, and 0.0\d+ are published\)$`, p.Text)
		states, err := admin.Consumers(ctx, db)
		require.NoError(t, err)
		require.Zero(t, states[0].CatchUp)
		require.True(t, states[0].FallsBehind)
		require.InDelta(t, 1.0/60, states[0].Read, 0.002)
		require.InDelta(t, 1.0/60, states[0].Published, 0.002)

		live(5, 2)
		live(10, 2)
		require.Empty(t, problems(t, db), "it catches up")
		live(12, 0)
		require.Equal(t, admin.ProblemSlow, only(t, db).Code, "it has stopped")

		live(20, 3)
		states, err = admin.Consumers(ctx, db)
		require.NoError(t, err)
		lag := time.Since(states[0].Behind)
		require.Less(t, lag, 30*time.Minute)
		require.InDelta(t, (lag / 2).Seconds(), states[0].CatchUp.Seconds(), lag.Seconds()/5, "three read for each published")

		require.NoError(t, orders.Seek(ctx, "billing", honker.Offset(1)))
		states, err = admin.Consumers(ctx, db)
		require.NoError(t, err)
		require.Zero(t, states[0].ReadSince, "it was moved back")
		require.Zero(t, states[0].CatchUp)
	})
}

// A log that exceeds the DB's limit is a problem.
func TestProblems_WAL(t *testing.T) {
	testkit.FileOnly(t)
	path, _ := testkit.OpenShared(t)
	open := func(limit int64) *honker.DB {
		return honkertest.OpenFile(t, path, &honker.Options{WALLimit: limit})
	}
	small, large, none := open(100_000), open(1<<30), open(-1)
	_, err := honker.NewStream[string](small, "texts", nil).Publish(t.Context(), fmt.Sprintf("%0200000d", 1))
	require.NoError(t, err)
	p := only(t, small)
	require.Equal(t, admin.ProblemWAL, p.Code)
	require.Equal(t, admin.SeverityWarn, p.Severity)
	require.Greater(t, p.N.N, int64(200_000))
	require.Regexp(t, `^the write-ahead log has \d+ KiB, more than its limit of 97.7 KiB$`, p.Text)
	require.Empty(t, problems(t, large))
	require.Empty(t, problems(t, none))
}

// A file without maintenance is a problem if there is something to maintain.
func TestProblems_NotMaintained(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		ctx := t.Context()
		testkit.Enqueue(t, q, 1, honker.ExpiresIn(time.Minute))
		time.Sleep(2 * time.Minute)
		p := only(t, db)
		require.Equal(t, admin.ProblemNotMaintained, p.Code)
		require.Equal(t, admin.SeverityWarn, p.Severity)
		require.NoError(t, honker.NewStream[int](db, "orders", nil).SetRetention(ctx, honker.Retention{MaxCount: 5}))
		require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Dead: honker.Retention{MaxCount: 5}}))
		require.Equal(t, "no process runs Maintain, but there is work for it: 1 expired job to dead-letter, 1 topic with a retention, "+
			"1 queue with a retention", only(t, db).Text)
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		time.Sleep(2 * time.Hour) // the dead job is no longer recent
		require.Empty(t, problems(t, db))
		require.NoError(t, stop())
	})
}

// A pause without an end time is a problem after a day, for both queues and keys.
func TestProblems_Paused(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		ctx := t.Context()
		others := honker.NewQueue[int](db, "others", nil)
		for q, o := range map[*honker.Queue[int]]honker.PauseOptions{
			q:                                     {Reason: "deploy", By: "ann"},
			others:                                {Key: "acme"},
			honker.NewQueue[int](db, "ends", nil): {Until: time.Now().Add(48 * time.Hour)},
		} {
			_, err := q.Pause(ctx, &o)
			require.NoError(t, err)
		}
		time.Sleep(24 * time.Hour)
		require.Empty(t, problems(t, db))
		time.Sleep(time.Minute)
		all := problems(t, db)
		require.Len(t, all, 2)
		require.Equal(t, "jobs: paused by ann (deploy), without an end", all[0].Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionResumePaused, Queue: "jobs"}}, all[0].Actions)
		require.Equal(t, admin.SeverityWarn, all[0].Severity)
		require.Equal(t, `others: key "acme" paused, without an end`, all[1].Text)
		require.Equal(t, []string{"others", "acme"}, []string{all[1].Queue, all[1].Name})
		require.Equal(t, []admin.Action{{Verb: admin.ActionResumePaused, Queue: "others", Key: "acme"}}, all[1].Actions)
	})
}

// Jobs held for a key that has room are a bug in honker, so the test creates the state by hand.
func TestProblems_Held(t *testing.T) {
	testkit.FileOnly(t)
	for name, limits := range map[string]honker.Limits{"per key": {PerKey: 1}, "in order": {InOrder: true}} {
		t.Run(name, func(t *testing.T) {
			ctx, db, q, _ := open(t)
			require.NoError(t, q.SetLimits(ctx, limits))
			for n := range 3 {
				testkit.Enqueue(t, q, n, honker.Key("acme"))
			}
			claimed, err := q.Claim(ctx, "w", 3)
			require.NoError(t, err)
			require.Len(t, claimed, 1)
			require.Empty(t, problems(t, db), "they are held for the one that runs")
			testkit.ExecAll(t, db.SQL(), `UPDATE _honkerx_job SET slot = 2 WHERE slot <> 2`,
				`UPDATE _honker_live SET state = 'held', worker_id = NULL, claim_expires_at = NULL`)
			require.Error(t, db.Check(ctx))
			p := only(t, db)
			require.Equal(t, admin.ProblemHeld, p.Code)
			require.Equal(t, admin.SeverityError, p.Severity)
			require.Equal(t, honker.Count{N: 3}, p.N)
			require.Equal(t, []string{"jobs", "acme"}, []string{p.Queue, p.Name})
			require.Equal(t, []admin.Action{{Verb: admin.ActionCheckFile}}, p.Actions)
			testkit.ExecAll(t, db.SQL(), `DELETE FROM _honker_live`) // Check would fail the test otherwise
		})
	}
}

// A clock that's behind is detected from rows written by a machine whose clock is ahead.
func TestProblems_Clock(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1, honker.Delay(time.Hour))
		ahead := func(d time.Duration) {
			testkit.Exec(t, db, `UPDATE _honker_live SET created_at = ?2 WHERE id = ?1`, id, time.Now().Add(d).Unix())
		}
		ahead(30 * time.Second)
		require.Empty(t, problems(t, db))
		ahead(2 * time.Minute)
		p := only(t, db)
		require.Equal(t, admin.ProblemClock, p.Code)
		require.Equal(t, admin.SeverityWarn, p.Severity)
		require.Contains(t, p.Text, time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339))
	})
}

// A disk is nearly full if less than 256 MiB is free, or less than 2% and less than 5 GiB.
func TestProblems_Disk(t *testing.T) {
	testkit.FileOnly(t)
	_, db, _, _ := open(t)
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		free, size int64
		err        error
		full       bool
	}{
		{free: 300 * mib, size: 1 * gib},
		{free: 200 * mib, size: 1 * gib, full: true},
		{free: 4 * gib, size: 100 * gib},
		{free: 1 * gib, size: 100 * gib, full: true},
		{free: 10 * gib, size: 1000 * gib},
		{err: errors.ErrUnsupported},
	} {
		testkit.Disk(t, c.free, c.size, c.err)
		all := problems(t, db)
		if !c.full {
			require.Empty(t, all, c)
			continue
		}
		require.Len(t, all, 1, c)
		require.Equal(t, admin.ProblemDisk, all[0].Code)
		require.Equal(t, admin.SeverityError, all[0].Severity)
		require.Equal(t, c.free, all[0].N.N)
	}
}

// A full disk comes with the largest part of the file that a retention bounds.
func TestProblems_DiskNamesLargest(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q, _ := open(t)
	testkit.Disk(t, 1, 1<<40, nil)
	only := func() admin.Problem {
		for _, p := range problems(t, db) {
			if p.Code == admin.ProblemDisk {
				return p
			}
		}
		return admin.Problem{}
	}
	require.Equal(t, []admin.Action{{Verb: admin.ActionShowSizes}}, only().Actions, "nothing can be deleted")
	_, err := q.EnqueueMany(ctx, make([]int, 5000))
	require.NoError(t, err)
	require.Empty(t, only().Cause, "live jobs are not deleted")
	bury(t, honker.NewQueue[int](db, "mails", nil), 1, strings.Repeat("no", 1000))
	p := only()
	require.Regexp(t, "^the dead jobs of queue mails take [0-9.]+ KiB$", p.Cause)
	require.Equal(t, admin.Action{Verb: admin.ActionSetRetention, Queue: "mails", Phase: honker.PhaseDead}, p.Actions[0])
	testkit.PublishRange(t, honker.NewStream[int](db, "orders", nil), 1, 5000)
	p = only()
	require.Regexp(t, "^topic orders takes [0-9.]+ KiB$", p.Cause)
	require.Equal(t, []admin.Action{{Verb: admin.ActionSetRetention, Topic: "orders"}, {Verb: admin.ActionShowSizes}}, p.Actions)
}

// The most severe codes come first, and each is explained by Help and in the guide.
func TestProblems_Codes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "problems.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	guide, err := os.ReadFile("../docs/guide/problems.md")
	require.NoError(t, err)
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && spec.Type != nil && fmt.Sprint(spec.Type) == "ProblemCode" {
			n++
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.NotEmpty(t, admin.ProblemCode(code).Help(), code)
			require.Contains(t, string(guide), "| `"+code+"` |", "docs/guide/problems.md")
		}
		return true
	})
	require.Equal(t, 27, n)
	require.Empty(t, admin.ProblemCode("none").Help())
}

// Problems are sorted by severity.
func TestProblems_Order(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		others := honker.NewQueue[int](db, "others", nil)
		bury(t, others, 1, "no")
		testkit.Enqueue(t, q, 1)
		testkit.ClaimOne(t, q)
		time.Sleep(10 * time.Minute)
		testkit.Enqueue(t, others, 1)
		time.Sleep(2 * time.Minute)
		var codes []admin.ProblemCode
		for _, p := range problems(t, db) {
			codes = append(codes, p.Code)
		}
		require.Equal(t, []admin.ProblemCode{admin.ProblemNoWorker, admin.ProblemLapsed, admin.ProblemDead}, codes)
	})
}

// A nil DB and a ctx that has ended are errors.
func TestProblems_Bad(t *testing.T) {
	_, err := admin.Problems(t.Context(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, db, _, _ := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = admin.Problems(ctx, db)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "look for problems")
}
