package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// Kinds of limits.
const (
	limitOfQueue = "queue"
	limitOfRate  = "rate"
)

// limit is a limit on a queue's jobs or on the calls admitted by a rate limit.
type limit struct {
	Kind   string
	Name   string
	Limits *honker.Limits // of a queue
	Used   honker.Count   // running jobs, or admitted calls
	Since  time.Time      // start of a rate limit's latest window, which may be over
}

var limitView = view[limit]{
	columns: []column[limit]{
		{"kind", func(l limit) cell { return text(l.Kind) }},
		{"name", func(l limit) cell { return text(l.Name) }},
		{"used", func(l limit) cell { return count(l.Used) }},
		{"since", func(l limit) cell { return when(l.Since) }},
		{"limits", func(l limit) cell {
			if l.Limits == nil {
				return cell{}
			}
			return text(limitsText(*l.Limits))
		}},
	},
	name: func(l limit) string { return l.Name },
}

func (a *app) limits() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "List limits of queues, and rate limits in use",
		Long: `limits lists the queues with limits and the number of their running jobs, and the rate limits with the number of calls
admitted in their last window. The file does not contain the bound of a rate limit, which is set by the program.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, limitView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			l, err := newList(a, limitView)
			if err != nil {
				return err
			}
			if err := eachLimit(ctx, db, l.add); err != nil {
				return err
			}
			return l.close("limits")
		})
	})
}

func eachLimit(ctx context.Context, db *honker.DB, do func(limit) error) error {
	queues, err := admin.LimitedQueues(ctx, db)
	if err != nil {
		return err
	}
	for _, q := range queues {
		if err := do(limit{Kind: limitOfQueue, Name: q.Queue, Limits: &q.Limits, Used: q.Running}); err != nil {
			return err
		}
	}
	rates, err := admin.RateLimits(ctx, db)
	if err != nil {
		return err
	}
	for _, r := range rates {
		if err := do(limit{Kind: limitOfRate, Name: r.Name, Used: honker.Count{N: r.Count}, Since: r.Start}); err != nil {
			return err
		}
	}
	return nil
}
