package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// queueLimits is the output form of a queue's limits.
type queueLimits struct {
	Queue  string
	Limits honker.Limits
}

var queueLimitsView = view[queueLimits]{
	columns: []column[queueLimits]{
		{"queue", func(l queueLimits) cell { return text(l.Queue) }},
		{"running", func(l queueLimits) cell { return bound(int64(l.Limits.Running)) }},
		{"per_key", func(l queueLimits) cell { return bound(int64(l.Limits.PerKey)) }},
		{"in_order", func(l queueLimits) cell { return truth(l.Limits.InOrder) }},
		{"rate", func(l queueLimits) cell { return dashed(rateText(l.Limits.Rate)) }},
		{"key_rate", func(l queueLimits) cell { return dashed(rateText(l.Limits.KeyRate)) }},
	},
	name: func(l queueLimits) string { return l.Queue },
}

// bound shows a number, with a dash for 0.
func bound(n int64) cell { return count(honker.Count{N: n}) }

func dashed(s string) cell {
	if s == "" {
		return cell{human: "-"}
	}
	return text(s)
}

// rateText formats a rate in flag syntax: "10/1s", or "10/1s burst 20" if it has a burst.
func rateText(r honker.Rate) string {
	if r.N == 0 {
		return ""
	}
	out := fmt.Sprintf("%d/%s", r.N, admin.FormatSpan(r.Per))
	if r.Burst > 1 {
		out += fmt.Sprintf(" burst %d", r.Burst)
	}
	return out
}

// limitsText formats limits on a single line.
func limitsText(l honker.Limits) string {
	var parts []string
	add := func(there bool, format string, args ...any) {
		if there {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(l.Running != 0, "running %d", l.Running)
	add(l.PerKey != 0, "per key %d", l.PerKey)
	add(l.InOrder, "in order")
	add(l.Rate.N != 0, "rate %s", rateText(l.Rate))
	add(l.KeyRate.N != 0, "key rate %s", rateText(l.KeyRate))
	return strings.Join(parts, ", ")
}

// limiting holds the flags of queue limits.
type limiting struct {
	honker.Limits
	none bool
}

func (a *app) queueLimits() *cobra.Command {
	var l limiting
	cmd := &cobra.Command{
		Use:   "limits QUEUE",
		Short: "Show or set the limits of a queue",
		Long: `limits shows the limits of a queue. With flags it sets the given limits, and keeps the others. 0 removes a limit, and
--none removes all. Limits are stored in the file, and apply to all processes and bindings of honker together.`,
		Example: `  honker queue limits emails --running 10 --rate 100/m
  honker queue limits webhooks --per-key 1 --key-rate 5/s --key-rate-burst 10
  honker queue limits emails --none`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	flags := cmd.Flags()
	flags.IntVar(&l.Running, "running", 0, "maximum number of running jobs")
	flags.IntVar(&l.PerKey, "per-key", 0, "maximum number of running jobs per key")
	flags.BoolVar(&l.InOrder, "in-order", false, "run jobs with the same key one at a time, in the order they were enqueued")
	flags.Var(rateFlag{&l.Rate}, "rate", "maximum rate of starts: 10/s, 100/m, 5/90s")
	flags.IntVar(&l.Rate.Burst, "rate-burst", 0, "maximum number of unused starts to save up")
	flags.Var(rateFlag{&l.KeyRate}, "key-rate", "maximum rate of starts per key: 10/s, 100/m, 5/90s")
	flags.IntVar(&l.KeyRate.Burst, "key-rate-burst", 0, "maximum number of unused starts to save up per key")
	flags.BoolVar(&l.none, "none", false, "remove all limits except those set by other flags")
	a.prints(cmd, queueLimitsView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if _, same := l.over(cmd, honker.Limits{}); same {
			return a.look(ctx, func(db *honker.DB) error {
				a.noteUnknown(ctx, db, args[0])
				return a.showLimits(ctx, db, args[0])
			})
		}
		return a.change(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, args[0])
			was, err := byName(db, args[0]).Limits(ctx)
			if err != nil {
				return err
			}
			limits, _ := l.over(cmd, was)
			if err := byName(db, args[0]).SetLimits(ctx, limits); err != nil {
				return err
			}
			return a.showLimits(ctx, db, args[0])
		})
	})
}

// limitFlags maps flags to the limits they set. Removing a rate also removes its burst.
var limitFlags = []struct {
	name string
	set  func(to *honker.Limits, from honker.Limits)
}{
	{"running", func(to *honker.Limits, from honker.Limits) { to.Running = from.Running }},
	{"per-key", func(to *honker.Limits, from honker.Limits) { to.PerKey = from.PerKey }},
	{"in-order", func(to *honker.Limits, from honker.Limits) { to.InOrder = from.InOrder }},
	{"rate", func(to *honker.Limits, from honker.Limits) { setRate(&to.Rate, from.Rate) }},
	{"rate-burst", func(to *honker.Limits, from honker.Limits) { to.Rate.Burst = from.Rate.Burst }},
	{"key-rate", func(to *honker.Limits, from honker.Limits) { setRate(&to.KeyRate, from.KeyRate) }},
	{"key-rate-burst", func(to *honker.Limits, from honker.Limits) { to.KeyRate.Burst = from.KeyRate.Burst }},
}

func setRate(to *honker.Rate, from honker.Rate) {
	if from.N == 0 {
		*to = honker.Rate{}
		return
	}
	to.N, to.Per = from.N, from.Per
}

// over returns was with the changes from the given flags. same is true if no flag was given.
func (l *limiting) over(cmd *cobra.Command, was honker.Limits) (limits honker.Limits, same bool) {
	limits, same = was, !l.none
	if l.none {
		limits = honker.Limits{}
	}
	for _, flag := range limitFlags {
		if cmd.Flags().Changed(flag.name) {
			flag.set(&limits, l.Limits)
			same = false
		}
	}
	return limits, same
}

func (a *app) showLimits(ctx context.Context, db *honker.DB, queue string) error {
	l, err := byName(db, queue).Limits(ctx)
	if err != nil {
		return err
	}
	return one(a, queueLimitsView, queueLimits{Queue: queue, Limits: l})
}

// rateFlag implements pflag.Value for a rate without its burst.
type rateFlag struct{ r *honker.Rate }

// String implements pflag.Value.
func (f rateFlag) String() string {
	if f.r == nil || f.r.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%s", f.r.N, admin.FormatSpan(f.r.Per))
}

// Type implements pflag.Value.
func (f rateFlag) Type() string { return "rate" }

// Set implements pflag.Value. A unit without a number means 1 unit: 10/s is 10/1s.
func (f rateFlag) Set(s string) error {
	if s == "0" {
		f.r.N, f.r.Per = 0, 0
		return nil
	}
	bad := fmt.Errorf("must be a rate such as 10/s, 100/m or 5/90s, or 0 for none")
	times, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(times)
	if !ok || err != nil || n <= 0 || per == "" {
		return bad
	}
	if per[0] < '0' || per[0] > '9' {
		per = "1" + per
	}
	d, err := parseSpan(per)
	if err != nil || d == 0 {
		return bad
	}
	f.r.N, f.r.Per = n, d
	return nil
}
