package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
	"github.com/honker-go/honker/task"
)

const texts = "texttexttexttext"

func schedules(t testing.TB, db *honker.DB) []honker.ScheduleInfo {
	t.Helper()
	all, err := db.Scheduler().List(context.Background())
	require.NoError(t, err)
	return all
}

// Register writes the same row as honker's other bindings.
func TestScheduler_Register_Row(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now().Unix()
		testkit.Register(t, db, testkit.Every("plain", "@every 90s"))
		require.Equal(t, testkit.ScheduleRow{
			Name: "plain", Queue: "jobs", Spec: "@every 90s", Payload: "null",
			Attempts: 25, Next: began + 90, Enabled: 1, Types: texts,
		}, testkit.GetSchedule(t, db, "plain"))

		time.Sleep(1500 * time.Millisecond)
		testkit.Register(t, db, honker.Schedule{
			Name: "full", Queue: "mail", Spec: " 30 5 * * * * ", Payload: map[string]any{"to": "ada"},
			Priority: -7, MaxAttempts: 9, ExpiresIn: 1001 * time.Millisecond,
		})
		next, err := honker.NextAfter("30 5 * * * *", time.Now())
		require.NoError(t, err)
		require.Equal(t, testkit.ScheduleRow{
			Name: "full", Queue: "mail", Spec: " 30 5 * * * * ", Payload: `{"to":"ada"}`,
			Priority: -7, Expires: sql.NullInt64{Int64: 2, Valid: true}, Attempts: 9, Next: next.Unix(), Enabled: 1, Types: texts,
		}, testkit.GetSchedule(t, db, "full"))
	})
}

// A schedule's payload is stored as JSON.
func TestScheduler_Register_Payload(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	call, err := task.New("app.tasks.clean", 1)
	require.NoError(t, err)
	var none *int
	for want, payload := range map[string]any{
		`null`:                  nil,
		`"text"`:                "text",
		`{"To":"ada"}`:          struct{ To string }{"ada"},
		`{"verbatim" : [1, 2]}`: json.RawMessage(`{"verbatim" : [1, 2]}`),
		`[1.5,true,null]`:       []any{1.5, true, none},
		`{"__honker_task__":{"task":"app.tasks.clean","args":[1],"kwargs":{}}}`: call,
	} {
		testkit.Register(t, db, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@every 1h", Payload: payload})
		require.Equal(t, want, testkit.GetSchedule(t, db, "s").Payload)
	}
	testkit.Register(t, db, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@every 1h", Payload: json.RawMessage(nil)})
	require.Equal(t, "null", testkit.GetSchedule(t, db, "s").Payload)
}

// Registering a schedule again replaces everything but its pause. The next fire time is kept if the spec is
// the same.
func TestScheduler_Register_Again(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now().Unix()
		s := db.Scheduler()
		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "kitchen", Spec: "@every 2h", Payload: 1, Priority: 4, MaxAttempts: 5, ExpiresIn: time.Minute})
		testkit.Register(t, db, testkit.Every("other", "@every 1h"))
		time.Sleep(time.Hour)
		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "hall", Spec: "@every 2h", Payload: 2})
		require.Equal(t, testkit.ScheduleRow{Name: "tea", Queue: "hall", Spec: "@every 2h", Payload: "2", Attempts: 25, Next: began + 7200, Enabled: 1, Types: texts},
			testkit.GetSchedule(t, db, "tea"), "the next fire was pushed away, or an old value stayed")

		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "hall", Spec: "@every 3h", Payload: 2})
		require.Equal(t, began+3600+3*3600, testkit.GetSchedule(t, db, "tea").Next, "another spec counts from now")

		paused, err := s.Pause(t.Context(), "tea")
		require.NoError(t, err)
		require.True(t, paused)
		testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "hall", Spec: "@every 1h", Payload: 3})
		row := testkit.GetSchedule(t, db, "tea")
		require.Zero(t, row.Enabled, "a paused schedule stays paused")
		require.Equal(t, "3", row.Payload)
		require.Equal(t, began+2*3600, row.Next)
		require.Len(t, schedules(t, db), 2)
	})
}

// A service may register its schedule each time it starts, even if that is more often than the schedule fires. The
// schedule still fires.
func TestScheduler_Register_EveryStart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		fired := 0
		for range 30 {
			testkit.Register(t, db, testkit.Every("hourly", "@every 1h"))
			fires, err := db.Scheduler().Tick(t.Context(), time.Now())
			require.NoError(t, err)
			fired += len(fires)
			time.Sleep(20 * time.Minute)
		}
		require.Equal(t, 9, fired)
	})
}

// Registering an unchanged schedule writes nothing.
func TestScheduler_Register_Unchanged(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	for _, sch := range []honker.Schedule{
		testkit.Every("plain", "@every 1h"),
		{Name: "full", Queue: "mail", Spec: "0 5 * * *", Payload: []int{1}, Priority: 3, MaxAttempts: 1, ExpiresIn: time.Hour},
	} {
		testkit.Register(t, db, sch)
		unchanged := testkit.WatchFile(t, path)
		for range 3 {
			testkit.Register(t, db, sch)
		}
		unchanged("registering " + sch.Name + " again")
	}
}

// Many callers may register the same schedule at the same time.
func TestScheduler_Register_Concurrent(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			err := []*honker.DB{db, other}[i%2].Scheduler().Register(context.Background(), testkit.Every("tea", "@every 1h"))
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Len(t, schedules(t, db), 1)
}

// RegisterTx takes effect with its transaction.
func TestScheduler_RegisterTx(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	ctx, s := testkit.Context(t, testkit.Timeout), db.Scheduler()
	testkit.Register(t, db, testkit.Every("old", "@every 1h"))
	was := testkit.GetSchedule(t, db, "old")
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, s.RegisterTx(ctx, tx, testkit.Every("new", "@every 1h")))
		require.NoError(t, s.RegisterTx(ctx, tx, testkit.Every("old", "@every 2h")))
		require.ErrorIs(t, s.Register(ctx, testkit.Every("plain", "@every 1h")), honker.ErrInTx)
		require.ErrorContains(t, s.Register(ctx, testkit.Every("plain", "@every 1h")), "RegisterTx")
		return testkit.ErrCause
	}), testkit.ErrCause)
	require.Len(t, schedules(t, db), 1)
	require.Equal(t, was, testkit.GetSchedule(t, db, "old"))

	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.RegisterTx(ctx, tx, honker.Schedule{Name: "new", Queue: "mail", Spec: "@every 1h", Payload: 7, MaxAttempts: 2})
	}))
	row := testkit.GetSchedule(t, db, "new")
	require.InDelta(t, time.Now().Unix()+3600, row.Next, 10)
	row.Next = 0
	require.Equal(t, testkit.ScheduleRow{Name: "new", Queue: "mail", Spec: "@every 1h", Payload: "7", Attempts: 2, Enabled: 1, Types: texts}, row)

	elsewhere, unchanged := honkertest.Open(t, nil), testkit.WatchFile(t, path)
	require.ErrorIs(t, elsewhere.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.RegisterTx(ctx, tx, testkit.Every("x", "@every 1h"))
	}), honker.ErrInvalid)
	unchanged("a transaction of another file")
}

// Other cron implementations' syntax is stored in honker's dialect, which every binding can read.
func TestScheduler_Register_Dialect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		for spec, stored := range map[string]string{
			"@daily": "0 0 * * *", "@every 1h30m": "@every 90m", "0 9 * jan MON-FRI,7": "0 9 * 1 1-5,0", "* * * * *": "* * * * *",
		} {
			testkit.Register(t, db, testkit.Every("tea", spec))
			row := testkit.GetSchedule(t, db, "tea")
			require.Equal(t, stored, row.Spec)
			next, err := honker.NextAfter(spec, time.Now())
			require.NoError(t, err)
			require.Equal(t, next.Unix(), row.Next)

			time.Sleep(time.Second)
			testkit.Register(t, db, testkit.Every("tea", spec))
			require.Equal(t, row, testkit.GetSchedule(t, db, "tea"), "it is the same spec")
			testkit.RequireChanged(t, true)(db.Scheduler().Update(t.Context(), "tea", honker.ScheduleChange{Spec: &spec}))
			require.Equal(t, stored, testkit.GetSchedule(t, db, "tea").Spec)
		}
	})
}

// After downtime, a schedule fires according to its Missed field and then continues at its own interval. A job's
// RunAt is the time at which it was due.
func TestScheduler_Missed(t *testing.T) {
	const hour = 3600
	for name, c := range map[string]struct {
		missed honker.Missed
		late   time.Duration // after the fourth fire was due
		fires  []int64       // in hours
	}{
		"all":                    {honker.FireAll, 10 * time.Minute, []int64{1, 2, 3, 4}},
		"last":                   {honker.FireLast, 10 * time.Minute, []int64{4}},
		"none":                   {honker.Skip, 10 * time.Minute, nil},
		"none but one in time":   {honker.Skip, 0, []int64{4}},
		"none but one just over": {honker.Skip, 90 * time.Second, []int64{4}},
		"none a moment later":    {honker.Skip, 91 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				began := time.Now().Unix()
				testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 1h", Missed: c.missed})
				time.Sleep(4*time.Hour + c.late)
				var want []int64
				q := honker.NewQueue[any](db, "jobs", nil)
				for _, f := range testkit.Tick(t, db, time.Now()) {
					want = append(want, (f.FireAt.Unix()-began)/hour)
					require.Equal(t, f.FireAt, testkit.GetJob(t, q, f.JobID).RunAt)
					require.Equal(t, time.Now().Unix(), testkit.GetJob(t, q, f.JobID).CreatedAt.Unix())
				}
				require.Equal(t, c.fires, want)
				infos, err := db.Scheduler().List(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.missed, infos[0].Missed)
				require.Equal(t, began+5*hour, infos[0].NextFireAt.Unix())
			})
		})
	}
}

// A job's RunAt is never in the future, even if a caller ticks ahead of time.
func TestScheduler_Tick_Ahead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
		fires := testkit.Tick(t, db, time.Now().Add(time.Hour))
		require.Len(t, fires, 1)
		q := honker.NewQueue[any](db, "jobs", nil)
		require.Equal(t, time.Now().Unix(), testkit.GetJob(t, q, fires[0].JobID).RunAt.Unix())
		testkit.ClaimOne(t, q)
	})
}

// Pause, Resume and an Update of other fields keep Missed; Register and Update can change it. It is deleted with its
// schedule, even by another binding, which knows nothing about Missed.
func TestScheduler_Missed_Kept(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	s, ctx := db.Scheduler(), context.Background()
	missed := func() honker.Missed {
		infos, err := s.List(ctx)
		require.NoError(t, err)
		require.Len(t, infos, 1)
		return infos[0].Missed
	}
	sch := honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 1h", Missed: honker.FireLast}
	testkit.Register(t, db, sch)
	testkit.RequireChanged(t, true)(s.Pause(ctx, "tea"))
	testkit.RequireChanged(t, true)(s.Resume(ctx, "tea"))
	payload := any(2)
	testkit.RequireChanged(t, true)(s.Update(ctx, "tea", honker.ScheduleChange{Payload: &payload}))
	require.Equal(t, honker.FireLast, missed())

	skip, bad := honker.Skip, honker.Missed(3)
	testkit.RequireChanged(t, true)(s.Update(ctx, "tea", honker.ScheduleChange{Missed: &skip}))
	require.Equal(t, honker.Skip, missed())
	_, err := s.Update(ctx, "tea", honker.ScheduleChange{Missed: &bad})
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorIs(t, s.Register(ctx, honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 1h", Missed: bad}), honker.ErrInvalid)
	require.Equal(t, honker.Skip, missed())

	sch.Missed = honker.FireAll
	testkit.Register(t, db, sch)
	require.Equal(t, honker.FireAll, missed())

	sch.Missed = honker.Skip
	testkit.Register(t, db, sch)
	testkit.Exec(t, db, `DELETE FROM _honker_scheduler_tasks`)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	require.Equal(t, honker.FireAll, missed())
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_schedules`))
}

// Many due fires are spread over several transactions. When ctx ends, a tick stops between two of them. The fires up
// to that point are committed and returned.
func TestScheduler_Tick_Chunks(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Fired: func(honker.Fire) { cancel() }}})
	testkit.Register(t, db, testkit.Every("tea", "@every 1s"))
	const all = 5000
	testkit.Exec(t, db, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at)
		SELECT 'tea' || i, 'jobs', '@every 1h', 'null', unixepoch() - 1 FROM n`, all)
	fires, err := db.Scheduler().Tick(ctx, time.Now())
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, fires)
	require.Less(t, len(fires), all)
	require.EqualValues(t, len(fires), testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
	rest := testkit.Tick(t, db, time.Now())
	require.GreaterOrEqual(t, len(fires)+len(rest), all)
	require.EqualValues(t, len(fires)+len(rest), testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
}

// badSpecs maps invalid specs to honker's error texts. Their wording is tested by honker itself.
var badSpecs = map[string]string{
	"* * * *":                      `schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 4: "* * * *"`,
	"":                             `schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 0: ""`,
	"@reboot":                      `unknown schedule "@reboot"; expected @hourly, `,
	"CRON_TZ=UTC 0 9 * * *":        `"CRON_TZ=UTC": a schedule has no zone of its own; its times are those of the process's local zone`,
	"0 9 ? * *":                    `cron field "?": write * for any value`,
	"@every 1.5s":                  `interval "1.5s" is not a whole number of seconds`,
	"x * * * *":                    `cron field "x" not an integer`,
	"*/x * * * *":                  `cron step must be a positive integer: "*/x"`,
	"*/0 * * * *":                  `cron step must be positive: "*/0"`,
	"60 * * * *":                   `cron field "60" out of range [0,59] or inverted`,
	"* 5-1 * * *":                  `cron field "5-1" out of range [0,23] or inverted`,
	"* * * * 8":                    `cron field "8" out of range [0,6] or inverted`,
	"0 0 30 2 *":                   `no schedule match found within 100 years after local datetime `,
	"@every":                       `interval expression must be '@every <n><unit>'`,
	"@every 5":                     `interval expression must be '@every <n><unit>'; got "5"`,
	"@every s":                     `interval expression must be '@every <n><unit>'; got "s"`,
	"@every 99999999999999999999s": `interval count must be an integer: "99999999999999999999s"`,
	"@every 0s":                    `interval count must be positive: "0s"`,
	"@every 9223372036854775807m":  `interval is too large: "9223372036854775807m"`,
	"@every 5w":                    `unsupported interval unit "w"; expected one of s, m, h, d`,
	"@every 9223372036854775807s":  `next interval overflows unix timestamp for "@every 9223372036854775807s"`,
}

// Invalid specs are rejected with honker's error texts and change nothing.
func TestScheduler_BadSpec(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := db.Scheduler()
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	for spec, want := range badSpecs {
		calls := map[string]testkit.Refusal{
			"NextAfter":  func(context.Context) error { _, err := honker.NextAfter(spec, time.Now()); return err },
			"Register":   func(c context.Context) error { return s.Register(c, testkit.Every("new", spec)) },
			"again":      func(c context.Context) error { return s.Register(c, testkit.Every("tea", spec)) },
			"RegisterTx": inOwnTx(db, func(c context.Context, tx *sql.Tx) error { return s.RegisterTx(c, tx, testkit.Every("tea", spec)) }),
			"Update": func(c context.Context) error {
				changed, err := s.Update(c, "tea", honker.ScheduleChange{Spec: &spec})
				require.False(t, changed)
				return err
			},
		}
		testkit.RequireRefused(t, path, calls)
		for what, call := range calls {
			require.ErrorContains(t, call(testkit.Context(t, testkit.Timeout)), want, "%s of %q", what, spec)
		}
	}
}

// NextAfter rejects timestamps that do not exist.
func TestScheduler_NextAfter_BadTimes(t *testing.T) {
	t.Parallel()
	_, err := honker.NextAfter("* * * * *", time.Unix(math.MaxInt64, 0))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "invalid timestamp: 9223372036854775807")
}

// NextAfter returns the first matching second in the local time zone.
func TestScheduler_NextAfter_LocalZone(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 11, 58, 30, 999, time.Local)
	for spec, want := range map[string]time.Time{
		"@every 90s":     from.Truncate(time.Second).Add(90 * time.Second),
		"* * * * * *":    time.Date(2026, 3, 1, 11, 58, 31, 0, time.Local),
		"0 12 * * *":     time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local),
		"30 58 11 * * *": time.Date(2026, 3, 2, 11, 58, 30, 0, time.Local),
		"0 0 13 * 5":     time.Date(2026, 3, 13, 0, 0, 0, 0, time.Local),
	} {
		for _, in := range []*time.Location{time.Local, time.UTC, time.FixedZone("far", 5*3600+1800)} {
			at, err := honker.NextAfter(spec, from.In(in))
			require.NoError(t, err)
			require.True(t, want.Equal(at), "%s: %v, not %v", spec, at, want)
		}
	}
}

// Invalid schedules are rejected and change nothing.
func TestScheduler_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := db.Scheduler()
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	long := strings.Repeat("n", 1025)
	bad := map[string]honker.Schedule{
		"nothing":           {},
		"no name":           {Queue: "jobs", Spec: "@every 1h"},
		"no queue":          {Name: "tea", Spec: "@every 1h"},
		"long name":         testkit.Every(long, "@every 1h"),
		"long queue":        {Name: "tea", Queue: long, Spec: "@every 1h"},
		"NUL":               testkit.Every("te\x00a", "@every 1h"),
		"not UTF-8":         testkit.Every("te\xffa", "@every 1h"),
		"negative attempts": {Name: "tea", Queue: "jobs", Spec: "@every 1h", MaxAttempts: -1},
		"negative expiry":   {Name: "tea", Queue: "jobs", Spec: "@every 1h", ExpiresIn: -1},
		"bytes":             {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: []byte("x")},
		"broken raw":        {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: json.RawMessage("{")},
		"a channel":         {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: make(chan int)},
		"a task, unnamed":   {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: task.Task{}},
		"a large payload":   {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: strings.Repeat("x", 1<<20)},
	}
	calls := make(map[string]testkit.Refusal)
	for what, sch := range bad {
		calls["Register: "+what] = func(c context.Context) error { return s.Register(c, sch) }
		calls["RegisterTx: "+what] = inOwnTx(db, func(c context.Context, tx *sql.Tx) error { return s.RegisterTx(c, tx, sch) })
	}
	for what, name := range map[string]string{"no name": "", "long name": long} {
		calls["Unregister: "+what] = func(c context.Context) error { _, err := s.Unregister(c, name); return err }
		calls["Pause: "+what] = func(c context.Context) error { _, err := s.Pause(c, name); return err }
		calls["Resume: "+what] = func(c context.Context) error { _, err := s.Resume(c, name); return err }
		calls["Trigger: "+what] = func(c context.Context) error { _, err := s.Trigger(c, name); return err }
		calls["Update: "+what] = func(c context.Context) error {
			_, err := s.Update(c, name, honker.ScheduleChange{Priority: new(int)})
			return err
		}
		calls["empty Update: "+what] = func(c context.Context) error {
			_, err := s.Update(c, name, honker.ScheduleChange{})
			return err
		}
	}
	bytes, raw, minus, brief := any([]byte("x")), any(json.RawMessage("x")), -1, -time.Second
	for what, ch := range map[string]honker.ScheduleChange{
		"bytes": {Payload: &bytes}, "broken raw": {Payload: &raw}, "attempts": {MaxAttempts: &minus}, "expiry": {ExpiresIn: &brief},
	} {
		calls["Update: "+what] = func(c context.Context) error { _, err := s.Update(c, "tea", ch); return err }
	}
	testkit.RequireRefused(t, path, calls)
}

// A fire's reported jobs belong to the schedule even if a trigger inserts others. If a trigger drops jobs,
// the schedule and all other schedules continue.
func TestScheduler_Tick_Triggers(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	testkit.ExecAll(t, db.SQL(), mirrored, unique)
	testkit.Register(t, db, honker.Schedule{Name: "a", Queue: "jobs", Spec: "@every 1s", Payload: "a"})
	testkit.Register(t, db, honker.Schedule{Name: "b", Queue: "mail", Spec: "@every 1m", Payload: "b"})
	now := time.Now().Add(time.Minute)
	testkit.SetNextFire(t, db, "a", now.Add(-2*time.Second))
	testkit.SetNextFire(t, db, "b", now)
	fires, err := db.Scheduler().Tick(testkit.Context(t, testkit.Timeout), now)
	require.ErrorIs(t, err, honker.ErrNotInserted)
	require.ErrorContains(t, err, `schedule "a": 2 of its 3 jobs were not inserted`)
	require.Len(t, fires, 2)
	for _, f := range fires {
		require.Equal(t, `"`+f.Name+`"`, string(testkit.GetJob(t, honker.NewQueue[any](db, f.Queue, nil), f.JobID).Payload))
	}
	require.True(t, soonest(t, db).After(now))
}

// A changed spec is logged, because two processes with different specs take turns at moving the next fire.
// An unchanged spec is not logged.
func TestScheduler_Register_OtherSpec(t *testing.T) {
	t.Parallel()
	log := new(testkit.Log)
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	testkit.Register(t, db, testkit.Every("tea", "@hourly"))
	testkit.Register(t, db, testkit.Every("tea", "0 * * * *"))
	require.Zero(t, log.Times("schedule=tea"))
	testkit.Register(t, db, testkit.Every("tea", "@daily"))
	require.Equal(t, 1, log.Times(`schedule=tea spec="0 0 * * *" before="0 * * * *"`))
}

// Register returns an error if an application trigger drops the schedule.
func TestScheduler_Register_Dropped(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	testkit.Exec(t, db, `CREATE TRIGGER drops BEFORE INSERT ON _honker_scheduler_tasks WHEN NEW.name = 'dropped' BEGIN SELECT RAISE(IGNORE); END`)
	register := func(name string) error {
		return db.Scheduler().Register(t.Context(), honker.Schedule{Name: name, Queue: "jobs", Spec: "@every 1h"})
	}
	require.ErrorIs(t, register("dropped"), honker.ErrNotInserted)
	require.NoError(t, register("kept"))
	require.NoError(t, register("kept"), "without a change")
}
