package dispatch

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/honker-go/honker"
)

const (
	// DefaultGroup is the group used if an Identity has no group, or if a Target has an Instance
	// but no group.
	DefaultGroup = "default"
	// MaxPrios is the maximum value of Options.Prios. It's low because each level adds three queues
	// to every actor.
	MaxPrios = 8
)

// Target is the address of a job or a command: an actor type, a group or an instance.
type Target struct {
	Type     string
	Group    string // if empty, all groups, or DefaultGroup if Instance is set
	Instance string // if empty, all instances
	Prio     int    // level, at least 0 and less than Options.Prios; lower levels run first
}

func (t Target) withGroup() Target {
	if t.Instance != "" {
		t.Group = cmp.Or(t.Group, DefaultGroup)
	}
	return t
}

// check returns an error if a part of t is invalid.
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

// covers reports whether t addresses the actor a.
func (t Target) covers(a Identity) bool {
	t = t.withGroup()
	return t.Type == a.Type && (t.Group == "" || t.Group == a.Group) && (t.Instance == "" || t.Instance == a.Instance)
}

// String returns the target in the form type/group/instance, without its level.
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

// Identity identifies an actor. Instance must be unique within its group.
type Identity struct {
	Type         string
	Group        string // DefaultGroup if empty
	Instance     string
	Version      string   // copied to Presence; not used by this package
	Capabilities []string // copied to Presence; not used by this package
}

func (a Identity) withGroup() Identity {
	a.Group = cmp.Or(a.Group, DefaultGroup)
	return a
}

// target returns the actor's address.
func (a Identity) target() Target {
	return Target{Type: a.Type, Group: cmp.Or(a.Group, DefaultGroup), Instance: a.Instance}
}

func (a Identity) check() error {
	if a.Instance == "" {
		return fmt.Errorf("%w: the instance is empty", honker.ErrInvalid)
	}
	return a.target().check()
}

// lanes returns the queues from which an actor claims jobs, in order. Lower levels come first, and
// within a level the more specific queues.
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
