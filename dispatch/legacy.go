package dispatch

import (
	"fmt"

	"github.com/honker-go/honker"
)

// LegacyMode says what is done with the queues of actors that do not know the canonical names yet.
// A migration goes from LegacyDualPush, while there are old actors, over LegacyReadOnly, which lets
// the new ones finish what lies in the old queues, to LegacyOff.
type LegacyMode int

// The modes.
const (
	LegacyOff      LegacyMode = iota // old queues are neither written nor read
	LegacyDualPush                   // a job is sent to both, and runs once; actors read the old queues last
	LegacyReadOnly                   // a job is sent to the new queue only; actors still read the old ones, last
)

func (m LegacyMode) check() error {
	if m < LegacyOff || m > LegacyReadOnly {
		return fmt.Errorf("%w: legacy mode %d", honker.ErrInvalid, int(m))
	}
	return nil
}

// SetLegacy changes the mode of this Dispatcher, for what is sent from now on and for the actors that
// run: handlers go on meanwhile. An unknown mode is [honker.ErrInvalid], and nothing was changed.
func (d *Dispatcher) SetLegacy(m LegacyMode) error {
	if err := m.check(); err != nil {
		return fail("set legacy", "", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode == m {
		return nil
	}
	d.mode = m
	for s := range d.sessions {
		s.tell(command{Cmd: cmdLanes})
	}
	return nil
}

func (d *Dispatcher) legacy() LegacyMode {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// legacyQueues is the default of Options.LegacyQueues. Old actors know nothing of groups and
// instances, so what is for one of these does not go to them.
func (k Keys) legacyQueues(t Target) []string {
	if t.Group != "" || t.Instance != "" {
		return nil
	}
	return []string{k.LegacyActorQueue(t.Type)}
}

// legacyLanes are the old queues that an actor reads, each once.
func (d *Dispatcher) legacyLanes(a Identity) (queues []string) {
	if d.legacy() == LegacyOff {
		return nil
	}
	own := a.target()
	seen := make(map[string]bool)
	for _, t := range []Target{own, {Type: own.Type, Group: own.Group}, {Type: own.Type}} {
		for _, queue := range d.opts.LegacyQueues(t) {
			if !seen[queue] {
				seen[queue] = true
				queues = append(queues, queue)
			}
		}
	}
	return queues
}

// pushes are the old queues that a job for t is sent to as well, each once.
func (d *Dispatcher) pushes(t Target, canonical string) (queues []string) {
	if d.legacy() != LegacyDualPush {
		return nil
	}
	t.Prio = 0
	seen := map[string]bool{canonical: true}
	for _, queue := range d.opts.LegacyQueues(t) {
		if !seen[queue] {
			seen[queue] = true
			queues = append(queues, queue)
		}
	}
	return queues
}
