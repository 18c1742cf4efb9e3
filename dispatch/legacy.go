package dispatch

import (
	"fmt"

	"github.com/honker-go/honker"
)

// LegacyMode controls the use of legacy queues, which serve actors that do not know the canonical
// names. To migrate, use LegacyDualPush while old actors are running, LegacyReadOnly until new
// actors have emptied the old queues, and finally LegacyOff.
type LegacyMode int

// The modes.
const (
	LegacyOff      LegacyMode = iota // legacy queues are neither written nor read
	LegacyDualPush                   // jobs are sent to both queues, but run only once; actors read legacy queues last
	LegacyReadOnly                   // jobs are sent to the canonical queue only; actors read legacy queues last
)

func (m LegacyMode) check() error {
	if m < LegacyOff || m > LegacyReadOnly {
		return fmt.Errorf("%w: unknown LegacyMode %d", honker.ErrInvalid, int(m))
	}
	return nil
}

// SetLegacy changes the mode of this Dispatcher. The change applies to later sends and to running
// actors. It does not interrupt handlers. It returns [honker.ErrInvalid] for an unknown mode.
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

// legacyQueues is the default of Options.LegacyQueues. Old actors have no groups or instances, so
// they do not get jobs for a group or an instance.
func (k Keys) legacyQueues(t Target) []string {
	if t.Group != "" || t.Instance != "" {
		return nil
	}
	return []string{k.LegacyActorQueue(t.Type)}
}

// legacyLanes returns the legacy queues that an actor claims from, without duplicates.
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

// pushes returns the legacy queues that also receive a job for t, without duplicates.
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
