package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// DeadReport groups dead jobs by the errors they died of.
type DeadReport struct {
	Groups []DeadGroup  // largest first
	Looked honker.Count // number of grouped jobs; More reports older jobs that may not have been examined
}

// DeadGroup is a set of dead jobs of a queue with similar errors.
type DeadGroup struct {
	Queue       string
	Fingerprint string // hash of the first line of the error without numbers, quoted texts and addresses
	Sample      string // full error of the newest job
	N           int64
	First, Last time.Time // times of the first and last death
	IDs         []int64   // the newest ten jobs, newest first
	LastDay     [24]int64 // deaths in each of the last 24 hours; the last element is the hour that ends now
}

const (
	deadWindow = 10000
	deadBudget = time.Second
	leastDead  = 256 // minimum jobs of a step
	groupIDs   = 10
)

// DeadGroups groups the newest 10,000 dead jobs that f selects by queue and kind of error. The zero filter
// selects all dead jobs. A filter with Fingerprint set also selects older jobs with
// that fingerprint for Requeue and Discard.
//
// Jobs are read in the order of their deaths. If f selects only few of many dead jobs, DeadGroups examines
// at least the last 10,000 dead jobs and continues for up to a second. It then reports that there may be
// more. DeadGroups takes turns with the searches of [ListJobs] and never waits for the writer. The wait for
// its turn ends with ctx.
func DeadGroups(ctx context.Context, db *honker.DB, f JobFilter) (*DeadReport, error) {
	return DeadGroupsWithin(ctx, db, f, deadWindow, deadBudget)
}

// DeadGroupsWithin is like [DeadGroups] with other bounds, for pages that are loaded often. It groups the
// newest jobs up to the given number, from 1 to 10,000; each costs about 10 µs. If f selects only few of
// many dead jobs, it examines at least that many and continues until budget has passed. A budget of 0 does
// not continue.
func DeadGroupsWithin(ctx context.Context, db *honker.DB, f JobFilter, newest int, budget time.Duration) (*DeadReport, error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(true)
	bad := engine.NotNegative("budget", budget)
	if newest < 1 || newest > deadWindow {
		bad = errors.Join(bad, fmt.Errorf("%w: newest must be 1 to %d, but is %d", honker.ErrInvalid, deadWindow, newest))
	}
	if err := errors.Join(noDB, engine.CheckContext(ctx), bad, err, f.checkCodec(e)); err != nil {
		return nil, engine.Wrap("group dead jobs", "", err)
	}
	var found []row.SelectedJob
	var more bool
	err = e.Search(ctx, func(ctx context.Context) error {
		return e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			found, more, err = newestDead(ctx, q, e.Stores.Operators, f, sel, newest, budget)
			return err
		})
	})
	if err != nil {
		return nil, engine.Wrap("group dead jobs", "", err)
	}
	return &DeadReport{Groups: group(found, time.Now()), Looked: honker.Count{N: int64(len(found)), More: more}}, nil
}

// newestDead finds the newest dead jobs that f selects, by time of death, and reports whether there may be
// more.
func newestDead(ctx context.Context, q engine.Querier, jobs engine.OperatorStore, f JobFilter, sel row.JobSelect, newest int, budget time.Duration) (found []row.SelectedJob, more bool, err error) {
	if sel.IDs != nil {
		found, err := picked(ctx, q, jobs, f, sel)
		return found[:min(len(found), newest)], len(found) > newest, err
	}
	size := mostStep
	if f.searches() {
		size /= 4 // payloads may be large
	}
	s := newScan(jobs, sel, row.LastDiedFirst, budget, size, mostStep)
	for !s.ended {
		s.size = min(s.size, max(newest+1-len(found), leastDead))
		some, err := s.scan(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, j := range some {
			if f.matches(j) {
				found = append(found, j)
			}
		}
		if len(found) > newest {
			return found[:newest], true, nil
		}
		if over := s.over(); over && s.seen > newest && !s.ended {
			return found, true, nil
		}
	}
	return found, false, nil
}

// picked returns the jobs among sel.IDs that f selects, by time of death from the newest.
func picked(ctx context.Context, q engine.Querier, jobs engine.OperatorStore, f JobFilter, sel row.JobSelect) ([]row.SelectedJob, error) {
	found, err := jobs.Select(ctx, q, sel, minID, len(sel.IDs), time.Now())
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(j row.SelectedJob) bool { return !f.matches(j) })
	slices.SortFunc(found, func(a, b row.SelectedJob) int {
		return cmp.Or(b.DiedAt.Compare(a.DiedAt), cmp.Compare(b.ID, a.ID))
	})
	return found, nil
}

// group groups jobs by queue and fingerprint. newest must be sorted by time of death, newest first.
func group(newest []row.SelectedJob, now time.Time) []DeadGroup {
	type kind struct{ queue, fingerprint string }
	at := make(map[kind]int)
	groups := []DeadGroup{}
	for _, j := range newest {
		k := kind{j.Queue, fingerprint(j.LastError)}
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k] = i
			groups = append(groups, DeadGroup{Queue: k.queue, Fingerprint: k.fingerprint, Sample: j.LastError, Last: j.DiedAt})
		}
		g := &groups[i]
		g.N++
		g.First = j.DiedAt
		if ago := int(max(0, now.Sub(g.First)) / time.Hour); ago < len(g.LastDay) {
			g.LastDay[len(g.LastDay)-1-ago]++
		}
		if len(g.IDs) < groupIDs {
			g.IDs = append(g.IDs, j.ID)
		}
	}
	slices.SortStableFunc(groups, func(a, b DeadGroup) int { return cmp.Compare(b.N, a.N) })
	return groups
}
