package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// String describes the change in words, such as "requeued 3,000 dead jobs of queue emails, over 10m". Times are in UTC.
func (e AuditEntry) String() string {
	if c, ok := jobChanges[e.Verb]; ok {
		var f auditedFilter
		_ = json.Unmarshal(e.Filter, &f) // a filter that was too long is absent
		return fmt.Sprintf(c.past, plural(e.N, c.noun)+f.words()) + f.how()
	}
	var target map[string]string
	_ = json.Unmarshal(e.Filter, &target)
	return pastOf(e.Verb, e.N, target)
}

// jobChanges describes the verbs that take a JobFilter.
var jobChanges = map[string]struct{ past, noun string }{
	"requeue": {"requeued %s", "dead job"},
	"discard": {"discarded %s", "dead job"},
	"cancel":  {"cancelled %s", "job"},
	"run now": {"set %s to run now", "job"},
	"bury":    {"buried %s", "job"},
}

// auditedFilter is the filter of an entry, with options of Requeue.
type auditedFilter struct {
	JobFilter
	To, Delay, Spread string
}

// words describes the filter. It begins with a space or comma, or is empty.
func (f *auditedFilter) words() string {
	var b strings.Builder
	add := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&b, format, args...)
		}
	}
	add(len(f.Queues) > 0, " of queue %s", firstOf(f.Queues))
	add(f.Batch != 0, " of batch %d", f.Batch)
	add(len(f.Phases) > 0, " in phase %s", strings.Join(words(f.Phases), " or "))
	add(f.Key != "", " with key %s", f.Key)
	add(f.Unique != "", " with unique key %s", f.Unique)
	add(f.Worker != "", " held by worker %s", f.Worker)
	add(f.Fingerprint != "", " of kind %s", f.Fingerprint)
	add(f.Error != "", " with error %s", quoted(f.Error))
	add(f.Contains != "", " containing %s", quoted(f.Contains))
	for _, name := range slices.Sorted(maps.Keys(f.Where)) {
		add(true, " where %s is %s", name, f.Where[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.Header)) {
		add(true, " with header %s=%s", name, f.Header[name])
	}
	add(f.MinAttempts > 0, " with at least %s", plural(int64(f.MinAttempts), "attempt"))
	add(f.Requeue != 0, " of requeue %d", f.Requeue)
	for _, span := range []struct {
		verb          string
		since, before time.Time
	}{{"created", f.CreatedSince, f.CreatedBefore}, {"due", f.RunSince, f.RunBefore}, {"died", f.DiedSince, f.DiedBefore}} {
		add(!span.since.IsZero(), ", %s since %s", span.verb, inUTC(span.since))
		add(!span.before.IsZero(), ", %s before %s", span.verb, inUTC(span.before))
	}
	add(len(f.IDs) > 0, " (%s)", named(f.IDs))
	return b.String()
}

// how describes the options of Requeue.
func (f *auditedFilter) how() (text string) {
	if f.To != "" {
		text += " into queue " + f.To
	}
	if f.Delay != "" {
		text += ", after " + f.Delay
	}
	if f.Spread != "" {
		text += ", over " + f.Spread
	}
	return text
}

func words(phases []honker.Phase) []string {
	texts := make([]string, len(phases))
	for i, p := range phases {
		texts[i] = string(p)
	}
	return texts
}

func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// pasts holds the past tense of verbs that change a single object.
var pasts = map[string]string{
	"enqueue":               "enqueued",
	"pause":                 "paused",
	"resume":                "resumed",
	"set limits":            "set the limits of",
	"set retention":         "set the retention of",
	"seek":                  "moved",
	"delete consumer":       "deleted",
	"delete group":          "deleted",
	"redeliver event":       "redelivered",
	"discard event":         "discarded",
	"cancel batch":          "cancelled",
	"cancel flow":           "cancelled",
	"restart flow":          "restarted",
	"signal flow":           "sent",
	"register schedule":     "registered",
	"unregister schedule":   "removed",
	"update schedule":       "changed",
	"pause schedule":        "paused",
	"resume schedule":       "resumed",
	"trigger schedule":      "triggered",
	"break lock":            "broke",
	"break presence":        "freed",
	"break relay partition": "freed",
	"maintain":              "maintained the database",
	"vacuum":                "rebuilt the file without its free pages",
}

// manyChanges describes the verbs that change several things of an object.
var manyChanges = map[string]struct{ past, noun, of string }{
	"import jobs":               {"imported", "job", " into "},
	"requeue relay dead letter": {"requeued", "dead letter", " of "},
	"discard relay dead letter": {"discarded", "dead letter", " of "},
	"stop actors":               {"stopped", "actor", ": "},
	"pause actors":              {"paused", "actor", ": "},
	"resume actors":             {"resumed", "actor", ": "},
}

// pastOf describes a change of an object or of its parts.
func pastOf(verb string, n int64, target map[string]string) string {
	object := objectOf(target)
	if c, ok := manyChanges[verb]; ok {
		if object == "" {
			c.of = ""
		}
		return c.past + " " + plural(n, c.noun) + c.of + object
	}
	text := strings.TrimSpace(pasts[verb] + " " + object)
	switch {
	case verb == "cancel batch":
		text += " with " + plural(n, "job")
	case pasts[verb] == "": // of a newer version
		text = verb + ": " + cmp.Or(object, strconv.FormatInt(n, 10))
	}
	if until := target["until"]; until != "" {
		text += " until " + until
	}
	if reason := target["reason"]; reason != "" {
		text += ": " + quoted(reason)
	}
	return text
}

// auditKinds lists the kinds of objects, parts before their wholes.
var auditKinds = []string{"step", "signal", "run", "flow", "offset", "partition", "job", "key", "consumer", "group", "schedule", "lock", "presence", "batch", "queue", "relay queue", "topic", "family"}

// objectOf describes an object, such as "key acme of queue emails".
func objectOf(target map[string]string) string {
	var parts []string
	for _, kind := range slices.SortedFunc(maps.Keys(target), func(a, b string) int {
		return cmp.Or(slices.Index(auditKinds, a)-slices.Index(auditKinds, b), strings.Compare(a, b))
	}) {
		switch kind {
		case "until", "reason", "dead letters", "prefix":
		case "actors":
			parts = append(parts, target[kind])
		case "offset":
			parts = append(parts, "event "+target[kind])
		default:
			parts = append(parts, kind+" "+target[kind])
		}
	}
	return strings.Join(parts, " of ")
}
