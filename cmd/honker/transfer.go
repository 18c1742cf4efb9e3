package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func (a *app) deadExport() *cobra.Command {
	var f filter
	cmd := &cobra.Command{
		Use:   "export [JOB...]",
		Short: "Export dead jobs as JSON Lines",
		Long: `export writes dead jobs to standard output, oldest first, as a line of JSON each. Payloads are written as they are stored.
Without a flag or an id it exports all dead jobs. The jobs stay in the file.`,
		Example: `  honker dead export --queue emails > emails.jsonl
  honker dead discard --queue emails --yes`,
		Annotations: map[string]string{nameless: "yes"},
	}
	f.addTo(a, cmd, true)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if a.format != "" && a.format != formatJSONL {
			return usage("", "an export is JSON Lines, not %s", a.format)
		}
		return a.look(ctx, func(db *honker.DB) error {
			picked, err := a.pickDead(ctx, db, &f, args)
			if err != nil {
				return err
			}
			picked.Phases = []honker.Phase{honker.PhaseDead}
			return a.export(ctx, db, picked)
		})
	})
}

func (a *app) export(ctx context.Context, db *honker.DB, f admin.JobFilter) error {
	var to io.Writer = a.out
	if a.outTerm {
		to = &printableLines{w: a.out}
	}
	n, err := admin.ExportJobs(ctx, db, f, to)
	if err != nil && n > 0 {
		return partly(err, "exported %s", plural(n, "dead job"))
	}
	if err == nil {
		a.note("exported %s", plural(n, "dead job"))
	}
	return err
}

func (a *app) deadImport() *cobra.Command {
	var opts admin.ImportOptions
	var c changing
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Enqueue the jobs of an export",
		Long: `import enqueues the jobs of an export from this file or another. They become new jobs with new ids and all their attempts.
A line needs only a payload, and without --to a queue. Jobs that were imported before are skipped. If a line is not a job, its
transaction is rolled back, and the error says how to continue.`,
		Example: `  honker dead import emails.jsonl -f other.db --dry-run
  honker dead import emails.jsonl -f other.db --to again`,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{nameless: "yes"},
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.dryRun, "dry-run", false, "read and count all lines without enqueueing; the exit code is 10 if something would be enqueued")
	flags.StringVar(&opts.To, "to", "", "enqueue into this `queue`; default that of the line")
	flags.Var(spanFlag{&opts.Delay}, "delay", "delay before dead jobs can run: 30s, 5m")
	flags.IntVar(&opts.Attempts, "attempts", 0, "maximum number of attempts of each job; default max_attempts of the line")
	flags.Int64Var(&opts.Skip, "skip", 0, "skip the first `n` lines, already imported by a failed import")
	must(cmd.RegisterFlagCompletionFunc("to", a.completeQueues))
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		lines, err := a.input(args[0])
		if err != nil {
			return err
		}
		defer lines.Close()
		return a.change(ctx, func(db *honker.DB) error {
			a.noteMisspelled(ctx, db, opts.To)
			v := verb{name: "import", done: "imported", what: "job", do: func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				opts.DryRun = dryRun
				return admin.ImportJobs(ctx, db, interruptible(ctx, lines), &opts)
			}}
			return a.transfer(ctx, v, c.dryRun)
		})
	})
}

// transfer applies v without asking for confirmation, because v does not change existing rows.
func (a *app) transfer(ctx context.Context, v verb, dryRun bool) error {
	if !dryRun {
		return a.act(ctx, v)
	}
	would, err := v.do(ctx, true)
	if err != nil {
		return err
	}
	return a.wouldDo(v, would)
}

// input opens the file at path, or standard input for "-".
func (a *app) input(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.stdin), nil
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usage("", "%s: no such file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the lines: %w", err)
	}
	return file, nil
}

// interruptible returns a reader that reads from r and fails when ctx ends. A read from a terminal or a pipe ignores
// ctx, so its goroutine ends only when r or the process does.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	}()
	return out
}
