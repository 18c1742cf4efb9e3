package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

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
			a.noteUnknown(ctx, db, args[0])
			ex, err := admin.ExplainQueue(ctx, db, args[0])
			if err != nil {
				return err
			}
			return a.explained("queue "+args[0], ex)
		})
	})
}

// reason is an admin.Reason whose actions are commands for this file.
type reason struct {
	Code  admin.ReasonCode
	Text  string
	Until time.Time
	Jobs  []int64
	Who   string
	Do    []string
}

func (a *app) reason(r admin.Reason) reason {
	return reason{Code: r.Code, Text: r.Text, Until: r.Until, Jobs: r.Jobs, Who: r.Who, Do: a.commands(r.Actions)}
}

// explanation is an admin.Explanation with reasons of this type.
type explanation struct {
	Job     *honker.JobInfo
	Text    string
	Reasons []reason
	NextAt  time.Time
	Ahead   honker.Count
}

func (a *app) explanation(ex *admin.Explanation) *explanation {
	out := &explanation{Job: ex.Job, Text: ex.Text, NextAt: ex.NextAt, Ahead: ex.Ahead}
	for _, r := range ex.Reasons {
		out.Reasons = append(out.Reasons, a.reason(r))
	}
	return out
}

var reasonView = view[reason]{
	columns: []column[reason]{
		{"code", func(r reason) cell { return text(string(r.Code)) }},
		{"until", func(r reason) cell { return when(r.Until) }},
		{"who", func(r reason) cell { return text(r.Who) }},
		{"jobs", func(r reason) cell { return text(idList(r.Jobs)) }},
		{"text", func(r reason) cell { return text(r.Text) }},
		{"do", func(r reason) cell { return text(strings.Join(r.Do, "; ")) }},
	},
	name: func(r reason) string { return string(r.Code) },
}

func idList(ids []int64) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatInt(id, 10)
	}
	return strings.Join(words, ",")
}

// explained prints an explanation as text for people and in full for JSON. The other formats get only the reasons.
func (a *app) explained(what string, found *admin.Explanation) error {
	ex := a.explanation(found)
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

func (a *app) writeReasons(what string, ex *explanation) error {
	_, err := a.out.WriteString(strings.Join(a.reasonLines(what, ex), "\n") + "\n")
	return err
}

// reasonLines returns a line for each reason, followed by suggestions.
func (a *app) reasonLines(what string, ex *explanation) (lines []string) {
	line := func(text string) { lines = append(lines, clean(strings.ReplaceAll(text, "\n", " "))) }
	line(what + ":")
	if len(ex.Reasons) == 0 {
		line("  " + ex.Text)
	}
	for _, r := range ex.Reasons {
		line("  " + r.Text)
		for _, do := range r.Do {
			line("    try: " + do)
		}
	}
	if !ex.NextAt.IsZero() {
		line("next at " + at(ex.NextAt).human)
	}
	return lines
}

// whyRow is a job in a list, with the reason why it isn't running.
type whyRow struct {
	ID     int64
	Queue  string
	Phase  honker.Phase
	Reason reason
}

var whyView = view[whyRow]{
	columns: []column[whyRow]{
		{"id", func(r whyRow) cell { return id(r.ID) }},
		{"queue", func(r whyRow) cell { return text(r.Queue) }},
		{"phase", func(r whyRow) cell { return phaseCell(r.Phase) }},
		{"code", func(r whyRow) cell { return text(string(r.Reason.Code)) }},
		{"until", func(r whyRow) cell { return when(r.Reason.Until) }},
		{"why", func(r whyRow) cell { return text(r.Reason.Text) }},
	},
	name: func(r whyRow) string { return strconv.FormatInt(r.ID, 10) },
}

func (a *app) whyRowOf(p *admin.JobPage, i int) whyRow {
	return whyRow{ID: p.Jobs[i].ID, Queue: p.Jobs[i].Queue, Phase: p.Jobs[i].Phase, Reason: a.reason(p.Reasons[i])}
}

// notThere returns the error for a job that does not exist in the file.
func (a *app) notThere(ctx context.Context, db *honker.DB, id int64) error {
	ex, err := admin.Explain(ctx, db, id)
	if err != nil {
		return err
	}
	return &coded{code: codeNo, err: fmt.Errorf("job %d %s", id, ex.Text), try: a.command("jobs")}
}
