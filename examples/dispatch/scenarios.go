package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
)

// instances returns the identities of n actors of a group, numbered from first.
func instances(kind, group string, first, n int) (ids []dispatch.Identity) {
	for i := range n {
		ids = append(ids, dispatch.Identity{Type: kind, Group: group, Instance: strconv.Itoa(first + i)})
	}
	return ids
}

// share is scenario A: two instances share the jobs of their type.
func (s *supervisor) share(ctx context.Context) (check, error) {
	fmt.Fprintf(s.w, "A  %d jobs for the type osis, which has two instances\n", s.shared)
	if err := s.startAll(ctx, instances("osis", "", 1, 2)); err != nil {
		return check{}, err
	}
	if err := s.send(ctx, "A", dispatch.Target{Type: "osis"}, s.shared); err != nil {
		return check{}, err
	}
	if err := s.until(ctx, s.doneAtLeast("A", s.shared)); err != nil {
		return check{}, err
	}
	if err := s.stopType(ctx, "osis"); err != nil {
		return check{}, err
	}
	by, err := s.doneBy(ctx, "A")
	c := check{"A", "each of two instances runs more than 30 %", by.String(), by.total() == s.shared && len(by) == 2}
	for _, one := range by {
		c.ok = c.ok && 10*one.jobs > 3*s.shared
	}
	return c, err
}

// pin is scenario B: jobs for a single instance run nowhere else, even while the others are idle.
func (s *supervisor) pin(ctx context.Context) (check, error) {
	fmt.Fprintf(s.w, "B  %d jobs for sal/io/3, beside three others of its group with nothing to do\n", s.pinned)
	if err := s.startAll(ctx, instances("sal", "io", 1, 4)); err != nil {
		return check{}, err
	}
	if err := s.send(ctx, "B", dispatch.Target{Type: "sal", Group: "io", Instance: "3"}, s.pinned); err != nil {
		return check{}, err
	}
	if err := s.until(ctx, s.doneAtLeast("B", s.pinned)); err != nil {
		return check{}, err
	}
	if err := s.stopType(ctx, "sal"); err != nil {
		return check{}, err
	}
	by, err := s.doneBy(ctx, "B")
	ok := len(by) == 1 && by[0] == share{"sal-3", s.pinned}
	return check{"B", "all run on the instance that was named", by.String(), ok}, err
}

// migrate is scenario C: new and old actors work on the same jobs while processes are killed and
// replaced.
func (s *supervisor) migrate(ctx context.Context) (check, error) {
	fmt.Fprintf(s.w, "C  %d jobs in a new queue and in an old one, %d kills\n", s.legacy, s.kills)
	if err := s.d.SetLegacy(dispatch.LegacyDualPush); err != nil {
		return check{}, err
	}
	if err := s.send(ctx, "C", dispatch.Target{Type: "v"}, s.legacy); err != nil {
		return check{}, err
	}
	m := &migration{supervisor: s}
	for range 4 {
		if err := m.startNext(); err != nil {
			return check{}, err
		}
	}
	if err := m.killSome(ctx); err != nil {
		return check{}, err
	}
	worked := func(ctx context.Context) (bool, error) {
		left, _, err := s.lying(ctx, "v")
		return left == 0, err
	}
	if err := s.until(ctx, worked); err != nil {
		return check{}, err
	}
	if err := s.stopType(ctx, "v"); err != nil {
		return check{}, err
	}
	return m.check(ctx)
}

// migration keeps four processes running, two old actors and two new ones.
type migration struct {
	*supervisor
	running []*process
	started int
}

// startNext starts a process under a fresh name, alternating between the new kind and the old.
func (m *migration) startNext() error {
	kind := "-legacy"
	if m.started%2 == 1 {
		kind = "-old"
	}
	m.started++
	p, err := m.start(dispatch.Identity{Type: "v", Instance: strconv.Itoa(m.started)}, kind)
	m.running = append(m.running, p)
	return err
}

// killSome spreads the kills over the run. Each time it kills the oldest process and starts another
// of the same kind.
func (m *migration) killSome(ctx context.Context) error {
	for i := range m.kills {
		done := (i + 1) * m.config.legacy / (m.kills + 1)
		if err := m.until(ctx, m.doneAtLeast("C", done)); err != nil {
			return err
		}
		victim := m.running[0]
		m.running = m.running[1:]
		if err := victim.kill(); err != nil {
			return err
		}
		if err := m.startNext(); err != nil {
			return err
		}
		fmt.Fprintf(m.w, "   kill %s after %d jobs, start %s\n", victim.name, done, m.running[len(m.running)-1].name)
	}
	return nil
}

// lying counts the unfinished and dead jobs that are left in a type's new and old queues.
func (s *supervisor) lying(ctx context.Context, kind string) (left, dead int64, err error) {
	keys := s.d.Keys()
	for _, queue := range []string{keys.Work(dispatch.Target{Type: kind}), keys.LegacyActorQueue(kind)} {
		q, err := honker.NewQueue[job](s.db, queue, nil).Stats(ctx)
		if err != nil {
			return 0, 0, err
		}
		left += q.Ready.N + q.Scheduled.N + q.Running.N + q.Lapsed.N + q.Held.N + q.Expired.N
		dead += q.Dead.N
	}
	return left, dead, nil
}

// check verifies that each job was done exactly once, despite the kills.
func (m *migration) check(ctx context.Context) (check, error) {
	by, err := m.doneBy(ctx, "C")
	if err != nil {
		return check{}, err
	}
	var once int
	const numbers = `SELECT count(DISTINCT number) FROM done WHERE scenario = 'C' AND number BETWEEN 1 AND ?`
	if err := m.db.SQL().QueryRowContext(ctx, numbers, m.config.legacy).Scan(&once); err != nil {
		return check{}, err
	}
	left, dead, err := m.lying(ctx, "v")
	if err != nil {
		return check{}, err
	}
	begun, err := m.begun("C")
	found := fmt.Sprintf("%d jobs, %d ends, %d begun again, %d left, %d dead", once, by.total(), begun-by.total(), left, dead)
	ok := once == m.config.legacy && by.total() == once && begun >= once && left+dead == 0
	return check{"C", "each job ends once, and none is stuck", found, ok}, err
}

// share counts the jobs done by a process.
type share struct {
	process string
	jobs    int
}

type shares []share

func (all shares) total() (n int) {
	for _, one := range all {
		n += one.jobs
	}
	return n
}

func (all shares) String() string {
	var parts []string
	for _, one := range all {
		parts = append(parts, fmt.Sprint(one.process, " ", one.jobs))
	}
	return strings.Join(parts, ", ")
}
