package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// RetryReport groups jobs that wait for another attempt by their last error.
type RetryReport struct {
	Groups []RetryGroup // most jobs first
	Looked honker.Count // number of jobs grouped; More is set if there may be others
}

// RetryGroup is a set of jobs in the same queue that wait for another attempt, with similar last errors.
type RetryGroup struct {
	Queue       string
	Fingerprint string // as in DeadGroup
	Sample      string // the newest job's full last error
	N           int64
	IDs         []int64 // the newest ten jobs, newest first
}

// RetryGroups groups jobs that have failed and wait for another attempt, by queue and kind of their last error. Among the
// live jobs that f selects, these are ready, scheduled and held jobs with at least one attempt and an error. Phases and
// MinAttempts of f must be zero. RetryGroups groups up to newest jobs, from 1 to 10,000, newest first. If only a few of
// many jobs have failed, it examines at least newest jobs and then continues until budget has passed.
//
// As with the searches of [ListJobs], a db runs a single call at a time, and ctx bounds the wait. RetryGroups never waits
// for the writer.
func RetryGroups(ctx context.Context, db *honker.DB, f JobFilter, newest int, budget time.Duration) (*RetryReport, error) {
	r, err := retryGroups(ctx, db, f, newest, budget)
	return r, engine.Wrap("group retries", "", err)
}

func retryGroups(ctx context.Context, db *honker.DB, f JobFilter, newest int, budget time.Duration) (*RetryReport, error) {
	e, noDB := engineOf(db)
	bad := checkNewest(newest, budget)
	if f.Phases != nil || f.MinAttempts != 0 {
		bad = errors.Join(bad, fmt.Errorf("%w: Phases and MinAttempts cannot select retries", honker.ErrInvalid))
	}
	f.Phases, f.MinAttempts = []honker.Phase{honker.PhaseReady, honker.PhaseScheduled, honker.PhaseHeld}, 1
	sel, err := f.selection(false)
	if err := errors.Join(noDB, engine.CheckContext(ctx), bad, err, f.checkCodec(e)); err != nil {
		return nil, err
	}
	g := newGrouping(e.NowAt(ctx))
	var more bool
	err = look(ctx, e, f, func(ctx context.Context, q engine.Querier) (err error) {
		s := newScan(e.Stores.Operators, g.now, sel, row.NewestFirst, budget, mostStep/4, mostStep)
		more, err = g.read(ctx, q, s, newest)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g.retries(more), nil
}

// retries returns the groups as a report on retries.
func (g *grouping) retries(more bool) *RetryReport {
	report := &RetryReport{Groups: []RetryGroup{}, Looked: honker.Count{N: g.n, More: more}}
	for _, d := range g.report(more).Groups {
		report.Groups = append(report.Groups, RetryGroup{d.Queue, d.Fingerprint, d.Sample, d.N, d.IDs})
	}
	return report
}

// read adds up to newest jobs with an error, and reports whether there may be more.
func (g *grouping) read(ctx context.Context, q engine.Querier, s *scan, newest int) (more bool, err error) {
	for !s.ended {
		s.size = min(s.size, max(newest+1-int(g.n), leastDead))
		found, err := s.scan(ctx, q)
		if err != nil {
			return false, err
		}
		for _, j := range found {
			if j.LastError == "" {
				continue
			}
			if g.n == int64(newest) {
				return true, nil
			}
			g.add(JobFilter{}, []row.SelectedJob{j})
		}
		if over := s.over(); over && s.seen > newest && !s.ended {
			return true, nil
		}
	}
	return false, nil
}
