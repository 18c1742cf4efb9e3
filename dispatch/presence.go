package dispatch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Presence describes a live actor as of its last heartbeat.
type Presence struct {
	Identity
	PID           int
	Hostname      string
	StartedAt     time.Time
	LastHeartbeat time.Time
	InFlight      int  // tasks being handled
	Busy          bool // all its workers are busy
	Paused        bool // it is not claiming tasks
}

// Actors returns t's live actors, or those of all types if t is zero. They are sorted by type,
// group and instance. An actor that was killed is listed until its TTL has passed. Actors never
// waits for a writer.
func (d *Dispatcher) Actors(ctx context.Context, t Target) (found []Presence, err error) {
	if t != (Target{}) {
		if err := t.check(); err != nil {
			return nil, fail("list actors", t.String(), err)
		}
	}
	err = d.read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		found, err = d.presences(ctx, q, t, d.engine.Now())
		return err
	})
	return found, fail("list actors", t.String(), err)
}

// presences returns t's live actors, sorted by type, group and instance. This is not the order of
// the presence keys, because colons separate their parts.
func (d *Dispatcher) presences(ctx context.Context, q engine.Querier, t Target, now time.Time) (found []Presence, err error) {
	first := d.keys.prefix() + "meta:actor:inst:"
	if t.Type != "" {
		first += t.Type + ":"
	}
	end := strings.TrimSuffix(first, ":") + ";" // ';' is the byte after ':'
	rows, err := d.store.Presences(ctx, q, first, end, now)
	for _, row := range rows {
		key, err := d.keys.Parse(row.Key)
		if err != nil || key.Kind != KindPresence {
			continue // not a presence row of this protocol
		}
		p := Presence{
			Identity: Identity{
				Type: key.Target.Type, Group: key.Target.Group, Instance: key.Target.Instance,
				Version: row.Version, Capabilities: row.Capabilities,
			},
			PID: row.PID, Hostname: row.Hostname, StartedAt: row.StartedAt, LastHeartbeat: row.LastHeartbeat,
			InFlight: row.InFlight, Busy: row.Busy, Paused: row.Paused,
		}
		if t.Type == "" || t.covers(p.Identity) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b Presence) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Instance, b.Instance))
	})
	return found, err
}
