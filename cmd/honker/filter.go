package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// filter holds the flags that select jobs.
type filter struct {
	admin.JobFilter
	phases, where, headers []string
}

// addTo adds the flags for dead jobs, or for jobs of all phases.
func (f *filter) addTo(a *app, cmd *cobra.Command, dead bool) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.Queues, "queue", nil, "jobs of this `queue`; can be repeated")
	flags.StringVar(&f.Error, "error", "", "jobs whose last error contains this `text`")
	flags.StringVar(&f.Contains, "contains", "", "jobs whose stored payload contains this `text`")
	flags.StringArrayVar(&f.where, "where", nil, "jobs with this `field=value` in the payload, such as order.id=17; can be repeated")
	flags.StringArrayVar(&f.headers, "header", nil, "jobs with this header `name=value`; can be repeated")
	flags.StringVar(&f.Key, "key", "", "jobs with this limit `key`")
	flags.StringVar(&f.Unique, "unique", "", "jobs with this unique `key`")
	flags.Int64Var(&f.Batch, "batch", 0, "jobs of the batch with this `id`")
	flags.IntVar(&f.MinAttempts, "min-attempts", 0, "jobs claimed at least `n` times")
	flags.Var(ago(&f.CreatedSince), "created-since", "jobs enqueued at or after this `time`, or within this span: 2h, 7d")
	flags.Var(ago(&f.CreatedBefore), "created-before", "jobs enqueued before this `time`, or longer ago than this span")
	flags.StringVar(&f.Fingerprint, "group", "", "jobs in this `group` of honker dead groups; a unique prefix is enough")
	flags.Var(ago(&f.DiedSince), "died-since", "jobs that died at or after this `time`, or within this span: 2h, 7d")
	flags.Var(ago(&f.DiedBefore), "died-before", "jobs that died before this `time`, or longer ago than this span")
	must(cmd.RegisterFlagCompletionFunc("queue", a.completeQueues))
	must(cmd.RegisterFlagCompletionFunc("group", a.completeGroups))
	if dead {
		return
	}
	flags.StringSliceVar(&f.phases, "phase", nil, "jobs in these `phases`: "+strings.Join(phases, ", "))
	flags.StringVar(&f.Worker, "worker", "", "jobs held by this `worker`")
	flags.Var(ago(&f.RunSince), "run-since", "jobs due at or after this `time`, or within this span")
	flags.Var(ago(&f.RunBefore), "run-before", "jobs due before this `time`, or longer ago than this span")
	addRequeue(cmd, &f.Requeue)
	must(cmd.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp)))
}

func addRequeue(cmd *cobra.Command, entry *int64) {
	cmd.Flags().Int64Var(entry, "requeue", 0, "jobs requeued by this `entry` of honker audit that have used no attempt since")
}

var phases = []string{
	string(honker.PhaseReady), string(honker.PhaseScheduled), string(honker.PhaseRunning), string(honker.PhaseLapsed),
	string(honker.PhaseHeld), string(honker.PhaseExpired), string(honker.PhaseDead), string(honker.PhaseDone),
}

// pick returns the filter, including the IDs given as arguments.
func (f *filter) pick(args []string) (admin.JobFilter, error) {
	for _, phase := range f.phases {
		f.Phases = append(f.Phases, honker.Phase(phase))
	}
	var bad [3]error
	f.Where, bad[0] = pairs("--where", f.where)
	f.Header, bad[1] = pairs("--header", f.headers)
	f.IDs, bad[2] = idsOf(args)
	return f.JobFilter, errors.Join(bad[:]...)
}

func pairs(flag string, texts []string) (map[string]string, error) {
	if texts == nil {
		return nil, nil
	}
	out := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usage("", "%s %q must be a name and a value, such as order.id=17", flag, text)
		}
		out[name] = value
	}
	return out, nil
}

func idsOf(args []string) ([]int64, error) { return numbersOf(args, "the id of a job") }

func numbersOf(args []string, what string) ([]int64, error) {
	var numbers []int64
	for _, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return nil, usage("", "%q is not %s", arg, what)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// instant implements pflag.Value for a time: RFC 3339, a date, or a span relative to now.
type instant struct {
	t    *time.Time
	sign time.Duration // -1 if spans are in the past
}

func ago(t *time.Time) instant     { return instant{t, -1} }
func fromNow(t *time.Time) instant { return instant{t, 1} }

// String implements pflag.Value.
func (i instant) String() string {
	if i.t == nil || i.t.IsZero() {
		return ""
	}
	return i.t.Format(time.RFC3339)
}

// Type implements pflag.Value.
func (i instant) Type() string { return "time" }

// Set implements pflag.Value.
func (i instant) Set(text string) error {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			*i.t = t
			return nil
		}
	}
	d, err := parseSpan(text)
	if err != nil {
		return fmt.Errorf("must be a time such as 2026-11-23T09:00:00Z or 2026-11-23, or a span such as 30m or 7d")
	}
	*i.t = time.Now().Add(i.sign * d)
	return nil
}

// spanFlag implements pflag.Value for a duration, which may be given in days.
type spanFlag struct{ d *time.Duration }

// String implements pflag.Value.
func (s spanFlag) String() string {
	if s.d == nil || *s.d == 0 {
		return ""
	}
	return admin.FormatSpan(*s.d)
}

// Type implements pflag.Value.
func (s spanFlag) Type() string { return "span" }

// Set implements pflag.Value.
func (s spanFlag) Set(text string) error {
	d, err := parseSpan(text)
	if err == nil {
		*s.d = d
	}
	return err
}

// parseSpan parses the value of a span flag.
func parseSpan(text string) (time.Duration, error) {
	d, err := admin.ParseSpan(text)
	if err != nil {
		return 0, errors.New("must be a span such as 90s, 30m, 2h or 7d")
	}
	return d, nil
}
