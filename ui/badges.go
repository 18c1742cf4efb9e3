package ui

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// badge is a count in the navigation menu.
type badge struct{ Text, Class string }

// badges caches the badges and problems of a file, because every page shows badges.
type badges struct {
	mu  sync.Mutex
	at  time.Time
	all map[string]badge // keyed by the path of the menu's entry

	problems []admin.Problem
}

// badgesFor is the time for which badges are cached.
const badgesFor = 2 * time.Second

// Badge returns the count to show at an entry of the menu. It returns nil if there is none, or if the operator may
// not see all queues.
func (p *page) Badge(path string) *badge {
	if !p.c.can("look", "") {
		return nil
	}
	if b, ok := p.c.badges()[path]; ok {
		return &b
	}
	return nil
}

// badges returns the badges of the file. The menu is complete without them, so it omits them after an error.
func (c *call) badges() map[string]badge {
	b := &c.file.badges
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.refresh(c)
	return b.all
}

// problems returns the file's problems. They may be as old as the badges.
func (c *call) problems() ([]admin.Problem, error) {
	b := &c.file.badges
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.refresh(c)
	return slices.Clone(b.problems), err
}

// refresh reads the queues and problems again if they are too old. A failed read is not kept, because the request may have
// been cancelled.
func (b *badges) refresh(c *call) error {
	if age := c.now.Sub(b.at); b.all != nil && age >= 0 && age < badgesFor {
		return nil
	}
	b.all, b.problems = nil, nil
	queues, problems, err := c.state()
	if err == nil {
		b.all, b.problems, b.at = c.badgesOf(queues, problems), problems, c.now
	}
	return err
}

// keep stores badges and problems that were read for a page.
func (b *badges) keep(all map[string]badge, problems []admin.Problem, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all, b.problems, b.at = all, problems, at
}

// state reads the queues and problems of the file.
func (c *call) state() (queues []honker.QueueStats, problems []admin.Problem, err error) {
	if queues, err = admin.Queues(c.ctx, c.db); err == nil {
		problems, err = admin.Problems(c.ctx, c.db)
	}
	return queues, problems, err
}

func (c *call) badgesOf(queues []honker.QueueStats, problems []admin.Problem) map[string]badge {
	all := map[string]badge{}
	add := func(path string, n honker.Count, class string) {
		if n.N > 0 {
			all[path] = badge{briefCount(n), class}
		}
	}
	var live, dead, failed honker.Count
	for _, q := range queues {
		live, dead = sum(live, backlog(q)), sum(dead, q.Dead)
		if strings.HasPrefix(q.Queue, flowPrefix) {
			failed = sum(failed, q.Dead)
		}
	}
	add("queues", honker.Count{N: int64(len(queues))}, "")
	add("jobs", live, "")
	add("dead", dead, "bad")
	add("flows", failed, "bad")
	var missed, behind, stuck, letters honker.Count
	for _, p := range problems {
		switch p.Code {
		case admin.ProblemOverdue, admin.ProblemScheduleMissed:
			missed.N++
		case admin.ProblemBehind, admin.ProblemSlow, admin.ProblemPinned:
			behind.N++
		case admin.ProblemRelayStuck:
			stuck.N++
		case admin.ProblemRelayDead:
			letters = sum(letters, p.N)
		}
	}
	add("schedules", missed, "bad")
	add("streams", behind, "warn")
	if actors, err := admin.Presences(c.ctx, c.db); err == nil {
		add("actors", honker.Count{N: int64(len(actors))}, "")
	}
	add("relays", letters, "warn")
	add("relays", stuck, "bad")
	return all
}

// backlog returns the number of a queue's jobs that are not finished.
func backlog(q honker.QueueStats) honker.Count {
	return sum(q.Ready, q.Running, q.Lapsed, q.Scheduled, q.Held)
}

func sum(all ...honker.Count) (total honker.Count) {
	for _, n := range all {
		total.N += n.N
		total.More = total.More || n.More
	}
	return total
}

func briefCount(n honker.Count) string {
	text := brief(n.N)
	if n.More {
		text += "+"
	}
	return text
}
