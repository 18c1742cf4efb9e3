package dispatch

import (
	"errors"
	"fmt"

	"github.com/honker-go/honker"
)

const (
	// DefaultGroup is the group of an actor, or of a Target with an Instance, that names none.
	DefaultGroup = "default"
	// MaxPrios bounds Options.Prios: an actor reads three queues for each level.
	MaxPrios = 8
)

// Target is an address: a type of actors, a group of them, or one instance.
type Target struct {
	Type     string
	Group    string // "": all groups; with an Instance, DefaultGroup
	Instance string // "": any
	Prio     int    // the level, from 0, which is taken first, to Options.Prios, exclusive
}

func (t Target) withGroup() Target {
	if t.Instance != "" {
		t.Group = or(t.Group, DefaultGroup)
	}
	return t
}

// check is the error of a target to which nothing can be sent.
func (t Target) check() error {
	t = t.withGroup()
	err := checkPart("type", t.Type)
	if t.Group != "" {
		err = errors.Join(err, checkPart("group", t.Group))
	}
	if t.Instance != "" {
		err = errors.Join(err, checkPart("instance", t.Instance))
	}
	return err
}

// covers tells whether an actor belongs to the target.
func (t Target) covers(a Identity) bool {
	t = t.withGroup()
	return t.Type == a.Type && (t.Group == "" || t.Group == a.Group) && (t.Instance == "" || t.Instance == a.Instance)
}

// String is the target as type/group/instance.
func (t Target) String() string {
	t = t.withGroup()
	switch {
	case t.Instance != "":
		return t.Type + "/" + t.Group + "/" + t.Instance
	case t.Group != "":
		return t.Type + "/" + t.Group
	}
	return t.Type
}

// Identity is an actor. Instance is unique within its group.
type Identity struct {
	Type         string
	Group        string // "": DefaultGroup
	Instance     string
	Version      string   // for whatever reads Presence
	Capabilities []string // for whatever reads Presence
}

func (a Identity) withGroup() Identity {
	a.Group = or(a.Group, DefaultGroup)
	return a
}

// target is the actor's own address.
func (a Identity) target() Target {
	return Target{Type: a.Type, Group: or(a.Group, DefaultGroup), Instance: a.Instance}
}

func (a Identity) check() error {
	if a.Instance == "" {
		return fmt.Errorf("%w: empty instance", honker.ErrInvalid)
	}
	return a.target().check()
}

// lanes are the queues that an actor takes work from, the most urgent level first and within it the
// most specific.
func (k Keys) lanes(a Identity, prios int) (queues []string) {
	own := a.target()
	for prio := range prios {
		for _, t := range []Target{own, {Type: own.Type, Group: own.Group}, {Type: own.Type}} {
			t.Prio = prio
			queues = append(queues, k.Work(t))
		}
	}
	return queues
}
