package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
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
	Busy          bool // all its workers have a task
	Paused        bool // it claims no tasks
}

// presenceJSON is the stored form of a Presence.
type presenceJSON struct {
	PID           int       `json:"pid"`
	Hostname      string    `json:"hostname"`
	StartedAt     time.Time `json:"started_at"`
	Version       string    `json:"version"`
	Capabilities  []string  `json:"capabilities"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	InFlight      int       `json:"in_flight"`
	Busy          bool      `json:"busy"`
	Paused        bool      `json:"paused"`
}

// Actors returns the live actors of t, or of all types if t is zero. They are sorted by type, group
// and instance. An actor that was killed is listed until its TTL has passed. Actors never waits for
// a writer.
func (d *Dispatcher) Actors(ctx context.Context, t Target) (found []Presence, err error) {
	if t != (Target{}) {
		if err := t.check(); err != nil {
			return nil, fail("list actors", t.String(), err)
		}
	}
	err = d.read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		found, err = d.presences(ctx, q, t, time.Now())
		return err
	})
	return found, fail("list actors", t.String(), err)
}

// presences returns the live actors of t, sorted by type, group and instance. The order of their keys
// differs, because it depends on the colons between the parts.
func (d *Dispatcher) presences(ctx context.Context, q engine.Querier, t Target, now time.Time) (found []Presence, err error) {
	first := d.keys.prefix() + "meta:actor:inst:"
	if t.Type != "" {
		first += t.Type + ":"
	}
	end := strings.TrimSuffix(first, ":") + ";" // ';' is the byte after ':'
	rows, err := d.store.Presences(ctx, q, first, end, now.UnixMilli())
	for _, row := range rows {
		key, err := d.keys.Parse(row.Key)
		if err != nil || key.Kind != KindPresence {
			continue // not a presence row of this protocol
		}
		p := Presence{Identity: Identity{Type: key.Target.Type, Group: key.Target.Group, Instance: key.Target.Instance}}
		p.fill(row.Value)
		if t.Type == "" || t.covers(p.Identity) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b Presence) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Instance, b.Instance))
	})
	return found, err
}

// fill sets the fields of p from the value of a row. It ignores a malformed value, which another
// program may have written.
func (p *Presence) fill(value string) {
	var v presenceJSON
	if json.Unmarshal([]byte(value), &v) != nil {
		return
	}
	p.Version, p.Capabilities, p.PID, p.Hostname = v.Version, v.Capabilities, v.PID, v.Hostname
	p.StartedAt, p.LastHeartbeat, p.InFlight, p.Busy, p.Paused = v.StartedAt, v.LastHeartbeat, v.InFlight, v.Busy, v.Paused
}
