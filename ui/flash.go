package ui

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// done maps verbs to functions that format a message about the outcome. URLs contain only the verb's name and
// numbers, so a forged link cannot insert text into a page.
var done = map[string]func(n int64) string{
	"requeue":         func(n int64) string { return plural(n, "job") + " requeued." },
	"discard":         func(n int64) string { return plural(n, "job") + " discarded." },
	"bury":            func(n int64) string { return plural(n, "job") + " made dead." },
	"cancel":          func(n int64) string { return plural(n, "job") + " cancelled." },
	"run-now":         func(n int64) string { return plural(n, "job") + " can run now." },
	"enqueue":         func(n int64) string { return "Enqueued job " + strconv.FormatInt(n, 10) + "." },
	"pause":           func(int64) string { return "Paused." },
	"resume":          func(int64) string { return "Resumed." },
	"limits":          func(int64) string { return "Limits changed." },
	"retention":       func(int64) string { return "Retention changed." },
	"seek":            func(int64) string { return "Consumer moved." },
	"delete-consumer": func(int64) string { return "Consumer deleted." },
	"delete-group":    func(int64) string { return "Group deleted." },
	"redeliver":       func(n int64) string { return plural(n, "event") + " will be delivered again." },
	"discard-event":   func(int64) string { return "Event discarded." },
	"trigger":         func(n int64) string { return "Triggered as job " + strconv.FormatInt(n, 10) + "." },
	"pause-schedule":  func(int64) string { return "Schedule paused." },
	"resume-schedule": func(int64) string { return "Schedule resumed." },
	"break-lock":      func(int64) string { return "Lock broken." },
	"requeue-relay":   func(n int64) string { return plural(n, "dead letter") + " requeued." },
	"discard-relay":   func(n int64) string { return plural(n, "dead letter") + " discarded." },
	"break-relay":     func(int64) string { return "Partition freed." },
	"signal-run":      func(int64) string { return "Signal sent." },
	"cancel-run":      func(int64) string { return "Cancellation requested." },
	"restart-run":     func(int64) string { return "The run starts again." },
	"pause-actor":     func(int64) string { return "The actor is told to pause." },
	"resume-actor":    func(int64) string { return "The actor is told to resume." },
	"stop-actor":      func(int64) string { return "The actor is told to stop." },
	"break-presence":  func(int64) string { return "Name freed." },
	"cancel-batch":    func(int64) string { return "Batch cancelled." },
	"maintain":        func(int64) string { return "Maintenance finished." },
	"vacuum":          func(int64) string { return "Vacuum started." },
	"check":           func(int64) string { return "File check started." },
	"nothing":         func(int64) string { return "Nothing to change." },
}

// flashParams lists the parameters that a verb adds to the URL of the next page.
var flashParams = []string{"did", "n", "skipped", "over", "of", "in"}

// flash is a message about the verb that redirected to this page.
type flash struct {
	Text string
	URL  string  // of the jobs that the verb has changed; "" if they cannot be listed
	Next *remedy // undoes the verb or follows from it; nil if there is nothing to do
}

// flash returns the message about the verb that redirected to this page, or nil if there was none.
func (c *call) flash() *flash {
	p := params{values: c.params.values}
	n, skipped, over := p.integer("n", 0, 1<<62, 0), p.integer("skipped", 0, 1<<62, 0), p.integer("over", 0, int64(maxSpan/time.Second), 0)
	say, ok := done[p.one("did")]
	if !ok || p.err() != nil {
		return nil
	}
	f := &flash{Text: say(n)}
	if over > 0 {
		f.Text = strings.TrimSuffix(f.Text, ".") + ", spread over " + admin.FormatSpan(time.Duration(over)*time.Second) + "."
	}
	if skipped > 0 {
		f.Text += " " + plural(skipped, "job") + " left unchanged."
	}
	switch did := p.one("did"); {
	case n == 0 || c.db == nil:
	case did == "requeue":
		c.followRequeue(f, p.integer("of", 1, 1<<62, 0))
	case !c.didJust(did, p.one("in")):
	case did == "pause":
		c.followPause(f, p.one("in"))
	case did == "resume":
		c.followResume(f, p.one("in"))
	}
	return f
}

// followRequeue adds to the message about a requeue the links to its jobs. The URL names only the audit entry, because
// anybody may have made the URL.
func (c *call) followRequeue(f *flash, entry int64) {
	if entry == 0 {
		return
	}
	found, err := admin.Audit(c.ctx, c.db, &admin.AuditOptions{Before: entry + 1, Limit: 1})
	if err != nil || len(found) == 0 || found[0].ID != entry || found[0].Verb != "requeue" {
		return
	}
	of := requeuedBy(found[0])
	f.URL = c.link("jobs", filterValues(of))
	f.Next = c.undoOf(of)
}

// didJust reports whether the operator has used a verb on a queue within a minute. Anybody may have made the URL, and a
// click on a button of the message needs no confirmation.
func (c *call) didJust(verb, queue string) bool {
	if queue == "" || isNoText(queue) {
		return false
	}
	found, err := admin.Audit(c.ctx, c.db, &admin.AuditOptions{Queue: queue, Actor: c.by(), Verb: verb, Since: c.now.Add(-time.Minute), Limit: 1})
	return err == nil && len(found) > 0
}

// followPause adds to the message about a paused queue a form that lets it run again.
func (c *call) followPause(f *flash, queue string) {
	if c.can("resume", queue) {
		f.Next = &remedy{Path: "resume", Text: "Undo: resume", Fields: [][2]string{{"queue", queue}}}
	}
}

// followResume adds to the message about a resumed queue a form that requeues the jobs that have died there.
func (c *call) followResume(f *flash, queue string) {
	if !c.can("requeue", queue) {
		return
	}
	stats, err := queueOf(c.db, queue).Stats(c.ctx)
	if err != nil || stats.Dead.N == 0 {
		return
	}
	since := c.now.Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	f.Next = &remedy{Path: "requeue", Text: "Requeue its dead jobs of the last day …", Fields: [][2]string{
		{"queue", queue}, {"phase", string(honker.PhaseDead)}, {"died_since", since}, {"spread", "10m"}}}
}

// requeuedBy returns a filter for the jobs of a requeue that have used no attempt since.
func requeuedBy(e admin.AuditEntry) *admin.JobFilter {
	var of struct {
		Queues []string
		To     string
	}
	_ = json.Unmarshal(e.Filter, &of) // a filter that was too long is absent
	f := &admin.JobFilter{Requeue: e.ID}
	if len(of.Queues) == 1 && of.To == "" {
		f.Queues = of.Queues
	}
	return f
}

// undoOf returns the form that makes the jobs of a requeue dead again, or nil if the operator may not do that.
func (c *call) undoOf(f *admin.JobFilter) *remedy {
	r := &remedy{Path: "bury", Text: "Undo: make them dead again", Fields: [][2]string{{"requeue", strconv.FormatInt(f.Requeue, 10)}}}
	queue := ""
	if len(f.Queues) == 1 {
		queue = f.Queues[0]
		r.Fields = append(r.Fields, [2]string{"queue", queue})
	}
	if isNoText(queue) || !c.can("bury", queue) {
		return nil
	}
	return r
}
