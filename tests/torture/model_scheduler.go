//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/honker-go/honker"
)

// schedulerModel models a scheduler. A tick fires each time at which a schedule has been due since
// the last tick, but at most the oldest 64. A naive walker computes these times. Schedules fire in
// the order of their registration, and also fire the times of a pause when they are resumed.
//
// The tests pass the time to Tick. It moves ahead of the clock, and sometimes backward.
type schedulerModel struct {
	*lab
	s     *honker.Scheduler
	all   []*modelSchedule
	clock int64
}

type modelSchedule struct {
	name   string
	spec   walker
	queue  string
	next   int64
	paused bool
}

const mostFires = 64 // per schedule and tick

func newSchedulerModel(l *lab) (model, error) {
	return &schedulerModel{lab: l, s: l.db.Scheduler(), clock: time.Now().Unix()}, nil
}

func (m *schedulerModel) verbs() []verb {
	return []verb{
		{"add", 2, m.add}, {"remove", 1, m.remove}, {"update", 1, m.update}, {"pause", 2, m.pause}, {"resume", 2, m.resume},
		{"trigger", 1, m.trigger}, {"tick", 8, m.tick}, {"soonest", 1, m.soonest},
	}
}

// walker is a schedule's spec with a function that matches seconds of the local day.
type walker struct {
	text    string
	every   int64 // interval in seconds; 0 if the schedule is given by fields
	step    int64 // step of the walk, in seconds
	matches func(hour, minute, second int64) bool
}

func (m *schedulerModel) spec() walker {
	a, b, k := m.Rand.Int64N(30), 30+m.Rand.Int64N(30), 2+m.Rand.Int64N(20)
	switch m.Rand.IntN(5) {
	case 0:
		return walker{text: fmt.Sprintf("@every %ds", 60*k), every: 60 * k}
	case 1:
		return walker{fmt.Sprintf("%d,%d * * * *", a, b), 0, 60, func(_, minute, _ int64) bool { return minute == a || minute == b }}
	case 2:
		return walker{fmt.Sprintf("%d-%d/%d * * * *", a, b, k), 0, 60,
			func(_, minute, _ int64) bool { return minute >= a && minute <= b && (minute-a)%k == 0 }}
	case 3:
		return walker{fmt.Sprintf("%d %d-23/%d * * *", b, k, k), 0, 60,
			func(hour, minute, _ int64) bool { return minute == b && hour >= k && hour%k == 0 }}
	}
	return walker{fmt.Sprintf("%d %d * * * *", b, a), 0, 1, func(_, minute, second int64) bool { return minute == a && second == b }}
}

// after returns the next matching second after t. Close to a change of daylight saving time it uses
// NextAfter, because those changes have their own tests.
func (w walker) after(t int64) int64 {
	if w.every > 0 {
		return t + w.every
	}
	offset := zone(t)
	if zone(t-86400) != offset || zone(t+3*86400) != offset {
		at, _ := honker.NextAfter(w.text, time.Unix(t, 0))
		return at.Unix()
	}
	for at := t + w.step - (t+offset)%w.step; ; at += w.step {
		local := at + offset
		if w.matches(local/3600%24, local/60%60, local%60) {
			return at
		}
	}
}

func zone(t int64) int64 {
	_, offset := time.Unix(t, 0).Zone()
	return int64(offset)
}

func (m *schedulerModel) name() string { return "s" + strconv.Itoa(m.Rand.IntN(6)) }

func (m *schedulerModel) find(name string) *modelSchedule {
	for _, s := range m.all {
		if s.name == name {
			return s
		}
	}
	return nil
}

// add registers or changes a schedule. Only a change of the spec changes the next time.
func (m *schedulerModel) add() error {
	name, spec := m.name(), m.spec()
	s := m.find(name)
	if s != nil && m.oneIn(2) {
		spec = s.spec
	}
	queue := fmt.Sprint("q", m.Rand.IntN(2))
	began := time.Now().Unix()
	if err := m.s.Register(m.ctx, honker.Schedule{Name: name, Queue: queue, Spec: spec.text}); err != nil {
		return err
	}
	if s == nil {
		s = &modelSchedule{name: name}
		m.all = append(m.all, s)
	}
	s.queue = queue
	if s.spec.text == spec.text {
		return m.compare()
	}
	s.spec = spec
	return m.learn(s, began)
}

// learn copies the next time of a schedule that was just computed from the clock. The time must be
// correct for one of the seconds since began.
func (m *schedulerModel) learn(s *modelSchedule, began int64) error {
	infos, err := m.s.List(m.ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(infos, func(i honker.ScheduleInfo) bool { return i.Name == s.name })
	s.next = infos[i].NextFireAt.Unix()
	right := false
	for at := began; at <= time.Now().Unix(); at++ {
		right = right || s.spec.after(at) == s.next
	}
	return m.same(fmt.Sprint(s.spec.text, " is due at ", s.next), right, true)
}

func (m *schedulerModel) remove() error {
	s := m.find(m.name())
	name := m.name()
	if s != nil {
		name = s.name
	}
	was := m.find(name) != nil
	removed, err := m.s.Unregister(m.ctx, name)
	if err != nil {
		return err
	}
	m.all = slices.DeleteFunc(m.all, func(s *modelSchedule) bool { return s.name == name })
	return m.same("removed", removed, was)
}

func (m *schedulerModel) update() error {
	name, spec := m.name(), m.spec()
	s, began := m.find(name), time.Now().Unix()
	found, err := m.s.Update(m.ctx, name, honker.ScheduleChange{Spec: &spec.text})
	if err != nil {
		return err
	}
	if err := m.same("updated", found, s != nil); err != nil || s == nil {
		return err
	}
	s.spec = spec
	return m.learn(s, began)
}

func (m *schedulerModel) pause() error  { return m.enable(true, m.s.Pause) }
func (m *schedulerModel) resume() error { return m.enable(false, m.s.Resume) }

func (m *schedulerModel) enable(paused bool, do func(context.Context, string) (bool, error)) error {
	name := m.name()
	changed, err := do(m.ctx, name)
	if err != nil {
		return err
	}
	s := m.find(name)
	want := s != nil && s.paused != paused
	if want {
		s.paused = paused
	}
	return m.same("changed", changed, want)
}

func (m *schedulerModel) trigger() error {
	name := m.name()
	id, err := m.s.Trigger(m.ctx, name)
	s := m.find(name)
	if err := m.same("there is none to trigger", errors.Is(err, honker.ErrNotFound), s == nil); err != nil || s == nil {
		return err
	}
	return errors.Join(err, m.jobs([]string{s.queue}, []int64{id}))
}

func (m *schedulerModel) tick() error {
	at := m.clock - m.Rand.Int64N(600)
	if !m.oneIn(4) {
		m.clock += 1 + m.Rand.Int64N(1<<m.Rand.IntN(14))
		at = m.clock
	}
	fires, err := m.s.Tick(m.ctx, time.Unix(at, 0))
	if err != nil {
		return err
	}
	var queues []string
	var ids []int64
	want := m.due(at)
	for i, f := range fires {
		queues, ids = append(queues, f.Queue), append(ids, f.JobID)
		if i < len(want) {
			err = errors.Join(err, m.same("fired", fmt.Sprint(f.Name, f.Queue, f.FireAt.Unix()), want[i]))
		}
	}
	return errors.Join(err, m.same("fires", len(fires), len(want)), m.jobs(queues, ids))
}

// due returns the fires expected from a tick, and advances the schedules.
func (m *schedulerModel) due(at int64) (fires []string) {
	for _, s := range m.all {
		for n := 0; !s.paused && s.next <= at; n++ {
			if n == mostFires {
				s.next = s.spec.after(at)
				break
			}
			fires = append(fires, fmt.Sprint(s.name, s.queue, s.next))
			s.next = s.spec.after(s.next)
		}
	}
	return fires
}

// jobs compares the jobs in the file with the expected jobs, and deletes them.
func (m *schedulerModel) jobs(queues []string, ids []int64) error {
	var got, want []string
	for i, id := range ids {
		want = append(want, fmt.Sprint(id, queues[i]))
	}
	err := eachRow(m.ctx, m.db.SQL(), `DELETE FROM _honker_live RETURNING id, queue`, func(row []any) {
		got = append(got, fmt.Sprint(row...))
	})
	if err != nil {
		return err
	}
	return m.same("jobs", got, want)
}

func (m *schedulerModel) soonest() error {
	got, err := m.s.Soonest(m.ctx)
	if err != nil {
		return err
	}
	want := time.Time{}
	for _, s := range m.all {
		if at := time.Unix(s.next, 0); !s.paused && (want.IsZero() || at.Before(want)) {
			want = at
		}
	}
	return m.same("soonest", got.Equal(want), true)
}

// compare compares all schedules.
func (m *schedulerModel) compare() error {
	infos, err := m.s.List(m.ctx)
	var got, want []string
	for _, i := range infos {
		got = append(got, fmt.Sprint(i.Name, i.Queue, i.Spec, i.NextFireAt.Unix(), i.Enabled))
	}
	for _, s := range m.all {
		want = append(want, fmt.Sprint(s.name, s.queue, s.spec.text, s.next, !s.paused))
	}
	slices.Sort(want)
	return errors.Join(err, m.same("schedules", got, want))
}
