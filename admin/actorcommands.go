package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ActorTarget selects live actors from package dispatch, like a dispatch.Target with a prefix.
type ActorTarget struct {
	Prefix   string // default "hero:"
	Type     string // required
	Group    string // if empty, all groups, or "default" if Instance is set
	Instance string // if empty, all instances
}

// StopActors stops the actors that t selects. They claim no more jobs, finish their tasks, and their Run returns nil.
// Actors that start later are not affected. StopActors returns the number of live actors that will receive the
// command, without waiting for them to stop.
//
// StopActors waits for the writer until ctx ends. It does nothing if no such actor is alive. It returns
// [honker.ErrInvalid] if a part of t is invalid or db is nil.
func StopActors(ctx context.Context, db *honker.DB, t ActorTarget) (told int, err error) {
	return tellActors(ctx, db, t, "stop actors", row.DispatchStop)
}

// PauseActors keeps the actors that t selects from claiming jobs until [ResumeActors] is called or they restart.
// Running tasks continue. See [StopActors] for the number, for waiting and for errors.
func PauseActors(ctx context.Context, db *honker.DB, t ActorTarget) (told int, err error) {
	return tellActors(ctx, db, t, "pause actors", row.DispatchPause)
}

// ResumeActors ends a pause of the actors that t selects. See [StopActors] for the number, for waiting and for errors.
func ResumeActors(ctx context.Context, db *honker.DB, t ActorTarget) (told int, err error) {
	return tellActors(ctx, db, t, "resume actors", row.DispatchResume)
}

// actorCommand is an event in a control topic.
type actorCommand struct {
	Cmd string `json:"cmd"`
}

// tellActors publishes a command to the live actors that t selects, if there are any.
func tellActors(ctx context.Context, db *honker.DB, t ActorTarget, verb, command string) (told int, err error) {
	t = t.withDefaults()
	e, err := engineOf(db)
	if err := errors.Join(err, t.check()); err != nil {
		return 0, engine.Wrap(verb, t.String(), err)
	}
	if err := e.Writable(); err != nil {
		return 0, engine.Wrap(verb, t.String(), err)
	}
	told, err = livingActors(ctx, db, t)
	if err != nil || told == 0 {
		return 0, engine.Wrap(verb, t.String(), err)
	}
	topic := honker.NewStream[actorCommand](db, t.control(), nil)
	audit := e.NewAudit(ctx, verb, engine.AuditTarget("actors", t.String(), "prefix", t.Prefix))
	err = e.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := topic.PublishTx(ctx, tx, actorCommand{command}); err != nil {
			return err
		}
		_, _, err := audit.Note(ctx, tx, e.Now(), int64(told))
		return err
	})
	if err != nil {
		return 0, engine.Wrap(verb, t.String(), err)
	}
	// The retention is not a change by the operator, so the audit log has no entry for it.
	if err := topic.SetRetention(honker.WithActor(ctx, ""), honker.Retention{MaxAge: row.DispatchControlAge}); err != nil {
		e.Logger.Warn("honker: the retention of a control topic could not be set", "topic", t.control(), "error", err)
	}
	return told, nil
}

// livingActors returns the number of live actors that t selects.
func livingActors(ctx context.Context, db *honker.DB, t ActorTarget) (n int, err error) {
	all, err := Presences(ctx, db)
	for _, p := range all {
		if t.Selects(p) {
			n++
		}
	}
	return n, err
}

func (t ActorTarget) withDefaults() ActorTarget {
	t.Prefix = cmp.Or(t.Prefix, row.DispatchPrefix)
	if t.Instance != "" {
		t.Group = cmp.Or(t.Group, "default")
	}
	return t
}

// check returns an error if a part of t cannot be a part of a key.
func (t ActorTarget) check() error {
	var errs []error
	if t.Type == "" {
		errs = append(errs, fmt.Errorf("%w: Type is empty", honker.ErrInvalid))
	}
	for _, part := range []string{t.Type, t.Group, t.Instance} {
		if strings.ContainsAny(part, ":*\x00") || len(part) > 255 || !utf8.ValidString(part) {
			errs = append(errs, fmt.Errorf("%w: %.255q must be UTF-8 of up to 255 bytes without a colon, an asterisk and NUL", honker.ErrInvalid, part))
		}
	}
	if len(t.Prefix) > 64 || strings.ContainsAny(t.Prefix, "*\x00") || !utf8.ValidString(t.Prefix) {
		errs = append(errs, fmt.Errorf("%w: Prefix %.64q must be UTF-8 of up to 64 bytes without an asterisk and NUL", honker.ErrInvalid, t.Prefix))
	}
	return errors.Join(errs...)
}

// Selects reports whether t selects the actor.
func (t ActorTarget) Selects(p PresenceInfo) bool {
	t = t.withDefaults()
	return t.Prefix == p.Prefix && t.Type == p.Type && (t.Group == "" || t.Group == p.Group) && (t.Instance == "" || t.Instance == p.Instance)
}

// String returns t in the form type/group/instance, without its prefix.
func (t ActorTarget) String() string {
	text := t.Type
	for _, part := range []string{t.withDefaults().Group, t.Instance} {
		if part != "" {
			text += "/" + part
		}
	}
	return text
}

// control returns the topic of the commands to the actors that t selects.
func (t ActorTarget) control() string {
	topic := t.Prefix + "q:ctl:type:" + t.Type
	if t.Group != "" {
		topic += ":group:" + t.Group
	}
	if t.Instance != "" {
		topic += ":inst:" + t.Instance
	}
	return topic
}

// actorOfKey returns the actor that a key such as hero:meta:actor:inst:osis:default:2 names, or a zero target.
func actorOfKey(key string) ActorTarget {
	prefix, rest, _ := strings.Cut(key, "meta:actor:inst:")
	if parts := strings.Split(rest, ":"); len(parts) == 3 {
		return ActorTarget{prefix, parts[0], parts[1], parts[2]}
	}
	return ActorTarget{}
}
