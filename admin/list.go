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
	"github.com/honker-go/honker/internal/store"
)

// Order is that of a list of jobs.
type Order int

const (
	NewestFirst   Order = iota // by id, from the highest: a job keeps its id when it is requeued
	OldestFirst                // by id, from the lowest
	ClaimOrder                 // as the claims of a queue take them: jobs of one queue that wait, so one of Queues has to be set
	LastDiedFirst              // dead jobs, by DiedAt from the last
)

// PageOptions of one page. The zero value of a field means its default.
type PageOptions struct {
	Order  Order         // default NewestFirst
	After  Cursor        // JobPage.Next of the page before; "" begins
	Limit  int           // jobs of a page; default 50, at most 1000
	Budget time.Duration // of time, after which the page ends; default 100 ms

	// Reasons fills JobPage.Reasons. It costs up to a millisecond for each job; EachJob, which has no page, ignores it.
	Reasons bool
}

// JobPage are some of the jobs that a filter picks.
type JobPage struct {
	Jobs    []honker.JobInfo
	Next    Cursor // "": the end
	Scanned int64  // jobs that were looked at
	Early   bool   // Budget has ended this page: there may be more behind Next, also after a page without jobs

	// Reasons are, with PageOptions.Reasons, why each of Jobs does not run, or what became of it, right after they were
	// read: the first of those that [Explain] gives.
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
		err = errors.Join(err, fmt.Errorf("%w: a page of %d jobs, at most %d", honker.ErrInvalid, out.Limit, maxLimit))
	}
	if out.Order < NewestFirst || out.Order > LastDiedFirst {
		err = errors.Join(err, fmt.Errorf("%w: order %d", honker.ErrInvalid, out.Order))
	}
	return out, err
}

// ListJobs returns a page of the jobs that f picks, live, dead and done ones: the first, or the one that
// opts.After leads to. The zero filter picks all. nil opts means defaults.
//
// A page costs what it passes. Queues, Phases and IDs are looked up by indexes, as far as a page gets
// quicker by it. With any other field jobs are read until the page is full or opts.Budget has passed,
// then it is Early, and its Next goes on exactly there: nothing is left out, and no call waits for a
// search of the whole file. Of such searches one runs at a time, for all goroutines that use db; the wait for
// the others ends with ctx.
//
// Each page is a short read of its own, and never waits for the writer. So a live job that changes between
// two pages may be seen twice or not at all; dead and done jobs, which stay as they are, are seen
// once. A cursor is [honker.ErrInvalid] with another filter or order than its page had.
func ListJobs(ctx context.Context, db *honker.DB, f JobFilter, opts *PageOptions) (*JobPage, error) {
	l, err := newListing(ctx, db, f, opts)
	if err != nil {
		return nil, engine.Wrap("list jobs", "", err)
	}
	p, err := l.page(ctx)
	return p, engine.Wrap("list jobs", "", err)
}

// EachJob iterates over all jobs that f picks, from opts.After on, page by page as [ListJobs] reads them:
// opts.Limit is that of a page, and opts.Budget how long one read lasts. It ends with the error of a page,
// or that of ctx. The body of the loop may do anything: no read is open meanwhile.
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

// listStore are the statements that list jobs.
type listStore interface {
	After(ctx context.Context, q engine.Querier, s row.JobSelect, o row.Order, by row.Access, after *row.Place, n int) ([]row.Place, error)
	Load(ctx context.Context, q engine.Querier, s row.JobSelect, at []row.Place) (map[row.Place]row.Job, error)
	Counts(ctx context.Context, q engine.Querier, s row.JobSelect, limit int64) (map[string]row.QueueCounts, int64, error)
	Few(ctx context.Context, q engine.Querier, s row.JobSelect, most int64) (bool, error)
}

var lists listStore = store.Jobs{}

// listing is a list of jobs on its way.
type listing struct {
	PageOptions
	engine *engine.Engine
	filter JobFilter
	sel    row.JobSelect
	order  row.Order
	binds  string     // what its cursors are for
	after  *row.Place // the last that was looked at; nil: none
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

// fitOrder narrows the filter to the jobs that the order has.
func (l *listing) fitOrder() error {
	var has []row.Phase
	switch l.Order {
	case ClaimOrder:
		has = []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseExpired}
		if len(l.filter.Queues) != 1 {
			return fmt.Errorf("%w: ClaimOrder is that of one queue, and the filter has %d", honker.ErrInvalid, len(l.filter.Queues))
		}
	case LastDiedFirst:
		has = []row.Phase{row.PhaseDead}
	default:
		return nil
	}
	for _, p := range l.filter.Phases {
		if !slices.Contains(has, row.Phase(p)) {
			return fmt.Errorf("%w: the order has no job that is %q", honker.ErrInvalid, p)
		}
	}
	l.sel.Phases = narrow(l.sel.Phases, has)
	return nil
}

// page returns the next page.
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

// look runs f on a connection, and after the others where it reads jobs to find some.
func look(ctx context.Context, e *engine.Engine, f JobFilter, do func(ctx context.Context, q engine.Querier) error) error {
	if !f.searches() {
		return e.Read(ctx, do)
	}
	return e.Search(ctx, func(ctx context.Context) error { return e.Read(ctx, do) })
}

// read looks at candidates, some at a time, until the page is full, there are no more, or the time is over.
func (l *listing) read(ctx context.Context, q engine.Querier) (*JobPage, error) {
	sorted := l.Limit + 1
	if l.filter.searches() {
		sorted = mostStep
	}
	s := newScan(l.sel, l.order, l.Budget, l.Limit+1, sorted)
	s.at = l.after
	p := &JobPage{Jobs: []honker.JobInfo{}}
	for {
		places, err := s.next(ctx, q)
		if err != nil {
			return nil, err
		}
		found, err := lists.Load(ctx, q, s.sel, places)
		if err != nil {
			return nil, err
		}
		for i := range places {
			if len(p.Jobs) == l.Limit {
				p.Next = cursorOf(s.at, l.binds)
				return p, nil
			}
			s.at = &places[i]
			p.Scanned++
			job, picked := found[row.Place{ID: s.at.ID, In: s.at.In}]
			if picked && l.filter.matches(row.SelectedJob{LastError: job.LastError}) {
				p.Jobs = append(p.Jobs, engine.View().Job(job, s.began, l.engine.Codec).(honker.JobInfo))
			}
		}
		over := s.over()
		full := len(p.Jobs) == l.Limit
		switch {
		case s.ended:
			return p, nil
		case full || over:
			p.Next, p.Early = cursorOf(s.at, l.binds), !full
			return p, nil
		}
	}
}
