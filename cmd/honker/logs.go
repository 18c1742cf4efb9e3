package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// attemptView shows a failed attempt, with its log as a single value.
var attemptView = view[admin.Attempt]{
	columns: []column[admin.Attempt]{
		{"n", func(t admin.Attempt) cell { return number(int64(t.N)) }},
		{"worker", func(t admin.Attempt) cell { return text(t.Worker) }},
		{"start", func(t admin.Attempt) cell { return at(t.Start) }},
		{"ran", func(t admin.Attempt) cell { return text(t.Ran.String()) }},
		{"error", func(t admin.Attempt) cell { return text(t.Error) }},
		{"log", func(t admin.Attempt) cell { return text(t.Log) }},
	},
	name: func(t admin.Attempt) string { return strconv.Itoa(t.N) },
}

func (a *app) jobLogs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Show failed attempts of a job, with their logs",
		Long: `logs prints the last 20 failed attempts of a job. Each attempt has a line, followed by its error and the log of its handler,
indented. With --output, attempts are printed as values like in other lists.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeJob,
	}
	a.prints(cmd, attemptView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := idsOf(args)
		if err != nil {
			return err
		}
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Attempts(ctx, db, ids[0])
			if errors.Is(err, honker.ErrNotFound) {
				return &coded{code: codeNo, err: fmt.Errorf("no live or dead job %d", ids[0]), try: a.command("jobs")}
			}
			if err != nil {
				return err
			}
			return a.printAttempts(all)
		})
	})
}

// printAttempts prints attempts for people to read, unless a format was requested.
func (a *app) printAttempts(all []admin.Attempt) error {
	if a.format != "" || a.columns != nil || len(all) == 0 {
		return many(a, attemptView, all, "failed attempts")
	}
	for _, t := range all {
		_, err := fmt.Fprintf(a.out, "attempt %d by %s, %s, ran %s\n", t.N, clean(t.Worker), t.Start.UTC().Format(time.RFC3339), t.Ran)
		if err != nil {
			return err
		}
		for line := range strings.Lines(t.Error + "\n" + t.Log) {
			if _, err := fmt.Fprintln(a.out, strings.TrimRight("  "+clean(strings.TrimSuffix(line, "\n")), " ")); err != nil {
				return err
			}
		}
	}
	return nil
}
