package model_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// scheduleMachine drives the schedules of a file and their model. Each schedule is due at a fixed
// interval since its registration and keeps its position among the others.
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

// draw returns a name, and its plan if the schedule exists.
func (m *scheduleMachine) draw(t *rapid.T) (string, *plan) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	return name, m.plans[name]
}

func (m *scheduleMachine) Register(t *rapid.T) {
	name, p := m.draw(t)
	n := intervals.Draw(t, "every")
	require.NoError(t, m.db.Scheduler().Register(context.Background(), testkit.Every(name, fmt.Sprintf("@every %ds", n))))
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

// Check compares the observable state.
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
	jobs, err := testkit.Rows(m.db.SQL(), testkit.CountJobs)
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprint(m.jobs)}, jobs)
}

// TestScheduler_Model compares random operations on schedules with the model.
func TestScheduler_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		rapid.Check(undated{t}, func(rt *rapid.T) {
			clearSchedules(t, db)
			rt.Repeat(rapid.StateMachineActions(&scheduleMachine{db: db, plans: map[string]*plan{}, met: met}))
		})
	})
	requireMet(t, met, "new spec", "fired", "passed over")
}
