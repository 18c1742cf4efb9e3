package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// total writes pending counts and returns the sum of all of queue's minutes.
func total(t *testing.T, db *honker.DB, queue string) (sum admin.Minute) {
	t.Helper()
	time.Sleep(3 * time.Second)
	synctest.Wait()
	all, err := admin.Traffic(t.Context(), db, queue, time.Time{})
	require.NoError(t, err)
	for i, m := range all {
		require.True(t, i == 0 || all[i-1].Start.Before(m.Start))
		sum.Enqueued += m.Enqueued
		sum.Claimed += m.Claimed
		sum.Acked += m.Acked
		sum.Retried += m.Retried
		sum.Died += m.Died
		sum.Snoozed += m.Snoozed
		sum.Wait += m.Wait
		sum.Ran += m.Ran
		sum.MaxWait = max(sum.MaxWait, m.MaxWait)
	}
	return sum
}

// Each event in a job's life is counted in the minute it happens, along with its durations.
func TestTraffic_Counts(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		none, err := admin.Traffic(ctx, db, "", time.Time{})
		require.NoError(t, err)
		require.Empty(t, none)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		began := time.Now()
		q := honker.NewQueue[string](db, "mails", &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
		_, err = q.EnqueueMany(ctx, []string{"ack", "ack", "retry", "snooze", "die"})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		n, err := q.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
			time.Sleep(2 * time.Second)
			return map[string]error{"retry": errors.New("later"), "snooze": honker.Snooze(time.Hour), "die": honker.Reject(nil)}[job.Args]
		}, nil)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		sum := total(t, db, "mails")
		require.Equal(t, admin.Minute{
			Enqueued: 5, Claimed: 5, Acked: 2, Retried: 1, Died: 1, Snoozed: 1,
			Wait: (10 + 12 + 14 + 16 + 18) * time.Second, MaxWait: 18 * time.Second, Ran: 8 * time.Second,
		}, sum)

		time.Sleep(time.Minute)
		first := testkit.Enqueue(t, q, "by hand")
		jobs, err := q.Claim(ctx, "w", 1)
		require.NoError(t, err)
		require.Equal(t, first, jobs[0].ID)
		acked, err := q.AckMany(ctx, "w", []int64{first})
		require.NoError(t, err)
		require.Equal(t, 1, acked)
		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "tea", Spec: "@every 1h"})
		_, err = db.Scheduler().Tick(ctx, time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, admin.Minute{Enqueued: 1}, total(t, db, "tea"))
		require.EqualValues(t, 7, total(t, db, "").Enqueued, "all together")

		all, err := admin.Traffic(ctx, db, "mails", time.Time{})
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.True(t, all[0].Start.Equal(began), all[0].Start)
		require.EqualValues(t, 1, all[1].Acked)
		since, err := admin.Traffic(ctx, db, "mails", all[1].Start.Add(59*time.Second))
		require.NoError(t, err)
		require.Equal(t, all[1:], since, "of the minute in which it lies")
	})
}

// Jobs that are dead-lettered without being settled are counted as died.
func TestTraffic_Deaths(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "mails", &honker.QueueOptions{Lease: time.Second})
		testkit.Enqueue(t, q, 1, honker.MaxAttempts(1))
		testkit.ClaimOne(t, q)
		testkit.Enqueue(t, q, 2, honker.ExpiresIn(time.Second))
		time.Sleep(time.Minute)
		n, err := q.SweepExpired(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Empty(t, testkit.Claim(t, q, 5))
		require.EqualValues(t, 2, total(t, db, "mails").Died)
	})
}

// Jobs enqueued in a transaction are counted when it commits.
func TestTraffic_Tx(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "mails", nil)
		add := func(end error) error {
			return db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueManyTx(ctx, tx, []int{1, 2})
				require.NoError(t, err)
				return end
			})
		}
		require.ErrorIs(t, add(testkit.ErrCause), testkit.ErrCause)
		require.Zero(t, total(t, db, "mails").Enqueued)
		require.NoError(t, add(nil))
		require.EqualValues(t, 2, total(t, db, "mails").Enqueued)
	})
}

// An idle process writes nothing. A busy process writes its counts once a second, and once more when it
// becomes idle.
func TestTraffic_Writes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "app.db")
		db := honkertest.OpenFile(t, path, nil)
		q := honker.NewQueue[int](db, "mails", nil)
		for _, event := range []string{"INSERT", "UPDATE"} {
			testkit.Exec(t, db, `CREATE TRIGGER note_`+event+` AFTER `+event+` ON _honkerx_minutes WHEN NEW.queue = '' BEGIN INSERT INTO noted VALUES (1); END`)
		}
		testkit.Exec(t, db, `CREATE TABLE noted (n)`)
		for range 200 { // twenty seconds
			testkit.Enqueue(t, q, 1)
			time.Sleep(100 * time.Millisecond)
		}
		written := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM noted`)
		require.GreaterOrEqual(t, written, int64(18))
		require.LessOrEqual(t, written, int64(22), "some at the turn of a minute have two")
		require.EqualValues(t, 200, total(t, db, "mails").Enqueued)
		last := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM noted`)
		require.LessOrEqual(t, last, written+2)
		unchanged := testkit.WatchFile(t, path)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		unchanged("an idle process")
	})
}

// Counts from several processes add up.
func TestTraffic_AddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "app.db")
		one, other := honkertest.OpenFile(t, path, nil), honkertest.OpenFile(t, path, nil)
		for i := range 10 {
			testkit.Enqueue(t, honker.NewQueue[int](one, "mails", nil), i)
			testkit.Enqueue(t, honker.NewQueue[int](other, "mails", nil), i)
			time.Sleep(700 * time.Millisecond)
		}
		require.EqualValues(t, 20, total(t, one, "mails").Enqueued)
		require.EqualValues(t, 20, total(t, other, "").Enqueued)
	})
}

// Times are stored in whole milliseconds, but the total is still the sum of the queues.
func TestTraffic_FractionsOfMilliseconds(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		for _, name := range []string{"mails", "bills", "files"} {
			q := honker.NewQueue[int](db, name, nil)
			testkit.Enqueue(t, q, 1)
			_, err := q.WorkDue(t.Context(), func(context.Context, *honker.Job[int]) error {
				time.Sleep(1900 * time.Microsecond)
				return nil
			}, nil)
			require.NoError(t, err)
		}
		require.EqualValues(t, 3*time.Millisecond, total(t, db, "").Ran)
		require.NoError(t, db.Check(t.Context()))
	})
}

// A hundred queues get their own counts, the busiest first if they arrive together. The remaining queues
// are counted together.
func TestTraffic_ManyQueues(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		add := func(name string, n int) {
			_, err := honker.NewQueue[int](db, name, nil).EnqueueMany(t.Context(), make([]int, n))
			require.NoError(t, err)
		}
		add("first", 1)
		require.EqualValues(t, 1, total(t, db, "first").Enqueued)
		for i := range 150 {
			add(fmt.Sprintf("tenant %03d", i), 1+i/100)
		}
		add("first", 1)
		require.EqualValues(t, 2, total(t, db, "first").Enqueued, "it has its place")
		require.EqualValues(t, 2, total(t, db, "tenant 149").Enqueued)
		require.EqualValues(t, 202, total(t, db, "").Enqueued)
		require.EqualValues(t, 100, testkit.QueryInt(t, db.SQL(), `SELECT count(DISTINCT queue) FROM _honkerx_minutes WHERE queue NOT IN ('', '_other')`))
		require.NotZero(t, total(t, db, admin.OtherQueues).Enqueued)
	})
}

// Minutes are kept for seven days. Old minutes are deleted by processes that write new minutes and by
// Maintain.
func TestTraffic_Kept(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		const rows = `SELECT count(*) FROM _honkerx_minutes`
		q := honker.NewQueue[int](db, "mails", nil)
		old := time.Now().Unix()/60 - 100
		for _, queue := range []string{"", "mails"} {
			testkit.Exec(t, db, testkit.Numbers(100)+`INSERT INTO _honkerx_minutes (minute, queue, acked) SELECT ? + n, ?, 1 FROM some`, old, queue)
		}
		require.EqualValues(t, 100, total(t, db, "mails").Acked)
		time.Sleep(7*24*time.Hour - 50*time.Minute)
		require.InDelta(t, 50, total(t, db, "").Acked, 2)
		require.EqualValues(t, 200, testkit.QueryInt(t, db.SQL(), rows))
		testkit.Enqueue(t, q, 1)
		require.EqualValues(t, 1, total(t, db, "mails").Enqueued)
		require.EqualValues(t, 200-2*10+2, testkit.QueryInt(t, db.SQL(), rows), "a few with a write")
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.InDelta(t, 100, testkit.QueryInt(t, db.SQL(), rows), 6)
		require.NoError(t, stop())
	})
}

// A failure to write the counts doesn't make any call fail. It's logged and retried after a minute.
func TestTraffic_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testkit.Log)
		db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		testkit.Exec(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON _honkerx_minutes BEGIN SELECT RAISE(ABORT, 'no numbers'); END`)
		q := honker.NewQueue[int](db, "mails", nil)
		for i := range 100 { // fifty seconds
			testkit.Enqueue(t, q, i)
			time.Sleep(500 * time.Millisecond)
		}
		require.Equal(t, 1, log.Times("no numbers"))
		require.Zero(t, total(t, db, "mails").Enqueued)
		require.EqualValues(t, 100, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "mails"))
		testkit.Exec(t, db, `DROP TRIGGER refuse`)
		time.Sleep(time.Minute)
		testkit.Enqueue(t, q, 1)
		testkit.Enqueue(t, q, 1)
		require.EqualValues(t, 102, total(t, db, "mails").Enqueued)
	})
}

// Close writes the remaining counts. With NoTraffic, nothing is counted.
func TestTraffic_Close(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	ctx := testkit.Context(t, testkit.Timeout)
	for _, off := range []bool{false, true} {
		db, err := honker.Open(ctx, path, &honker.Options{NoTraffic: off})
		require.NoError(t, err)
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
		require.NoError(t, db.Close())
	}
	db := honkertest.OpenFile(t, path, nil)
	all, err := admin.Traffic(ctx, db, "mails", time.Time{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, 1, all[0].Enqueued)
}

// Traffic of an attached pool is counted, even with a single connection and no write-ahead log.
func TestTraffic_Attached(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeApplication(t, path)
	pool := testkit.OpenPool(t, path)
	pool.SetMaxOpenConns(1)
	testkit.ExecAll(t, pool, `PRAGMA journal_mode=DELETE`)
	ctx := testkit.Context(t, testkit.Timeout)
	db, err := honker.Attach(ctx, pool, nil)
	require.NoError(t, err)
	q := honker.NewQueue[int](db, "mails", nil)
	testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	require.NoError(t, db.Close())
	require.EqualValues(t, 1, testkit.QueryInt(t, pool, `SELECT sum(acked) FROM _honkerx_minutes WHERE queue = 'mails'`))
	require.EqualValues(t, 1, testkit.QueryInt(t, pool, `SELECT sum(enqueued) FROM _honkerx_minutes WHERE queue = ''`))
}

// Steps are the sums of their minutes. TrafficAll returns for each queue the minutes that Traffic returns.
func TestTraffic_Steps(t *testing.T) {
	ctx, db, _, _ := open(t)
	now := time.Now().Unix() / 60
	columns, slot := testkit.Either(`minute, queue`, `minute, slot, queue`), testkit.Either(``, `, 0`) // a server has a row for each slot
	columns += `, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms`
	testkit.Exec(t, db, testkit.Either(testkit.Numbers(600), `WITH "some"(n) AS (SELECT generate_series(1, 600)) `)+`INSERT INTO _honkerx_minutes (`+columns+`)
SELECT `+testkit.Either(`$1 - n * n / 60`, `to_timestamp(($1::bigint - n * n / 60) * 60)`)+slot+`, q, n, 2 * n, 3 * n, 4 * n, 5 * n, 6 * n, 7 * n, 8 * n, 1000 - n
FROM "some", (SELECT 'a' AS q UNION ALL SELECT '_other') AS queues WHERE n % 10 < 3 AND (n / 30 % 2 = 1 OR q = '_other') ON CONFLICT DO NOTHING`, now)
	testkit.Exec(t, db, `INSERT INTO _honkerx_minutes (`+columns+`)
SELECT minute`+slot+`, '', sum(enqueued), sum(claimed), sum(acked), sum(retried), sum(died), sum(snoozed), sum(wait_ms), sum(ran_ms), max(max_wait_ms)
FROM _honkerx_minutes GROUP BY minute`)
	for _, step := range []time.Duration{time.Minute, 7 * time.Minute, time.Hour, 48 * time.Hour} {
		since := time.Unix(now*60, 0).Add(-3 * 24 * time.Hour).Truncate(time.Hour)
		first := since.Unix() / 60 / int64(step/time.Minute) * int64(step/time.Minute)
		minutes, err := admin.Traffic(ctx, db, "a", time.Unix(first*60, 0))
		require.NoError(t, err)
		steps, err := admin.TrafficSteps(ctx, db, "a", since, step)
		require.NoError(t, err)
		require.Equal(t, inSteps(minutes, int64(step/time.Second)), steps, step)
		require.NotEmpty(t, steps)
	}
	none, err := admin.TrafficSteps(ctx, db, "b", time.Time{}, time.Hour)
	require.NoError(t, err)
	require.Empty(t, none)
	for _, step := range []time.Duration{0, -time.Minute, time.Second, 90 * time.Second} {
		_, err := admin.TrafficSteps(ctx, db, "a", time.Time{}, step)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}

	since := time.Unix(now*60, 0).Add(-time.Hour)
	all, err := admin.TrafficAll(ctx, db, since)
	require.NoError(t, err)
	require.Len(t, all, 3)
	for queue, got := range all {
		want, err := admin.Traffic(ctx, db, queue, since)
		require.NoError(t, err)
		require.Equal(t, want, got, queue)
	}
}

// inSteps sums up minutes in steps of the given number of seconds.
func inSteps(minutes []admin.Minute, seconds int64) []admin.Minute {
	steps := []admin.Minute{}
	for _, m := range minutes {
		m.Start = time.Unix(m.Start.Unix()/seconds*seconds, 0)
		if n := len(steps); n == 0 || !steps[n-1].Start.Equal(m.Start) {
			steps = append(steps, m)
			continue
		}
		s := &steps[len(steps)-1]
		s.Enqueued, s.Claimed, s.Acked, s.Retried = s.Enqueued+m.Enqueued, s.Claimed+m.Claimed, s.Acked+m.Acked, s.Retried+m.Retried
		s.Died, s.Snoozed, s.Wait, s.Ran, s.MaxWait = s.Died+m.Died, s.Snoozed+m.Snoozed, s.Wait+m.Wait, s.Ran+m.Ran, max(s.MaxWait, m.MaxWait)
	}
	return steps
}
