package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// changing holds the flags for commands that can change many jobs.
type changing struct {
	yes, dryRun bool
}

func (c *changing) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "change nothing, only count; the exit code is 10 if something would change")
	cmd.Annotations = map[string]string{nameless: "yes"}
}

// unasked lists the commands that change something without asking for confirmation. They also accept --yes, so that
// scripts don't need to know which commands ask.
var unasked = []string{
	"consumer rm", "consumer seek", "dead import", "enqueue", "flow cancel", "flow restart", "flow signal", "group rm", "lock break", "lock run", "maintain", "move", "notify", "presence break",
	"queue limits", "queue pause", "queue resume", "schedule add", "schedule pause", "schedule resume", "schedule rm", "schedule trigger",
	"stream publish", "vacuum", "work",
}

func acceptYes(root *cobra.Command) {
	for _, name := range unasked {
		cmd, _, err := root.Find(strings.Fields(name))
		must(err)
		cmd.Flags().BoolP("yes", "y", false, "no effect, accepted for scripts: this command does not ask")
	}
}

// verb is an action on a set of jobs.
type verb struct {
	name, done string   // "requeue", "requeued"
	what       string   // "dead job"
	none       string   // message if none of the given IDs can be changed
	skipped    []string // command for a skipped job, without its ID; nil for honker job show
	undo       []string // command that undoes the change, without the audit entry; nil if there is none
	do         func(ctx context.Context, dryRun bool) (*admin.Report, error)
}

// outcome reports the effect of an action, or of its dry run.
type outcome struct {
	Verb    string
	DryRun  bool
	Matched int64
	Changed int64
	Skipped []admin.Skip // the first 100
	Left    int64

	SkippedTotal int64
	Waiters      int64 // jobs removed because they were waiting for the removed jobs
	Audit        int64 // audit entry; 0 if nothing was changed
}

var outcomeView = view[outcome]{columns: []column[outcome]{
	{"verb", func(o outcome) cell { return text(o.Verb) }},
	{"dry_run", func(o outcome) cell { return truth(o.DryRun) }},
	{"matched", func(o outcome) cell { return number(o.Matched) }},
	{"changed", func(o outcome) cell { return number(o.Changed) }},
	{"skipped", func(o outcome) cell { return number(o.SkippedTotal) }},
	{"left", func(o outcome) cell { return number(o.Left) }},
	{"waiters", func(o outcome) cell { return number(o.Waiters) }},
	{"audit", func(o outcome) cell { return number(o.Audit) }},
}}

// apply counts the jobs, asks for confirmation if there is more than one, and performs the action.
func (a *app) apply(ctx context.Context, v verb, c changing) error {
	if !c.dryRun && c.yes {
		return a.act(ctx, v)
	}
	would, err := v.do(ctx, true)
	if err != nil {
		return err
	}
	if c.dryRun {
		return a.wouldDo(v, would)
	}
	if would.Matched+would.Waiters > 1 {
		if err := a.confirm(ctx, fmt.Sprintf("%s %s?", v.name, changedText(v, would.Matched, would.Waiters))); err != nil {
			return err
		}
	}
	return a.act(ctx, v)
}

// applyTo is like apply, but for jobs given by ID. The exit code is codeNo if none of them were changed.
func (a *app) applyTo(ctx context.Context, ids []int64, v verb, c changing) error {
	do, last := v.do, new(admin.Report)
	v.do = func(ctx context.Context, dryRun bool) (r *admin.Report, err error) {
		last, err = do(ctx, dryRun)
		return last, err
	}
	if err := a.apply(ctx, v, c); err != nil {
		return err
	}
	show := func(id int64) string { return a.command("job", "show", strconv.FormatInt(id, 10)) }
	switch {
	case last.Matched == 0:
		return &coded{code: codeNo, err: errors.New(v.none), try: show(ids[0])}
	case last.Changed == 0 && len(last.Skipped) > 0:
		left := last.Skipped[0]
		try := show(left.ID)
		if v.skipped != nil {
			try = a.command(append(v.skipped, strconv.FormatInt(left.ID, 10))...)
		}
		return &coded{code: codeNo, err: fmt.Errorf("job %d was skipped: %s", left.ID, left.Why), try: try}
	default:
		return nil
	}
}

func (a *app) wouldDo(v verb, r *admin.Report) error {
	if err := a.report(v, r, true); err != nil {
		return err
	}
	if r.Matched > 0 {
		return &coded{code: codeWouldChange}
	}
	return nil
}

func (a *app) act(ctx context.Context, v verb) error {
	r, err := v.do(ctx, false)
	if err != nil && r.Changed == 0 && r.Left == 0 {
		return err
	}
	told := a.report(v, r, false)
	if err != nil {
		return partly(err, "%s %s of %s, %d left", v.done, honker.Count{N: r.Changed}, plural(r.Matched, v.what), r.Left)
	}
	return told
}

// partly returns the error for a command that stopped partway through its work.
func partly(err error, format string, args ...any) *coded {
	why := err.Error()
	if errors.Is(err, context.Canceled) {
		why = "interrupted"
	}
	return &coded{code: codeInterrupted, err: fmt.Errorf("%s: "+format, append([]any{why}, args...)...), try: "the same again"}
}

func (a *app) report(v verb, r *admin.Report, dryRun bool) error {
	o := outcome{Verb: v.name, DryRun: dryRun, Matched: r.Matched, Changed: r.Changed, Skipped: r.Skipped, SkippedTotal: r.SkippedTotal, Left: r.Left, Waiters: r.Waiters, Audit: r.Audit}
	if !a.sentences() {
		return one(a, outcomeView, o)
	}
	line := v.done + " " + changedText(v, o.Changed, o.Waiters)
	if dryRun {
		line = "would " + v.name + " " + changedText(v, o.Matched, o.Waiters)
	}
	if _, err := fmt.Fprintln(a.out, line); err != nil {
		return err
	}
	for _, s := range o.Skipped {
		if _, err := fmt.Fprintf(a.out, "skipped job %d: %s\n", s.ID, clean(s.Why)); err != nil {
			return err
		}
	}
	if more := o.SkippedTotal - int64(len(o.Skipped)); more > 0 {
		if _, err := fmt.Fprintf(a.out, "skipped %s\n", plural(more, "more job")); err != nil {
			return err
		}
	}
	if v.undo == nil || o.Audit == 0 {
		return nil
	}
	_, err := fmt.Fprintf(a.out, "to undo: %s\n", a.command(append(v.undo, strconv.FormatInt(o.Audit, 10))...))
	return err
}

// changedText tells how many jobs change and how many waiting jobs are removed with them.
func changedText(v verb, n, waiters int64) string {
	out := plural(n, v.what)
	switch waiters {
	case 0:
	case 1:
		out += ", and 1 that waits for them"
	default:
		out += fmt.Sprintf(", and %s that wait for them", honker.Count{N: waiters})
	}
	return out
}

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return honker.Count{N: n}.String() + " " + what
}

// confirm asks the user at the terminal for confirmation. Without a terminal it returns an error.
func (a *app) confirm(ctx context.Context, question string) error {
	if !a.inTerm {
		return usage("the same with --dry-run, or with --yes", "%s There is no terminal to confirm on", question)
	}
	_ = a.out.Flush() // run reports the error
	fmt.Fprint(a.stderr, clean(question)+" [y/N] ")
	answer := make(chan string, 1)
	go func() { // ends with the process if nobody answers
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return &coded{code: codeInterrupted, err: errors.New("interrupted, nothing was changed"), try: "the same again"}
	case yes := <-answer:
		if yes == "y" || yes == "yes" {
			return nil
		}
		return &coded{code: codeNo, err: errors.New("nothing was changed"), try: "the same with --yes"}
	}
}
