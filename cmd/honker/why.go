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

func (a *app) jobWhy() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "why JOB",
		SuggestFor: []string{"explain"},
		Short:      "Explain why a job does not run, or how it ended",
		Long: `why explains why a job does not run, such as a pause, a limit, earlier jobs, its time or a missing worker, and suggests
remedies. For a job that no longer exists, it lists the possible reasons and exits with code 1.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeJob,
	}
	a.prints(cmd, reasonView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := idsOf(args)
		if err != nil {
			return err
		}
		return a.look(ctx, func(db *honker.DB) error {
			ex, err := admin.Explain(ctx, db, ids[0])
			if err != nil {
				return err
			}
			what := fmt.Sprintf("job %d", ids[0])
			if ex.Job != nil {
				what += fmt.Sprintf(" of %s, %s", ex.Job.Queue, ex.Job.Phase)
			}
			if err := a.explained(what, ex); err != nil {
				return err
			}
			if ex.Job == nil {
				return no()
			}
			return nil
		})
	})
}

func (a *app) queueWhy() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "why QUEUE",
		SuggestFor:        []string{"explain"},
		Short:             "Explain why the jobs of a queue do not run",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	a.prints(cmd, reasonView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			ex, err := admin.ExplainQueue(ctx, db, args[0])
			if err != nil {
				return err
			}
			return a.explained("queue "+args[0], ex)
		})
	})
}

var reasonView = view[admin.Reason]{
	columns: []column[admin.Reason]{
		{"code", func(r admin.Reason) cell { return text(string(r.Code)) }},
		{"until", func(r admin.Reason) cell { return when(r.Until) }},
		{"who", func(r admin.Reason) cell { return text(r.Who) }},
		{"jobs", func(r admin.Reason) cell { return text(idList(r.Jobs)) }},
		{"text", func(r admin.Reason) cell { return text(r.Text) }},
		{"do", func(r admin.Reason) cell { return text(strings.Join(r.Do, "; ")) }},
	},
	name: func(r admin.Reason) string { return string(r.Code) },
}

func idList(ids []int64) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatInt(id, 10)
	}
	return strings.Join(words, ",")
}

// explained prints an explanation: as text for people, in full as JSON, and only its reasons in the
// other formats.
func (a *app) explained(what string, ex *admin.Explanation) error {
	switch shown := a.shown(); {
	case a.sentences():
		return a.writeReasons(what, ex)
	case shown == formatJSON:
		return writeJSON(a.out, ex, "  ")
	case shown == formatJSONL:
		return writeJSON(a.out, ex, "")
	}
	return many(a, reasonView, ex.Reasons, "reasons")
}

func (a *app) writeReasons(what string, ex *admin.Explanation) error {
	_, err := a.out.WriteString(strings.Join(a.reasonLines(what, ex), "\n") + "\n")
	return err
}

// reasonLines returns a line for each reason, followed by suggestions.
func (a *app) reasonLines(what string, ex *admin.Explanation) (lines []string) {
	line := func(text string) { lines = append(lines, clean(strings.ReplaceAll(text, "\n", " "))) }
	line(what + ":")
	if len(ex.Reasons) == 0 {
		line("  " + ex.Text)
	}
	for _, r := range ex.Reasons {
		line("  " + r.Text)
		for _, do := range r.Do {
			line("    try: " + a.onFile(do))
		}
	}
	if !ex.NextAt.IsZero() {
		line("next at " + at(ex.NextAt).human)
	}
	return lines
}

// onFile adds the file of this command to a command line suggested by the library.
func (a *app) onFile(line string) string {
	return strings.Replace(line, "honker", a.command(), 1)
}

// whyRow is a job in a list, with the reason why it does not run.
type whyRow struct {
	ID     int64
	Queue  string
	Phase  honker.Phase
	Reason admin.Reason
}

var whyView = view[whyRow]{
	columns: []column[whyRow]{
		{"id", func(r whyRow) cell { return id(r.ID) }},
		{"queue", func(r whyRow) cell { return text(r.Queue) }},
		{"phase", func(r whyRow) cell { return text(string(r.Phase)) }},
		{"code", func(r whyRow) cell { return text(string(r.Reason.Code)) }},
		{"until", func(r whyRow) cell { return when(r.Reason.Until) }},
		{"why", func(r whyRow) cell { return text(r.Reason.Text) }},
	},
	name: func(r whyRow) string { return strconv.FormatInt(r.ID, 10) },
}

func whyRowOf(p *admin.JobPage, i int) whyRow {
	return whyRow{ID: p.Jobs[i].ID, Queue: p.Jobs[i].Queue, Phase: p.Jobs[i].Phase, Reason: p.Reasons[i]}
}

// notThere returns the error for a job that is not in the file.
func (a *app) notThere(ctx context.Context, db *honker.DB, id int64) error {
	ex, err := admin.Explain(ctx, db, id)
	if err != nil {
		return err
	}
	return &coded{code: codeNo, err: fmt.Errorf("job %d %s", id, ex.Text), try: a.command("jobs")}
}
