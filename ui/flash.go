package ui

import "strconv"

// done maps verbs to functions that format a message about the outcome. URLs contain only the verb's name and
// numbers, so a forged link cannot insert text into a page.
var done = map[string]func(n int64) string{
	"requeue":         func(n int64) string { return plural(n, "job") + " requeued." },
	"discard":         func(n int64) string { return plural(n, "job") + " discarded." },
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
	"redeliver":       func(int64) string { return "The event will be delivered again." },
	"discard-event":   func(int64) string { return "Event discarded." },
	"trigger":         func(n int64) string { return "Triggered as job " + strconv.FormatInt(n, 10) + "." },
	"pause-schedule":  func(int64) string { return "Schedule paused." },
	"resume-schedule": func(int64) string { return "Schedule resumed." },
	"break-lock":      func(int64) string { return "Lock broken." },
	"cancel-batch":    func(int64) string { return "Batch cancelled." },
	"maintain":        func(int64) string { return "Maintenance finished." },
	"check":           func(int64) string { return "File check started." },
	"nothing":         func(int64) string { return "Nothing to change." },
}

// flashParams lists the parameters that a verb adds to the URL of the next page.
var flashParams = []string{"did", "n", "skipped"}

// flash returns a message about the verb that redirected to this page, or "" if there was none.
func (c *call) flash() string {
	p := params{values: c.params.values}
	n, skipped := p.integer("n", 0, 1<<62, 0), p.integer("skipped", 0, 1<<62, 0)
	say, ok := done[p.one("did")]
	if !ok || p.err() != nil {
		return ""
	}
	text := say(n)
	if skipped > 0 {
		text += " " + plural(skipped, "job") + " left unchanged."
	}
	return text
}
