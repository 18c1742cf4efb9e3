package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

const (
	rowsInOverview = 12
	queuesPerPage  = 50
	fewQueues      = 20 // number of queues up to which none is folded or left out
	foldFrom       = 3  // number of queues from which a prefix is folded
	neverFolded    = 8  // number of rows at the top that are never folded
)

// queueView holds the parameters of a table of queues.
type queueView struct {
	tab, search, code, fold string
	from, limit             int
}

func (c *call) queueView() queueView {
	return queueView{
		tab: c.params.choice("tab", "", "trouble", "busy", "paused", "all"), search: c.params.text("q", maxText), code: c.params.text("problem", maxName),
		fold: c.params.choice("fold", "", "no", "1"), from: int(c.params.integer("from", 0, maxNumber, 0)), limit: queuesPerPage,
	}
}

// queueTable is a table of queues that begins with the queues in trouble.
type queueTable struct {
	Rows   []queueRow
	Tabs   []queueTab
	Search string
	Code   admin.ProblemCode // only queues with such a problem
	Tab    string
	Folds  bool
	Found  int
	Left   int       // number of rows that are not shown
	From   int       // index of the first row on this page
	Next   int       // index of the first row on the next page; 0 on the last page
	AsOf   time.Time // time of the counts if they were cached
	next   time.Time // time at which a job becomes ready
}

type queueTab struct {
	Name, Text string
	N          int
	On         bool
}

// queueRow is a queue, or several queues that have a prefix in common.
type queueRow struct {
	honker.QueueStats
	Prefix   string // of the folded queues; "" for a queue
	Folded   int
	NoWorker int // number of queues without a worker that have ready jobs
	Dot      string
	Tags     []tag
	Spark    template.HTML
	In, Out  string // jobs a second
	Failing  string
	Wrong    string // class of Failing
	Busy     int    // jobs that workers hold
	Slots    int
	Late     bool
	Drains   string
	Growing  bool

	rank    int
	minutes []bucket
}

type tag struct{ Text, Class string }

// Ranks of rows: a higher rank comes first.
const (
	rankHealthy = iota
	rankPaused
	rankWarn
	rankError
	rankFailing
)

// tagsOf maps codes of problems to the words shown next to a queue's name.
var tagsOf = map[admin.ProblemCode]string{
	admin.ProblemFailing: "failing", admin.ProblemLate: "late", admin.ProblemStuck: "stuck", admin.ProblemLapsed: "lapsed", admin.ProblemWaitsForDead: "waits for dead", admin.ProblemHeld: "held",
}

func queuesPage(c *call) serve {
	view := c.queueView()
	return func() error {
		s, err := c.survey()
		if err != nil {
			return err
		}
		if view.fold == "" {
			view.fold = "no"
		}
		t := c.queueTable(s, view)
		return c.showQueues("queues", "queues", "Queues", t, t)
	}
}

func (c *call) showQueues(name, nav, title string, data any, t *queueTable) error {
	return c.show(view{name: name, nav: nav, title: title, data: data, next: t.next})
}

// queueTable returns the rows of the chosen tab.
func (c *call) queueTable(s *survey, view queueView) *queueTable {
	t := &queueTable{Search: view.search, Code: admin.ProblemCode(view.code), From: view.from}
	rows := rowsOf(s)
	rows = slices.DeleteFunc(rows, func(r queueRow) bool {
		return !strings.Contains(r.Queue, view.search) || view.code != "" && !hasProblem(s, r.Queue, t.Code)
	})
	rows = t.choose(rows, view.tab)
	t.Found = len(rows)
	for _, r := range rows {
		t.next = sooner(t.next, r.NextAt)
		if c.now.Sub(r.AsOf) > 2*time.Second {
			t.AsOf = sooner(t.AsOf, r.AsOf)
		}
	}
	if t.Folds = view.fold != "no" && (view.fold == "1" || len(rows) > fewQueues); t.Folds {
		rows = folded(rows)
	}
	rows = rows[min(view.from, len(rows)):]
	t.Rows = rows[:min(len(rows), view.limit)]
	if t.Left = len(rows) - len(t.Rows); t.Left > 0 {
		t.Next = view.from + len(t.Rows)
	}
	for i := range t.Rows {
		t.Rows[i].Spark = spark(t.Rows[i].minutes)
	}
	return t
}

// choose returns the rows of a tab and sets the tabs with their numbers. Unless a tab is given, a file with many
// queues shows those in trouble.
func (t *queueTable) choose(rows []queueRow, name string) []queueRow {
	in := map[string]func(queueRow) bool{
		"trouble": func(r queueRow) bool { return r.rank >= rankWarn },
		"busy":    func(r queueRow) bool { return r.Running.N > 0 || r.Out != "0" },
		"paused":  func(r queueRow) bool { return r.Pause != nil },
		"all":     func(queueRow) bool { return true },
	}
	count := func(tab string) (n int) {
		for _, r := range rows {
			n += boolean(in[tab](r))
		}
		return n
	}
	if t.Tab = name; name == "" {
		t.Tab = "all"
		if len(rows) > fewQueues && t.Search == "" && t.Code == "" && count("trouble") > 0 {
			t.Tab = "trouble"
		}
	}
	for _, tab := range [][2]string{{"trouble", "Trouble"}, {"busy", "Busy"}, {"paused", "Paused"}, {"all", "All"}} {
		t.Tabs = append(t.Tabs, queueTab{tab[0], tab[1], count(tab[0]), tab[0] == t.Tab})
	}
	return slices.DeleteFunc(rows, func(r queueRow) bool { return !in[t.Tab](r) })
}

func hasProblem(s *survey, queue string, code admin.ProblemCode) bool {
	return slices.ContainsFunc(s.problems, func(p admin.Problem) bool { return p.Queue == queue && p.Code == code })
}

// rowsOf returns a row for each queue. The queues in trouble come first, and healthy queues are sorted by name.
func rowsOf(s *survey) (rows []queueRow) {
	wrong := map[string][]admin.Problem{}
	for _, p := range s.problems {
		wrong[p.Queue] = append(wrong[p.Queue], p)
	}
	workers := map[string][]admin.WorkerInfo{}
	for _, w := range s.workers {
		workers[w.Queue] = append(workers[w.Queue], w)
	}
	for _, q := range s.queues {
		rows = append(rows, rowOf(s, q, wrong[q.Queue], workers[q.Queue]))
	}
	slices.SortStableFunc(rows, func(a, b queueRow) int {
		by := cmp.Compare(b.rank, a.rank)
		if a.rank >= rankWarn {
			by = cmp.Or(by, cmp.Compare(b.Ready.N+b.Dead.N, a.Ready.N+a.Dead.N))
		}
		return cmp.Or(by, strings.Compare(a.Queue, b.Queue))
	})
	return rows
}

func rowOf(s *survey, q honker.QueueStats, problems []admin.Problem, workers []admin.WorkerInfo) queueRow {
	r := queueRow{QueueStats: q, Late: late(q, s.now), Dot: "idle", minutes: s.traffic[q.Queue]}
	for _, w := range workers {
		if w.Alive != admin.Gone {
			r.Busy, r.Slots = r.Busy+w.Running, r.Slots+w.Slots
		}
	}
	r.Busy = min(r.Busy, max(r.Slots, 0))
	f := lately(r.minutes)
	r.setRates(f)
	if f.done > 0 || q.Running.N > 0 {
		r.Dot = "good"
	}
	if q.Pause != nil {
		r.rank, r.Dot = rankPaused, "paused"
		r.Tags = append(r.Tags, tag{"paused", "paused"})
	}
	r.judge(problems)
	return r
}

// judge sets the rank, the dot and the tags by the queue's problems.
func (r *queueRow) judge(problems []admin.Problem) {
	for _, p := range problems {
		rank, dot := rankWarn, "warn"
		switch {
		case p.Code == admin.ProblemFailing:
			rank, dot = rankFailing, "bad"
		case p.Severity == admin.SeverityError:
			rank, dot = rankError, "bad"
		}
		if rank > r.rank {
			r.rank, r.Dot = rank, dot
		}
		if p.Code == admin.ProblemNoWorker {
			r.NoWorker = 1
		}
		if word := tagsOf[p.Code]; word != "" {
			r.Tags = append(r.Tags, tag{word, dot})
		}
	}
}

func (r *queueRow) setRates(f flow) {
	seconds := 60 * f.minutes
	in, out := float64(f.enqueued)/seconds, float64(f.done+f.died)/seconds
	r.In, r.Out = perSecond(in), perSecond(float64(f.done)/seconds)
	r.Failing, r.Wrong = percent(f.failing()), failingClass(f)
	switch {
	case r.Ready.N == 0:
	case r.Pause != nil:
		r.Drains = "paused"
	case out == 0:
		r.Drains, r.Growing = "stands", late(r.QueueStats, r.AsOf)
	case in >= out:
		r.Drains, r.Growing = "growing", true
	default:
		r.Drains = admin.FormatAge(time.Duration(float64(r.Ready.N) / (out - in) * float64(time.Second)))
	}
}

// folded combines queues that have a prefix in common. The first rows stay as they are.
func folded(rows []queueRow) []queueRow {
	if len(rows) <= neverFolded {
		return rows
	}
	out, rest := slices.Clone(rows[:neverFolded]), rows[neverFolded:]
	members := map[string][]queueRow{}
	for _, r := range rest {
		members[prefixOf(r.Queue)] = append(members[prefixOf(r.Queue)], r)
	}
	for _, r := range rest {
		prefix := prefixOf(r.Queue)
		switch all := members[prefix]; {
		case prefix == "" || len(all) > 0 && len(all) < foldFrom:
			out = append(out, r)
		case len(all) > 0:
			out = append(out, combined(prefix, all))
			members[prefix] = nil
		}
	}
	return out
}

// prefixOf returns a queue's name up to its first separator, or "" if it has none.
func prefixOf(name string) string {
	if at := strings.IndexAny(name, ".-:/"); at > 0 {
		return name[:at+1]
	}
	return ""
}

// combined returns a row with the totals of several queues.
func combined(prefix string, all []queueRow) queueRow {
	r := queueRow{Prefix: prefix, Folded: len(all), minutes: make([]bucket, hour)}
	for _, m := range all {
		r.Ready, r.Running, r.Lapsed, r.Scheduled = sum(r.Ready, m.Ready), sum(r.Running, m.Running), sum(r.Lapsed, m.Lapsed), sum(r.Scheduled, m.Scheduled)
		r.Held, r.Dead = sum(r.Held, m.Held), sum(r.Dead, m.Dead)
		r.NoWorker, r.Busy, r.Slots = r.NoWorker+m.NoWorker, r.Busy+m.Busy, r.Slots+m.Slots
		r.Late, r.AsOf = r.Late || m.Late, m.AsOf
		if m.Pause == nil {
			r.OldestReady = sooner(r.OldestReady, m.OldestReady)
		}
		for i, b := range m.minutes {
			r.minutes[i].enqueued, r.minutes[i].done = r.minutes[i].enqueued+b.enqueued, r.minutes[i].done+b.done
			r.minutes[i].failed, r.minutes[i].died = r.minutes[i].failed+b.failed, r.minutes[i].died+b.died
		}
	}
	r.setRates(lately(r.minutes))
	r.Drains, r.Growing = "", false
	return r
}

// Key identifies the row on its page.
func (r queueRow) Key() string { return fmt.Sprint(r.Prefix, "\x00", r.Queue) }

// Meter renders the share of the slots that hold jobs.
func (r queueRow) Meter() template.HTML { return meter(r.Busy, r.Slots) }
