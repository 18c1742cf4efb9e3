package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// bulk describes a verb that operates on a single job, on selected jobs, or on all jobs that match a filter.
type bulk struct {
	text   string // button label
	phases []honker.Phase
	danger bool   // the operator must type the number of jobs to confirm
	effect string // the verb's effect; completes a sentence that begins with "They"
	run    func(ctx context.Context, db *honker.DB, b *bulkCall, dry bool) (*admin.Report, error)
}

var bulks = map[string]bulk{
	"requeue": {"Requeue", phases[6:7], false, "return to their queues, with the same ids and as many attempts as before",
		func(ctx context.Context, db *honker.DB, b *bulkCall, dry bool) (*admin.Report, error) {
			return admin.Requeue(ctx, db, *b.filter, &admin.RequeueOptions{Spread: b.spread, Delay: b.delay, DryRun: dry})
		}},
	"discard": {"Discard", phases[6:7], true, "are deleted for good",
		func(ctx context.Context, db *honker.DB, b *bulkCall, dry bool) (*admin.Report, error) {
			return admin.Discard(ctx, db, *b.filter, &admin.DiscardOptions{DryRun: dry})
		}},
	"bury": {"Bury", phases[:6], false, "move to the dead letters, with their last errors and their attempts",
		func(ctx context.Context, db *honker.DB, b *bulkCall, dry bool) (*admin.Report, error) {
			return admin.Bury(ctx, db, *b.filter, &admin.BuryOptions{DryRun: dry})
		}},
	"cancel": {"Cancel", phases[:6], true, "are removed without a trace",
		func(ctx context.Context, db *honker.DB, b *bulkCall, dry bool) (*admin.Report, error) {
			return admin.Cancel(ctx, db, *b.filter, &admin.CancelOptions{Running: b.running, DryRun: dry})
		}},
	"run-now": {"Run now", phases[:6], false, "no longer wait for their time",
		func(ctx context.Context, db *honker.DB, b *bulkCall, dry bool) (*admin.Report, error) {
			return admin.RunNow(ctx, db, *b.filter, &admin.RunNowOptions{DryRun: dry})
		}},
}

// actionTime is the maximum time a request spends working on jobs. If jobs are left after that, the page shows
// how many, along with a button to continue.
var actionTime = 10 * time.Second

// bulkCall is a request for a verb on jobs.
type bulkCall struct {
	verb      string
	filter    *admin.JobFilter
	shown     int64 // number of jobs that the page showed
	confirmed bool
	typed     string
	spread    time.Duration
	delay     time.Duration
	running   bool
	back      string
}

// bulkAction returns the parse function for a verb on jobs. A single job is changed immediately. For several
// jobs, a confirmation page first shows how many there are.
func bulkAction(verb string) func(*call) serve {
	return func(c *call) serve {
		p := c.params
		b := &bulkCall{verb: verb, filter: c.filter(), shown: p.integer("n", 0, 1<<62, 0), confirmed: p.flag("confirm"),
			typed: p.text("typed", 40), spread: p.span("spread"), delay: p.span("delay"), running: p.flag("running"), back: c.back()}
		if p.flag("selection") {
			b.filter = c.selected(b.filter)
			b.back = backTo(b.back, b.filter.IDs)
		}
		c.access.N = b.shown
		var err error
		if len(b.filter.IDs) == 1 {
			err = c.oneJob(b)
		}
		return func() error {
			if err != nil {
				return err
			}
			return c.bulk(b)
		}
	}
}

// oneJob prepares the call for a single job. No confirmation is needed, even if the job is running.
func (c *call) oneJob(b *bulkCall) error {
	job, err := c.job(b.filter.IDs[0])
	if err != nil {
		return err
	}
	b.confirmed, b.shown, c.access.N = true, 1, 1
	b.running = b.running || job.Phase == honker.PhaseRunning
	if len(b.filter.Queues) == 0 && !isNoText(job.Queue) {
		b.filter.Queues = []string{job.Queue}
	}
	return nil
}

// bulk shows a confirmation page before it changes jobs. If the number of jobs has grown by more than 10%
// since the confirmation, bulk asks again.
func (c *call) bulk(b *bulkCall) error {
	ctx, cancel := context.WithTimeout(c.ctx, actionTime)
	defer cancel()
	extend(c.w, 2*actionTime+streamWrite)
	dry, err := bulks[b.verb].run(ctx, c.db, b, true)
	unknown := err != nil && timedOut(ctx, err) // the count is incomplete
	if err != nil && !unknown {
		return err
	}
	switch n := dry.Matched; {
	case n == 0 && !unknown:
		return c.redirect(b.back, "nothing", 0, 0)
	case n == 0 && !b.confirmed:
		return &problem{http.StatusServiceUnavailable, "Temporarily unavailable", "No job was found within " + admin.FormatSpan(actionTime) + ". Narrow the filter."}
	case !b.confirmed && unknown:
		return c.confirmBulk(b, dry, "There are more jobs: the count is incomplete.")
	case !b.confirmed:
		return c.confirmBulk(b, dry, "")
	case n > b.shown+b.shown/10:
		return c.confirmBulk(b, dry, "There were "+num(b.shown)+" jobs before, and there are more now.")
	case bulks[b.verb].danger && b.filter.IDs == nil && digits(b.typed) != strconv.FormatInt(b.shown, 10):
		return c.confirmBulk(b, dry, "Type the number of jobs to confirm.")
	}
	return c.act(b)
}

func timedOut(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

func digits(s string) string { return strings.NewReplacer(",", "", " ", "", ".", "").Replace(s) }

// act changes the jobs for at most actionTime. If there are jobs left, it shows the confirmation page for
// them.
func (c *call) act(b *bulkCall) error {
	ctx, cancel := context.WithTimeout(c.ctx, actionTime)
	defer cancel()
	report, err := bulks[b.verb].run(ctx, c.db, b, false)
	if report.Changed > 0 {
		c.changed(report.Changed)
		c.file.dead.clear()
	}
	if err == nil {
		return c.redirect(c.followUp(b, report.Audit), b.verb, report.Changed, report.Matched-report.Changed)
	}
	if !timedOut(ctx, err) {
		return err
	}
	left := &admin.Report{Matched: report.Left + report.Matched - report.Changed}
	b.shown, b.typed = left.Matched, strconv.FormatInt(left.Matched, 10)
	return c.confirmBulk(b, left, plural(report.Changed, "job")+" done in "+admin.FormatSpan(actionTime)+". The other jobs are unchanged.")
}

// followUp returns the page to show after a verb, with the parameters of a message about it. entry is the verb's entry in
// the audit log.
func (c *call) followUp(b *bulkCall, entry int64) string {
	back := c.remains(b)
	if b.verb != "requeue" {
		return back
	}
	if entry != 0 {
		back = with(back, "of", strconv.FormatInt(entry, 10))
	}
	if b.spread >= time.Second {
		back = with(back, "over", strconv.FormatInt(int64(b.spread/time.Second), 10))
	}
	return back
}

// remains returns the page to show after a verb: the page it was called from, or the page of the queue if the verb has
// removed the job that the page was about.
func (c *call) remains(b *bulkCall) string {
	if (b.verb == "cancel" || b.verb == "discard") && strings.HasPrefix(b.back, "job?") && len(b.filter.Queues) == 1 {
		if url := c.link("queue", values("name", b.filter.Queues[0])); url != "" {
			return url
		}
	}
	return b.back
}

// confirmData is the confirmation page's data.
type confirmData struct {
	Text, Effect string
	Verb         string
	N            int64
	Note         string
	Samples      []jobRow
	Skipped      []admin.Skip
	Fields       url.Values
	Danger       bool
	Typed        string
	MustType     bool
	Spread       bool
	Over         string // the spread so far
	Running      bool   // running jobs were skipped; offer to cancel them too
	Back         string
}

func (c *call) confirmBulk(b *bulkCall, dry *admin.Report, note string) error {
	of := bulks[b.verb]
	d := &confirmData{Text: of.text, Effect: of.effect, Verb: b.verb, N: dry.Matched, Note: note, Danger: of.danger, Back: b.back,
		Skipped: dry.Skipped[:min(len(dry.Skipped), 5)], Fields: filterValues(b.filter), MustType: of.danger && b.filter.IDs == nil,
		Typed: b.typed, Spread: b.verb == "requeue", Running: b.verb == "cancel" && !b.running && len(dry.Skipped) > 0}
	if b.spread > 0 {
		d.Over = admin.FormatSpan(b.spread)
	}
	f := *b.filter
	if len(f.Phases) == 0 {
		f.Phases = of.phases
	}
	page, err := admin.ListJobs(c.ctx, c.db, f, &admin.PageOptions{Limit: 5})
	if err != nil {
		return err
	}
	d.Samples = c.rows(page.Jobs)
	status := http.StatusOK
	if b.confirmed {
		status = http.StatusConflict
	}
	return c.render(status, view{name: "confirm", nav: "jobs", title: of.text + " " + plural(d.N, "job"), data: d})
}

// changed logs a change. The audit entry in the file is written by the change itself.
func (c *call) changed(n int64) {
	c.h.opts.Logger.Info("honker ui: changed", "verb", c.access.Verb, "by", c.by(), "remote", c.r.RemoteAddr, "queue", c.access.Queue, "n", n)
}

// back returns the URL to redirect to after a verb. To prevent redirects to other sites, it returns the
// overview unless the "back" parameter is one of this handler's pages.
func (c *call) back() string {
	given := c.params.text("back", 64<<10)
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" {
		return "./"
	}
	path := strings.TrimPrefix(u.Path, "./")
	if rt, ok := c.h.routes[path]; !ok || rt.post || path == "events" || path == "export" {
		return "./"
	}
	if path == "" {
		path = "./"
	}
	return (&url.URL{Path: path, RawQuery: u.RawQuery}).String()
}

// with returns a relative URL with the given parameters, which alternate between a name and a value.
func with(page string, pairs ...string) string {
	u, err := url.Parse(page)
	if err != nil {
		return page
	}
	q := u.Query()
	for pair := range slices.Chunk(pairs, 2) {
		q.Set(pair[0], pair[1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// redirect redirects to the page that the verb was called from. It adds parameters to the URL so that the page
// shows the outcome.
func (c *call) redirect(back, did string, n, skipped int64) error {
	u, err := url.Parse(back)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Del("selected") // the selection has been processed
	q.Set("did", did)
	q.Set("n", strconv.FormatInt(n, 10))
	if skipped > 0 {
		q.Set("skipped", strconv.FormatInt(skipped, 10))
	}
	u.RawQuery = q.Encode()
	return c.lead(u.String())
}

// lead redirects to a relative URL. The handler cannot redirect to an absolute path because it does not
// know its own prefix.
func (c *call) lead(to string) error {
	c.w.Header().Set("Location", to)
	c.w.WriteHeader(http.StatusSeeOther)
	return nil
}
