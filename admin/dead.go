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

// DeadReport groups dead jobs by error.
type DeadReport struct {
	Groups []DeadGroup  // largest first
	Looked honker.Count // number of jobs grouped; More is set if there may be older jobs that were not examined
}

// DeadGroup is a set of dead jobs in the same queue with similar errors.
type DeadGroup struct {
	Queue       string
	Fingerprint string // hash of the error's first line, ignoring numbers, quoted strings and addresses
	Sample      string // the newest job's full error
	N           int64
	First, Last time.Time // when the first and the last job died
	IDs         []int64   // the newest ten jobs, newest first
	LastDay     [24]int64 // deaths in each of the last 24 hours; the last element is the hour that ends now
}

const (
	deadWindow = 10000
	deadBudget = time.Second
	leastDead  = 256 // minimum number of jobs per step
	groupIDs   = 10
)

// DeadGroups groups the newest 10,000 dead jobs that f selects by queue and kind of error. The zero filter
// selects all dead jobs. To requeue or discard a group, set the filter's Fingerprint; such a filter also
// selects older jobs with that fingerprint.
//
// Jobs are read from the most recent death backward. If f selects only a few of many dead jobs, DeadGroups
// examines at least the last 10,000 dead jobs and continues for up to a second. It then reports that there
// may be more. Like the searches of [ListJobs], calls on the same db run one at a time; ctx bounds the
// wait. DeadGroups never waits for the writer.
func DeadGroups(ctx context.Context, db *honker.DB, f JobFilter) (*DeadReport, error) {
	return DeadGroupsWithin(ctx, db, f, deadWindow, deadBudget)
}

// DeadGroupsWithin is like [DeadGroups] but takes custom bounds, for pages that are loaded frequently. It
// groups up to newest jobs, from 1 to 10,000; each job costs about 10 µs. If f selects only a few of many
// dead jobs, DeadGroupsWithin examines at least newest dead jobs and then continues until budget has
// passed. With a budget of 0 it does not continue.
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
			found, more, err = newestDead(ctx, q, e.Stores.Operators, f, sel, newest, budget, e.Now())
			return err
		})
	})
	if err != nil {
		return nil, engine.Wrap("group dead jobs", "", err)
	}
	return &DeadReport{Groups: group(found, e.Now()), Looked: honker.Count{N: int64(len(found)), More: more}}, nil
}

// newestDead finds the most recently dead-lettered jobs that f selects and reports whether there may be
// more.
func newestDead(ctx context.Context, q engine.Querier, jobs engine.OperatorStore, f JobFilter, sel row.JobSelect, newest int, budget time.Duration, now time.Time) (found []row.SelectedJob, more bool, err error) {
	if sel.IDs != nil {
		found, err := picked(ctx, q, jobs, f, sel, now)
		return found[:min(len(found), newest)], len(found) > newest, err
	}
	size := mostStep
	if f.searches() {
		size /= 4 // payloads may be large
	}
	s := newScan(jobs, now, sel, row.LastDiedFirst, budget, size, mostStep)
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

// picked returns the jobs among sel.IDs that f selects, most recent death first.
func picked(ctx context.Context, q engine.Querier, jobs engine.OperatorStore, f JobFilter, sel row.JobSelect, now time.Time) ([]row.SelectedJob, error) {
	found, err := jobs.Select(ctx, q, sel, minID, len(sel.IDs), now)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(j row.SelectedJob) bool { return !f.matches(j) })
	slices.SortFunc(found, func(a, b row.SelectedJob) int {
		return cmp.Or(b.DiedAt.Compare(a.DiedAt), cmp.Compare(b.ID, a.ID))
	})
	return found, nil
}

// group groups jobs by queue and fingerprint. newest must be sorted by time of death, in descending
// order.
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
