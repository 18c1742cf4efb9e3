package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// problem is an admin.Problem with an explanation and with commands for this file.
type problem struct {
	Severity           string
	Code               string
	Queue, Topic, Name string
	Since              time.Time
	N                  honker.Count
	Text               string
	Cause              string
	Help               string
	Do                 []string
}

// problemGroup is an admin.ProblemGroup whose problems have commands for this file.
type problemGroup struct {
	Severity string
	Text     string
	Since    time.Time
	Problems []problem // largest first
}

var problemView = view[problem]{
	columns: []column[problem]{
		{"severity", func(p problem) cell { return text(p.Severity).in(colorOf(p.Severity)) }},
		{"code", func(p problem) cell { return text(p.Code) }},
		{"queue", func(p problem) cell { return text(p.Queue) }},
		{"topic", func(p problem) cell { return text(p.Topic) }},
		{"name", func(p problem) cell { return text(p.Name) }},
		{"since", func(p problem) cell { return when(p.Since) }},
		{"n", func(p problem) cell { return count(p.N) }},
		{"text", func(p problem) cell { return text(p.Text) }},
		{"cause", func(p problem) cell { return text(p.Cause) }},
		{"do", func(p problem) cell { return text(strings.Join(p.Do, "; ")) }},
	},
	name: func(p problem) string { return p.Code },
}

func colorOf(severity string) style {
	if severity == string(admin.SeverityError) {
		return red
	}
	return yellow
}

func (a *app) doctor() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Explain problems with the database, and how to fix them",
		Long: `doctor lists problems with the database, most severe first, with an explanation and commands that help. It exits with code 1
if there is a problem, including a warning. It only reads.

Problems of the same kind are combined, and the largest are named; --all lists each of them. The formats for programs always do.

For a file, doctor cannot see the versions of other programs that use the file. Each must have SQLite 3.51.3 or newer, because older
versions can damage a write-ahead log that several processes share. Litestream includes it since 0.5.17. On Windows,
ncruces/go-sqlite3 must be 0.35.3 or newer. If Litestream has replicated the file from this directory, doctor says so.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "list each problem, instead of combining those of the same kind")
	a.prints(cmd, problemView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			found, err := a.problems(ctx, db)
			if err != nil {
				return err
			}
			if err := errors.Join(a.diagnose(found, all), a.noteLarge(ctx, db), a.noteLitestream(ctx)); err != nil || len(found) == 0 {
				return err
			}
			return no()
		})
	})
}

// noteLitestream warns about old versions of Litestream if its state directory is next to the file. The warning is just
// a note, because the installed version is unknown.
func (a *app) noteLitestream(ctx context.Context) error {
	d, err := a.database(ctx)
	if err != nil || d.path == "" {
		return err
	}
	state := filepath.Join(filepath.Dir(d.path), "."+filepath.Base(d.path)+"-litestream") // the name that Litestream uses
	if _, err := os.Stat(state); err == nil {
		a.note("Litestream replicates this file: it must be 0.5.17 or newer, because the SQLite in older versions can damage the write-ahead log")
	}
	return nil
}

// problems returns the problems of the file, in groups.
func (a *app) problems(ctx context.Context, db *honker.DB) ([]problemGroup, error) {
	all, err := admin.Problems(ctx, db)
	var groups []problemGroup
	for _, g := range admin.GroupProblems(all) {
		out := problemGroup{Severity: string(g.Severity), Text: g.Text, Since: g.Since}
		for _, p := range g.Problems {
			out.Problems = append(out.Problems, problem{Severity: string(p.Severity), Code: string(p.Code), Queue: p.Queue, Topic: p.Topic, Name: p.Name,
				Since: p.Since, N: p.N, Text: p.Text, Cause: p.Cause, Help: p.Code.Help(), Do: a.commands(p.Actions)})
		}
		groups = append(groups, out)
	}
	return groups, err
}

// ungroup returns the problems of all groups.
func ungroup(groups []problemGroup) []problem {
	all := []problem{}
	for _, g := range groups {
		all = append(all, g.Problems...)
	}
	return all
}

// apart returns a group for each problem.
func apart(groups []problemGroup) (all []problemGroup) {
	for _, p := range ungroup(groups) {
		all = append(all, problemGroup{Severity: p.Severity, Text: p.Text, Since: p.Since, Problems: []problem{p}})
	}
	return all
}

// do returns the commands that help with the largest problem of the group.
func (g problemGroup) do() []string { return g.Problems[0].Do }

// detail names the largest problems of the group, or the cause of its only problem.
func (g problemGroup) detail() string {
	const most = 5
	if len(g.Problems) == 1 {
		return g.Problems[0].Cause
	}
	var names []string
	for _, p := range g.Problems[:min(len(g.Problems), most)] {
		name := p.object()
		if p.N != (honker.Count{}) {
			name += " " + p.N.String()
		}
		names = append(names, name)
	}
	if more := len(g.Problems) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(names, ", ")
	if p := g.Problems[0]; p.Cause != "" {
		text += "; " + p.object() + ": " + p.Cause
	}
	return text
}

// object names the queue, consumer or other object of the problem.
func (p problem) object() string {
	var parts []string
	for _, part := range []string{p.Queue, p.Topic, p.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// diagnose prints problems, as sentences for people and as a list for programs.
func (a *app) diagnose(found []problemGroup, all bool) error {
	if !a.sentences() {
		return a.listProblems(ungroup(found))
	}
	if len(found) == 0 {
		a.note("no problems")
	}
	if all {
		found = apart(found)
	}
	explained := ""
	for _, g := range found {
		if err := a.printProblems(g, time.Now()); err != nil {
			return err
		}
		if p := g.Problems[0]; p.Code != explained {
			fmt.Fprintln(a.out, "\n"+indented(wrapped(p.Help, 80-margin)))
			explained = p.Code
		}
		do := g.do()
		if len(g.Problems) > 1 {
			do = append(do[:len(do):len(do)], a.command("doctor", "--all"))
		}
		for _, line := range do {
			fmt.Fprintln(a.out, indented("  "+line))
		}
		if _, err := fmt.Fprintln(a.out); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) listProblems(found []problem) error {
	return many(a, problemView, found, "problems")
}

// margin is the width of the severity at the start of a line.
const margin = 7

// printProblems prints a group as a sentence, followed by a line with its detail.
func (a *app) printProblems(g problemGroup, now time.Time) error {
	_, err := fmt.Fprintln(a.out, a.styled(text(g.Severity).in(colorOf(g.Severity)))+strings.Repeat(" ", margin-len(g.Severity))+clean(g.sentence(now)))
	if detail := g.detail(); detail != "" && err == nil {
		_, err = fmt.Fprintln(a.out, indented(clean(detail)))
	}
	return err
}

// sentence returns the text of the group, with its age.
func (g problemGroup) sentence(now time.Time) string {
	switch {
	case g.Since.IsZero():
		return g.Text
	case len(g.Problems) > 1:
		return g.Text + ", the first for " + admin.FormatAge(now.Sub(g.Since))
	}
	return g.Text + ", for " + admin.FormatAge(now.Sub(g.Since))
}

// indented aligns s with the text of a problem.
func indented(s string) string {
	space := strings.Repeat(" ", margin)
	return space + strings.ReplaceAll(clean(s), "\n", "\n"+space)
}

// wrapped breaks s into lines of at most width cells. Longer words are not broken. A width of 0 means no limit.
func wrapped(s string, width int) string {
	if width <= 0 {
		return s
	}
	var b strings.Builder
	left := width
	for i, word := range strings.Fields(s) {
		n := cells(word)
		switch {
		case i == 0:
		case n+1 > left:
			b.WriteByte('\n')
			left = width
		default:
			b.WriteByte(' ')
			left--
		}
		b.WriteString(word)
		left -= n
	}
	return b.String()
}
