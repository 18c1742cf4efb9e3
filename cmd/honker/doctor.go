package main

import (
	"context"
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
	Help               string
	Do                 []string
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
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Explain problems with the file, and how to fix them",
		Long: `doctor lists problems with the file, most severe first, with an explanation and commands that help. It exits with code 1
if there is a problem, including a warning. It only reads the file.

doctor cannot see the versions of other programs that use the file. Each must have SQLite 3.51.3 or newer, because older
versions can damage a write-ahead log that several processes share. Litestream includes it since 0.5.17. On Windows,
ncruces/go-sqlite3 must be 0.35.3 or newer. If Litestream has replicated the file from this directory, doctor says so.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, problemView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			found, err := a.problems(ctx, db)
			if err != nil {
				return err
			}
			if err := a.noteLitestream(ctx); err != nil {
				return err
			}
			if err := a.diagnose(found); err != nil || len(found) == 0 {
				return err
			}
			return no()
		})
	})
}

// noteLitestream warns about old versions of Litestream if its state directory is next to the file. The warning is just
// a note, because the installed version is unknown.
func (a *app) noteLitestream(ctx context.Context) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	state := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-litestream") // the name that Litestream uses
	if _, err := os.Stat(state); err == nil {
		a.note("Litestream replicates this file: it must be 0.5.17 or newer, because the SQLite in older versions can damage the write-ahead log")
	}
	return nil
}

// problems returns the problems of the file.
func (a *app) problems(ctx context.Context, db *honker.DB) ([]problem, error) {
	all, err := admin.Problems(ctx, db)
	found := make([]problem, len(all))
	for i, p := range all {
		found[i] = problem{Severity: string(p.Severity), Code: string(p.Code), Queue: p.Queue, Topic: p.Topic, Name: p.Name,
			Since: p.Since, N: p.N, Text: p.Text, Help: p.Code.Help(), Do: a.commands(p.Actions)}
	}
	return found, err
}

// diagnose prints problems, as sentences for people and as a list for programs.
func (a *app) diagnose(found []problem) error {
	if !a.sentences() {
		return a.listProblems(found)
	}
	if len(found) == 0 {
		a.note("no problems")
	}
	for _, p := range found {
		if err := a.printProblem(p, time.Now()); err != nil {
			return err
		}
		fmt.Fprintln(a.out, "\n"+indented(wrapped(p.Help, 80-margin)))
		for _, line := range p.Do {
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

// printProblem prints a problem as a sentence.
func (a *app) printProblem(p problem, now time.Time) error {
	line := strings.Repeat(" ", margin-len(p.Severity)) + clean(p.Text)
	if !p.Since.IsZero() {
		line += ", for " + admin.FormatAge(now.Sub(p.Since))
	}
	_, err := fmt.Fprintln(a.out, a.styled(text(p.Severity).in(colorOf(p.Severity)))+line)
	return err
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
