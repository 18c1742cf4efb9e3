package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/move"
)

var movedView = view[move.Report]{columns: []column[move.Report]{
	{"jobs", func(r move.Report) cell { return number(r.Jobs) }},
	{"dead", func(r move.Report) cell { return number(r.Dead) }},
	{"batches", func(r move.Report) cell { return number(r.Batches) }},
	{"schedules", func(r move.Report) cell { return number(r.Schedules) }},
	{"events", func(r move.Report) cell { return number(r.Events) }},
	{"messages", func(r move.Report) cell { return number(r.Messages) }},
	{"letters", func(r move.Report) cell { return number(r.Letters) }},
	{"late", func(r move.Report) cell { return number(r.Late + r.LateMessages) }},
	{"passes", func(r move.Report) cell { return text(strconv.Itoa(r.Passes)) }},
}}

func (a *app) move() *cobra.Command {
	var opts move.Options
	cmd := &cobra.Command{
		Use:   "move FILE [DSN]",
		Short: "Move jobs, topics, relays and schedules to PostgreSQL",
		Long: `move takes the jobs of FILE to the PostgreSQL database of DSN, -d or $HONKER_DSN, while programs use both. Events, consumers
and settings are copied. Relays move with the rest, not with --queue or --topic. It goes on until nothing is left to move and no
job of the file runs, and can be interrupted and started again at any time. Jobs that run finish in the file. The guide "Moving to
Postgres" has the steps.`,
		Example: `  honker move app.db postgres://app@db.internal/app --dry-run
  HONKER_DSN=… honker move app.db --queue mails --once`,
		GroupID:     groupFile,
		Args:        cobra.RangeArgs(1, 2),
		Annotations: map[string]string{nameless: "yes"},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opts.Queues, "queue", nil, "move only this `queue`; may be repeated")
	flags.StringSliceVar(&opts.Topics, "topic", nil, "move only this `topic`; may be repeated")
	flags.BoolVar(&opts.Once, "once", false, "end after a single pass")
	flags.BoolVar(&opts.IntoUsed, "into-used", false, "move into a schema that has jobs already; moved jobs get new ids")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "only count, without changing either database; the exit code is 10 if something would move")
	a.prints(cmd, movedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		dsn, err := a.targetOf(args[1:])
		if err != nil {
			return err
		}
		return a.with(ctx, database{path: args[0]}, access{readOnly: opts.DryRun}, func(from *honker.DB) error {
			if opts.DryRun {
				return a.dryMove(ctx, from, dsn, opts)
			}
			return a.with(ctx, database{dsn: dsn}, access{upgrades: true}, func(to *honker.DB) error {
				return a.moveTo(ctx, from, to, opts)
			})
		})
	})
}

// targetOf returns the DSN that the arguments after the file, -d or the environment name.
func (a *app) targetOf(args []string) (string, error) {
	switch {
	case a.file != "":
		return "", usage("", "move takes the file as an argument, without -f")
	case len(args) > 0 && a.dsn != "":
		return "", usage("", "the DSN is named twice: use either the argument or -d")
	case len(args) > 0:
		return args[0], nil
	}
	dsn := cmp.Or(a.dsn, a.getenv(dsnVariable))
	if dsn == "" {
		return "", usage("honker move FILE DSN", "move needs a DSN: as an argument, with -d or in $%s", dsnVariable)
	}
	return dsn, nil
}

// dryMove counts the rows that a move would move. A schema that is missing or old cannot be opened for reading: the move
// itself would make it, or bring it up to date.
func (a *app) dryMove(ctx context.Context, from *honker.DB, dsn string, opts move.Options) error {
	err := a.with(ctx, database{dsn: dsn}, access{readOnly: true}, func(to *honker.DB) error { return a.moveTo(ctx, from, to, opts) })
	old, ok := errors.AsType[*honker.OldSchemaError](err)
	switch {
	case !ok:
		return err
	case old.Version == 0:
		a.note("the schema has no tables of honker: the move makes them")
	default:
		a.note("the schema has version %d: the move brings it to version %d", old.Version, old.Current)
	}
	return a.moveTo(ctx, from, nil, opts)
}

// moveTo moves a file, and also reports the rows that were moved before an error.
func (a *app) moveTo(ctx context.Context, from, to *honker.DB, opts move.Options) error {
	told := 0
	opts.Progress = func(r move.Report) {
		if r.Passes > told {
			told = r.Passes
			a.note("pass %d: moved %s, %s", r.Passes, plural(r.Jobs+r.Dead, "job"), plural(r.Events, "event"))
		}
	}
	r, err := move.Run(ctx, from, to, &opts)
	switch {
	case err != nil && movedRows(r) == 0:
		return err
	case err != nil:
		return partly(err, "moved %s and %s; start it again to go on", plural(r.Jobs+r.Dead, "job"), plural(r.Events, "event"))
	}
	for _, l := range r.Left {
		if n := l.Waiting + l.Running + l.Dead; n > 0 && !opts.DryRun {
			a.note("queue %s: %s left in the file", l.Queue, plural(n, "job"))
		}
	}
	for _, l := range r.Relays {
		if n := l.Waiting + l.Dead; n > 0 && !opts.DryRun {
			a.note("relay %s/%s: %s left in the file", l.Family, l.Queue, plural(n, "message"))
		}
	}
	for _, l := range r.Lost {
		how := "was moved without its key"
		if l.Dropped {
			how = "was dropped"
		}
		a.note("queue %s: job %d %s, as job %d of the schema holds unique key %q", l.Queue, l.ID, how, l.By, l.Key)
	}
	for _, n := range r.Notes {
		a.note("%s", n)
	}
	if err := one(a, movedView, *r); err != nil || !opts.DryRun || movedRows(r) == 0 {
		return err
	}
	return &coded{code: codeWouldChange}
}

func movedRows(r *move.Report) int64 {
	return r.Jobs + r.Dead + r.Batches + r.Schedules + r.Events + r.Messages + r.Letters
}
