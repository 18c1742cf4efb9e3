package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// Report says what a verb did. It comes with an error too, such as that of a ctx that has ended.
type Report struct {
	Matched int64  // jobs that the filter has picked, no more than Limit
	Changed int64  // of these
	Skipped []Skip // the first 100 that were left as they are for a reason of their own
	Left    int64  // picked, and not looked at because of the error
	Waiters int64  // jobs that waited for those that were changed, and were removed too: see DropWaiters

	SkippedTotal int64 // how many were left as they are, also beyond those in Skipped
}

// Skip is a job that a verb has left as it is.
type Skip struct {
	ID  int64
	Why string
}

// maxSkips bounds Report.Skipped.
const maxSkips = 100

func (r *Report) skip(id int64, why string) {
	r.SkippedTotal++
	if len(r.Skipped) < maxSkips {
		r.Skipped = append(r.Skipped, Skip{ID: id, Why: why})
	}
}

// changeStore are the statements that find and change many jobs.
type changeStore interface {
	Select(ctx context.Context, q engine.Querier, s row.JobSelect, after int64, limit int) ([]row.SelectedJob, error)
	DeadPayload(ctx context.Context, q engine.Querier, id int64) (payload any, err error)
	Requeue(ctx context.Context, q engine.Querier, r row.Requeue, now, nowMS int64) (row.Requeued, error)
	Discard(ctx context.Context, q engine.Querier, ids []int64, awaited bool) ([]row.Change, error)
	Waiters(ctx context.Context, q engine.Querier, nodes []int64) ([]int64, error)
	Unawaited(ctx context.Context, q engine.Querier, ids []int64) ([]int64, error)
	DropWaiters(ctx context.Context, q engine.Querier, nodes []int64) ([]row.Change, error)
	DropWaitersOfLive(ctx context.Context, q engine.Querier, ids []int64, running bool, now int64) ([]row.Change, error)
	CancelMany(ctx context.Context, q engine.Querier, ids []int64, running bool, now int64) ([]row.Change, error)
	RunNow(ctx context.Context, q engine.Querier, ids []int64, now int64) ([]row.Change, error)
}

var changes changeStore = store.Jobs{}

// page is how many jobs are found by one read.
const page = 4096

// action is a verb on the jobs that a filter picks.
type action struct {
	engine *engine.Engine
	filter JobFilter
	sel    row.JobSelect
	limit  int
	dryRun bool
	leaves string // why change leaves a job that was found
	audit  *engine.Audit

	found func(n int) // is told how many jobs there are, before the first is changed
	// change changes some jobs, and returns what to tell of them when that is committed.
	change func(ctx context.Context, q engine.Querier, found []row.SelectedJob, now time.Time, r *Report) (tell func(), err error)
}

// newAction checks what every verb is given.
func newAction(ctx context.Context, db *honker.DB, verb string, f JobFilter, dead bool) (*action, error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(dead)
	if err := errors.Join(noDB, engine.CheckContext(ctx), err, f.checkChange(), f.checkCodec(e)); err != nil {
		return nil, err
	}
	if err := e.Writable(); err != nil {
		return nil, err
	}
	audit := engine.NewAudit(ctx, verb, audited(f))
	return &action{engine: e, filter: f, sel: sel, audit: audit, found: func(int) {}}, nil
}

// run finds the jobs without the write lock and then changes some at a time, in the order of their
// deaths or of their ids. Those that do not match any more by then are passed over.
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

// chunkLimit bounds the jobs of one transaction.
const chunkLimit = 1000

func (a *action) changeChunk(ctx context.Context, pace *engine.Pace, part []row.SelectedJob, r *Report) error {
	var tell, noted func()
	var after Report
	err := pace.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		after = *r // it may run again
		after.Skipped = slices.Clone(r.Skipped)
		still, err := a.still(ctx, q, part, now)
		if err != nil {
			return err
		}
		if tell, err = a.change(ctx, q, still, now, &after); err != nil {
			return err
		}
		noted, err = a.audit.Note(ctx, q, now, after.Changed-r.Changed)
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

// find returns the jobs that the filter picks, the oldest first, in several reads.
func (a *action) find(ctx context.Context, read readFunc) (found []row.SelectedJob, err error) {
	for after, more := int64(minID), true; more; {
		var some []row.SelectedJob
		err := read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			sel := a.sel
			sel.Now = time.Now().Unix()
			some, err = changes.Select(ctx, q, sel, after, page)
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
				j.LastError = "" // there may be a million of them
				found = append(found, j)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b row.SelectedJob) int { return cmp.Compare(a.DiedAt, b.DiedAt) })
	if a.limit > 0 && len(found) > a.limit {
		found = found[:a.limit]
	}
	return found, nil
}

// readFunc runs f on a connection or transaction.
type readFunc = func(ctx context.Context, f func(ctx context.Context, q engine.Querier) error) error

// minID is below every id.
const minID = -1 << 63

// still returns those of found that the filter still picks, in their order, by the writer's
// transaction: a job may have run and died of something else since it was found.
func (a *action) still(ctx context.Context, q engine.Querier, found []row.SelectedJob, at time.Time) ([]row.SelectedJob, error) {
	sel := a.sel
	sel.Now = at.Unix()
	sel.IDs = make([]int64, len(found))
	for i, j := range found {
		sel.IDs[i] = j.ID
	}
	now, err := changes.Select(ctx, q, sel, minID, len(found))
	if err != nil {
		return nil, err
	}
	picked := make(map[int64]bool, len(now))
	for _, j := range now {
		picked[j.ID] = a.filter.matches(j)
	}
	return slices.DeleteFunc(slices.Clone(found), func(j row.SelectedJob) bool { return !picked[j.ID] }), nil
}

// byQueue are the ids of done by queue, in the order in which the queues come.
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

// ready is what a commit brings after which a job of queue may be claimed.
func ready(queue string) wake.Change { return wake.Change{Kind: wake.QueueReady, Name: queue} }
