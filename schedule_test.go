package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// Next returns a schedule's next fire times in order. The schedule then fires at these times.
func TestScheduler_Next(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx, s := t.Context(), db.Scheduler()
		testkit.Register(t, db, testkit.Every("tea", "0 16 * * *"))
		testkit.Register(t, db, testkit.Every("beat", "@every 90s"))
		for _, name := range []string{"tea", "beat"} {
			want, err := s.Next(ctx, name, 4)
			require.NoError(t, err)
			require.Len(t, want, 4)
			require.Equal(t, testkit.GetSchedule(t, db, name).Next, want[0].Unix())
			for _, at := range want {
				fires, err := s.Tick(ctx, at)
				require.NoError(t, err)
				fired := func(f honker.Fire) bool { return f.Name == name && f.FireAt.Equal(at) }
				require.True(t, slices.ContainsFunc(fires, fired), "%s at %v: %v", name, at, fires)
			}
		}
	})
}

// An overdue schedule's first time is in the past, and the others are future times in its interval. A
// paused schedule reports the times that it would have.
func TestScheduler_Next_Overdue(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx, s := t.Context(), db.Scheduler()
		began := time.Now().Truncate(time.Second)
		testkit.Register(t, db, testkit.Every("beat", "@every 90s"))
		testkit.RequireChanged(t, true)(s.Pause(ctx, "beat"))
		time.Sleep(200 * time.Second)
		times, err := s.Next(ctx, "beat", 3)
		require.NoError(t, err)
		for i, after := range []time.Duration{90, 270, 360} {
			require.True(t, times[i].Equal(began.Add(after*time.Second)), "%v: %v", after, times)
		}
	})
}

// Next returns an error if it cannot compute the times.
func TestScheduler_Next_Errors(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	ctx, s := testkit.Context(t, testkit.Timeout), db.Scheduler()
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	for _, n := range []int{0, -1, 1001} {
		_, err := s.Next(ctx, "tea", n)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err := s.Next(ctx, "", 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = s.Next(ctx, "none", 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	spec(t, db, "tea", "every now and then")
	_, err = s.Next(ctx, "tea", 2)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "every now and then")
}

func soonest(t testing.TB, db *honker.DB) time.Time {
	t.Helper()
	at, err := db.Scheduler().Soonest(context.Background())
	require.NoError(t, err)
	return at
}

// spec stores a spec that this library would reject.
func spec(t testing.TB, db *honker.DB, name, text string) {
	t.Helper()
	testkit.Exec(t, db, `UPDATE _honker_scheduler_tasks SET cron_expr = ? WHERE name = ?`, text, name)
}

// times returns the fires' due times.
func times(fires []honker.Fire) (unix []int64) {
	for _, f := range fires {
		unix = append(unix, f.FireAt.Unix())
	}
	return unix
}

// Unregister, Pause and Resume report whether they changed anything.
func TestScheduler_PauseResume(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	ctx, s := testkit.Context(t, testkit.Timeout), db.Scheduler()
	unchanged := testkit.WatchFile(t, path)
	testkit.RequireChanged(t, false)(s.Pause(ctx, "tea"))
	testkit.RequireChanged(t, false)(s.Resume(ctx, "tea"))
	testkit.RequireChanged(t, false)(s.Unregister(ctx, "tea"))
	unchanged("a verb about no schedule")

	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	was := testkit.GetSchedule(t, db, "tea")
	testkit.RequireChanged(t, false)(s.Resume(ctx, "tea"))
	for range 2 {
		testkit.RequireChanged(t, true)(s.Pause(ctx, "tea"))
		unchanged = testkit.WatchFile(t, path)
		testkit.RequireChanged(t, false)(s.Pause(ctx, "tea"))
		unchanged("the second Pause")
		paused := was
		paused.Enabled = 0
		require.Equal(t, paused, testkit.GetSchedule(t, db, "tea"))
		testkit.RequireChanged(t, true)(s.Resume(ctx, "tea"))
		testkit.RequireChanged(t, false)(s.Resume(ctx, "tea"))
		require.Equal(t, was, testkit.GetSchedule(t, db, "tea"), "Resume computes no next fire")
	}
	_, err := s.Trigger(ctx, "tea")
	require.NoError(t, err)
	testkit.RequireChanged(t, true)(s.Unregister(ctx, "tea"))
	testkit.RequireChanged(t, false)(s.Unregister(ctx, "tea"))
	require.Empty(t, schedules(t, db))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"), "what it has enqueued stays")
}

// Update changes the given fields and keeps the others.
func TestScheduler_Update(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now().Unix()
		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 2h", Payload: 1, Priority: 4, MaxAttempts: 5, ExpiresIn: time.Minute})
		want := testkit.GetSchedule(t, db, "tea")
		id, err := db.Scheduler().Trigger(t.Context(), "tea")
		require.NoError(t, err)
		time.Sleep(time.Hour)
		update := func(ch honker.ScheduleChange) {
			t.Helper()
			testkit.RequireChanged(t, true)(db.Scheduler().Update(t.Context(), "tea", ch))
			require.Equal(t, want, testkit.GetSchedule(t, db, "tea"))
		}
		spec, payload, null, priority, attempts, expires := "@every 30m", any("two"), any(nil), -2, 7, 90*time.Minute+1
		want.Priority = -2
		update(honker.ScheduleChange{Priority: &priority})
		want.Payload = `"two"`
		update(honker.ScheduleChange{Payload: &payload})
		want.Payload = "null"
		update(honker.ScheduleChange{Payload: &null}) // null is a payload and not an omitted field
		want.Attempts = 7
		update(honker.ScheduleChange{MaxAttempts: &attempts})
		want.Attempts = 25
		update(honker.ScheduleChange{MaxAttempts: new(int)})
		want.Expires.Int64 = 5401
		update(honker.ScheduleChange{ExpiresIn: &expires})
		want.Expires.Int64, want.Expires.Valid = 0, false
		update(honker.ScheduleChange{ExpiresIn: new(time.Duration)})
		require.Equal(t, began+7200, want.Next, "only another spec moves the next fire")
		want.Spec, want.Next = spec, began+3600+1800
		update(honker.ScheduleChange{Spec: &spec})
		testkit.RequireChanged(t, true)(db.Scheduler().Pause(t.Context(), "tea"))
		time.Sleep(time.Minute)
		want.Enabled, want.Next, want.Attempts, want.Priority, want.Payload = 0, began+3660+1800, 7, -2, `"two"`
		want.Expires.Int64, want.Expires.Valid = 5401, true
		update(honker.ScheduleChange{Spec: &spec, Payload: &payload, Priority: &priority, MaxAttempts: &attempts, ExpiresIn: &expires})

		job := testkit.GetJob(t, honker.NewQueue[int](db, "jobs", nil), id)
		require.Equal(t, 4, job.Priority, "a job that was enqueued stays as it is")
		require.Equal(t, 5, job.MaxAttempts)
		require.JSONEq(t, "1", string(job.Payload))
	})
}

// Update without changes, or for an unknown schedule, returns false and writes nothing.
func TestScheduler_Update_Nothing(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	ctx, s, unchanged := testkit.Context(t, testkit.Timeout), db.Scheduler(), testkit.WatchFile(t, path)
	testkit.RequireChanged(t, false)(s.Update(ctx, "tea", honker.ScheduleChange{}))
	testkit.RequireChanged(t, false)(s.Update(ctx, "none", honker.ScheduleChange{}))
	testkit.RequireChanged(t, false)(s.Update(ctx, "none", honker.ScheduleChange{Priority: new(int)}))
	bad := "nonsense" // as in honker, the schedule is looked up before the spec is parsed
	testkit.RequireChanged(t, false)(s.Update(ctx, "none", honker.ScheduleChange{Spec: &bad}))
	unchanged("an Update of nothing")
}

// List is complete and ordered by name, and Soonest ignores paused schedules.
func TestScheduler_List(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, s, began := t.Context(), db.Scheduler(), time.Now()
		all, err := s.List(ctx)
		require.NoError(t, err)
		require.Empty(t, all)
		require.True(t, soonest(t, db).IsZero())

		testkit.Register(t, db, testkit.Every("c", "@every 1h"))
		testkit.Register(t, db, testkit.Every("é", "@every 2h"))
		testkit.Register(t, db, testkit.Every("a", "@every 30m"))
		testkit.Register(t, db, honker.Schedule{Name: "b", Queue: "mail", Spec: "@every 3h", Payload: []int{1}, Priority: 2, MaxAttempts: 4, ExpiresIn: time.Minute})
		testkit.RequireChanged(t, true)(s.Pause(ctx, "a"))
		all, err = s.List(ctx)
		require.NoError(t, err)
		null := json.RawMessage("null")
		require.Equal(t, []honker.ScheduleInfo{
			{Name: "a", Queue: "jobs", Spec: "@every 30m", Payload: null, MaxAttempts: 25, NextFireAt: began.Add(30 * time.Minute)},
			{Name: "b", Queue: "mail", Spec: "@every 3h", Payload: json.RawMessage("[1]"), Priority: 2, MaxAttempts: 4, ExpiresIn: time.Minute, Enabled: true, NextFireAt: began.Add(3 * time.Hour)},
			{Name: "c", Queue: "jobs", Spec: "@every 1h", Payload: null, MaxAttempts: 25, Enabled: true, NextFireAt: began.Add(time.Hour)},
			{Name: "é", Queue: "jobs", Spec: "@every 2h", Payload: null, MaxAttempts: 25, Enabled: true, NextFireAt: began.Add(2 * time.Hour)},
		}, all)
		require.Equal(t, began.Add(time.Hour), soonest(t, db))
		time.Sleep(5 * time.Hour)
		require.Equal(t, began.Add(time.Hour), soonest(t, db), "it may be over")
		testkit.RequireChanged(t, true)(s.Resume(ctx, "a"))
		require.Equal(t, began.Add(30*time.Minute), soonest(t, db))
		for _, name := range []string{"a", "b", "c", "é"} {
			testkit.RequireChanged(t, true)(s.Pause(ctx, name))
		}
		require.True(t, soonest(t, db).IsZero())
	})
}

// Tick fires for every time that was missed.
func TestScheduler_Tick_CatchesUp(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"@every 1h", "0 * * * *", "17,43 */5 * * *", "* * * * *", "0 0 1,15 * *", "*/20 * * * * *", "0 9 * * 1-5"} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			db := honkertest.Open(t, nil)
			testkit.Register(t, db, testkit.Every("s", spec))
			first := soonest(t, db)
			want, at := []int64{first.Unix()}, first
			var err error
			for range 4 {
				at, err = honker.NextAfter(spec, at)
				require.NoError(t, err)
				want = append(want, at.Unix())
			}
			next, err := honker.NextAfter(spec, at)
			require.NoError(t, err)
			require.Empty(t, testkit.Tick(t, db, first.Add(-time.Second)))
			require.Equal(t, want, times(testkit.Tick(t, db, next.Add(-time.Second))))
			require.Equal(t, next, soonest(t, db))
			require.Empty(t, testkit.Tick(t, db, next.Add(-time.Second)), "skips what has been fired")
			require.Equal(t, []int64{next.Unix()}, times(testkit.Tick(t, db, next)))
		})
	}
}

// Tick fires the oldest 64 times and skips the others.
func TestScheduler_Tick_Oldest64(t *testing.T) {
	t.Parallel()
	for missed, fired := range map[int]int{1: 1, 63: 63, 64: 64, 65: 64, 1000: 64} {
		db := honkertest.Open(t, nil)
		testkit.Register(t, db, testkit.Every("s", "@every 1s"))
		start := time.Unix(1_700_000_000, 0)
		testkit.SetNextFire(t, db, "s", start)
		now := start.Add(time.Duration(missed-1) * time.Second)
		fires := testkit.Tick(t, db, now)
		require.Len(t, fires, fired)
		for i, f := range fires {
			require.Equal(t, start.Add(time.Duration(i)*time.Second), f.FireAt)
		}
		require.Equal(t, now.Add(time.Second), soonest(t, db), "%d missed", missed)
		require.EqualValues(t, fired, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
	}
	db := honkertest.Open(t, nil)
	testkit.Register(t, db, testkit.Every("s", "0 0 * * *"))
	start, now := soonest(t, db), soonest(t, db).Add(100*24*time.Hour+7*time.Hour)
	require.Len(t, testkit.Tick(t, db, now), 64)
	next, err := honker.NextAfter("0 0 * * *", now)
	require.NoError(t, err)
	require.Equal(t, next, soonest(t, db), "the first after now, %v on", next.Sub(start))
}

// Concurrent ticks never fire the same time twice.
func TestScheduler_Tick_Concurrent(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	testkit.Register(t, db, testkit.Every("a", "@every 1h"))
	testkit.Register(t, db, testkit.Every("b", "@every 40m"))
	now := time.Now().Add(61 * time.Minute)
	var mu sync.Mutex
	var fires []honker.Fire
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			mine, err := []*honker.DB{db, other}[i%2].Scheduler().Tick(context.Background(), now)
			mu.Lock()
			defer mu.Unlock()
			fires = append(fires, mine...)
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Len(t, fires, 2)
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
}

// A fired job has its schedule's settings and can run immediately.
func TestScheduler_Tick_FiredJob(t *testing.T) {
	var fired []honker.Fire
	var bell *honker.DB
	testkit.Bubble(t, func(t *testing.T, _ *honker.DB, _ *testkit.Recorder) {
		bell = honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Observer: &observe.Observer{
			Fired: func(f honker.Fire) { fired = append(fired, f) },
		}})
		testkit.Register(t, bell, honker.Schedule{Name: "full", Queue: "mail", Spec: "@every 1h", Payload: 17, Priority: 8, MaxAttempts: 2, ExpiresIn: 90 * time.Second})
		testkit.Register(t, bell, testkit.Every("plain", "@every 1h"))
		due := time.Now().Add(time.Hour)
		time.Sleep(time.Hour + 1500*time.Millisecond)
		now := time.Unix(time.Now().Unix(), 0)
		fires := testkit.Tick(t, bell, time.Now())
		require.Len(t, fires, 2)
		q := honker.NewQueue[int](bell, "mail", nil)
		want := honker.JobInfo{ID: fires[0].JobID, Queue: "mail", State: honker.StatePending, Phase: honker.PhaseReady, Payload: json.RawMessage("17"), Priority: 8,
			MaxAttempts: 2, RunAt: due, CreatedAt: now, ExpiresAt: now.Add(90 * time.Second)}
		require.Equal(t, want, *testkit.GetJob(t, q, fires[0].JobID))
		plain := testkit.GetJob(t, honker.NewQueue[any](bell, "jobs", nil), fires[1].JobID)
		require.Equal(t, 25, plain.MaxAttempts)
		require.True(t, plain.ExpiresAt.IsZero())
		require.Equal(t, 17, testkit.ClaimOne(t, q).Args)

		require.Equal(t, []honker.Fire{
			{Name: "full", Queue: "mail", FireAt: due, JobID: fires[0].JobID},
			{Name: "plain", Queue: "jobs", FireAt: due, JobID: fires[1].JobID},
		}, fires, "in the order of their registration")
		require.Equal(t, []honker.Fire{
			{Name: "full", Queue: "mail", FireAt: due, JobID: fires[0].JobID},
			{Name: "plain", Queue: "jobs", FireAt: due, JobID: fires[1].JobID},
		}, fired)
	})
}

// An invalid schedule is paused and named in the error, and the other schedules fire.
func TestScheduler_Tick_BadSchedule(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	due, ctx := time.Now().Add(time.Hour), testkit.Context(t, testkit.Timeout)
	for name, text := range map[string]string{"good": "@every 1h", "bad": "every now and then", "worse": "0 0 30 2 *", "better": "0 * * * *"} {
		testkit.Register(t, db, testkit.Every(name, "@every 1h"))
		spec(t, db, name, text)
		testkit.SetNextFire(t, db, name, due)
	}
	testkit.Register(t, db, testkit.Every("broken, and not due", "@every 1h"))
	spec(t, db, "broken, and not due", "nonsense")
	testkit.SetNextFire(t, db, "broken, and not due", due.Add(time.Hour))

	fires, err := db.Scheduler().Tick(ctx, due)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, `"bad"`)
	require.ErrorContains(t, err, `"worse"`)
	require.ErrorContains(t, err, `got 4: "every now and then"`)
	require.ErrorContains(t, err, "no schedule match found within 100 years")
	require.NotContains(t, err.Error(), "good")
	require.Len(t, fires, 2)
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
	for name, enabled := range map[string]int64{"good": 1, "better": 1, "bad": 0, "worse": 0, "broken, and not due": 1} {
		require.Equal(t, enabled, testkit.GetSchedule(t, db, name).Enabled, name)
	}
	require.Equal(t, due.Unix(), testkit.GetSchedule(t, db, "bad").Next)
	require.Empty(t, testkit.Tick(t, db, due), "and no error any more")
}

// A tick's error states which fires were committed.
func TestScheduler_Tick_Error(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	testkit.Register(t, db, testkit.Every("bad", "@every 1h"))
	spec(t, db, "bad", "nonsense")
	_, err := db.Scheduler().Tick(testkit.Context(t, testkit.Timeout), time.Now().Add(2*time.Hour))
	require.ErrorContains(t, err, `honker: tick: schedule "bad" was paused: `)
}

// Tick accepts rows written by other bindings or programs: without attempts, as honker's enqueue allows,
// and with values that are not numbers in numeric columns.
func TestScheduler_Tick_ForeignRows(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db, b := testkit.OpenWithBinding(t)
	due := time.Now().Add(-time.Minute).Unix()
	b.Change(`INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, max_attempts, next_fire_at) VALUES ('none', 'none', '@every 1h', '1', 0, ?)`, due)
	b.Change(`INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, priority, next_fire_at) VALUES ('odd', 'odd', '@every 1h', '{"a": 1}', 'high', ?)`, due)
	b.Change(`INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at) VALUES ('blob', 'blob', '@every 1h', CAST('2' AS BLOB), ?)`, due)
	all, err := db.Scheduler().List(testkit.Context(t, testkit.Timeout))
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Len(t, testkit.Tick(t, db, time.Now()), 3)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT max_attempts FROM _honker_live WHERE queue = 'none'`), "as honker does")
	require.Empty(t, testkit.Claim(t, honker.NewQueue[int](db, "none", nil), 1), "it has no attempt")
	require.Equal(t, "max attempts exceeded", testkit.GetJob(t, honker.NewQueue[int](db, "none", nil), 1).LastError)
	require.Equal(t, map[string]int{"a": 1}, testkit.ClaimOne(t, honker.NewQueue[map[string]int](db, "odd", nil)).Args)
	require.Equal(t, 2, testkit.ClaimOne(t, honker.NewQueue[int](db, "blob", nil)).Args)
}

// Trigger enqueues a job now and does not change the schedule.
func TestScheduler_Trigger(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, s := t.Context(), db.Scheduler()
		id, err := s.Trigger(ctx, "none")
		require.ErrorIs(t, err, honker.ErrNotFound)
		require.ErrorContains(t, err, `honker: trigger schedule "none": `)
		require.Zero(t, id)

		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "kitchen", Spec: "@every 1h", Payload: "brew", Priority: 3, MaxAttempts: 1, ExpiresIn: time.Minute})
		q := honker.NewQueue[string](db, "kitchen", nil)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[string]) error { return nil }, nil)
		defer stop()
		time.Sleep(10 * time.Minute)
		for _, paused := range []bool{false, true} {
			if paused {
				testkit.RequireChanged(t, true)(s.Pause(ctx, "tea"))
			}
			was := testkit.GetSchedule(t, db, "tea")
			id, err = s.Trigger(ctx, "tea")
			require.NoError(t, err)
			require.Positive(t, id)
			require.Equal(t, was, testkit.GetSchedule(t, db, "tea"))
			testkit.Eventually(t, time.Second, "a worker of this process wakes", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "kitchen") == 0 })
		}
		require.NoError(t, stop())
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		now := time.Now()
		id, err = s.Trigger(ctx, "tea")
		require.NoError(t, err)
		require.Equal(t, honker.JobInfo{ID: id, Queue: "kitchen", State: honker.StatePending, Phase: honker.PhaseReady, Payload: json.RawMessage(`"brew"`), Priority: 3,
			MaxAttempts: 1, RunAt: now, CreatedAt: now, ExpiresAt: now.Add(time.Minute)}, *testkit.GetJob(t, q, id))
	})
}

// A tick that cannot be completed fires nothing.
func TestScheduler_Tick_Unfinished(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	fired := 0
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Observer: &observe.Observer{Fired: func(honker.Fire) { fired++ }}})
	for _, name := range []string{"a", "b", "c"} {
		testkit.Register(t, db, testkit.Every(name, "@every 1s"))
	}
	testkit.Exec(t, db, `CREATE TRIGGER no AFTER UPDATE OF next_fire_at ON _honker_scheduler_tasks WHEN NEW.name = 'b' BEGIN SELECT RAISE(ABORT, 'not b'); END`)
	now := time.Now().Add(time.Minute)
	before := testkit.GetSchedule(t, db, "a")
	fires, err := db.Scheduler().Tick(testkit.Context(t, testkit.Timeout), now)
	require.ErrorContains(t, err, "honker: tick: ")
	require.ErrorContains(t, err, "not b")
	require.Empty(t, fires)
	require.Zero(t, fired)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	require.Equal(t, before, testkit.GetSchedule(t, db, "a"))
	testkit.Exec(t, db, `DROP TRIGGER no`)
	require.NotEmpty(t, testkit.Tick(t, db, now))
}

// A closed DB's scheduler returns ErrClosed.
func TestScheduler_ClosedDB(t *testing.T) {
	t.Parallel()
	db, err := honker.Open(context.Background(), t.TempDir()+"/file.db", nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for name, call := range schedulerVerbs(db) {
		require.ErrorIs(t, call(testkit.Context(t, testkit.Timeout)), honker.ErrClosed, name)
	}
}

// schedulerVerbs returns the plain verbs for schedules, with valid input.
func schedulerVerbs(db *honker.DB) map[string]testkit.Refusal {
	type c = context.Context
	s := db.Scheduler()
	return map[string]testkit.Refusal{
		"Register":   func(c c) error { return s.Register(c, testkit.Every("tea", "@every 1h")) },
		"Unregister": func(c c) error { _, err := s.Unregister(c, "tea"); return err },
		"Pause":      func(c c) error { _, err := s.Pause(c, "tea"); return err },
		"Resume":     func(c c) error { _, err := s.Resume(c, "tea"); return err },
		"Update": func(c c) error {
			_, err := s.Update(c, "tea", honker.ScheduleChange{Priority: new(int)})
			return err
		},
		"List":     func(c c) error { _, err := s.List(c); return err },
		"Soonest":  func(c c) error { _, err := s.Soonest(c); return err },
		"Next":     func(c c) error { _, err := s.Next(c, "tea", 1); return err },
		"Tick":     func(c c) error { _, err := s.Tick(c, time.Now()); return err },
		"Trigger":  func(c c) error { _, err := s.Trigger(c, "tea"); return err },
		"Run":      func(c c) error { return s.Run(c) },
		"Maintain": func(c c) error { return db.Maintain(c, &honker.MaintainOptions{Every: time.Hour}) },
	}
}

// A scheduler's plain verbs reject a transaction's ctx.
func TestScheduler_InTx_Refused(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	unchanged := testkit.WatchFile(t, path)
	verbs := schedulerVerbs(db)
	delete(verbs, "List") // reads only
	delete(verbs, "Soonest")
	delete(verbs, "Next")
	require.NoError(t, db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, _ *sql.Tx) error {
		for name, call := range verbs {
			require.ErrorIs(t, call(ctx), honker.ErrInTx, name)
		}
		return nil
	}))
	unchanged("a refused verb")
}

// Another program's schedule fires even if it has no name or its name is not text. A schedule that a trigger prevents
// from advancing does not fire and is paused, unless a trigger prevents that as well. It doesn't stop other
// schedules, and is named only once no matter how many transactions the tick takes.
func TestScheduler_Tick_OddRows(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db := testkit.Context(t, testkit.Timeout), honkertest.Open(t, nil)
	now := time.Now()
	for _, row := range []string{`NULL, 'none', '@every 1h', 1`, `x'00ff', 'blob', '@every 1h', 1`, `'stuck', 'stuck', '@every 1h', 1`,
		`'good', 'good', '@every 1h', 1`, `'off', 'off', '@every 1h', 5`, `'never', 'never', '@every 1h', 'no'`, `NULL, 'bad', 'nonsense', 1`, `'held', 'held', '@every 1h', 1`} {
		testkit.Exec(t, db, `INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, enabled, payload, next_fire_at) VALUES (`+row+`, '1', ?)`, now.Unix())
	}
	testkit.Exec(t, db, `CREATE TRIGGER keep BEFORE UPDATE ON _honker_scheduler_tasks WHEN OLD.name = 'stuck' BEGIN SELECT RAISE(IGNORE); END`)
	testkit.Exec(t, db, `CREATE TRIGGER hold BEFORE UPDATE OF next_fire_at ON _honker_scheduler_tasks WHEN OLD.name = 'held' BEGIN SELECT RAISE(IGNORE); END`)
	all, err := db.Scheduler().List(ctx)
	require.NoError(t, err)
	require.Len(t, all, 8)
	testkit.Exec(t, db, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
		INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at) SELECT 'n' || i, 'many', '@every 1h', '1', ? FROM n`, now.Unix())
	fires, err := db.Scheduler().Tick(ctx, now)
	require.ErrorContains(t, err, `schedule "stuck": it does not fire`)
	require.ErrorContains(t, err, `schedule "held" was paused: it does not fire`)
	require.ErrorContains(t, err, `schedule "" was paused: `)
	require.Equal(t, 1, strings.Count(err.Error(), `"stuck"`))
	require.Len(t, fires, 603)
	fires, err = db.Scheduler().Tick(ctx, now)
	require.ErrorContains(t, err, `schedule "stuck"`)
	require.NotContains(t, err.Error(), "paused")
	require.Empty(t, fires)
	for queue, jobs := range map[string]int64{"none": 1, "blob": 1, "good": 1, "many": 600, "stuck": 0, "held": 0, "off": 0, "never": 0, "bad": 0} {
		require.Equal(t, jobs, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, queue), queue)
	}
}
