package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// schedule is the output form of honker.ScheduleInfo.
type schedule struct {
	Name        string
	Queue       string
	Spec        string
	Payload     json.RawMessage
	Priority    int
	MaxAttempts int
	ExpiresIn   time.Duration
	Missed      string
	Enabled     bool
	NextFireAt  time.Time
	LastFireAt  time.Time
	LastJob     int64
	LastPhase   honker.Phase
	LastSkipAt  time.Time
	Skipped     int64
}

// missedWords are the values of --missed.
var missedWords = []string{honker.FireAll: "all", honker.FireLast: "last", honker.Skip: "skip"}

func scheduleOf(s admin.ScheduleReport) schedule {
	missed := fmt.Sprint(int(s.Missed)) // value written by a newer version
	if int(s.Missed) < len(missedWords) {
		missed = missedWords[s.Missed]
	}
	return schedule{
		Name: s.Name, Queue: s.Queue, Spec: s.Spec, Payload: s.Payload, Priority: s.Priority, MaxAttempts: s.MaxAttempts,
		ExpiresIn: s.ExpiresIn, Missed: missed, Enabled: s.Enabled, NextFireAt: s.NextFireAt,
		LastFireAt: s.LastFireAt, LastJob: s.LastJob, LastPhase: s.LastPhase, LastSkipAt: s.LastSkipAt, Skipped: s.Skipped,
	}
}

// scheduleView shows schedules in a list, and scheduleWhole shows a single schedule.
var (
	scheduleView = view[schedule]{columns: []column[schedule]{
		{"name", func(s schedule) cell { return text(s.Name) }},
		{"queue", func(s schedule) cell { return text(s.Queue) }},
		{"spec", func(s schedule) cell { return text(s.Spec) }},
		{"enabled", func(s schedule) cell { return enabled(s.Enabled) }},
		{"next_fire_at", func(s schedule) cell { return when(s.NextFireAt).in(lateColor(s.NextFireAt)) }},
		{"last_fire_at", func(s schedule) cell { return when(s.LastFireAt) }},
		{"last_phase", lastPhase},
		{"last_skip_at", func(s schedule) cell { return when(s.LastSkipAt) }},
	}, name: scheduleName}
	scheduleWhole = view[schedule]{columns: append(scheduleView.columns[:len(scheduleView.columns):len(scheduleView.columns)],
		column[schedule]{"last_job", func(s schedule) cell { return id(s.LastJob) }},
		column[schedule]{"skipped", func(s schedule) cell { return number(s.Skipped) }},
		column[schedule]{"missed", func(s schedule) cell { return text(s.Missed) }},
		column[schedule]{"priority", func(s schedule) cell { return number(int64(s.Priority)) }},
		column[schedule]{"max_attempts", func(s schedule) cell { return number(int64(s.MaxAttempts)) }},
		column[schedule]{"expires_in", func(s schedule) cell { return dashed(expiry(s.ExpiresIn)) }},
		column[schedule]{"payload", func(s schedule) cell { return text(string(s.Payload)) }},
	), name: scheduleName}
)

func scheduleName(s schedule) string { return s.Name }

// lastPhase highlights dead jobs.
func lastPhase(s schedule) cell {
	c := dashed(string(s.LastPhase))
	if s.LastPhase == honker.PhaseDead {
		c = c.in(red)
	}
	return c
}

// enabled highlights paused schedules.
func enabled(yes bool) cell {
	if yes {
		return truth(true)
	}
	c := truth(false)
	c.human = "paused"
	return c.in(yellow)
}

func expiry(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return admin.FormatSpan(d)
}

func (a *app) schedules() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedules",
		Short:   "List schedules and when each fires next",
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, scheduleView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			infos, err := admin.Schedules(ctx, db)
			if err != nil {
				return err
			}
			l, err := newList(a, scheduleView)
			if err != nil {
				return err
			}
			for _, s := range infos {
				if err := l.add(scheduleOf(s)); err != nil {
					return err
				}
			}
			if err := l.close("schedules"); err != nil || l.n == 0 {
				return err
			}
			leaders, err := admin.Leaders(ctx, db)
			if err == nil && leaders.Scheduler == nil {
				a.note("no process fires schedules at the moment")
			}
			return err
		})
	})
}

func (a *app) schedule() *cobra.Command {
	return parent("schedule", "Add, show, trigger, pause, resume and remove schedules", groupChange,
		a.scheduleAdd(), a.scheduleShow(), a.scheduleTrigger(), a.schedulePause(), a.scheduleResume(), a.scheduleRm(), a.scheduleNext())
}

// findSchedule returns the schedule with this name. If there is none, the error has codeNo.
func (a *app) findSchedule(ctx context.Context, db *honker.DB, name string) (schedule, error) {
	infos, err := admin.Schedules(ctx, db)
	if err != nil {
		return schedule{}, err
	}
	for _, s := range infos {
		if s.Name == name {
			return scheduleOf(s), nil
		}
	}
	return schedule{}, &coded{code: codeNo, err: fmt.Errorf("no schedule %q", name), try: a.command("schedules")}
}

func (a *app) scheduleAdd() *cobra.Command {
	var s honker.Schedule
	missed := missedWords[honker.FireAll]
	cmd := &cobra.Command{
		Use:   "add NAME QUEUE SPEC [JSON]",
		Short: "Add or change a schedule",
		Long: `add adds a schedule, or changes an existing schedule with this name. Each time that SPEC is due, a job with this payload, or
null, is enqueued. SPEC has the fields minute, hour, day of month, month and day of week, optionally preceded by seconds. Specs
such as "@daily" and "@every 90s" are allowed too. Times are in the local zone of the process that fires schedules. Some
process must do so, by Scheduler.Run of the library.`,
		Example: `  honker schedule add nightly reports '30 2 * * *' '{"kind": "nightly"}'
  honker schedule add poll feeds '@every 90s' --missed skip`,
		Args:              cobra.RangeArgs(3, 4),
		ValidArgsFunction: a.completeSchedule,
	}
	flags := cmd.Flags()
	flags.IntVar(&s.Priority, "priority", 0, "priority of each job; larger numbers run first")
	flags.IntVar(&s.MaxAttempts, "max-attempts", 0, "maximum number of attempts of each job; default 25")
	flags.Var(spanFlag{&s.ExpiresIn}, "expires-in", "do not start a job later than this after it was due")
	flags.StringVar(&missed, "missed", missed, "how to handle missed times: "+strings.Join(missedWords, ", "))
	must(cmd.RegisterFlagCompletionFunc("missed", cobra.FixedCompletions(missedWords, cobra.ShellCompDirectiveNoFileComp)))
	a.prints(cmd, scheduleWhole)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		s.Name, s.Queue, s.Spec = args[0], args[1], args[2]
		if len(args) > 3 {
			if !json.Valid([]byte(args[3])) {
				return usage("", "%q is not JSON", args[3])
			}
			s.Payload = json.RawMessage(args[3])
		}
		word := slices.Index(missedWords, missed)
		if word < 0 {
			return usage("", "--missed %q must be one of %s", missed, strings.Join(missedWords, ", "))
		}
		s.Missed = honker.Missed(word)
		return a.change(ctx, func(db *honker.DB) error {
			a.noteMisspelled(ctx, db, s.Queue)
			if err := db.Scheduler().Register(ctx, s); err != nil {
				return err
			}
			added, err := a.findSchedule(ctx, db, s.Name)
			if err != nil {
				return err
			}
			return one(a, scheduleWhole, added)
		})
	})
}

func (a *app) scheduleShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show all details of a schedule",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSchedule,
	}
	a.prints(cmd, scheduleWhole)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			s, err := a.findSchedule(ctx, db, args[0])
			if err != nil {
				return err
			}
			return one(a, scheduleWhole, s)
		})
	})
}

func (a *app) scheduleTrigger() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "trigger NAME",
		SuggestFor:        []string{"run", "fire"},
		Short:             "Enqueue the job of a schedule now, in addition to the regular times",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSchedule,
	}
	a.prints(cmd, placedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			s, err := a.findSchedule(ctx, db, args[0])
			if err != nil {
				return err
			}
			id, err := db.Scheduler().Trigger(ctx, s.Name)
			if err != nil {
				return missing(err, a.command("schedules"))
			}
			return one(a, placedView, placed{ID: id, Queue: s.Queue, Result: string(honker.PlacedNew)})
		})
	})
}

func (a *app) schedulePause() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "pause NAME",
		SuggestFor:        []string{"stop", "disable"},
		Short:             "Stop a schedule from firing, until resume",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSchedule,
	}
	return a.steersSchedule(cmd, func(ctx context.Context, s *honker.Scheduler, name string) (bool, error) { return s.Pause(ctx, name) })
}

func (a *app) scheduleResume() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "resume NAME",
		SuggestFor:        []string{"start", "enable"},
		Short:             "Resume a paused schedule, and catch up on missed times according to its --missed",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSchedule,
	}
	return a.steersSchedule(cmd, func(ctx context.Context, s *honker.Scheduler, name string) (bool, error) { return s.Resume(ctx, name) })
}

// steersSchedule makes cmd call do for a schedule and show the result. It isn't an error if the schedule is already
// in the desired state.
func (a *app) steersSchedule(cmd *cobra.Command, do func(ctx context.Context, s *honker.Scheduler, name string) (bool, error)) *cobra.Command {
	a.prints(cmd, scheduleView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			changed, err := do(ctx, db.Scheduler(), args[0])
			if err != nil {
				return err
			}
			s, err := a.findSchedule(ctx, db, args[0])
			if err != nil {
				return err
			}
			if !changed {
				a.note("nothing to change")
			}
			return one(a, scheduleView, s)
		})
	})
}

// unscheduled reports the name of a removed schedule.
type unscheduled struct{ Name string }

var unscheduledView = view[unscheduled]{
	columns: []column[unscheduled]{{"name", func(u unscheduled) cell { return text(u.Name) }}},
	name:    func(u unscheduled) string { return u.Name },
}

func (a *app) scheduleRm() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm NAME",
		SuggestFor:        []string{"delete", "remove"},
		Short:             "Remove a schedule, but not the jobs it has enqueued",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSchedule,
	}
	a.prints(cmd, unscheduledView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			if _, err := a.findSchedule(ctx, db, args[0]); err != nil {
				return err
			}
			if _, err := db.Scheduler().Unregister(ctx, args[0]); err != nil {
				return err
			}
			return one(a, unscheduledView, unscheduled{args[0]})
		})
	})
}

// fire is a time at which a schedule is due.
type fire struct{ At time.Time }

var fireView = view[fire]{
	columns: []column[fire]{{"at", func(f fire) cell {
		c := when(f.At)
		c.human = f.At.Local().Format("Mon 2006-01-02 15:04:05 MST") + " (" + c.human + ")"
		return c
	}}},
	name: func(f fire) string { return f.At.UTC().Format(time.RFC3339) },
}

func (a *app) scheduleNext() *cobra.Command {
	n := 5
	cmd := &cobra.Command{
		Use:   "next NAME|SPEC",
		Short: "Print the next times of a schedule or of a spec",
		Long: `next prints when a schedule of the file fires next, or when a spec is due. A spec needs no file. Times are in the local
zone of this process: TZ=Europe/Berlin honker schedule next '30 2 * * *'.`,
		Example: `  honker schedule next nightly
  honker schedule next '0 9 * * 1-5' -n 10`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSchedule,
	}
	cmd.Flags().IntVarP(&n, "times", "n", n, "number of times to print, 1 to 1000")
	a.prints(cmd, fireView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if n < 1 || n > 1000 {
			return usage("", "-n %d is not between 1 and 1000", n)
		}
		if isSpec(args[0]) {
			times, err := nextOfSpec(args[0], n)
			if err != nil {
				return err
			}
			return a.listFires(times)
		}
		return a.look(ctx, func(db *honker.DB) error {
			times, err := db.Scheduler().Next(ctx, args[0], n)
			if err != nil {
				return missing(err, a.command("schedules"))
			}
			return a.listFires(times)
		})
	})
}

// isSpec reports whether s is a spec rather than a schedule's name.
func isSpec(s string) bool {
	const digits = "*0123456789"
	return strings.HasPrefix(s, "@") || len(strings.Fields(s)) >= 5 && strings.ContainsAny(s[:1], digits)
}

func nextOfSpec(spec string, n int) (times []time.Time, err error) {
	for at := time.Now(); len(times) < n; {
		if at, err = honker.NextAfter(spec, at); err != nil {
			return nil, err
		}
		times = append(times, at)
	}
	return times, nil
}

func (a *app) listFires(times []time.Time) error {
	fires := make([]fire, len(times))
	for i, t := range times {
		fires[i] = fire{t}
	}
	return many(a, fireView, fires, "times")
}

func (a *app) completeSchedule(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "add" && len(args) == 1 {
		return a.completeQueues(cmd, args, begun)
	}
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		infos, err := db.Scheduler().List(ctx)
		return words(infos, func(s honker.ScheduleInfo) string { return s.Name }), err
	})
}
