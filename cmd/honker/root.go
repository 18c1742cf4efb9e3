package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// app holds the state of a single run of the command.
type app struct {
	console
	out      *bufio.Writer
	printing sync.Mutex // guards out where notes or rows may come from several goroutines

	file     string
	dsn      string
	pgSchema string
	pooler   bool

	format  format
	columns []string // value of --columns; nil for all
	quiet   bool
	wide    bool
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
		Short: "Inspect and manage honker's queues, jobs and dead letters",
		Long: `honker inspects and manages a honker database: queues, jobs, dead letters.

It works on a file: that of -f, of $HONKER_FILE, or the only *.db in the current directory
that is a honker file. With -d or $HONKER_DSN it works on a schema of a PostgreSQL server. It
never creates a file, and a schema only with upgrade. On a terminal it prints tables,
otherwise values separated by tabs.

Exit codes: 0 success; 1 no: nothing found, or problems found; 2 usage; 3 refused: the
database is busy, read-only, not honker's, too old or new, or cannot be reached; 4 interrupted,
with a report of what was done.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuch,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	flags := root.PersistentFlags()
	flags.VarP(nonEmpty{&a.file, "path"}, "file", "f", "`path` of the file; default $HONKER_FILE, or the only *.db in this directory")
	flags.VarP(nonEmpty{&a.dsn, "DSN"}, "dsn", "d", "`DSN` of a PostgreSQL server; default $HONKER_DSN, which keeps a password out of the list of processes")
	flags.Var(nonEmpty{&a.pgSchema, "name"}, "schema", "`name` of honker's schema on the server; default $HONKER_SCHEMA, or honker")
	flags.BoolVar(&a.pooler, "pooler", false, "the DSN leads to a pooler in transaction mode, such as PgBouncer")
	flags.VarP(&a.format, "output", "o", "`format`: table, tsv, json, jsonl, name (only names or ids); default table on a terminal, else tsv")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no headers and no notes")
	flags.BoolVar(&a.wide, "wide", false, "print tables in full, even if they are wider than the terminal")
	flags.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long to wait for a busy file, or for the server")
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	must(root.MarkPersistentFlagFilename("file", "db"))

	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look:"}, &cobra.Group{ID: groupChange, Title: "Change:"},
		&cobra.Group{ID: groupFile, Title: "The file:"})
	root.AddCommand(a.status(), a.doctor(), a.workers(), a.queues(), a.queue(), a.jobs(), a.job(), a.dead(), a.enqueue(), a.check(), a.version())
	root.AddCommand(a.work(), a.flow(), a.locks(), a.lock())
	root.AddCommand(a.relays(), a.relay(), a.actors(), a.actorVerbs(), a.presences(), a.presence())
	root.AddCommand(a.streams(), a.stream(), a.consumers(), a.consumer(), a.groups(), a.group())
	root.AddCommand(a.schedules(), a.schedule())
	root.AddCommand(a.audit(), a.limits(), a.batches(), a.batch(), a.notify(), a.listen(), a.events())
	root.AddCommand(a.backup(), a.maintain(), a.sizes(), a.vacuum(), a.schema(), a.upgrade(), a.move())
	root.AddCommand(a.top(), a.ui(), a.metrics(), a.man(), a.concepts())
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

// noSuch rejects arguments that aren't subcommands of cmd, and suggests a similar command, or commands of that name
// further down.
func noSuch(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
	near := below(cmd, args[0])
	if near == nil {
		near = cmd.SuggestionsFor(args[0])
	}
	if len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// below returns the commands two levels below cmd that have this name, such as "dead requeue" for "requeue".
func below(cmd *cobra.Command, name string) (paths []string) {
	for _, group := range cmd.Commands() {
		for _, sub := range group.Commands() {
			if sub.Name() == name || sub.HasAlias(name) {
				paths = append(paths, group.Name()+" "+name)
			}
		}
	}
	return paths
}

// note prints a message to standard error after the output so far, unless --quiet is set. It is safe for concurrent use
// with other notes and with feeds.
func (a *app) note(format string, args ...any) {
	if a.quiet {
		return
	}
	a.printing.Lock()
	defer a.printing.Unlock()
	_ = a.out.Flush() // run reports the error
	fmt.Fprintln(a.stderr, clean(fmt.Sprintf(format, args...)))
}

// command returns a honker command line for the same database, to use as a suggestion. It leaves out a connection string,
// which may contain a password.
func (a *app) command(words ...string) string {
	line := []string{"honker"}
	switch {
	case a.file != "":
		line = append(line, "-f", a.file)
	case a.dsn != "":
		line = append(line, "-d", "DSN")
	}
	if a.pgSchema != "" {
		line = append(line, "--schema", a.pgSchema)
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
