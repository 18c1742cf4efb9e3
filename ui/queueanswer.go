package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// answerQueue returns the answer of a queue's page: its worst problem, or else why its jobs do not run.
func (c *call) answerQueue(r *admin.QueueDetails) (*answer, error) {
	problems, err := c.problems()
	if err != nil {
		return nil, err
	}
	problems = slices.DeleteFunc(problems, func(p admin.Problem) bool { return p.Queue != r.Queue })
	if len(problems) == 0 {
		return c.answerTo(r.Why)
	}
	first := problems[0]
	a := &answer{Class: "warn", Lead: sentence(strings.TrimPrefix(first.Text, r.Queue+": ")), Cause: first.Cause}
	if first.Severity == admin.SeverityError {
		a.Class = "bad"
	}
	if first.Code == admin.ProblemFailing {
		if !first.Since.IsZero() {
			a.Lead += ", and most for " + admin.FormatAge(c.now.Sub(first.Since))
		}
		a.Notes = append(a.Notes, "A pause keeps the jobs' attempts until the cause is gone.")
	}
	for _, p := range problems[1:min(len(problems), 1+notesShown)] {
		a.Notes = append(a.Notes, sentence(strings.TrimPrefix(p.Text, r.Queue+": "))+".")
	}
	for _, reason := range r.Why.Reasons {
		if reason.Code == admin.ReasonPaused {
			a.Notes = append(a.Notes, sentence(reason.Text)+".")
			if err := c.offer(a, reason.Actions); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range problems {
		if err := c.offer(a, p.Actions); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// pillsOf returns the state of a queue in a few words.
func pillsOf(r *admin.QueueDetails, now flow) (pills []tag) {
	add := func(is bool, class, format string, args ...any) {
		if is {
			pills = append(pills, tag{fmt.Sprintf(format, args...), class})
		}
	}
	add(r.Pause != nil, "paused", "paused")
	add(failingClass(now) == "bad", "dead", "failing")
	workers, busy, slots := 0, 0, 0
	for _, w := range r.Workers {
		if w.Alive != admin.Gone {
			workers, busy, slots = workers+1, busy+w.Running, slots+w.Slots
		}
	}
	add(workers == 0, "unknown", "no worker")
	add(workers > 0 && slots > 0, "", "%s, %s of %s busy", plural(workers, "worker"), num(min(busy, slots)), num(slots))
	add(workers > 0 && slots == 0, "", "%s", plural(workers, "worker"))
	add(limitWords(r.Limits) != "", "", "limits: %s", limitWords(r.Limits))
	return pills
}

// tile is a number of a queue's page.
type tile struct {
	Text, Value string
	Class       string // of the value
	URL         string // of the counted jobs; "" for no link
	Note        string
	When        template.HTML // after the note
}

// tiles returns the seven numbers of a queue's page. all holds the minutes of the last hour.
func (c *call) tiles(r *admin.QueueDetails, all []bucket) []tile {
	q, p := r.QueueStats, &page{c: c}
	count := func(text string, n honker.Count, phase honker.Phase) tile {
		t := tile{Text: text, Value: n.String()}
		if n.N > 0 {
			t.URL = p.Count(n, string(phase), q.Queue).URL
		}
		return t
	}
	ready, scheduled := count("Ready", q.Ready, honker.PhaseReady), count("Scheduled", q.Scheduled, honker.PhaseScheduled)
	if !q.OldestReady.IsZero() {
		ready.Note, ready.When = "oldest ", p.Age(q.OldestReady)
		if late(q, c.now) {
			ready.Class = "warn"
		}
	}
	if !q.NextAt.IsZero() && q.NextAt.After(c.now) {
		scheduled.Note, scheduled.When = "next ", p.Ago(q.NextAt)
	}
	held := count("Held", q.Held, honker.PhaseHeld)
	if q.Expired.N > 0 {
		held.Note = q.Expired.String() + " expired"
	}
	now := lately(all)
	dead := count("Dead", q.Dead, honker.PhaseDead)
	if q.Dead.N > 0 {
		dead.Class, dead.Note = "bad", trend(now.died, now.minutes)
	}
	return []tile{ready, c.runningTile(q, count("Running", q.Running, honker.PhaseRunning)), scheduled, held, dead, waitTile(now, all), handlerTile(now)}
}

func (c *call) runningTile(q honker.QueueStats, t tile) tile {
	switch {
	case q.Lapsed.N > 0:
		t.Class, t.Note = "warn", "and "+q.Lapsed.String()+" lapsed"
	case !q.OldestStart.IsZero():
		t.Note, t.When = "longest ", (&page{c: c}).Age(q.OldestStart)
	case q.Limits.Running > 0:
		t.Note = "of " + num(q.Limits.Running)
	}
	return t
}

// waitTile shows how long the jobs waited that were claimed lately.
func waitTile(now flow, all []bucket) tile {
	t := tile{Text: "Wait", Value: "–", Note: "nothing claimed in 10m"}
	if now.claimed == 0 {
		return t
	}
	wait, longest := now.wait/time.Duration(now.claimed), time.Duration(0)
	for _, b := range all[max(0, len(all)-recent):] {
		longest = max(longest, b.longest)
	}
	t.Value, t.Note = measured(wait), "longest "+measured(longest)
	if wait > time.Minute {
		t.Class = "warn"
	}
	return t
}

// handlerTile shows how long the handlers ran that ended lately.
func handlerTile(now flow) tile {
	ended := now.done + now.failed
	if ended == 0 {
		return tile{Text: "Handler", Value: "–", Note: "nothing ended in 10m"}
	}
	return tile{Text: "Handler", Value: measured(now.ran / time.Duration(ended)), Note: perSecond(float64(ended)/60/now.minutes) + " end a second"}
}

// errorKind is a kind of error that jobs of a queue have now.
type errorKind struct {
	Sample string
	Share  string // of all jobs with an error, in percent
	States []errorState
}

// errorState counts the jobs in the same state that have the same kind of error.
type errorState struct {
	Jobs honker.Count
	Text string // verb of a sentence about them
	URL  string // of the list of the jobs
	Last time.Time
}

// jobs returns the number of jobs of the kind.
func (k *errorKind) jobs() (n int64) {
	for _, s := range k.States {
		n += s.Jobs.N
	}
	return n
}

// kindsShown is the maximum number of kinds of errors on a queue's page.
const kindsShown = 6

// errorKinds returns the kinds of errors of jobs that wait for another attempt, and of jobs that died in the last
// hour.
func (c *call) errorKinds(r *admin.QueueDetails) []errorKind {
	queue, kinds := r.Queue, make(map[string]*errorKind) // by fingerprint
	add := func(fingerprint, sample string, s errorState) {
		if kinds[fingerprint] == nil {
			kinds[fingerprint] = &errorKind{Sample: sample}
		}
		kinds[fingerprint].States = append(kinds[fingerprint].States, s)
	}
	for _, g := range r.Retries.Groups {
		add(g.Fingerprint, g.Sample, errorState{Jobs: honker.Count{N: g.N, More: r.Retries.Looked.More}, Text: "wait for another attempt",
			URL: c.link("jobs", values("queue", queue, "phase", "ready", "phase", "scheduled", "phase", "held", "attempts", 1, "error", constantPart(g.Sample)))})
	}
	f := &admin.JobFilter{Queues: []string{queue}, DiedSince: c.now.Add(-time.Hour)}
	for _, g := range groupsOf(f, r.Dead, kindsShown) {
		add(g.Fingerprint, g.Sample, errorState{Jobs: g.Jobs, Text: "died", Last: g.Last,
			URL: c.link("jobs", values("queue", queue, "phase", "dead", "fingerprint", g.Fingerprint))})
	}
	return shared(slices.Collect(maps.Values(kinds)))
}

// constantPart returns the longest part of an error that all errors of its kind have.
func constantPart(text string) (longest string) {
	for _, p := range admin.ErrorParts(text) {
		if s := strings.TrimSpace(p.Text); !p.Varies && len(s) > len(longest) && !isNoText(s) {
			longest = s
		}
	}
	return strings.ToValidUTF8(longest[:min(len(longest), longestLinked)], "")
}

// shared sorts the kinds, sets their shares of all jobs and returns the largest.
func shared(kinds []*errorKind) (largest []errorKind) {
	slices.SortFunc(kinds, func(a, b *errorKind) int {
		return cmp.Or(cmp.Compare(b.jobs(), a.jobs()), cmp.Compare(a.Sample, b.Sample))
	})
	all := int64(0)
	for _, k := range kinds {
		all += k.jobs()
	}
	for _, k := range kinds[:min(len(kinds), kindsShown)] {
		k.Share = percent(100 * float64(k.jobs()) / float64(all))
		largest = append(largest, *k)
	}
	return largest
}
