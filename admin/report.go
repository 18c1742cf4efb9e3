package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Report describes the changes made by a call. It is valid even if the call returns an error, for
// example because ctx was canceled.
type Report struct {
	Matched int64  // jobs that the filter selected, up to Limit
	Changed int64  // jobs changed
	Skipped []Skip // first 100 jobs that were not changed, with reasons
	Left    int64  // selected jobs that were not processed because of an error
	Waiters int64  // waiting jobs that were removed along with changed jobs; see DropWaiters

	SkippedTotal int64 // number of skipped jobs, including those not in Skipped

	// Audit is the ID of the AuditEntry, or 0 if nothing was changed. JobFilter.Requeue takes that of a Requeue.
	Audit int64
}

// Skip describes a job that was not changed.
type Skip struct {
	ID  int64
	Why string
}

// maxSkips limits the length of Report.Skipped.
const maxSkips = 100

func (r *Report) skip(id int64, why string) {
	r.SkippedTotal++
	if len(r.Skipped) < maxSkips {
		r.Skipped = append(r.Skipped, Skip{ID: id, Why: why})
	}
}

// page is the number of jobs found by a single read.
const page = 4096

// action changes the jobs that a filter selects.
type action struct {
	engine *engine.Engine
	filter JobFilter
	sel    row.JobSelect
	limit  int
	dryRun bool
	leaves string // skip reason for jobs that change does not modify
	audit  *engine.Audit

	found func(n int)                                                    // called with the number of jobs before the first change
	noted func(ctx context.Context, q engine.Querier, entry int64) error // called in the transaction, after the audit entry has been written
	// change changes some jobs and returns a function to call after the commit.
	change func(ctx context.Context, q engine.Querier, found []row.SelectedJob, now time.Time, r *Report) (tell func(), err error)
}

// newAction validates the arguments common to all actions.
func newAction(ctx context.Context, db *honker.DB, verb string, f JobFilter, dead bool) (*action, error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(dead)
	if err := errors.Join(noDB, engine.CheckContext(ctx), err, f.checkChange(), f.checkCodec(e)); err != nil {
		return nil, err
	}
	if err := e.Writable(); err != nil {
		return nil, err
	}
	audit := e.NewAudit(ctx, verb, audited(f))
	return &action{engine: e, filter: f, sel: sel, audit: audit, found: func(int) {},
		noted: func(context.Context, engine.Querier, int64) error { return nil }}, nil
}

// run finds the selected jobs without holding the write lock. It then changes them in small transactions,
// ordered by time of death or by ID. Jobs that no longer match at that point are left alone.
func (a *action) run(ctx context.Context) (*Report, error) {
	r := new(Report)
	if err := a.engine.RefuseInTx(ctx, ""); err != nil {
		return r, err
	}
	found, err := a.find(ctx, a.engine.Read)
	r.Matched = int64(len(found))
	if err != nil || a.dryRun {
		return r, err
	}
	a.found(len(found))
	r.Left = r.Matched
	pace := a.engine.NewPace()
	for len(found) > 0 {
		part := found[:min(pace.Size, len(found), chunkLimit)]
		if err := a.changeChunk(ctx, pace, part, r); err != nil {
			return r, err
		}
		found = found[len(part):]
		r.Left = int64(len(found))
		if len(found) == 0 {
			break
		}
		if err := pace.Rest(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

// chunkLimit is the maximum number of jobs in a transaction.
const chunkLimit = 1000

func (a *action) changeChunk(ctx context.Context, pace *engine.Pace, part []row.SelectedJob, r *Report) error {
	var tell, noted func()
	var after Report
	err := pace.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		after = *r // the transaction may be retried
		after.Skipped = slices.Clone(r.Skipped)
		still, err := a.still(ctx, q, part, now)
		if err != nil {
			return err
		}
		if tell, err = a.change(ctx, q, still, now, &after); err != nil {
			return err
		}
		noted, err = a.note(ctx, q, now, after.Changed-r.Changed, &after)
		return err
	})
	if err != nil {
		return err
	}
	*r = after
	noted()
	if tell != nil {
		tell()
	}
	return nil
}

// note records n changes in the audit log, and the entry in the report.
func (a *action) note(ctx context.Context, q engine.Querier, now time.Time, n int64, r *Report) (committed func(), err error) {
	id, committed, err := a.audit.Note(ctx, q, now, n)
	if err != nil || id == 0 {
		return committed, err
	}
	r.Audit = id
	return committed, a.noted(ctx, q, id)
}

// find returns the jobs that the filter selects, oldest first. It may need several reads.
func (a *action) find(ctx context.Context, read readFunc) (found []row.SelectedJob, err error) {
	for after, more := int64(minID), true; more; {
		var some []row.SelectedJob
		err := read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			some, err = a.engine.Stores.Operators.Select(ctx, q, a.sel, after, page, a.engine.Now())
			return err
		})
		if err != nil {
			return nil, err
		}
		if more = len(some) == page; more {
			after = some[page-1].ID
		}
		for _, j := range some {
			if a.filter.matches(j) {
				j.LastError = "" // to save memory, as there may be a million jobs
				found = append(found, j)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b row.SelectedJob) int { return a.DiedAt.Compare(b.DiedAt) })
	if a.limit > 0 && len(found) > a.limit {
		found = found[:a.limit]
	}
	return found, nil
}

// readFunc calls f with a connection or a transaction.
type readFunc = func(ctx context.Context, f func(ctx context.Context, q engine.Querier) error) error

// minID is below every ID.
const minID = -1 << 63

// still returns the jobs in found that the filter still selects, in the same order. It must be called
// within the write transaction, because a job may have run and died with a different error since it was
// found.
func (a *action) still(ctx context.Context, q engine.Querier, found []row.SelectedJob, at time.Time) ([]row.SelectedJob, error) {
	sel := a.sel
	sel.IDs = make([]int64, len(found))
	for i, j := range found {
		sel.IDs[i] = j.ID
	}
	now, err := a.engine.Stores.Operators.Select(ctx, q, sel, minID, len(found), at)
	if err != nil {
		return nil, err
	}
	picked := make(map[int64]bool, len(now))
	for _, j := range now {
		picked[j.ID] = a.filter.matches(j)
	}
	return slices.DeleteFunc(slices.Clone(found), func(j row.SelectedJob) bool { return !picked[j.ID] }), nil
}

// byQueue groups job IDs by queue. The queues are in order of first appearance.
func byQueue(done []row.Change) (queues []string, ids map[string][]int64) {
	ids = make(map[string][]int64)
	for _, c := range done {
		if ids[c.Queue] == nil {
			queues = append(queues, c.Queue)
		}
		ids[c.Queue] = append(ids[c.Queue], c.ID)
	}
	return queues, ids
}
