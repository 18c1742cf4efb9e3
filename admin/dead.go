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
	Groups []DeadGroup  // most jobs first
	Looked honker.Count // number of jobs grouped; More is set by DeadGroupsWithin if there may be older jobs
}

// DeadGroup is a set of dead jobs in the same queue with similar errors.
type DeadGroup struct {
	Queue       string
	Fingerprint string // hash of the error's first line without the parts that vary (see ErrorParts)
	Sample      string // the newest job's full error
	N           int64
	Left        int64     // jobs that died with attempts left, because they were rejected or have expired
	Recent      int64     // jobs that died in the last ten minutes
	First, Last time.Time // when the first and the last job died
	IDs         []int64   // the newest ten jobs, newest first
	LastDay     [24]int64 // deaths in each of the last 24 hours; the last element is the hour that ends now
}

const (
	deadWindow = 10000
	leastDead  = 256 // minimum number of jobs per step
	groupIDs   = 10
)

// DeadGroups groups the dead jobs that f selects by queue and kind of error. The zero filter selects all dead jobs. To
// requeue or discard a group, set the filter's Fingerprint.
//
// DeadGroups reads every selected job, most recent death first; use [DeadGroupsWithin] to read fewer. It reads them in steps
// of a few thousand, not from a single snapshot. As with the searches of [ListJobs], a db runs a single step at a time, and
// ctx bounds the call. DeadGroups never waits for the writer.
func DeadGroups(ctx context.Context, db *honker.DB, f JobFilter) (*DeadReport, error) {
	r, err := allDead(ctx, db, f)
	return r, engine.Wrap("group dead jobs", "", err)
}

func allDead(ctx context.Context, db *honker.DB, f JobFilter) (*DeadReport, error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(true)
	if err := errors.Join(noDB, engine.CheckContext(ctx), err, f.checkCodec(e)); err != nil {
		return nil, err
	}
	now := e.Now()
	g := newGrouping(now)
	if sel.IDs != nil {
		err := look(ctx, e, f, func(ctx context.Context, q engine.Querier) error {
			found, err := picked(ctx, q, e.Stores.Operators, f, sel, now)
			g.add(f, found)
			return err
		})
		return g.report(false), err
	}
	s := newScan(e.Stores.Operators, now, sel, row.LastDiedFirst, 0, mostStep, mostStep)
	for !s.ended {
		var found []row.SelectedJob
		err := e.Search(ctx, func(ctx context.Context) error {
			return e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
				found, err = s.scan(ctx, q)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		g.add(f, found)
		s.over() // adjusts the size of the next step
	}
	return g.report(false), nil
}

// DeadGroupsWithin is like [DeadGroups] but takes bounds, for pages that are loaded frequently, and reads from a single
// snapshot. It groups up to newest jobs, from 1 to 10,000. If f selects only a few of many dead jobs, DeadGroupsWithin
// examines at least newest dead jobs and then continues until budget has passed. With a budget of 0 it does not continue.
// Looked.More is set if there may be more jobs.
func DeadGroupsWithin(ctx context.Context, db *honker.DB, f JobFilter, newest int, budget time.Duration) (*DeadReport, error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(true)
	if err := errors.Join(noDB, engine.CheckContext(ctx), checkNewest(newest, budget), err, f.checkCodec(e)); err != nil {
		return nil, engine.Wrap("group dead jobs", "", err)
	}
	var found []row.SelectedJob
	var more bool
	err = e.Search(ctx, func(ctx context.Context) error {
		return e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			found, more, err = newestDead(ctx, q, e.Stores.Operators, f, sel, newest, budget, e.NowAt(ctx))
			return err
		})
	})
	if err != nil {
		return nil, engine.Wrap("group dead jobs", "", err)
	}
	g := newGrouping(e.NowAt(ctx))
	g.add(f, found)
	return g.report(more), nil
}

// checkNewest checks the bounds of a call that groups jobs.
func checkNewest(newest int, budget time.Duration) error {
	err := engine.NotNegative("budget", budget)
	if newest < 1 || newest > deadWindow {
		err = errors.Join(err, fmt.Errorf("%w: newest must be 1 to %d, but is %d", honker.ErrInvalid, deadWindow, newest))
	}
	return err
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

// grouping groups jobs by queue and kind of error.
type grouping struct {
	now    time.Time
	at     map[kind]int // index in groups
	groups []DeadGroup
	n      int64
	texts  map[string]string // fingerprints of errors, because many jobs have the same
}

// kind identifies a group.
type kind struct{ queue, fingerprint string }

// mostTexts limits the errors that a grouping remembers.
const mostTexts = 256

func newGrouping(now time.Time) *grouping {
	return &grouping{now: now, at: make(map[kind]int), groups: []DeadGroup{}, texts: make(map[string]string)}
}

// add adds the jobs that f selects. Jobs must be added by time of death, in descending order.
func (g *grouping) add(f JobFilter, jobs []row.SelectedJob) {
	for _, j := range jobs {
		hash := g.fingerprint(j.LastError)
		if f.Fingerprint == "" || f.Fingerprint == hash {
			g.addTo(g.group(kind{j.Queue, hash}, j), j)
		}
	}
}

func (g *grouping) fingerprint(text string) string {
	hash, known := g.texts[text]
	if !known {
		hash = fingerprint(text)
		if len(g.texts) < mostTexts {
			g.texts[text] = hash
		}
	}
	return hash
}

// group returns the group of a kind. If j is the first of its kind, group adds the group.
func (g *grouping) group(k kind, j row.SelectedJob) *DeadGroup {
	i, known := g.at[k]
	if !known {
		i = len(g.groups)
		g.at[k] = i
		g.groups = append(g.groups, DeadGroup{Queue: k.queue, Fingerprint: k.fingerprint, Sample: j.LastError, Last: j.DiedAt})
	}
	return &g.groups[i]
}

func (g *grouping) addTo(d *DeadGroup, j row.SelectedJob) {
	g.n++
	d.N++
	d.First = j.DiedAt
	if j.Left {
		d.Left++
	}
	ago := max(0, g.now.Sub(j.DiedAt))
	if ago < recentSpan {
		d.Recent++
	}
	if hours := int(ago / time.Hour); hours < len(d.LastDay) {
		d.LastDay[len(d.LastDay)-1-hours]++
	}
	if len(d.IDs) < groupIDs {
		d.IDs = append(d.IDs, j.ID)
	}
}

// report returns the groups, most jobs first.
func (g *grouping) report(more bool) *DeadReport {
	slices.SortStableFunc(g.groups, func(a, b DeadGroup) int { return cmp.Compare(b.N, a.N) })
	return &DeadReport{Groups: g.groups, Looked: honker.Count{N: g.n, More: more}}
}
