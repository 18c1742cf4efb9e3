package dispatch

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/row"
)

// DefaultPrefix is the prefix of keys if Options.Prefix and Keys.Prefix are empty.
const DefaultPrefix = row.DispatchPrefix // "hero:"

// Keys builds queue, topic and row names. A method returns "" if a part is empty, longer than 255
// bytes or not UTF-8, or if it contains a colon, an asterisk or NUL. The check matters because a
// part with a colon could otherwise forge another address. The empty string is not a valid name
// anywhere.
type Keys struct {
	Prefix string // DefaultPrefix if empty
}

// Maximum lengths in bytes. The longest possible key fits in a 1024-byte queue name.
const (
	maxPart   = 255
	maxPrefix = 64
)

func (k Keys) prefix() string { return cmp.Or(k.Prefix, DefaultPrefix) }

// check returns an error if the prefix is invalid.
func (k Keys) check() error {
	p := k.prefix()
	if len(p) > maxPrefix || !utf8.ValidString(p) || strings.ContainsAny(p, "*\x00") {
		return fmt.Errorf("%w: prefix %.80q must be UTF-8 of at most %d bytes without an asterisk or NUL", honker.ErrInvalid, p, maxPrefix)
	}
	return nil
}

// checkPart returns an error if part cannot be a part of a key. The error names the part.
func checkPart(what, part string) error {
	switch {
	case part == "":
		return fmt.Errorf("%w: the %s is empty", honker.ErrInvalid, what)
	case len(part) > maxPart:
		return fmt.Errorf("%w: the %s has %d bytes; the maximum is %d", honker.ErrInvalid, what, len(part), maxPart)
	case strings.ContainsAny(part, ":*\x00"):
		return fmt.Errorf("%w: the %s %q contains a colon, an asterisk or NUL", honker.ErrInvalid, what, part)
	case !utf8.ValidString(part):
		return fmt.Errorf("%w: the %s is not UTF-8", honker.ErrInvalid, what)
	}
	return nil
}

// join returns the prefix followed by text, with each ? replaced by the next name. It returns "" if
// the prefix or a name is invalid.
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

// Job returns a job's key, such as hero:job:17.
func (k Keys) Job(id int64) string { return k.numbered("job:?", id) }

// Reply returns a job's reply queue, such as hero:q:reply:17.
func (k Keys) Reply(id int64) string { return k.numbered("q:reply:?", id) }

// Work returns a target's queue, such as hero:q:work:type:osis:group:default:inst:2:prio:1. The
// group, the instance and the level are omitted if they are zero.
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

// Control returns the topic for a target's commands, such as
// hero:q:ctl:type:osis:group:default:inst:2.
func (k Keys) Control(t Target) string { return k.address("q:ctl", t) }

// Presence returns the key of an actor's presence row, such as hero:meta:actor:inst:osis:default:2.
func (k Keys) Presence(a Identity) string {
	return k.join("meta:actor:inst:?:?:?", a.Type, cmp.Or(a.Group, DefaultGroup), a.Instance)
}

// Stats returns the key of a queue's statistics, such as
// hero:meta:queue:stats:hero:q:work:type:osis.
func (k Keys) Stats(queue string) string {
	if k.check() != nil || queue == "" || !utf8.ValidString(queue) || strings.Contains(queue, "\x00") {
		return ""
	}
	return k.prefix() + "meta:queue:stats:" + queue
}

// LegacyActorQueue returns a type's legacy queue, such as hero:job:actor_queue:osis.
func (k Keys) LegacyActorQueue(suffix string) string { return k.join("job:actor_queue:?", suffix) }

// LegacyJob returns an actor's legacy queue, such as hero:job:osis_1. It returns "" if the name is
// a number, because the result would be a job's key.
func (k Keys) LegacyJob(actor string) string {
	if _, ok := number(actor); ok {
		return ""
	}
	return k.join("job:?", actor)
}

// LegacyWorkQueue returns an actor's legacy queue under the name given in the protocol specification,
// such as hero:work_queue:osis_1.
func (k Keys) LegacyWorkQueue(actor string) string { return k.join("work_queue:?", actor) }

// LegacyReply returns a job's legacy reply queue, such as hero:reply:17.
func (k Keys) LegacyReply(id int64) string { return k.numbered("reply:?", id) }

// address returns the key for a target, starting with room and omitting the level.
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

// A Kind says what kind of object a key names.
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

// Key is a parsed key. Fields that do not apply to its kind are zero.
type Key struct {
	Kind   Kind
	ID     int64  // job ID of KindJob, KindReply and KindLegacyReply
	Target Target // target of KindWork, KindControl and KindPresence
	Queue  string // queue of KindStats
	Actor  string // suffix or actor of the other legacy kinds
}

// Parse parses a key. It returns [honker.ErrInvalid] for a string that no method of k returns.
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

func notKey(key string) error { return fmt.Errorf("%w: %.200q is not a key", honker.ErrInvalid, key) }

// Format returns the string form of key. It is the inverse of Parse. It returns "" if key is invalid.
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

// parseKey parses the part of a key after the prefix. It does not detect all invalid keys, so Parse
// formats the returned key and compares the result with its input.
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

// parseTarget parses the parts of an address such as type:osis:group:default:inst:2:prio:1.
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

// number parses a decimal number without a sign or leading zeros.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}
