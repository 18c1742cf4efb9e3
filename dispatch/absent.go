package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// AbsentPolicy controls how Send chooses a job's queue, depending on which actors are alive. Send
// applies the policy in the transaction that enqueues the job.
type AbsentPolicy int

// The policies.
const (
	// Wait enqueues the job in its target's queue, where it waits for an actor.
	Wait AbsentPolicy = iota
	// Fallback sends the job to the group if the instance has no live actor, and to the type if the
	// group has no live actor either.
	Fallback
	// LeastLoaded sends the job to the target instance if it is alive, and otherwise to the
	// instance in the group or type with the fewest running and waiting jobs. Paused actors are
	// skipped. If no actors are left, the job waits in its target's queue. A job sent to an
	// instance stays in the instance's queue even after the actor has ended, so instances should be
	// restarted under the same name.
	LeastLoaded
)

func (p AbsentPolicy) check() error {
	if p < Wait || p > LeastLoaded {
		return fmt.Errorf("%w: unknown AbsentPolicy %d", honker.ErrInvalid, int(p))
	}
	return nil
}

// resolve returns the target whose queue receives a job for t, according to Options.IfAbsent.
func (d *Dispatcher) resolve(ctx context.Context, q engine.Querier, t Target, now time.Time) (Target, error) {
	if d.opts.IfAbsent == Wait {
		return t, nil
	}
	living, err := d.presences(ctx, q, Target{Type: t.Type}, now)
	if err != nil {
		return t, err
	}
	t = t.withGroup()
	wider := []Target{t}
	if t.Instance != "" {
		wider = append(wider, Target{Type: t.Type, Group: t.Group, Prio: t.Prio})
	}
	if t.Group != "" {
		wider = append(wider, Target{Type: t.Type, Prio: t.Prio})
	}
	for _, at := range wider {
		found := covered(living, at, d.opts.IfAbsent == LeastLoaded)
		if len(found) == 0 {
			continue
		}
		if d.opts.IfAbsent == Fallback {
			return at, nil
		}
		best, err := d.leastLoaded(ctx, q, found)
		return Target{Type: t.Type, Group: best.Group, Instance: best.Instance, Prio: t.Prio}, err
	}
	if d.opts.IfAbsent == Fallback {
		return wider[len(wider)-1], nil
	}
	return t, nil
}

// covered returns the actors in living that match t. If active is true, paused actors are skipped.
func covered(living []Presence, t Target, active bool) (found []Presence) {
	for _, p := range living {
		if t.covers(p.Identity) && !(active && p.Paused) {
			found = append(found, p)
		}
	}
	return found
}

// leastLoaded returns the actor with the fewest jobs. It counts the jobs that the actor is running
// and the jobs that wait in the queues of its instance. If there's a tie, the first actor wins.
func (d *Dispatcher) leastLoaded(ctx context.Context, q engine.Querier, actors []Presence) (best Identity, err error) {
	if len(actors) == 1 {
		return actors[0].Identity, nil
	}
	load := make(map[string]int, len(actors))
	own := make(map[string]string) // queue name to presence key
	var waiting, lanes []string
	seen := make(map[string]bool)
	for _, p := range actors {
		for _, queue := range append(d.keys.lanes(p.Identity, d.opts.Prios), d.legacyLanes(p.Identity)...) {
			if !seen[queue] {
				seen[queue] = true
				lanes = append(lanes, queue)
			}
		}
		for prio := range d.opts.Prios {
			t := p.Identity.target()
			t.Prio = prio
			own[d.keys.Work(t)] = d.keys.Presence(p.Identity)
			waiting = append(waiting, d.keys.Work(t))
		}
	}
	busy, err := d.store.Occupancy(ctx, q, waiting, lanes)
	if err != nil {
		return best, err
	}
	for queue, n := range busy.Waiting {
		load[own[queue]] += n
	}
	for _, worker := range busy.Workers {
		load[presenceOf(worker)]++
	}
	least := -1
	for _, p := range actors {
		if n := load[d.keys.Presence(p.Identity)]; least < 0 || n < least {
			best, least = p.Identity, n
		}
	}
	return best, nil
}

// workerID returns the worker ID that an actor uses to claim jobs.
func workerID(presence, token string) string { return presence + "/" + token }

// presenceOf returns the presence key in a worker ID, or "" if there is none.
func presenceOf(worker string) string {
	if i := strings.LastIndexByte(worker, '/'); i >= 0 {
		return worker[:i]
	}
	return ""
}
