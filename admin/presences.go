package admin

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// PresenceInfo describes a taken name of an actor of package dispatch.
type PresenceInfo struct {
	Key           string // such as hero:meta:actor:inst:osis:default:2, see dispatch.Keys.Presence
	Owner         string // the running dispatch.Actor.Run that holds the name
	ExpiresAt     time.Time
	Hostname      string // host of the process; "" if unknown
	PID           int
	LastHeartbeat time.Time
}

// Presences returns the taken names of actors, by key. An expiry in the far future was written by a process
// whose clock was ahead; see [BreakPresence]. Presences never waits for the writer. It returns
// [honker.ErrInvalid] if db is nil.
func Presences(ctx context.Context, db *honker.DB) ([]PresenceInfo, error) {
	var all []PresenceInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Dispatches.Presences(ctx, q, "", "", time.Now())
		all = make([]PresenceInfo, len(rows))
		for i, row := range rows {
			all[i] = PresenceInfo{
				Key: row.Key, Owner: row.Owner, ExpiresAt: row.ExpiresAt,
				Hostname: row.Hostname, PID: row.PID, LastHeartbeat: row.LastHeartbeat,
			}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list presences", "", err)
	}
	return all, nil
}

// BreakPresence frees the name of an actor if owner, as returned by [Presences], still holds it, and
// reports whether it did. Use it for an actor that has died. A live actor takes its name back at its next
// heartbeat. If another actor has taken the name by then, it ends with dispatch.ErrInstanceTaken.
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
