package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// waitersFlag implements pflag.Value for --waiters, which determines how to treat jobs that are waiting for a removed
// job.
type waitersFlag struct{ to *admin.Waiters }

var waitersWords = map[string]admin.Waiters{"keep": admin.KeepWaiters, "drop": admin.DropWaiters, "release": admin.ReleaseWaiters}

// String implements pflag.Value.
func (f waitersFlag) String() string {
	for word, value := range waitersWords {
		if f.to != nil && *f.to == value {
			return word
		}
	}
	return ""
}

// Type implements pflag.Value.
func (f waitersFlag) Type() string { return "choice" }

// Set implements pflag.Value.
func (f waitersFlag) Set(word string) error {
	value, known := waitersWords[word]
	if !known {
		return fmt.Errorf("must be one of keep, drop, release")
	}
	*f.to = value
	return nil
}

func addWaiters(cmd *cobra.Command, to *admin.Waiters, unsaid string) {
	cmd.Flags().Var(waitersFlag{to}, "waiters", "for jobs that wait for the removed jobs: keep both, drop both, or release the waiting jobs as if the others were done; "+unsaid)
	must(cmd.RegisterFlagCompletionFunc("waiters", cobra.FixedCompletions([]string{"keep", "drop", "release"}, cobra.ShellCompDirectiveNoFileComp)))
}

// cancelJobs cancels the live jobs selected by f. If other jobs are waiting for them, opts must specify how to treat
// those, because a cancelled job would otherwise count as done for them.
func (a *app) cancelJobs(ctx context.Context, db *honker.DB, f admin.JobFilter, opts admin.CancelOptions) (*admin.Report, error) {
	waiting, err := admin.WaitersOf(ctx, db, f)
	if err != nil {
		return new(admin.Report), err
	}
	if len(waiting) > 0 && opts.Waiters == admin.DefaultWaiters {
		return new(admin.Report), &coded{
			code: codeRefused, err: fmt.Errorf("%s for these, and would run as if these were done", waitText(waiting)),
			try: "the same with --waiters drop, release or keep",
		}
	}
	r, err := admin.Cancel(ctx, db, f, &opts)
	if err == nil && opts.DryRun && opts.Waiters == admin.DropWaiters {
		r.Waiters = int64(len(waiting))
	}
	return r, err
}

// waitText names the first few waiting jobs.
func waitText(jobs []int64) string {
	const most = 3
	if len(jobs) == 1 {
		return fmt.Sprintf("job %d waits", jobs[0])
	}
	names := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(jobs[:min(len(jobs), most)]), "[]")), ", ")
	if more := len(jobs) - most; more > 0 {
		names += fmt.Sprintf(" and %s more", honker.Count{N: int64(more)})
	}
	return "jobs " + names + " wait"
}

func (a *app) batch() *cobra.Command {
	return parent("batch", "Show and cancel batches of jobs", groupChange, a.batchShow(), a.batchCancel())
}

func (a *app) batchShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show BATCH",
		Short:             "Show the progress of a batch, and the jobs that wait for it",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeBatch,
	}
	a.prints(cmd, batchView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := idsOf(args)
		if err != nil {
			return err
		}
		return a.look(ctx, func(db *honker.DB) error {
			info, err := admin.Batch(ctx, db, ids[0])
			if err != nil {
				return missing(err, a.command("batches"))
			}
			return one(a, batchView, *info)
		})
	})
}

func (a *app) batchCancel() *cobra.Command {
	var c changing
	var running bool
	cmd := &cobra.Command{
		Use:   "cancel BATCH",
		Short: "Cancel the remaining jobs of a batch, and all jobs that wait for them",
		Long: `cancel seals a batch, and removes its waiting members and all jobs that wait for the batch or its members, directly or
indirectly. Dead members stay dead. If members are running, cancel refuses unless --running is given, which cancels the ctx of
their handlers.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeBatch,
	}
	c.addTo(cmd)
	cmd.Flags().BoolVar(&running, "running", false, "also remove running members, and cancel the ctx of their handlers")
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := idsOf(args)
		if err != nil {
			return err
		}
		return a.change(ctx, func(db *honker.DB) error {
			return a.apply(ctx, verb{name: "cancel", done: "cancelled", what: "job", do: func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				return a.cancelBatch(ctx, db, ids[0], running, dryRun)
			}}, c)
		})
	})
}

func (a *app) cancelBatch(ctx context.Context, db *honker.DB, id int64, running, dryRun bool) (*admin.Report, error) {
	r := new(admin.Report)
	info, err := admin.Batch(ctx, db, id)
	if err != nil {
		return r, missing(err, a.command("batches"))
	}
	waiting, err := admin.WaitersOf(ctx, db, admin.JobFilter{Batch: id})
	if err != nil {
		return r, err
	}
	left, after := info.Waiting+info.Running, int64(len(waiting))
	switch {
	case left+after == 0 && !info.Open:
		return r, &coded{code: codeNo, err: fmt.Errorf("batch %d has no waiting or running members, and no job waits for it", id), try: a.command("batch", "show", strconv.FormatInt(id, 10))}
	case info.Running > 0 && !running:
		return r, &coded{code: codeRefused, err: errors.New(runText(info.Running, id)), try: "the same with --running"}
	}
	r.Matched = left
	if dryRun {
		r.Waiters = after
		return r, nil
	}
	n, err := db.Batch(id).Cancel(ctx)
	r.Waiters = min(after, int64(n)) // the waiters are cancelled first
	r.Changed = int64(n) - r.Waiters
	if err != nil {
		r.Left = max(0, left-r.Changed)
	}
	return r, err
}

func runText(n, batch int64) string {
	run := "run"
	if n == 1 {
		run = "runs"
	}
	return fmt.Sprintf("%s of batch %d %s now", plural(n, "job"), batch, run)
}

func (a *app) completeBatch(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) (offers []string, err error) {
		if len(args) > 0 {
			return nil, nil
		}
		page, err := admin.Batches(ctx, db, nil)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Batches {
			offers = append(offers, fmt.Sprintf("%d\t%s", b.ID, clean(strings.Join(strings.Fields(b.Name), " "))))
		}
		return offers, nil
	})
}
