package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var minuteView = view[admin.Minute]{
	columns: []column[admin.Minute]{
		{"start", func(m admin.Minute) cell { return at(m.Start) }},
		{"enqueued", func(m admin.Minute) cell { return bound(m.Enqueued) }},
		{"claimed", func(m admin.Minute) cell { return bound(m.Claimed) }},
		{"acked", func(m admin.Minute) cell { return bound(m.Acked) }},
		{"retried", func(m admin.Minute) cell { return bound(m.Retried) }},
		{"died", func(m admin.Minute) cell { return bound(m.Died) }},
		{"snoozed", func(m admin.Minute) cell { return bound(m.Snoozed) }},
		{"mean_wait", func(m admin.Minute) cell { return mean(m.Wait, m.Claimed) }},
		{"max_wait", func(m admin.Minute) cell { return took(m.MaxWait) }},
		{"mean_ran", func(m admin.Minute) cell { return mean(m.Ran, m.Acked+m.Retried+m.Died) }},
	},
	name: func(m admin.Minute) string { return m.Start.UTC().Format(time.RFC3339) },
}

// mean shows sum divided by n.
func mean(sum time.Duration, n int64) cell {
	if n == 0 {
		return cell{human: "-", right: true}
	}
	return took(sum / time.Duration(n))
}

// took shows a measured duration. Programs get milliseconds.
func took(d time.Duration) cell {
	return cell{human: admin.FormatSpan(admin.RoundSpan(d)), raw: d.Round(time.Millisecond).String(), right: true}
}

func (a *app) queueTraffic() *cobra.Command {
	since, step := time.Hour, time.Minute
	cmd := &cobra.Command{
		Use:   "traffic [QUEUE]",
		Short: "Show the traffic of a queue per minute",
		Long: `traffic shows the traffic of a queue, or of all queues, per minute: the number of jobs enqueued, claimed and settled, how
long jobs were ready before they were claimed, and how long their handlers ran. Minutes without traffic are omitted. The file
keeps seven days.`,
		Example: `  honker queue traffic emails --since 1d --step 1h
  honker queue traffic -o jsonl`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	cmd.Flags().Var(spanFlag{&since}, "since", "start this long ago, at most 7d")
	cmd.Flags().Var(spanFlag{&step}, "step", "add up the minutes of each span: 10m, 1h, 1d")
	a.prints(cmd, minuteView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if step < time.Minute || step%time.Minute != 0 {
			return usage("", "--step %v is not a number of whole minutes", step)
		}
		queue := ""
		if len(args) > 0 {
			queue = args[0]
		}
		return a.look(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, queue)
			minutes, err := admin.Traffic(ctx, db, queue, time.Now().Add(-since))
			if err != nil {
				return err
			}
			return many(a, minuteView, inSteps(minutes, step), "traffic in this time")
		})
	})
}

// inSteps adds up the minutes within each step. Steps begin at multiples of step in UTC.
func inSteps(minutes []admin.Minute, step time.Duration) []admin.Minute {
	var out []admin.Minute
	for _, m := range minutes {
		m.Start = m.Start.Truncate(step)
		if n := len(out); n > 0 && out[n-1].Start.Equal(m.Start) {
			out[n-1] = plus(out[n-1], m)
			continue
		}
		out = append(out, m)
	}
	return out
}

func plus(x, y admin.Minute) admin.Minute {
	x.Enqueued += y.Enqueued
	x.Claimed += y.Claimed
	x.Acked += y.Acked
	x.Retried += y.Retried
	x.Died += y.Died
	x.Snoozed += y.Snoozed
	x.Wait += y.Wait
	x.Ran += y.Ran
	x.MaxWait = max(x.MaxWait, y.MaxWait)
	return x
}
