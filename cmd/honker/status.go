package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// levelNone is the value of --fail-on with which the command never fails.
const levelNone = "none"

// status is a summary of the file and its problems.
type status struct {
	File     string // "" for a server
	Problems []problem
	Queues   []honker.QueueStats
	AsOf     time.Time
}

func (a *app) status() *cobra.Command {
	failOn := []string{string(admin.SeverityError)}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show problems, and the state of each queue",
		Long: `status shows problems with the file, combined by kind, and the state of each queue. It exits with code 1 if there is a problem of a severity
in --fail-on. Use honker doctor for explanations of the problems.

As tsv, status prints problems and queues as two tables, separated by an empty line. With --columns it prints only the
problems. As JSON Lines, problems are the lines with a severity, and all other lines are queues.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&failOn, "fail-on", failOn, "exit with code 1 for problems of these `severities`: error, warn, none")
	must(cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(
		[]string{string(admin.SeverityError), string(admin.SeverityWarn), levelNone}, cobra.ShellCompDirectiveNoFileComp)))
	a.prints(cmd, problemView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		fails, err := failing(failOn)
		if err != nil {
			return err
		}
		return a.look(ctx, func(db *honker.DB) error {
			s, groups, err := a.statusOf(ctx, db)
			if err != nil {
				return err
			}
			if err := errors.Join(a.printStatus(s, groups), a.noteLarge(ctx, db)); err != nil {
				return err
			}
			if slices.ContainsFunc(s.Problems, fails) {
				return no()
			}
			return nil
		})
	})
}

// failing returns a function that reports whether a problem is at least as severe as any of the levels.
func failing(levels []string) (func(problem) bool, error) {
	const failed, warned = string(admin.SeverityError), string(admin.SeverityWarn)
	for _, level := range levels {
		if level != failed && level != warned && level != levelNone {
			return nil, usage("honker status --fail-on warn", "--fail-on %q must be one of error, warn, none", level)
		}
	}
	return func(p problem) bool {
		return slices.Contains(levels, p.Severity) || p.Severity == failed && slices.Contains(levels, warned)
	}, nil
}

// statusOf returns the status, and its problems in groups.
func (a *app) statusOf(ctx context.Context, db *honker.DB) (s *status, groups []problemGroup, err error) {
	s = &status{AsOf: time.Now()}
	if !a.onServer() {
		d, _ := a.database(ctx)
		s.File = d.path
	}
	if s.Queues, err = admin.Queues(ctx, db); err != nil {
		return nil, nil, err
	}
	groups, err = a.problems(ctx, db)
	s.Problems = ungroup(groups)
	return s, groups, err
}

// printStatus prints a single document for JSON. In the other formats, the queues follow the problems; tsv and name
// have an empty line in between. --columns selects columns of the problems, and omits the queues.
func (a *app) printStatus(s *status, groups []problemGroup) error {
	switch {
	case a.shown() == formatJSON:
		return writeJSON(a.out, s, "  ")
	case a.sentences():
		for _, g := range groups {
			if err := a.printProblems(g, s.AsOf); err != nil {
				return err
			}
			if do := g.do(); len(do) > 0 {
				fmt.Fprintln(a.out, indented(do[0]))
			}
			fmt.Fprintln(a.out)
		}
		if len(s.Problems) == 0 {
			a.note("no problems")
		}
		return a.listQueues(s.Queues)
	}
	if err := a.listProblems(s.Problems); err != nil || a.columns != nil {
		return err
	}
	if a.shown() != formatJSONL {
		fmt.Fprintln(a.out)
	}
	return a.listQueues(s.Queues)
}
