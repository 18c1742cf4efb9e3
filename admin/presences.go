package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// PresenceInfo describes a live actor from package dispatch by the name that it holds. Actors write the fields from
// Hostname on with their heartbeats, so InFlight, Busy and Paused may be several seconds old.
type PresenceInfo struct {
	Key       string // such as hero:meta:actor:inst:osis:default:2, see dispatch.Keys.Presence
	Prefix    string // see dispatch.Options; like the next fields, "" if Key was not made by package dispatch
	Type      string
	Group     string
	Instance  string
	Owner     string // the running dispatch.Actor.Run that holds the name
	ExpiresAt time.Time

	Hostname      string // host name of the process; "" if unknown
	PID           int
	Version       string // see dispatch.Identity
	Capabilities  []string
	StartedAt     time.Time
	LastHeartbeat time.Time
	InFlight      int  // tasks being handled
	Busy          bool // all workers of the actor have a task
	Paused        bool // the actor claims no tasks
}

// Runs reports whether w is a worker of the actor. An actor has a worker for each queue that it claims from, and more
// of them while tasks from before a pause continue.
func (p *PresenceInfo) Runs(w WorkerInfo) bool {
	return strings.HasPrefix(w.ID, p.Key+"/")
}

// Presences returns the names held by actors, sorted by key. An expiry in the far future indicates that the
// holder's clock was ahead; see [BreakPresence]. Presences never waits for the writer. It returns
// [honker.ErrInvalid] if db is nil.
func Presences(ctx context.Context, db *honker.DB) ([]PresenceInfo, error) {
	var all []PresenceInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Dispatches.Presences(ctx, q, "", "", clock(db))
		all = make([]PresenceInfo, len(rows))
		for i, r := range rows {
			all[i] = presenceOf(r)
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list presences", "", err)
	}
	return all, nil
}

func presenceOf(r row.DispatchPresence) PresenceInfo {
	t := actorOfKey(r.Key)
	return PresenceInfo{
		Key: r.Key, Prefix: t.Prefix, Type: t.Type, Group: t.Group, Instance: t.Instance, Owner: r.Owner, ExpiresAt: r.ExpiresAt,
		Hostname: r.Hostname, PID: r.PID, Version: r.Version, Capabilities: r.Capabilities, StartedAt: r.StartedAt, LastHeartbeat: r.LastHeartbeat,
		InFlight: r.InFlight, Busy: r.Busy, Paused: r.Paused,
	}
}

// BreakPresence releases an actor's name if owner, as returned by [Presences], still holds it, and reports
// whether it did. Use it if the actor has died. A live actor reacquires its name at its next heartbeat, or
// ends with dispatch.ErrInstanceTaken if another actor has taken the name by then.
//
// BreakPresence waits for the writer until ctx ends. It returns [honker.ErrInvalid] if key or owner is
// empty or invalid, or if db is nil.
func BreakPresence(ctx context.Context, db *honker.DB, key, owner string) (broken bool, err error) {
	e, err := engineOf(db)
	if err := errors.Join(err, engine.CheckName("presence key", key), engine.CheckName("presence owner", owner)); err != nil {
		return false, engine.Wrap("break presence", key, err)
	}
	audit := e.NewAudit(ctx, "break presence", engine.AuditTarget("presence", key))
	err = e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		broken = false
		if broken, err = e.Stores.Dispatches.Leave(ctx, q, key, owner); err != nil || !broken {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}))
	if err != nil {
		return false, engine.Wrap("break presence", key, err)
	}
	return broken, nil
}
