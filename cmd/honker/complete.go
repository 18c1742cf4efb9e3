package main

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// patience bounds what a completion waits for: a person has pressed a key.
const patience = time.Second

// complete offers values from the file. Whatever goes wrong offers none: a completion has no place for
// an error.
func (a *app) complete(cmd *cobra.Command, values func(ctx context.Context, db *honker.DB) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(cmd.Context(), patience)
	defer stop()
	a.quiet, a.timeout = true, patience
	var offers []string
	err := a.look(ctx, func(db *honker.DB) (err error) {
		offers, err = values(ctx, db)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// isWord reports that a shell can be given a name as it is: cobra has a line for each offer, and a
// description behind a tab.
func isWord(name string) bool { return !strings.ContainsFunc(name, unicode.IsControl) }
