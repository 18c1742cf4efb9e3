package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// app holds the state of a single run of the command.
type app struct {
	console
	out *bufio.Writer

	file    string
	format  format
	columns []string // value of --columns; nil for all
	quiet   bool
	timeout time.Duration
}

// run runs the command given by args and returns its exit code.
func run(ctx context.Context, args []string, c console) int {
	a := &app{console: c, out: bufio.NewWriter(c.stdout)}
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // cobra would replace nil with os.Args
	root.SetIn(c.stdin)
	root.SetOut(a.out)
	root.SetErr(c.stderr)
	ctx = honker.WithActor(ctx, c.actor)
	cmd, err := root.ExecuteContextC(ctx)
	if unwritten := a.out.Flush(); unwritten != nil {
		err = errors.Join(err, &coded{code: codeRefused, err: fmt.Errorf("write the output: %w", unwritten), try: "the same with another output"})
	}
	return a.end(cmd, err)
}

const (
	groupLook   = "look"
	groupChange = "change"
	groupFile   = "file"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "honker",
		Short: "Inspect and manage a honker file",
		Long: `honker inspects and manages a honker file: queues, jobs, dead letters.

It works on the file itself: that of -f, of $HONKER_FILE, or the only *.db in the current
directory that is a honker file. It never creates a file. On a terminal it prints tables,
otherwise values separated by tabs.

Exit codes: 0 success; 1 no: nothing found, or problems found; 2 usage; 3 refused: the file
is busy, read-only, no honker file, or too old or new; 4 interrupted, with a report of what
was done.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuch,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	flags := root.PersistentFlags()
	flags.VarP(fileFlag{&a.file}, "file", "f", "`path` of the file; default $HONKER_FILE, or the only *.db in this directory")
	flags.VarP(&a.format, "output", "o", "`format`: table, tsv, json, jsonl, name (only names or ids); default table on a terminal, else tsv")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no headers and no notes")
	flags.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long to wait for a busy file")
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	must(root.MarkPersistentFlagFilename("file", "db"))

	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look:"}, &cobra.Group{ID: groupChange, Title: "Change:"},
		&cobra.Group{ID: groupFile, Title: "The file:"})
	root.AddCommand(a.status(), a.doctor(), a.workers(), a.queues(), a.queue(), a.jobs(), a.job(), a.dead(), a.enqueue(), a.check(), a.version())
	root.AddCommand(a.work(), a.locks(), a.lock())
	root.AddCommand(a.relay(), a.presences(), a.presence())
	root.AddCommand(a.streams(), a.stream(), a.consumers(), a.consumer(), a.groups(), a.group())
	root.AddCommand(a.schedules(), a.schedule())
	root.AddCommand(a.limits(), a.batches(), a.batch(), a.notify(), a.listen(), a.events())
	root.AddCommand(a.backup(), a.maintain(), a.vacuum(), a.schema(), a.upgrade())
	root.AddCommand(a.top(), a.ui(), a.metrics(), a.man())
	acceptYes(root)
	return root
}

// action is the body of a command. It runs after the arguments have been checked.
type action func(ctx context.Context, args []string) error

// does sets f as the function that cmd runs. Errors that occur before f is called are reported as
// usage errors.
func (a *app) does(cmd *cobra.Command, f action) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.timeout <= 0 {
			return fmt.Errorf("--timeout %v is not positive", a.timeout)
		}
		if a.format == formatName && cmd.Annotations[nameless] != "" {
			return fmt.Errorf("%s has no names to print", cmd.CommandPath())
		}
		if err := a.checkColumns(); err != nil {
			return err
		}
		if err := f(cmd.Context(), args); err != nil {
			return &failure{err}
		}
		return nil
	}
	return cmd
}

// nameless marks commands that don't support the name output format.
const nameless = "nameless"

// parent returns a command that only groups the commands below it.
func parent(use, short, group string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, GroupID: group, Args: noSuch,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("%s requires a subcommand", cmd.CommandPath())
		}}
	cmd.AddCommand(below...)
	return cmd
}

// noSuch rejects arguments that aren't subcommands of cmd, and suggests a similar command.
func noSuch(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// note prints a message to standard error, unless --quiet is set.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.stderr, clean(fmt.Sprintf(format, args...)))
	}
}

// command returns a honker command line for the same file, to use as a suggestion.
func (a *app) command(words ...string) string {
	line := []string{"honker"}
	if a.file != "" {
		line = append(line, "-f", a.file)
	}
	line = append(line, words...)
	for i, word := range line {
		line[i] = shellWord(word)
	}
	return strings.Join(line, " ")
}

// shellWord quotes a word if a shell would interpret it.
func shellWord(word string) string {
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(clean(word), "'", `'\''`) + "'"
}

func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@%+=,", r)
}

// must panics if err is not nil. Use it for errors that can be caused only by a bug in this program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// versions is the output of honker version.
type versions struct {
	Version string // of this command
	Library string // of package honker
	Go      string
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the versions of this command and of its library", Args: cobra.NoArgs}
	a.prints(cmd, versionView)
	return a.does(cmd, func(context.Context, []string) error {
		return one(a, versionView, versionsOf(debug.ReadBuildInfo()))
	})
}

var versionView = view[versions]{
	columns: []column[versions]{
		{"version", func(v versions) cell { return text(v.Version) }},
		{"library", func(v versions) cell { return text(v.Library) }},
		{"go", func(v versions) cell { return text(v.Go) }},
	},
	name: func(v versions) string { return v.Version },
}

func versionsOf(info *debug.BuildInfo, ok bool) versions {
	if !ok {
		return versions{Version: "unknown", Library: "unknown", Go: "unknown"}
	}
	v := versions{Version: info.Main.Version, Library: "(devel)", Go: info.GoVersion}
	for _, m := range info.Deps {
		if m.Path == "github.com/honker-go/honker" && m.Version != "" {
			v.Library = m.Version
		}
	}
	return v
}
