package main

import (
	"context"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// complete suggests values read from the file. After an error it suggests nothing, because a completion can't show
// errors.
func (a *app) complete(cmd *cobra.Command, values func(ctx context.Context, db *honker.DB) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(cmd.Context(), a.patience)
	defer stop()
	a.quiet, a.timeout = true, a.patience
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

// completeJob completes a single job ID, and completeJobIDs completes any number of them. Both suggest the newest
// jobs.
func (a *app) completeJob(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeJobIDs(cmd, args, begun)
}

func (a *app) completeJobIDs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	const newest = 50
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) (offers []string, err error) {
		page, err := admin.ListJobs(ctx, db, admin.JobFilter{}, &admin.PageOptions{Limit: newest})
		if err != nil {
			return nil, err
		}
		for _, job := range page.Jobs {
			what := strings.Join(strings.Fields(clean(job.Queue)), " ") + ", " + string(job.Phase)
			offers = append(offers, strconv.FormatInt(job.ID, 10)+"\t"+what)
		}
		return offers, nil
	})
}

// words returns the names of values, except those that can't be completed in a shell.
func words[T any](values []T, name func(T) string) (offers []string) {
	for _, value := range values {
		if name := name(value); isWord(name) {
			offers = append(offers, name)
		}
	}
	return offers
}

// isWord reports whether a name can be passed to a shell as is. cobra prints each suggestion on a line, with a
// description after a tab.
func isWord(name string) bool { return !strings.ContainsFunc(name, unicode.IsControl) }
