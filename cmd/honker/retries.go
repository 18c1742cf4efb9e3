package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// retryView shows a kind of retries.
var retryView = view[admin.RetryGroup]{
	columns: []column[admin.RetryGroup]{
		{"fingerprint", func(g admin.RetryGroup) cell { return text(g.Fingerprint) }},
		{"queue", func(g admin.RetryGroup) cell { return text(g.Queue) }},
		{"n", func(g admin.RetryGroup) cell { return number(g.N) }},
		{"sample", func(g admin.RetryGroup) cell { return long(g.Sample) }},
	},
	name: func(g admin.RetryGroup) string { return g.Fingerprint },
}

// mostRetries is the maximum number of jobs that are grouped.
const mostRetries = 10_000

func (a *app) jobGroups() *cobra.Command {
	var f admin.JobFilter
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Group jobs that wait for another attempt by queue and kind of error",
		Long: `groups groups the jobs that have failed and wait for another attempt, by queue and kind of their last error, largest group
first. It finds the cause of failures before the jobs die. The kinds are those of honker dead groups. groups examines only the
newest 10,000 such jobs.`,
		Example: `  honker jobs groups
  honker jobs groups --queue emails`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.Queues, "queue", nil, "jobs of this `queue`; can be repeated")
	flags.StringVar(&f.Error, "error", "", "jobs whose last error contains this `text`")
	must(cmd.RegisterFlagCompletionFunc("queue", a.completeQueues))
	a.prints(cmd, retryView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			r, err := admin.RetryGroups(ctx, db, f, mostRetries, time.Second)
			if err != nil {
				return err
			}
			if r.Looked.More {
				a.note("only %s were examined; there may be more", plural(r.Looked.N, "job"))
			}
			return many(a, retryView, r.Groups, "jobs that wait for another attempt")
		})
	})
}
