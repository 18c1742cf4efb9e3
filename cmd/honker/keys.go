package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

var keyView = view[honker.KeyStats]{
	columns: []column[honker.KeyStats]{
		{"key", func(k honker.KeyStats) cell { return text(k.Key) }},
		{"running", func(k honker.KeyStats) cell { return bound(k.Running) }},
		{"cancelled", func(k honker.KeyStats) cell { return bound(k.Cancelled) }},
		{"held", func(k honker.KeyStats) cell { return bound(k.Held) }},
		{"waiting", func(k honker.KeyStats) cell { return bound(k.Waiting) }},
		{"oldest", func(k honker.KeyStats) cell { return when(k.Oldest) }},
		{"paused", func(k honker.KeyStats) cell { return paused(k.Pause) }},
	},
	name: func(k honker.KeyStats) string { return k.Key },
}

func (a *app) queueKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys QUEUE",
		Short: "Show the jobs of a queue by key",
		Long: `keys shows the number of jobs for each key of a queue, and which keys are paused. Jobs with the same key share limits. Keys
with the most held jobs come first. Cancelled jobs hold a place
until their handlers have returned. It shows at most 1,000 keys.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	a.prints(cmd, keyView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, args[0])
			keys, err := byName(db, args[0]).Keys(ctx)
			if err != nil {
				return err
			}
			return many(a, keyView, keys, "keys with jobs or a pause")
		})
	})
}

// completeKeys completes a job key in the queue named by the first argument.
func (a *app) completeKeys(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		keys, err := byName(db, args[0]).Keys(ctx)
		return words(keys, func(k honker.KeyStats) string { return k.Key }), err
	})
}
