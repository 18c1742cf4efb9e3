package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Order is the sort order of a job list.
type Order int

const (
	NewestFirst   Order = iota // by descending ID; a requeued job keeps its ID
	OldestFirst                // by ascending ID
	ClaimOrder                 // in claim order; only waiting jobs in a single queue, which Queues must name
	LastDiedFirst              // by descending DiedAt; only dead jobs
)

// PageOptions configures a page. The zero value of a field selects its default.
type PageOptions struct {
	Order  Order         // default NewestFirst
	After  Cursor        // JobPage.Next of the previous page; "" for the first page
	Limit  int           // maximum number of jobs; default 50, at most 1000
	Budget time.Duration // maximum time spent on the page; default 100 ms

	// Reasons fills in JobPage.Reasons, at a cost of up to one millisecond per job. EachJob ignores it.
	Reasons bool
}

// JobPage is a page of jobs.
type JobPage struct {
	Jobs    []honker.JobInfo
	Next    Cursor // "" on the last page
	Scanned int64  // number of jobs examined
	Early   bool   // the page was cut short by Budget; there may be more jobs after Next, even if Jobs is empty

	// Reasons describes why each job in Jobs is not running, or how it ended. It is set only if
	// PageOptions.Reasons is true. Each element is the first reason that [Explain] would have returned
	// immediately after the read.
	Reasons []Reason
}

const (
	defaultLimit  = 50
	maxLimit      = 1000
	defaultBudget = 100 * time.Millisecond
)

func (o *PageOptions) withDefaults() (PageOptions, error) {
	var out PageOptions
	if o != nil {
		out = *o
	}
	if out.Limit == 0 {
		out.Limit = defaultLimit
	}
	if out.Budget == 0 {
		out.Budget = defaultBudget
	}
	err := engine.NotNegative("Budget", out.Budget)
	if out.Limit < 0 || out.Limit > maxLimit {
		err = errors.Join(err, fmt.Errorf("%w: Limit must be 0 to %d, but is %d", honker.ErrInvalid, maxLimit, out.Limit))
	}
	if out.Order < NewestFirst || out.Order > LastDiedFirst {
		err = errors.Join(err, fmt.Errorf("%w: Order %d does not exist", honker.ErrInvalid, out.Order))
	}
	return out, err
}

// ListJobs returns a page of the live, dead and done jobs that f selects. The page starts at opts.After.
// The zero filter selects all jobs. A nil opts selects the defaults.
//
// The cost of a page depends on the number of jobs examined. Queues, Phases and IDs use indexes where that
// is faster. If any other field is set, ListJobs reads jobs until the page is full or opts.Budget has
// passed. In the latter case Early is set, and Next continues after the last job examined. This way,
// callers miss no jobs and never have to wait for a search of the whole file. Only one such search runs at
// a time per db; ctx bounds the wait for other searches.
//
// Each page is a separate short read and never waits for the writer. A live job that changes between two
// pages may be returned twice or not at all. Dead and done jobs do not change and are returned once.
// ListJobs returns [honker.ErrInvalid] if the cursor belongs to a different filter or order.
func ListJobs(ctx context.Context, db *honker.DB, f JobFilter, opts *PageOptions) (*JobPage, error) {
	l, err := newListing(ctx, db, f, opts)
	if err != nil {
		return nil, engine.Wrap("list jobs", "", err)
	}
	p, err := l.page(ctx)
	return p, engine.Wrap("list jobs", "", err)
}

// EachJob returns an iterator over all jobs that f selects, starting at opts.After. It reads pages with
// [ListJobs]; opts.Limit and opts.Budget apply to each page. The iteration ends after the first error,
// including ctx's error. No read transaction is open while the loop body runs, so the body may use the
// DB freely.
func EachJob(ctx context.Context, db *honker.DB, f JobFilter, opts *PageOptions) iter.Seq2[*honker.JobInfo, error] {
	return func(yield func(*honker.JobInfo, error) bool) {
		l, err := newListing(ctx, db, f, opts)
		for err == nil {
			var p *JobPage
			if p, err = l.page(ctx); err != nil {
				break
			}
			for i := range p.Jobs {
				if !yield(&p.Jobs[i], nil) {
					return
				}
			}
			if p.Next == "" {
				return
			}
		}
		yield(nil, engine.Wrap("list jobs", "", err))
	}
}

// listing is the state of a list across its pages.
type listing struct {
	PageOptions
	engine *engine.Engine
	filter JobFilter
	sel    row.JobSelect
	order  row.Order
	binds  string     // binding of the list's cursors
	after  *row.Place // last position examined; nil at the beginning
}

func newListing(ctx context.Context, db *honker.DB, f JobFilter, opts *PageOptions) (*listing, error) {
	e, noDB := engineOf(db)
	o, bad := opts.withDefaults()
	sel, err := f.looking()
	if err := errors.Join(noDB, engine.CheckContext(ctx), bad, err, f.checkCodec(e)); err != nil {
		return nil, err
	}
	l := &listing{PageOptions: o, engine: e, filter: f, sel: sel, order: row.Order(o.Order)}
	if err := l.fitOrder(); err != nil {
		return nil, err
	}
	l.binds = binding(l.sel, f.Fingerprint, o.Order)
	l.after, err = o.After.place(l.binds)
	return l, err
}

// fitOrder restricts the selection to the phases included in the order.
func (l *listing) fitOrder() error {
	var has []row.Phase
	var name string
	switch l.Order {
	case ClaimOrder:
		name = "ClaimOrder"
		has = []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseExpired}
		if len(l.filter.Queues) != 1 {
			return fmt.Errorf("%w: ClaimOrder needs a filter with exactly 1 queue, but it has %d", honker.ErrInvalid, len(l.filter.Queues))
		}
	case LastDiedFirst:
		name = "LastDiedFirst"
		has = []row.Phase{row.PhaseDead}
	default:
		return nil
	}
	for _, p := range l.filter.Phases {
		if !slices.Contains(has, row.Phase(p)) {
			return fmt.Errorf("%w: order %s does not list %s jobs", honker.ErrInvalid, name, p)
		}
	}
	l.sel.Phases = narrow(l.sel.Phases, has)
	return nil
}

// page reads the next page and advances the listing.
func (l *listing) page(ctx context.Context) (p *JobPage, err error) {
	err = look(ctx, l.engine, l.filter, func(ctx context.Context, q engine.Querier) (err error) {
		p, err = l.read(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	if l.Reasons {
		if p.Reasons, err = firstReasons(ctx, l.engine, p.Jobs); err != nil {
			return nil, err
		}
	}
	l.after, err = p.Next.place(l.binds)
	return p, err
}

// look runs do on a connection. If the filter requires reading jobs, look first waits for other
// searches to finish.
func look(ctx context.Context, e *engine.Engine, f JobFilter, do func(ctx context.Context, q engine.Querier) error) error {
	if !f.searches() {
		return e.Read(ctx, do)
	}
	return e.Search(ctx, func(ctx context.Context) error { return e.Read(ctx, do) })
}

// read examines candidates in steps until the page is full, there are no more candidates, or the budget
// is used up.
func (l *listing) read(ctx context.Context, q engine.Querier) (*JobPage, error) {
	sorted := l.Limit + 1
	if l.filter.searches() {
		sorted = mostStep
	}
	s := newScan(l.engine.Stores.Operators, l.engine.NowAt(ctx), l.sel, l.order, l.Budget, l.Limit+1, sorted)
	s.req.After = l.after
	at := l.after
	p := &JobPage{Jobs: []honker.JobInfo{}}
	for {
		part, err := s.list(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range part.Places {
			if len(p.Jobs) == l.Limit {
				p.Next = cursorOf(at, l.binds)
				return p, nil
			}
			at = &part.Places[i]
			p.Scanned++
			job, picked := part.Jobs[i]
			if picked && l.filter.matches(row.SelectedJob{LastError: job.LastError}) {
				p.Jobs = append(p.Jobs, engine.View().Job(job, s.now, l.engine.Codec).(honker.JobInfo))
			}
		}
		over := s.over()
		full := len(p.Jobs) == l.Limit
		switch {
		case s.ended:
			return p, nil
		case full || over:
			p.Next, p.Early = cursorOf(at, l.binds), !full
			return p, nil
		}
	}
}
