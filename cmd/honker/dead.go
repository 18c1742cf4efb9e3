package main

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func (a *app) dead() *cobra.Command {
	var f filter
	var l listing
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, requeue, discard, export and import dead jobs",
		Long: `dead lists dead jobs, in the order of their deaths with the latest first unless --sort is given. Its subcommands group dead
jobs by their errors, and requeue, discard, export and import them.`,
		Example: `  honker dead --queue emails --died-since 1h
  honker dead groups
  honker dead requeue --group 3f2a --spread 10m`,
		GroupID: groupChange,
		Args:    noSuch,
	}
	f.addTo(a, cmd, true)
	l.addTo(cmd, admin.LastDiedFirst, admin.NewestFirst, admin.OldestFirst)
	cmd.AddCommand(a.deadGroups(), a.deadRequeue(), a.deadDiscard(), a.deadExport(), a.deadImport())
	a.prints(cmd, deadView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			picked, err := a.pickDead(ctx, db, &f, args)
			if err != nil {
				return err
			}
			picked.Phases = []honker.Phase{honker.PhaseDead}
			return a.listJobs(ctx, db, picked, l, deadView)
		})
	})
}

// deadView shows a dead job in a list.
var deadView = view[honker.JobInfo]{
	columns: []column[honker.JobInfo]{
		{"id", func(j honker.JobInfo) cell { return id(j.ID) }},
		{"queue", func(j honker.JobInfo) cell { return text(j.Queue) }},
		{"attempts", func(j honker.JobInfo) cell { return number(int64(j.Attempts)) }},
		{"died_at", func(j honker.JobInfo) cell { return when(j.DiedAt) }},
		{"last_error", func(j honker.JobInfo) cell { return long(j.LastError) }},
		{"payload", func(j honker.JobInfo) cell { return payload(j, long) }},
	},
	name: rowView.name,
}

var groupView = view[admin.DeadGroup]{
	columns: []column[admin.DeadGroup]{
		{"fingerprint", func(g admin.DeadGroup) cell { return text(g.Fingerprint) }},
		{"queue", func(g admin.DeadGroup) cell { return text(g.Queue) }},
		{"n", func(g admin.DeadGroup) cell { return number(g.N) }},
		{"first", func(g admin.DeadGroup) cell { return when(g.First) }},
		{"last", func(g admin.DeadGroup) cell { return when(g.Last) }},
		{"sample", func(g admin.DeadGroup) cell { return long(g.Sample) }},
	},
	name: func(g admin.DeadGroup) string { return g.Fingerprint },
}

func (a *app) deadGroups() *cobra.Command {
	var f filter
	cmd := &cobra.Command{
		Use:   "groups [JOB...]",
		Short: "Group dead jobs by queue and kind of error",
		Long: `groups groups dead jobs by queue and kind of error, largest group first. Errors are of the same kind if they differ only
in numbers, ids, quoted texts, addresses and parts of paths with digits. groups reads all dead jobs, about 100,000 a second.`,
	}
	f.addTo(a, cmd, true)
	a.prints(cmd, groupView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			picked, err := a.pickDead(ctx, db, &f, args)
			if err != nil {
				return err
			}
			r, err := admin.DeadGroups(ctx, db, picked)
			if err != nil {
				return err
			}
			return many(a, groupView, r.Groups, "dead jobs")
		})
	})
}

// pickDead returns the filter of f and args. An abbreviated fingerprint from --group is completed.
func (a *app) pickDead(ctx context.Context, db *honker.DB, f *filter, args []string) (admin.JobFilter, error) {
	picked, err := f.pick(args)
	for _, queue := range picked.Queues {
		a.noteUnknown(ctx, db, queue)
	}
	const whole = 16
	if err != nil || picked.Fingerprint == "" || len(picked.Fingerprint) >= whole {
		return picked, err
	}
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{Queues: picked.Queues})
	if err != nil {
		return picked, err
	}
	begins, found := picked.Fingerprint, map[string]bool{}
	for _, g := range r.Groups {
		if strings.HasPrefix(g.Fingerprint, begins) {
			found[g.Fingerprint] = true
			picked.Fingerprint = g.Fingerprint
		}
	}
	switch len(found) {
	case 1:
		return picked, nil
	case 0:
		return picked, &coded{code: codeNo, err: errors.New("no group begins with " + begins), try: a.command("dead", "groups")}
	default:
		return picked, usage(a.command("dead", "groups"), "%d groups begin with %s", len(found), begins)
	}
}

// addDead adds the flags of a command that changes dead jobs.
func (a *app) addDead(cmd *cobra.Command, f *filter, c *changing) {
	f.addTo(a, cmd, true)
	c.addTo(cmd)
	a.prints(cmd, outcomeView)
	cmd.Flags().BoolVar(&f.All, "all", false, "select all dead jobs of the file")
}

// onDead picks dead jobs and applies v to them. Jobs that die while the user is being asked aren't touched, because
// the number shown didn't include them.
func (a *app) onDead(ctx context.Context, f *filter, c changing, args []string,
	verbOf func(db *honker.DB, picked admin.JobFilter) verb) error {
	return a.change(ctx, func(db *honker.DB) error {
		picked, err := a.pickDead(ctx, db, f, args)
		if err != nil {
			return err
		}
		if reflect.ValueOf(picked).IsZero() {
			return usage("the same with --all", "no dead jobs selected: give ids, filter flags or --all")
		}
		if picked.DiedBefore.IsZero() && picked.IDs == nil {
			picked.DiedBefore = time.Now().Truncate(time.Second).Add(time.Second)
		}
		v := verbOf(db, picked)
		if picked.IDs != nil {
			v.none = "none of these jobs is dead and matches the other flags"
			return a.applyTo(ctx, picked.IDs, v, c)
		}
		return a.apply(ctx, v, c)
	})
}

func (a *app) deadRequeue() *cobra.Command {
	var f filter
	var c changing
	var opts admin.RequeueOptions
	cmd := &cobra.Command{
		Use:        "requeue [JOB...]",
		SuggestFor: []string{"retry"},
		Short:      "Move dead jobs back to their queues",
		Long: `requeue makes dead jobs run again, oldest first. They keep their ids, and get as many additional attempts as they had.
requeue asks before it changes more than one job. honker job bury --requeue undoes it.`,
		Example: `  honker dead requeue 17
  honker dead requeue --group 3f2a --spread 10m
  honker dead requeue --queue emails --died-since 2h --yes`,
	}
	a.addDead(cmd, &f, &c)
	flags := cmd.Flags()
	flags.StringVar(&opts.To, "to", "", "requeue into another `queue`")
	flags.Var(spanFlag{&opts.Delay}, "delay", "delay before the first job can run: 30s, 5m")
	flags.Var(spanFlag{&opts.Spread}, "spread", "spread the run times evenly over this span")
	flags.IntVar(&opts.Attempts, "attempts", 0, "grant `n` additional attempts; default as many as the job had")
	flags.IntVar(&opts.Limit, "limit", 0, "requeue only the oldest `n`; default all")
	must(cmd.RegisterFlagCompletionFunc("to", a.completeQueues))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.onDead(ctx, &f, c, args, func(db *honker.DB, picked admin.JobFilter) verb {
			a.noteMisspelled(ctx, db, opts.To)
			return verb{name: "requeue", done: "requeued", what: "dead job", undo: []string{"job", "bury", "--requeue"}, do: func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				o := opts
				o.DryRun = dryRun
				return admin.Requeue(ctx, db, picked, &o)
			}}
		})
	})
}

func (a *app) deadDiscard() *cobra.Command {
	var f filter
	var c changing
	var opts admin.DiscardOptions
	cmd := &cobra.Command{
		Use:        "discard [JOB...]",
		SuggestFor: []string{"delete", "rm"},
		Short:      "Delete dead jobs permanently",
		Long: `discard deletes dead jobs permanently. It asks before it deletes more than one job. Export the jobs first if they may
still be needed. A dead job that others wait for is skipped unless --waiters is given.`,
		Example: `  honker dead discard 17
  honker dead discard --queue emails --error "no such address" --dry-run
  honker dead discard --died-before 30d --yes`,
	}
	a.addDead(cmd, &f, &c)
	addWaiters(cmd, &opts.Waiters, "default keep")
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.onDead(ctx, &f, c, args, func(db *honker.DB, picked admin.JobFilter) verb {
			return verb{name: "discard", done: "discarded", what: "dead job", do: func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				o := opts
				o.DryRun = dryRun
				return admin.Discard(ctx, db, picked, &o)
			}}
		})
	})
}

func (a *app) completeGroups(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) (offers []string, err error) {
		r, err := admin.DeadGroupsWithin(ctx, db, admin.JobFilter{}, 10_000, 0)
		if err != nil {
			return nil, err
		}
		for _, g := range r.Groups {
			what := plural(g.N, "job") + " of " + g.Queue + ": " + brief(g.Sample)
			offers = append(offers, g.Fingerprint+"\t"+clean(what))
		}
		return offers, nil
	})
}
