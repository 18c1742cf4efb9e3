package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// rowView shows a job in a list.
var rowView = view[honker.JobInfo]{
	columns: []column[honker.JobInfo]{
		{"id", func(j honker.JobInfo) cell { return id(j.ID) }},
		{"queue", func(j honker.JobInfo) cell { return text(j.Queue) }},
		{"phase", func(j honker.JobInfo) cell { return phaseCell(j.Phase) }},
		{"attempts", func(j honker.JobInfo) cell { return number(int64(j.Attempts)) }},
		{"created_at", func(j honker.JobInfo) cell { return when(j.CreatedAt) }},
		{"run_at", func(j honker.JobInfo) cell { return when(j.RunAt) }},
		{"worker_id", func(j honker.JobInfo) cell { return long(j.WorkerID) }},
		{"last_error", func(j honker.JobInfo) cell { return long(j.LastError) }},
		{"payload", func(j honker.JobInfo) cell { return payload(j, long) }},
	},
	name:  func(j honker.JobInfo) string { return strconv.FormatInt(j.ID, 10) },
	spare: []string{"created_at", "worker_id", "attempts"},
}

// runningView shows running jobs in a list, the longest running of a page first.
var runningView = view[honker.JobInfo]{
	columns: []column[honker.JobInfo]{
		{"id", func(j honker.JobInfo) cell { return id(j.ID) }},
		{"queue", func(j honker.JobInfo) cell { return text(j.Queue) }},
		{"running_for", runningFor},
		{"attempts", func(j honker.JobInfo) cell { return number(int64(j.Attempts)) }},
		{"worker_id", func(j honker.JobInfo) cell { return long(j.WorkerID) }},
		{"progress", func(j honker.JobInfo) cell { return long(progress(j.Progress)) }},
		{"payload", func(j honker.JobInfo) cell { return payload(j, long) }},
	},
	name: rowView.name,
}

// runningFor shows how long the current attempt has lasted, if its start is known.
func runningFor(j honker.JobInfo) cell {
	if j.StartedAt.IsZero() {
		return cell{human: "-", right: true}
	}
	d := max(0, time.Since(j.StartedAt)).Truncate(time.Second)
	return cell{human: admin.FormatAge(d), raw: d.String(), right: true}
}

// longestFirst orders running jobs by their starts. Unknown starts are recent, and come last.
func longestFirst(a, b honker.JobInfo) int {
	if a.StartedAt.IsZero() != b.StartedAt.IsZero() {
		return b.StartedAt.Compare(a.StartedAt)
	}
	return a.StartedAt.Compare(b.StartedAt)
}

// listing holds the flags of a command that lists jobs.
type listing struct {
	limit int
	after string
	order admin.Order
	count bool
	why   bool

	longest bool // list the longest running jobs of a page first
}

func (l *listing) addTo(cmd *cobra.Command, orders ...admin.Order) {
	cmd.Flags().IntVar(&l.limit, "limit", 50, "list at most `n`; 0 for all")
	cmd.Flags().StringVar(&l.after, "after", "", "continue after this `cursor`, printed at the end of the previous list")
	cmd.Flags().BoolVar(&l.count, "count", false, "print only the number of jobs")
	addSort(cmd, &l.order, orders...)
}

func (a *app) jobs() *cobra.Command {
	var f filter
	var l listing
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List, search and count jobs",
		Long: `jobs lists waiting, running and dead jobs, and done jobs that are retained. A job must match all given flags. A search
by flags other than --queue and --phase reads the jobs themselves, without blocking writers.`,
		Example: `  honker jobs --queue emails --phase ready,running
  honker jobs --where order.id=17
  honker jobs --phase dead --count
  honker jobs --queue emails --phase ready,held --why
  honker jobs --queue emails --phase scheduled -o name | xargs honker job run-now --yes`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	f.addTo(a, cmd, false)
	l.addTo(cmd, admin.NewestFirst, admin.OldestFirst, admin.ClaimOrder, admin.LastDiedFirst)
	cmd.Flags().BoolVar(&l.why, "why", false, "explain why each job does not run")
	cmd.AddCommand(a.jobGroups())
	a.prints(cmd, rowView, whyView, runningView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			picked, err := a.pickDead(ctx, db, &f, args)
			switch {
			case err != nil:
				return err
			case l.why:
				return listPages(ctx, a, db, picked, l, whyView, a.whyRowOf)
			case slices.Equal(picked.Phases, []honker.Phase{honker.PhaseRunning}):
				l.longest = true
				return a.listJobs(ctx, db, picked, l, runningView)
			}
			return a.listJobs(ctx, db, picked, l, rowView)
		})
	})
}

// listJobs lists the jobs selected by f.
func (a *app) listJobs(ctx context.Context, db *honker.DB, f admin.JobFilter, l listing, v view[honker.JobInfo]) error {
	return listPages(ctx, a, db, f, l, v, func(p *admin.JobPage, i int) honker.JobInfo { return p.Jobs[i] })
}

// listPages lists the jobs selected by f a page at a time, converted by row. It prints the cursor for the next page.
func listPages[T any](ctx context.Context, a *app, db *honker.DB, f admin.JobFilter, l listing, v view[T], row func(p *admin.JobPage, i int) T) error {
	switch {
	case l.limit < 0:
		return usage("", "--limit %d is negative", l.limit)
	case l.order == admin.ClaimOrder && len(f.Queues) != 1:
		return usage("the same with one --queue", "--sort claim requires exactly one --queue, got %d", len(f.Queues))
	}
	if l.count {
		return a.countJobs(ctx, db, f)
	}
	out, err := newPage(a, v, "jobs")
	if err != nil {
		return err
	}
	opts := &admin.PageOptions{Order: l.order, After: admin.Cursor(l.after), Reasons: l.why}
	for {
		opts.Limit = pageSize
		if l.limit > 0 {
			opts.Limit = min(pageSize, l.limit-out.n)
		}
		page, err := admin.ListJobs(ctx, db, f, opts)
		if err != nil {
			return err
		}
		if l.longest {
			slices.SortStableFunc(page.Jobs, longestFirst)
		}
		for i := range page.Jobs {
			if err := out.add(row(page, i)); err != nil {
				return err
			}
		}
		opts.After = page.Next
		if page.Next == "" || l.limit > 0 && out.n >= l.limit {
			break
		}
	}
	return out.closePage("such jobs", string(opts.After))
}

const pageSize = 1000

// counted is the output of a command that counts jobs.
type counted struct{ Jobs honker.Count }

var countedView = view[counted]{columns: []column[counted]{{"jobs", func(c counted) cell { return count(c.Jobs) }}}}

// countJobs counts all jobs, no matter how long it takes, because a partial count would be useless to a script.
func (a *app) countJobs(ctx context.Context, db *honker.DB, f admin.JobFilter) error {
	var n int64
	for _, err := range admin.EachJob(ctx, db, f, &admin.PageOptions{Limit: pageSize}) {
		if err != nil {
			return err
		}
		n++
	}
	return one(a, countedView, counted{honker.Count{N: n}})
}

func (a *app) job() *cobra.Command {
	return parent("job", "Show, explain, cancel, bury, run and wait for jobs", groupChange,
		a.jobShow(), a.jobWhy(), a.jobLogs(), a.jobCancel(), a.jobBury(), a.jobRunNow(), a.jobWait())
}

// jobView shows all fields of a single job.
var jobView = view[honker.JobInfo]{
	columns: []column[honker.JobInfo]{
		{"id", func(j honker.JobInfo) cell { return id(j.ID) }},
		{"queue", func(j honker.JobInfo) cell { return text(j.Queue) }},
		{"phase", func(j honker.JobInfo) cell { return phaseCell(j.Phase) }},
		{"priority", func(j honker.JobInfo) cell { return number(int64(j.Priority)) }},
		{"attempts", func(j honker.JobInfo) cell { return number(int64(j.Attempts)) }},
		{"max_attempts", func(j honker.JobInfo) cell { return number(int64(j.MaxAttempts)) }},
		{"worker_id", func(j honker.JobInfo) cell { return text(j.WorkerID) }},
		{"unique", func(j honker.JobInfo) cell { return text(j.Unique) }},
		{"key", func(j honker.JobInfo) cell { return text(j.Key) }},
		{"headers", func(j honker.JobInfo) cell { return text(headers(j.Headers)) }},
		{"progress", func(j honker.JobInfo) cell { return text(progress(j.Progress)) }},
		{"created_at", func(j honker.JobInfo) cell { return at(j.CreatedAt) }},
		{"run_at", func(j honker.JobInfo) cell { return at(j.RunAt) }},
		{"expires_at", func(j honker.JobInfo) cell { return at(j.ExpiresAt) }},
		{"started_at", func(j honker.JobInfo) cell { return at(j.StartedAt) }},
		{"claim_expires_at", func(j honker.JobInfo) cell { return at(j.ClaimExpiresAt) }},
		{"died_at", func(j honker.JobInfo) cell { return at(j.DiedAt) }},
		{"last_error", func(j honker.JobInfo) cell { return text(j.LastError) }},
		{"payload", func(j honker.JobInfo) cell { return payload(j, text) }},
	},
	name: func(j honker.JobInfo) string { return strconv.FormatInt(j.ID, 10) },
}

// headers formats a job's headers in the syntax of --header.
func headers(of map[string]string) string {
	all := make([]string, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, name+"="+of[name])
	}
	return strings.Join(all, ", ")
}

// progress formats the progress reported by a handler.
func progress(p *honker.Progress) string {
	if p == nil {
		return ""
	}
	said := strconv.FormatInt(p.Done, 10)
	if p.Total != 0 {
		said += "/" + strconv.FormatInt(p.Total, 10)
	}
	return strings.TrimSpace(said + " " + p.Note)
}

func (a *app) jobShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show JOB",
		Short:             "Show all details of a job",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeJob,
	}
	a.prints(cmd, jobView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := idsOf(args)
		if err != nil {
			return err
		}
		return a.look(ctx, func(db *honker.DB) error {
			job, err := db.Job(ctx, ids[0])
			if errors.Is(err, honker.ErrNotFound) {
				return a.notThere(ctx, db, ids[0])
			}
			if err != nil {
				return err
			}
			return one(a, jobView, *job)
		})
	})
}

func (a *app) jobCancel() *cobra.Command {
	var c changing
	var opts admin.CancelOptions
	cmd := &cobra.Command{
		Use:   "cancel JOB...",
		Short: "Remove waiting jobs, or with --running also running jobs",
		Long: `cancel removes waiting jobs without leaving a trace. A job that waits for a cancelled job, or for its batch, would treat it
as done. So cancel refuses to remove jobs that others wait for, unless --waiters is given. Use honker batch cancel for a
whole batch.`,
		Example: `  honker job cancel 17
  honker job cancel 17 --waiters drop`,
		Args: cobra.MinimumNArgs(1),

		ValidArgsFunction: a.completeJobIDs,
	}
	c.addTo(cmd)
	addWaiters(cmd, &opts.Waiters, "default: refuse if other jobs wait")
	cmd.Flags().BoolVar(&opts.Running, "running", false, "also remove running jobs, and cancel the ctx of their handlers")
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		v := verb{name: "cancel", done: "cancelled", what: "job", none: "none of these jobs waits or runs"}
		if !opts.Running && opts.Waiters != admin.KeepWaiters {
			v.skipped = []string{"job", "cancel", "--running"}
		}
		return a.onJobs(ctx, args, c, v,
			func(ctx context.Context, db *honker.DB, f admin.JobFilter, dryRun bool) (*admin.Report, error) {
				o := opts
				o.DryRun = dryRun
				return a.cancelJobs(ctx, db, f, o)
			})
	})
}

func (a *app) jobBury() *cobra.Command {
	var c changing
	var f admin.JobFilter
	cmd := &cobra.Command{
		Use:        "bury [JOB...]",
		SuggestFor: []string{"kill", "archive", "undo"},
		Short:      "Move waiting jobs to the dead jobs",
		Long: `bury moves waiting jobs to the dead jobs. They keep their last errors, and honker dead requeue makes them run again.
--requeue undoes a requeue: it selects the jobs of the requeue that have used no attempt since. honker dead requeue prints
its entry. bury asks before it changes more than one job.`,
		Example: `  honker job bury 17
  honker job bury --requeue 4`,

		ValidArgsFunction: a.completeJobIDs,
	}
	c.addTo(cmd)
	addRequeue(cmd, &f.Requeue)
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) (err error) {
		if f.IDs, err = idsOf(args); err != nil {
			return err
		}
		if len(f.IDs) == 0 && f.Requeue == 0 {
			return usage("the same with the ids of jobs, or with --requeue", "no jobs selected: give ids or --requeue")
		}
		v := verb{name: "bury", done: "buried", what: "job", none: "none of these jobs waits"}
		return a.change(ctx, func(db *honker.DB) error {
			v.do = func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				return admin.Bury(ctx, db, f, &admin.BuryOptions{DryRun: dryRun})
			}
			if f.IDs != nil {
				return a.applyTo(ctx, f.IDs, v, c)
			}
			return a.apply(ctx, v, c)
		})
	})
}

func (a *app) jobRunNow() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:        "run-now JOB...",
		Aliases:    []string{"hurry"},
		SuggestFor: []string{"run"},
		Short:      "Run scheduled jobs now",
		Args:       cobra.MinimumNArgs(1),

		ValidArgsFunction: a.completeJobIDs,
	}
	c.addTo(cmd)
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.onJobs(ctx, args, c, verb{name: "run", done: "made due", what: "job", none: "none of these jobs waits or runs"},
			func(ctx context.Context, db *honker.DB, f admin.JobFilter, dryRun bool) (*admin.Report, error) {
				return admin.RunNow(ctx, db, f, &admin.RunNowOptions{DryRun: dryRun})
			})
	})
}

// onJobs applies v to the live jobs with the given IDs.
func (a *app) onJobs(ctx context.Context, args []string, c changing, v verb,
	do func(ctx context.Context, db *honker.DB, f admin.JobFilter, dryRun bool) (*admin.Report, error)) error {
	ids, err := idsOf(args)
	if err != nil {
		return err
	}
	return a.change(ctx, func(db *honker.DB) error {
		v.do = func(ctx context.Context, dryRun bool) (*admin.Report, error) {
			return do(ctx, db, admin.JobFilter{IDs: ids}, dryRun)
		}
		return a.applyTo(ctx, ids, v, c)
	})
}
