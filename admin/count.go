package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// defaultCount is the default limit for CountJobs.
const defaultCount = 10_000

// CountJobs counts the jobs that f selects, up to limit, and reports whether there are more. A limit of 0
// means 10,000. The zero filter selects all jobs.
//
// A filter that sets only Queues and Phases is counted using indexes. If Queues is empty, CountJobs uses
// the counts of [Queues], which are cached if they are large. All other filters require reading the jobs.
// Such a count waits for running [ListJobs] searches and stops after 100 ms, reporting that there may be
// more. For an exact count, use a dry run of Requeue, Discard, Cancel or RunNow.
//
// CountJobs never waits for the writer.
func CountJobs(ctx context.Context, db *honker.DB, f JobFilter, limit int) (honker.Count, error) {
	c, err := countJobs(ctx, db, f, limit)
	return c, engine.Wrap("count jobs", "", err)
}

func countJobs(ctx context.Context, db *honker.DB, f JobFilter, limit int) (c honker.Count, err error) {
	e, noDB := engineOf(db)
	if limit < 0 {
		err = fmt.Errorf("%w: the limit must not be negative, but is %d", honker.ErrInvalid, limit)
	}
	if limit == 0 {
		limit = defaultCount
	}
	sel, bad := f.looking()
	if err := errors.Join(noDB, engine.CheckContext(ctx), err, bad, f.checkCodec(e)); err != nil {
		return c, err
	}
	if f.IDs == nil && !f.searches() {
		return countLying(ctx, e, sel, int64(limit))
	}
	err = look(ctx, e, f, func(ctx context.Context, q engine.Querier) (err error) {
		c, err = countIn(ctx, q, e, f, sel, int64(limit))
		return err
	})
	return c, err
}

// countLying counts jobs using the indexes on queue and phase. If sel has no queues, it uses the engine's
// overview, which does not include done jobs.
func countLying(ctx context.Context, e *engine.Engine, sel row.JobSelect, limit int64) (c honker.Count, err error) {
	part := sel
	if len(sel.Queues) == 0 {
		overview, err := e.Counts(ctx)
		if err != nil {
			return c, err
		}
		addCounts(&c, overview, sel)
		part.Phases = narrow(sel.Phases, []row.Phase{row.PhaseDone})
	}
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		queues, _, err := e.Stores.Operators.Counts(ctx, q, part, limit, e.Now())
		if err == nil {
			addCounts(&c, queues, part)
		}
		return err
	})
	if err != nil || c.N <= limit {
		return c, err
	}
	return honker.Count{N: limit, More: true}, nil
}

// addCounts adds the jobs in sel's phases to c, for all queues.
func addCounts(c *honker.Count, queues map[string]row.QueueCounts, sel row.JobSelect) {
	for _, counts := range queues {
		n := counts.Sum(sel)
		c.N, c.More = c.N+n.N, c.More || n.More
	}
}

// countIn scans candidates in ID order until it has counted more than limit jobs or has used up its
// budget.
func countIn(ctx context.Context, q engine.Querier, e *engine.Engine, f JobFilter, sel row.JobSelect, limit int64) (c honker.Count, err error) {
	s := newScan(e.Stores.Operators, e.Now(), sel, row.NewestFirst, defaultBudget, mostStep/4, mostStep)
	for !s.ended {
		found, err := s.scan(ctx, q)
		if err != nil {
			return honker.Count{}, err
		}
		for _, j := range found {
			if f.matches(j) {
				c.N++
			}
		}
		if c.N > limit {
			return honker.Count{N: limit, More: true}, nil
		}
		if s.over() && !s.ended {
			return honker.Count{N: c.N, More: true}, nil
		}
	}
	return c, nil
}
