package dispatch

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/store"
)

// DefaultPrefix begins every key, unless Options or Keys have another one.
const DefaultPrefix = store.DispatchPrefix // "hero:"

// Keys builds the names of queues, topics and rows, all in one place. A builder returns "", which
// every verb refuses, for a part that is no name: one that is empty, longer than 255 bytes or not
// UTF-8, or contains a colon, an asterisk or NUL. So no part can forge the address of another.
type Keys struct {
	Prefix string // "": DefaultPrefix
}

// Bounds of names: the longest key that they make is a name of honker's, which has 1024 bytes.
const (
	maxPart   = 255
	maxPrefix = 64
)

func (k Keys) prefix() string { return or(k.Prefix, DefaultPrefix) }

// check is the error of a prefix that no key can have.
func (k Keys) check() error {
	p := k.prefix()
	if len(p) > maxPrefix || !utf8.ValidString(p) || strings.ContainsAny(p, "*\x00") {
		return fmt.Errorf("%w: prefix %.80q: UTF-8 of up to %d bytes, without an asterisk or NUL", honker.ErrInvalid, p, maxPrefix)
	}
	return nil
}

// checkPart is the error of a part of a key.
func checkPart(what, part string) error {
	switch {
	case part == "":
		return fmt.Errorf("%w: empty %s", honker.ErrInvalid, what)
	case len(part) > maxPart:
		return fmt.Errorf("%w: %s of %d bytes, at most %d", honker.ErrInvalid, what, len(part), maxPart)
	case strings.ContainsAny(part, ":*\x00"):
		return fmt.Errorf("%w: %s %q: no colon, asterisk or NUL", honker.ErrInvalid, what, part)
	case !utf8.ValidString(part):
		return fmt.Errorf("%w: %s is not UTF-8", honker.ErrInvalid, what)
	}
	return nil
}

// join is the prefix and parts, with colons in between; "" when one of names is none.
func (k Keys) join(text string, names ...string) string {
	if k.check() != nil {
		return ""
	}
	for _, name := range names {
		if checkPart("name", name) != nil {
			return ""
		}
		text = strings.Replace(text, "?", name, 1)
	}
	return k.prefix() + text
}

func (k Keys) numbered(text string, id int64) string {
	if id < 0 {
		return ""
	}
	return k.join(text, strconv.FormatInt(id, 10))
}

// Job is the key of a job: hero:job:17.
func (k Keys) Job(id int64) string { return k.numbered("job:?", id) }

// Reply is the key of a job's reply: hero:q:reply:17.
func (k Keys) Reply(id int64) string { return k.numbered("q:reply:?", id) }

// Work is the queue of a target: hero:q:work:type:osis, then :group:default, :inst:2 and :prio:1.
// The level 0 is the queue without a level.
func (k Keys) Work(t Target) string {
	key := k.address("q:work", t)
	if t.Prio < 0 || t.Prio >= MaxPrios || key == "" {
		return ""
	}
	if t.Prio > 0 {
		key += ":prio:" + strconv.Itoa(t.Prio)
	}
	return key
}

// Control is the topic by which the actors of a target are steered: hero:q:ctl:type:osis, then
// :group:default and :inst:2.
func (k Keys) Control(t Target) string { return k.address("q:ctl", t) }

// Presence is the key of an actor that lives: hero:meta:actor:inst:osis:default:2.
func (k Keys) Presence(a Identity) string {
	return k.join("meta:actor:inst:?:?:?", a.Type, or(a.Group, DefaultGroup), a.Instance)
}

// Stats is the key of the statistics of a queue: hero:meta:queue:stats:hero:q:work:type:osis.
func (k Keys) Stats(queue string) string {
	if k.check() != nil || queue == "" || !utf8.ValidString(queue) || strings.Contains(queue, "\x00") {
		return ""
	}
	return k.prefix() + "meta:queue:stats:" + queue
}

// LegacyActorQueue is the old queue of a type: hero:job:actor_queue:osis.
func (k Keys) LegacyActorQueue(suffix string) string { return k.join("job:actor_queue:?", suffix) }

// LegacyJob is the old queue of an actor: hero:job:osis_1. The name of an actor that is a number is
// that of a job, and so none: "".
func (k Keys) LegacyJob(actor string) string {
	if _, ok := number(actor); ok {
		return ""
	}
	return k.join("job:?", actor)
}

// LegacyWorkQueue is the old queue of an actor in the protocol's description: hero:work_queue:osis_1.
func (k Keys) LegacyWorkQueue(actor string) string { return k.join("work_queue:?", actor) }

// LegacyReply is the old reply of a job: hero:reply:17.
func (k Keys) LegacyReply(id int64) string { return k.numbered("reply:?", id) }

// address is what the keys of a target have in common.
func (k Keys) address(room string, t Target) string {
	t = t.withGroup()
	switch {
	case t.Instance != "":
		return k.join(room+":type:?:group:?:inst:?", t.Type, t.Group, t.Instance)
	case t.Group != "":
		return k.join(room+":type:?:group:?", t.Type, t.Group)
	}
	return k.join(room+":type:?", t.Type)
}

// Kind is what a key names.
type Kind string

// The kinds of keys.
const (
	KindJob              Kind = "job"
	KindReply            Kind = "reply"
	KindWork             Kind = "work"
	KindControl          Kind = "control"
	KindPresence         Kind = "presence"
	KindStats            Kind = "stats"
	KindLegacyActorQueue Kind = "legacy actor queue"
	KindLegacyJob        Kind = "legacy job"
	KindLegacyWorkQueue  Kind = "legacy work queue"
	KindLegacyReply      Kind = "legacy reply"
)

// Key is a key in its parts. Those that its kind does not have are zero.
type Key struct {
	Kind   Kind
	ID     int64  // of a job or reply
	Target Target // of work, control and presence
	Queue  string // of statistics
	Actor  string // of what is legacy: the suffix or the actor
}

// Parse takes a key apart. What none of the builders makes is [honker.ErrInvalid].
func (k Keys) Parse(key string) (Key, error) {
	rest, ok := strings.CutPrefix(key, k.prefix())
	if !ok || k.check() != nil {
		return Key{}, notKey(key)
	}
	parsed := parseKey(rest)
	if k.Format(parsed) != key {
		return Key{}, notKey(key)
	}
	return parsed, nil
}

func notKey(key string) error { return fmt.Errorf("%w: not a key: %.200q", honker.ErrInvalid, key) }

// Format is the key of parts, as Parse has found them; "" for parts that make none.
func (k Keys) Format(key Key) string {
	t := key.Target
	switch key.Kind {
	case KindJob:
		return k.Job(key.ID)
	case KindReply:
		return k.Reply(key.ID)
	case KindWork:
		return k.Work(t)
	case KindControl:
		return k.Control(t)
	case KindPresence:
		return k.Presence(Identity{Type: t.Type, Group: t.Group, Instance: t.Instance})
	case KindStats:
		return k.Stats(key.Queue)
	case KindLegacyActorQueue:
		return k.LegacyActorQueue(key.Actor)
	case KindLegacyJob:
		return k.LegacyJob(key.Actor)
	case KindLegacyWorkQueue:
		return k.LegacyWorkQueue(key.Actor)
	case KindLegacyReply:
		return k.LegacyReply(key.ID)
	}
	return ""
}

// parseKey reads what follows the prefix, as far as it makes sense: Parse compares what comes out.
func parseKey(rest string) Key {
	if queue, ok := strings.CutPrefix(rest, "meta:queue:stats:"); ok {
		return Key{Kind: KindStats, Queue: queue}
	}
	p := strings.Split(rest, ":")
	last := p[len(p)-1]
	id, numeric := number(last)
	switch {
	case len(p) > 3 && p[0] == "q" && p[1] == "work":
		return Key{Kind: KindWork, Target: parseTarget(p[2:])}
	case len(p) > 3 && p[0] == "q" && p[1] == "ctl":
		return Key{Kind: KindControl, Target: parseTarget(p[2:])}
	case len(p) == 3 && p[0] == "q" && p[1] == "reply" && numeric:
		return Key{Kind: KindReply, ID: id}
	case len(p) == 6 && p[0] == "meta":
		return Key{Kind: KindPresence, Target: Target{Type: p[3], Group: p[4], Instance: p[5]}}
	case len(p) == 3 && p[1] == "actor_queue":
		return Key{Kind: KindLegacyActorQueue, Actor: last}
	case len(p) == 2 && p[0] == "job" && numeric:
		return Key{Kind: KindJob, ID: id}
	case len(p) == 2 && p[0] == "job":
		return Key{Kind: KindLegacyJob, Actor: last}
	case len(p) == 2 && p[0] == "work_queue":
		return Key{Kind: KindLegacyWorkQueue, Actor: last}
	case len(p) == 2 && p[0] == "reply" && numeric:
		return Key{Kind: KindLegacyReply, ID: id}
	}
	return Key{}
}

// parseTarget reads type:osis:group:default:inst:2:prio:1, of which the end may be missing.
func parseTarget(p []string) (t Target) {
	for ; len(p) >= 2; p = p[2:] {
		switch p[0] {
		case "type":
			t.Type = p[1]
		case "group":
			t.Group = p[1]
		case "inst":
			t.Instance = p[1]
		case "prio":
			n, _ := number(p[1])
			t.Prio = int(min(n, MaxPrios))
		}
	}
	return t
}

// number reads a number as the builders write it.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}
