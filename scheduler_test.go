package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// schedule is a row as it is in the file.
type schedule struct {
	Name, Queue, Spec, Payload string
	Priority                   int64
	Expires                    sql.NullInt64
	Attempts, Next, Enabled    int64
	Types                      string
}

func rowOf(t testing.TB, db *honker.DB, name string) (s schedule) {
	t.Helper()
	require.NoError(t, db.SQL().QueryRowContext(context.Background(), `SELECT name, queue, cron_expr, payload, priority, expires_s,
  max_attempts, next_fire_at, enabled, typeof(name) || typeof(queue) || typeof(cron_expr) || typeof(payload)
  FROM _honker_scheduler_tasks WHERE name = ?`, name).
		Scan(&s.Name, &s.Queue, &s.Spec, &s.Payload, &s.Priority, &s.Expires, &s.Attempts, &s.Next, &s.Enabled, &s.Types))
	return s
}

const (
	texts     = "texttexttexttext"
	schedules = `SELECT count(*) FROM _honker_scheduler_tasks`
)

// register registers a schedule that is fine.
func register(t testing.TB, db *honker.DB, sch honker.Schedule) {
	t.Helper()
	require.NoError(t, db.Scheduler().Register(context.Background(), sch))
}

func every(name, spec string) honker.Schedule {
	return honker.Schedule{Name: name, Queue: "jobs", Spec: spec}
}

func TestRegisterWritesTheRowThatHonkerWould(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		began := time.Now().Unix()
		register(t, db, every("plain", "@every 90s"))
		require.Equal(t, schedule{
			Name: "plain", Queue: "jobs", Spec: "@every 90s", Payload: "null",
			Attempts: 3, Next: began + 90, Enabled: 1, Types: texts,
		}, rowOf(t, db, "plain"))

		time.Sleep(1500 * time.Millisecond)
		register(t, db, honker.Schedule{
			Name: "full", Queue: "mail", Spec: " 30 5 * * * * ", Payload: map[string]any{"to": "ada"},
			Priority: -7, MaxAttempts: 9, ExpiresIn: 1001 * time.Millisecond,
		})
		next, err := honker.NextAfter("30 5 * * * *", time.Now())
		require.NoError(t, err)
		require.Equal(t, schedule{
			Name: "full", Queue: "mail", Spec: " 30 5 * * * * ", Payload: `{"to":"ada"}`,
			Priority: -7, Expires: sql.NullInt64{Int64: 2, Valid: true}, Attempts: 9, Next: next.Unix(), Enabled: 1, Types: texts,
		}, rowOf(t, db, "full"))
	})
}

func TestPayloadOfAScheduleIsStoredAsJSON(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	call, err := honker.NewTask("app.tasks.clean", 1)
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
		register(t, db, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@every 1h", Payload: payload})
		require.Equal(t, want, rowOf(t, db, "s").Payload)
	}
	register(t, db, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@every 1h", Payload: json.RawMessage(nil)})
	require.Equal(t, "null", rowOf(t, db, "s").Payload)
}

func TestRegisterAgainReplacesAllButThePauseAndTheTimeOfTheSameSpec(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		began := time.Now().Unix()
		s := db.Scheduler()
		register(t, db, honker.Schedule{Name: "tea", Queue: "kitchen", Spec: "@every 2h", Payload: 1, Priority: 4, MaxAttempts: 5, ExpiresIn: time.Minute})
		register(t, db, every("other", "@every 1h"))
		time.Sleep(time.Hour)
		register(t, db, honker.Schedule{Name: "tea", Queue: "hall", Spec: "@every 2h", Payload: 2})
		require.Equal(t, schedule{Name: "tea", Queue: "hall", Spec: "@every 2h", Payload: "2", Attempts: 3, Next: began + 7200, Enabled: 1, Types: texts},
			rowOf(t, db, "tea"), "the next fire was pushed away, or an old value stayed")

		register(t, db, honker.Schedule{Name: "tea", Queue: "hall", Spec: "@every 3h", Payload: 2})
		require.Equal(t, began+3600+3*3600, rowOf(t, db, "tea").Next, "another spec counts from now")

		paused, err := s.Pause(t.Context(), "tea")
		require.NoError(t, err)
		require.True(t, paused)
		register(t, db, honker.Schedule{Name: "tea", Queue: "hall", Spec: "@every 1h", Payload: 3})
		row := rowOf(t, db, "tea")
		require.Zero(t, row.Enabled, "a paused schedule stays paused")
		require.Equal(t, "3", row.Payload)
		require.Equal(t, began+2*3600, row.Next)
		require.EqualValues(t, 2, number(t, db.SQL(), schedules))
	})
}

// A service that registers at every start, more often than the schedule fires.
func TestScheduleThatIsRegisteredAtEveryStartStillFires(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		fired := 0
		for range 30 {
			register(t, db, every("hourly", "@every 1h"))
			fires, err := db.Scheduler().Tick(t.Context(), time.Now())
			require.NoError(t, err)
			fired += len(fires)
			time.Sleep(20 * time.Minute)
		}
		require.Equal(t, 9, fired)
	})
}

func TestRegisterOfWhatIsThereWritesNothing(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	for _, sch := range []honker.Schedule{
		every("plain", "@every 1h"),
		{Name: "full", Queue: "mail", Spec: "0 5 * * *", Payload: []int{1}, Priority: 3, MaxAttempts: 1, ExpiresIn: time.Hour},
	} {
		register(t, db, sch)
		unchanged := watchFile(t, path)
		for range 3 {
			register(t, db, sch)
		}
		unchanged("registering " + sch.Name + " again")
	}
}

func TestManyMayRegisterTheSameScheduleAtOnce(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	other := honkertest.OpenFile(t, path, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			err := []*honker.DB{db, other}[i%2].Scheduler().Register(context.Background(), every("tea", "@every 1h"))
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, number(t, db.SQL(), schedules))
}

func TestRegisterTxIsAPartOfItsTransaction(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	ctx, s := bounded(t, patient), db.Scheduler()
	register(t, db, every("old", "@every 1h"))
	was := rowOf(t, db, "old")
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, s.RegisterTx(ctx, tx, every("new", "@every 1h")))
		require.NoError(t, s.RegisterTx(ctx, tx, every("old", "@every 2h")))
		require.ErrorIs(t, s.Register(ctx, every("plain", "@every 1h")), honker.ErrInTx)
		require.ErrorContains(t, s.Register(ctx, every("plain", "@every 1h")), "RegisterTx")
		return errCause
	}), errCause)
	require.EqualValues(t, 1, number(t, db.SQL(), schedules))
	require.Equal(t, was, rowOf(t, db, "old"))

	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.RegisterTx(ctx, tx, honker.Schedule{Name: "new", Queue: "mail", Spec: "@every 1h", Payload: 7, MaxAttempts: 2})
	}))
	row := rowOf(t, db, "new")
	require.InDelta(t, time.Now().Unix()+3600, row.Next, 10)
	row.Next = 0
	require.Equal(t, schedule{Name: "new", Queue: "mail", Spec: "@every 1h", Payload: "7", Attempts: 2, Enabled: 1, Types: texts}, row)

	elsewhere, unchanged := honkertest.Open(t, nil), watchFile(t, path)
	require.ErrorIs(t, elsewhere.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.RegisterTx(ctx, tx, every("x", "@every 1h"))
	}), honker.ErrInvalid)
	unchanged("a transaction of another file")
}

// badSpecs are the texts of honker for what it refuses; its own tests know them.
var badSpecs = map[string]string{
	"* * * *":                      `schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 4: "* * * *"`,
	"":                             `schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 0: ""`,
	"@hourly":                      `schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 1: "@hourly"`,
	"x * * * *":                    `cron field "x" not an integer`,
	"*/x * * * *":                  `cron step must be a positive integer: "*/x"`,
	"*/0 * * * *":                  `cron step must be positive: "*/0"`,
	"60 * * * *":                   `cron field "60" out of range [0,59] or inverted`,
	"* 5-1 * * *":                  `cron field "5-1" out of range [0,23] or inverted`,
	"* * * * 7":                    `cron field "7" out of range [0,6] or inverted`,
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

func TestBadSpecsAreRefusedWithHonkersTextsAndChangeNothing(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	s := db.Scheduler()
	register(t, db, every("tea", "@every 1h"))
	for spec, want := range badSpecs {
		calls := map[string]refusal{
			"NextAfter":  func(context.Context) error { _, err := honker.NextAfter(spec, time.Now()); return err },
			"Register":   func(c context.Context) error { return s.Register(c, every("new", spec)) },
			"again":      func(c context.Context) error { return s.Register(c, every("tea", spec)) },
			"RegisterTx": inOwnTx(db, func(c context.Context, tx *sql.Tx) error { return s.RegisterTx(c, tx, every("tea", spec)) }),
			"Update": func(c context.Context) error {
				changed, err := s.Update(c, "tea", honker.ScheduleChange{Spec: &spec})
				require.False(t, changed)
				return err
			},
		}
		refuses(t, path, calls)
		for what, call := range calls {
			require.ErrorContains(t, call(bounded(t, patient)), want, "%s of %q", what, spec)
		}
	}
}

func TestNextAfterRefusesTimestampsThatThereAreNot(t *testing.T) {
	t.Parallel()
	_, err := honker.NextAfter("* * * * *", time.Unix(math.MaxInt64, 0))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "invalid timestamp: 9223372036854775807")
}

func TestNextAfterIsTheFirstSecondInTheLocalZone(t *testing.T) {
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

func TestBadSchedulesAreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	s := db.Scheduler()
	register(t, db, every("tea", "@every 1h"))
	long := strings.Repeat("n", 1025)
	bad := map[string]honker.Schedule{
		"nothing":           {},
		"no name":           {Queue: "jobs", Spec: "@every 1h"},
		"no queue":          {Name: "tea", Spec: "@every 1h"},
		"long name":         every(long, "@every 1h"),
		"long queue":        {Name: "tea", Queue: long, Spec: "@every 1h"},
		"NUL":               every("te\x00a", "@every 1h"),
		"not UTF-8":         every("te\xffa", "@every 1h"),
		"negative attempts": {Name: "tea", Queue: "jobs", Spec: "@every 1h", MaxAttempts: -1},
		"negative expiry":   {Name: "tea", Queue: "jobs", Spec: "@every 1h", ExpiresIn: -1},
		"bytes":             {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: []byte("x")},
		"broken raw":        {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: json.RawMessage("{")},
		"a channel":         {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: make(chan int)},
		"a task, unnamed":   {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: honker.Task{}},
		"a large payload":   {Name: "tea", Queue: "jobs", Spec: "@every 1h", Payload: strings.Repeat("x", 1<<20)},
	}
	calls := make(map[string]refusal)
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
	refuses(t, path, calls)
}

// scheduleMachine drives schedules of one file and a model in plain Go: each is due
// every so often since it was registered, and keeps its place among the others.
type scheduleMachine struct {
	db    *honker.DB
	order []string
	plans map[string]*plan
	jobs  int64
	met   map[string]int
}

type plan struct {
	every, next int64
	paused      bool
}

var intervals = rapid.SampledFrom([]int64{1, 2, 7, 60})

// draw returns a name, and its plan if there is one.
func (m *scheduleMachine) draw(t *rapid.T) (string, *plan) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	return name, m.plans[name]
}

func (m *scheduleMachine) Register(t *rapid.T) {
	name, p := m.draw(t)
	n := intervals.Draw(t, "every")
	require.NoError(t, m.db.Scheduler().Register(context.Background(), every(name, fmt.Sprintf("@every %ds", n))))
	if p == nil {
		p = new(plan)
		m.plans[name], m.order = p, append(m.order, name)
	}
	if p.every != n {
		p.every, p.next = n, time.Now().Unix()+n
		m.met["new spec"]++
	}
}

func (m *scheduleMachine) Update(t *rapid.T) {
	name, p := m.draw(t)
	n := intervals.Draw(t, "every")
	spec := fmt.Sprintf("@every %ds", n)
	did, err := m.db.Scheduler().Update(context.Background(), name, honker.ScheduleChange{Spec: &spec})
	require.NoError(t, err)
	require.Equal(t, p != nil, did)
	if did {
		p.every, p.next = n, time.Now().Unix()+n
	}
}

func (m *scheduleMachine) Unregister(t *rapid.T) {
	name, p := m.draw(t)
	did, err := m.db.Scheduler().Unregister(context.Background(), name)
	require.NoError(t, err)
	require.Equal(t, p != nil, did)
	delete(m.plans, name)
	m.order = slices.DeleteFunc(m.order, func(s string) bool { return s == name })
}

func (m *scheduleMachine) PauseOrResume(t *rapid.T) {
	name, p := m.draw(t)
	pause, verb := rapid.Bool().Draw(t, "pause"), m.db.Scheduler().Resume
	if pause {
		verb = m.db.Scheduler().Pause
	}
	did, err := verb(context.Background(), name)
	require.NoError(t, err)
	require.Equal(t, p != nil && p.paused != pause, did)
	if p != nil {
		p.paused = pause
	}
}

func (m *scheduleMachine) Trigger(t *rapid.T) {
	name, p := m.draw(t)
	_, err := m.db.Scheduler().Trigger(context.Background(), name)
	require.Equal(t, p == nil, errors.Is(err, honker.ErrNotFound), err)
	if p != nil {
		m.jobs++
	}
}

func (m *scheduleMachine) Tick(t *rapid.T) {
	time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 1, 3, 50, 200}).Draw(t, "wait")) * time.Second)
	now := time.Now().Unix()
	var want []honker.Fire
	for _, name := range m.order {
		p, n := m.plans[name], 0
		for ; !p.paused && p.next <= now; n++ {
			if n == 64 {
				p.next = now + p.every
				m.met["passed over"]++
				break
			}
			want = append(want, honker.Fire{Name: name, Queue: "jobs", FireAt: time.Unix(p.next, 0)})
			p.next += p.every
		}
		m.met["fired"] += n
	}
	fires, err := m.db.Scheduler().Tick(context.Background(), time.Now())
	require.NoError(t, err)
	for i := range fires {
		require.Positive(t, fires[i].JobID)
		fires[i].JobID = 0
	}
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(fires))
	m.jobs += int64(len(fires))
}

// Check compares all that can be seen.
func (m *scheduleMachine) Check(t *rapid.T) {
	all, err := m.db.Scheduler().List(context.Background())
	require.NoError(t, err)
	require.Len(t, all, len(m.plans))
	soonest := time.Time{}
	for _, info := range all {
		p := m.plans[info.Name]
		require.Equal(t, []any{fmt.Sprintf("@every %ds", p.every), p.next, !p.paused}, []any{info.Spec, info.NextFireAt.Unix(), info.Enabled})
		if info.Enabled && (soonest.IsZero() || info.NextFireAt.Before(soonest)) {
			soonest = info.NextFireAt
		}
	}
	at, err := m.db.Scheduler().Soonest(context.Background())
	require.NoError(t, err)
	require.Equal(t, soonest, at)
	var jobs int64
	require.NoError(t, m.db.SQL().QueryRow(liveAndDead).Scan(&jobs))
	require.Equal(t, m.jobs, jobs)
}

func TestSchedulesDoWhatTheirModelDoes(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		rapid.Check(undated{t}, func(rt *rapid.T) {
			perform(t, db.SQL(), `DELETE FROM _honker_scheduler_tasks`, `DELETE FROM _honker_live`)
			rt.Repeat(rapid.StateMachineActions(&scheduleMachine{db: db, plans: map[string]*plan{}, met: met}))
		})
	})
	for _, what := range []string{"new spec", "fired", "passed over"} {
		require.True(t, met[what] > 0 || testing.Short(), "the property holds because nothing happened: %s", what)
	}
}
