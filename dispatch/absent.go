package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// AbsentPolicy says where a job goes, in the transaction that sends it.
type AbsentPolicy int

// The policies.
const (
	// Wait leaves the job in the queue of its target, until an actor comes.
	Wait AbsentPolicy = iota
	// Fallback sends it to the group, if no actor of the instance lives, and to the type, if none of the
	// group does.
	Fallback
	// LeastLoaded sends it to the instance with the least to do, counting what it runs and what waits
	// for it: the one that was named, if it lives, or else the best of the group or the type. Actors that
	// are paused do not count. If none lives the job waits in the queue of its target. What was sent to
	// an instance waits for it, also when that ends: let instances come again under their names.
	LeastLoaded
)

func (p AbsentPolicy) check() error {
	if p < Wait || p > LeastLoaded {
		return fmt.Errorf("%w: absent policy %d", honker.ErrInvalid, int(p))
	}
	return nil
}

// resolve is where a job for t goes.
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

// covered are the actors of a target, those that are paused left out on request.
func covered(living []Presence, t Target, active bool) (found []Presence) {
	for _, p := range living {
		if t.covers(p.Identity) && !(active && p.Paused) {
			found = append(found, p)
		}
	}
	return found
}

// leastLoaded counts, as the file has it at this moment, what waits for each actor alone and what it
// runs.
func (d *Dispatcher) leastLoaded(ctx context.Context, q engine.Querier, actors []Presence) (best Identity, err error) {
	if len(actors) == 1 {
		return actors[0].Identity, nil
	}
	load := make(map[string]int, len(actors))
	own := make(map[string]string) // queue to presence
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
	counts, err := d.store.Waiting(ctx, q, waiting)
	if err != nil {
		return best, err
	}
	for queue, n := range counts {
		load[own[queue]] += n
	}
	workers, err := d.store.Running(ctx, q, lanes)
	if err != nil {
		return best, err
	}
	for _, worker := range workers {
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

// workerID is how an actor is called in the claims of its jobs, and presenceOf the key in it.
func workerID(presence, token string) string { return presence + "/" + token }

func presenceOf(worker string) string {
	if i := strings.LastIndexByte(worker, '/'); i >= 0 {
		return worker[:i]
	}
	return ""
}
