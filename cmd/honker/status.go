package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// The levels of problems.
const (
	levelError = "error" // work is not being done: it cannot wait for the morning
	levelWarn  = "warn"  // something has failed, or was stopped on purpose
	levelNone  = "none"
)

// problem is what an operator should know.
type problem struct {
	Level string
	Code  string // what scripts compare
	Name  string // of the queue or schedule
	What  string // a sentence
	Since time.Time
	Try   string // the next command
}

// status is what lies in the file, and what is wrong.
type status struct {
	File     string
	Problems []problem
	Queues   []honker.QueueStats
	AsOf     time.Time
}

func (a *app) status() *cobra.Command {
	failOn, late := []string{levelError}, 5*time.Minute
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What is wrong, and what lies in each queue",
		Long: `status shows what is wrong, and what lies in each queue. The exit code is 1 if there is a problem of the level
of --fail-on.

Errors, for which work is not being done:
  late      a job could have run for longer than --late, and the queue is not paused: no worker, or too few
  lapsed    claims ran out a minute ago: a worker died or hangs, and no other one has taken its jobs up
  overdue   a schedule was to fire a minute ago: no process runs the scheduler

Warnings, for which something has failed or was stopped:
  dead      dead letters
  expired   jobs that can run no more, and no claim or maintenance has dead-lettered them yet
  paused    a queue is paused`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&failOn, "fail-on", failOn, "the `levels` for which the exit code is 1: error, warn, none")
	cmd.Flags().Var(spanFlag{&late}, "late", "a job that has been ready for longer is late")
	must(cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{levelError, levelWarn, levelNone}, cobra.ShellCompDirectiveNoFileComp)))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		fails, err := failing(failOn)
		if err != nil {
			return err
		}
		return a.look(ctx, func(db *honker.DB) error {
			s, err := a.statusOf(ctx, db, late)
			if err != nil {
				return err
			}
			s.File, _ = a.path(ctx)
			if err := a.printStatus(s); err != nil {
				return err
			}
			if slices.ContainsFunc(s.Problems, fails) {
				return no()
			}
			return nil
		})
	})
}

// lapsedFor is how long a claim may have run out. Within that another worker takes the job up, if there
// is one.
const lapsedFor = time.Minute

// lapsedProblem finds out since when claims of a queue have run out.
func (a *app) lapsedProblem(ctx context.Context, db *honker.DB, q honker.QueueStats) (*problem, error) {
	if q.Lapsed.N == 0 || q.Pause != nil {
		return nil, nil
	}
	f := admin.JobFilter{Queues: []string{q.Queue}, Phases: []honker.Phase{honker.PhaseLapsed}}
	page, err := admin.ListJobs(ctx, db, f, &admin.PageOptions{Order: admin.OldestFirst, Limit: pageSize})
	if err != nil || len(page.Jobs) == 0 {
		return nil, err
	}
	since := page.Jobs[0].ClaimExpiresAt
	for _, job := range page.Jobs {
		if job.ClaimExpiresAt.Before(since) {
			since = job.ClaimExpiresAt
		}
	}
	if q.AsOf.Sub(since) <= lapsedFor {
		return nil, nil
	}
	return &problem{Level: levelError, Code: "lapsed", Name: q.Queue, Since: since,
		What: jobCount(q.Lapsed) + " lapsed: a worker died or hangs, and no other has taken them up",
		Try:  a.command("jobs", "--queue", q.Queue, "--phase", "lapsed")}, nil
}

// failing are the problems of the levels, and of any that is worse.
func failing(levels []string) (func(problem) bool, error) {
	for _, level := range levels {
		if level != levelError && level != levelWarn && level != levelNone {
			return nil, usage("honker status --fail-on warn", "--fail-on %q: one of error, warn, none", level)
		}
	}
	return func(p problem) bool {
		return slices.Contains(levels, p.Level) || p.Level == levelError && slices.Contains(levels, levelWarn)
	}, nil
}

func (a *app) statusOf(ctx context.Context, db *honker.DB, late time.Duration) (*status, error) {
	s := &status{AsOf: time.Now(), Problems: []problem{}}
	var err error
	if s.Queues, err = admin.Queues(ctx, db); err != nil {
		return nil, err
	}
	schedules, err := db.Scheduler().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range s.Queues {
		s.Problems = append(s.Problems, a.queueProblems(q, late)...)
		lapsed, err := a.lapsedProblem(ctx, db, q)
		if err != nil {
			return nil, err
		}
		if lapsed != nil {
			s.Problems = append(s.Problems, *lapsed)
		}
	}
	for _, sch := range schedules {
		s.Problems = append(s.Problems, scheduleProblems(sch, s.AsOf)...)
	}
	slices.SortStableFunc(s.Problems, func(x, y problem) int { return strings.Compare(x.Level, y.Level) }) // error, warn
	return s, nil
}

// queueProblems are those of one queue.
func (a *app) queueProblems(q honker.QueueStats, late time.Duration) (found []problem) {
	say := func(level, code string, since time.Time, try, format string, args ...any) {
		found = append(found, problem{Level: level, Code: code, Name: q.Queue, Since: since, Try: try, What: fmt.Sprintf(format, args...)})
	}
	list := func(phase string) string { return a.command("jobs", "--queue", q.Queue, "--phase", phase) }
	if q.Pause == nil && !q.OldestReady.IsZero() && time.Since(q.OldestReady) > late {
		say(levelError, "late", q.OldestReady, list("ready"), "%s ready: no worker takes them, or too few", jobCount(q.Ready))
	}
	if q.Pause != nil {
		say(levelWarn, "paused", q.Pause.Since, a.command("queue", "resume", q.Queue), "paused%s", because(*q.Pause))
	}
	if q.Dead.N > 0 {
		say(levelWarn, "dead", time.Time{}, a.command("dead", "groups", "--queue", q.Queue), "%s dead", jobCount(q.Dead))
	}
	if q.Expired.N > 0 {
		say(levelWarn, "expired", time.Time{}, list("expired"), "%s can run no more, and no process maintains the file", jobCount(q.Expired))
	}
	return found
}

// because is what is known of a pause.
func because(p honker.Pause) (text string) {
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

func jobCount(c honker.Count) string {
	if c == (honker.Count{N: 1}) {
		return "1 job"
	}
	return c.String() + " jobs"
}

// overdue is how late a schedule may be: a leader that died has to be noticed first.
const overdue = time.Minute

func scheduleProblems(sch honker.ScheduleInfo, now time.Time) []problem {
	if !sch.Enabled || sch.NextFireAt.IsZero() || now.Sub(sch.NextFireAt) <= overdue {
		return nil
	}
	return []problem{{Level: levelError, Code: "overdue", Name: sch.Name, Since: sch.NextFireAt,
		What: "does not fire: no process runs the scheduler"}}
}

var problemView = view[problem]{
	columns: []column[problem]{
		{"level", func(p problem) cell { return text(p.Level).in(colorOf(p.Level)) }},
		{"code", func(p problem) cell { return text(p.Code) }},
		{"name", func(p problem) cell { return text(p.Name) }},
		{"since", func(p problem) cell { return when(p.Since) }},
		{"what", func(p problem) cell { return text(p.What) }},
		{"try", func(p problem) cell { return text(p.Try) }},
	},
	name: func(p problem) string { return p.Code },
}

func colorOf(level string) style {
	if level == levelError {
		return red
	}
	return yellow
}

// printStatus prints one document as JSON. On a terminal the queues follow the problems; piped it is
// the problems only, since one table has one kind of row.
func (a *app) printStatus(s *status) error {
	switch a.shown() {
	case formatJSON:
		return writeJSON(a.out, s, "  ")
	case formatTable:
		for _, p := range s.Problems {
			if err := a.printProblem(p, s.AsOf); err != nil {
				return err
			}
		}
		if len(s.Problems) == 0 {
			a.note("no problems")
		}
		return a.listQueues(s.Queues)
	}
	l := newList(a, problemView)
	for _, p := range s.Problems {
		if err := l.add(p); err != nil {
			return err
		}
	}
	return l.close("problems")
}

// printProblem prints a problem as a sentence, and the next command below it.
func (a *app) printProblem(p problem, now time.Time) error {
	const indent = 7
	level := a.styled(text(p.Level).in(colorOf(p.Level)))
	line := strings.Repeat(" ", indent-len(p.Level)) + clean(p.Name) + ": " + clean(p.What)
	if !p.Since.IsZero() {
		line += ", for " + span(now.Sub(p.Since))
	}
	if p.Try != "" {
		line += "\n" + strings.Repeat(" ", indent) + p.Try
	}
	_, err := fmt.Fprintf(a.out, "%s%s\n\n", level, line)
	return err
}
