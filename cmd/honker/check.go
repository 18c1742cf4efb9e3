package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// brokenRule is a violated rule of the file format.
type brokenRule struct{ Rule string }

var ruleView = view[brokenRule]{
	columns: []column[brokenRule]{{"rule", func(r brokenRule) cell { return text(r.Rule) }}},
	name:    func(r brokenRule) string { return r.Rule },
}

func (a *app) check() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify the file: SQLite's integrity and honker's own rules",
		Long: `check runs SQLite's integrity check, and then checks honker's own rules, such as that a job is either live or dead. It
reads the whole file without blocking writers. It prints the violated rules, and exits with code 1 if there are any.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, ruleView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			err := db.Check(ctx)
			var broken *honker.BrokenError
			if err != nil && !errors.As(err, &broken) {
				return err
			}
			return a.listBroken(broken)
		})
	})
}

func (a *app) listBroken(broken *honker.BrokenError) error {
	l, err := newList(a, ruleView)
	if err != nil {
		return err
	}
	if broken == nil {
		return l.close("broken rules: the file is sound")
	}
	for _, rule := range broken.Rules {
		if err := l.add(brokenRule{rule}); err != nil {
			return err
		}
	}
	if err := l.close(""); err != nil {
		return err
	}
	return no()
}
