package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/observe"
)

// copied describes a finished backup.
type copied struct {
	Path string
	Size int64 // bytes
	Took time.Duration
}

var copiedView = view[copied]{
	columns: []column[copied]{
		{"path", func(c copied) cell { return text(c.Path) }},
		{"size", func(c copied) cell { return bytesCell(c.Size) }},
		{"took", func(c copied) cell { return took(c.Took) }},
	},
	name: func(c copied) string { return c.Path },
}

// bytesCell shows a size. People see it in larger units.
func bytesCell(n int64) cell {
	c := number(n)
	c.human = admin.FormatSize(n)
	return c
}

func (a *app) backup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup DESTINATION",
		Short: "Write a consistent copy of the file, even while it is in use",
		Long: `backup writes a consistent copy of the file while applications use it. It blocks no writers. The copy appears under
its name only when it is complete. backup never overwrites a file.`,
		Example: `  honker backup /backups/app-$(date +%F).db -f /srv/app.db`,
		GroupID: groupFile,
		Args:    cobra.ExactArgs(1),
	}
	a.prints(cmd, copiedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			began := time.Now()
			err := admin.Backup(ctx, db, args[0])
			switch {
			case errors.Is(err, fs.ErrExist):
				return usage("the same with another name", "%s: the file exists already", args[0])
			case errors.Is(err, fs.ErrNotExist):
				return usage("", "%s: no such directory", args[0])
			case err != nil:
				return errors.Join(unwritable(filepath.Dir(args[0])), err)
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			return one(a, copiedView, copied{Path: args[0], Size: info.Size(), Took: time.Since(began)})
		})
	})
}

// unwritable explains why no file can be created in dir. SQLite's own error doesn't say why.
func unwritable(dir string) error {
	probe, err := os.CreateTemp(dir, ".honker-backup-*")
	if err == nil {
		return errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	return &coded{code: codeRefused, err: err, try: "the same with another directory"}
}

// vacuumed holds the size of the file before and after a vacuum.
type vacuumed struct {
	Before int64 // bytes, including free pages
	After  int64
	Took   time.Duration
}

var vacuumedView = view[vacuumed]{columns: []column[vacuumed]{
	{"before", func(v vacuumed) cell { return bytesCell(v.Before) }},
	{"after", func(v vacuumed) cell { return bytesCell(v.After) }},
	{"took", func(v vacuumed) cell { return took(v.Took) }},
}}

func (a *app) vacuum() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vacuum",
		Short: "Rebuild the file without free pages; blocks all writers",
		Long: `vacuum rebuilds the file without its free pages and returns their space to the disk. It blocks all writers until it is
done, and temporarily needs as much disk space again. SQLite reuses free pages by itself, so vacuum is useful only for a file
that has become much smaller for good.`,
		GroupID:     groupFile,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{nameless: "yes"},
	}
	a.prints(cmd, vacuumedView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			if !admin.IsFile(db) {
				return admin.Vacuum(ctx, db) // whose error names the substitute
			}
			began := time.Now()
			before, err := sizeOf(ctx, db)
			if err != nil {
				return err
			}
			if err := admin.Vacuum(ctx, db); err != nil {
				return err
			}
			after, err := sizeOf(ctx, db)
			if err != nil {
				return err
			}
			return one(a, vacuumedView, vacuumed{Before: before, After: after, Took: time.Since(began)})
		})
	})
}

// sizeOf returns the size of the database in bytes, including pages that are only in the WAL.
func sizeOf(ctx context.Context, db *honker.DB) (int64, error) {
	info, err := admin.File(ctx, db)
	if err != nil {
		return 0, err
	}
	return info.Pages * info.PageSize, nil
}

func (a *app) maintain() *cobra.Command {
	var opts honker.MaintainOptions
	cmd := &cobra.Command{
		Use:   "maintain",
		Short: "Keep the file small: sweep, compact and prune",
		Long: `maintain dead-letters jobs that can no longer run, deletes events, jobs, results and rate-limit windows that are no longer retained, and
truncates the write-ahead log. Run it for files that no program with this library maintains. It runs a round per minute until
it is interrupted. Of several processes, only one maintains the file. With --once it runs a single round, and exits with
code 1 if another process maintains the file.`,
		Example: `  honker maintain --once -f /srv/app.db`,
		GroupID: groupFile,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&opts.Once, "once", false, "run a single round")
	cmd.Flags().Var(spanFlag{&opts.Every}, "every", "time between two rounds; default 1m")
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		var round observe.Maintained
		observer := &observe.Observer{Maintained: func(m observe.Maintained) { round = m }}
		return a.serve(ctx, observer, func(db *honker.DB) error {
			err := db.Maintain(ctx, &opts)
			if errors.Is(err, honker.ErrLockHeld) {
				return &coded{code: codeNo, err: err, try: a.command("locks")}
			}
			if err != nil || !opts.Once {
				return err
			}
			return a.maintained(ctx, db, round)
		})
	})
}

// maintained tells the changes of a round, and the readers that kept events from being deleted.
func (a *app) maintained(ctx context.Context, db *honker.DB, round observe.Maintained) error {
	if len(round.Did) == 0 {
		a.note("there was nothing to do")
	}
	for _, c := range round.Did {
		a.note("%s: %s", c.Name, plural(c.N, "row"))
	}
	for _, what := range round.Failed {
		a.note("%s: failed, see the log", what)
	}
	found, err := admin.Problems(ctx, db)
	for _, p := range found {
		if p.Code == admin.ProblemPinned {
			a.note("%s: %s", clean(p.Text), strings.Join(a.commands(p.Actions), ", or "))
		}
	}
	return err
}
