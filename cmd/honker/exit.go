package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// The exit codes. Scripts rely on them.
const (
	codeFine        = 0
	codeNo          = 1 // nothing found, problems found
	codeUsage       = 2 // the command line or the input is wrong
	codeRefused     = 3 // busy, read-only, no honker file, too new
	codeInterrupted = 4
	codeWouldChange = 10 // used only by dry runs
)

// failure wraps an error from a command that started running, as opposed to an error in its arguments.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// coded is an error with its own exit code and a suggestion for what to try next. If err is nil, there is nothing
// left to print.
type coded struct {
	code int
	err  error
	try  string
}

func (c *coded) Error() string {
	if c.err == nil {
		return fmt.Sprint("exit code ", c.code)
	}
	return c.err.Error()
}
func (c *coded) Unwrap() error { return c.err }

// no returns an error with exit code codeNo. Nothing more is printed, because the output already
// shows the answer.
func no() error { return &coded{code: codeNo} }

// usage returns a usage error that was found only after looking at the file or the input. If try is empty, the
// command's help is suggested.
func usage(try, format string, args ...any) error {
	return &coded{code: codeUsage, err: fmt.Errorf(format, args...), try: try}
}

// missing gives ErrNotFound the exit code codeNo and a hint about where to look.
func missing(err error, try string) error {
	if errors.Is(err, honker.ErrNotFound) {
		return &coded{code: codeNo, err: err, try: try}
	}
	return err
}

// end prints err and a command to try next, and returns the exit code.
func (a *app) end(cmd *cobra.Command, err error) int {
	var own *coded
	var began *failure
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // whatever was reading the output closed it
		return codeFine
	case errors.As(err, &own):
		if own.err != nil {
			a.complain(own.err, cmp.Or(own.try, cmd.CommandPath()+" --help"))
		}
		return own.code
	case !errors.As(err, &began):
		a.complain(err, cmd.CommandPath()+" --help")
		return codeUsage
	}
	code, try := a.judge(began.err, cmd)
	switch {
	case code == codeInterrupted:
		began.err = errors.New("interrupted")
	case isDamage(began.err) && !errors.Is(began.err, honker.ErrUnsupported): // such errors are already clear
		began.err = fmt.Errorf("the file is damaged: %w", began.err)
	}
	a.complain(began.err, try)
	return code
}

func (a *app) complain(err error, try string) {
	_ = a.out.Flush() // run reports the error
	fmt.Fprintln(a.stderr, clean(err.Error()))
	fmt.Fprintln(a.stderr, "try: "+clean(try))
}

// isDamage reports whether SQLite has found the file damaged (SQLITE_CORRUPT,
// https://sqlite.org/rescode.html).
func isDamage(err error) bool {
	var coded interface{ Code() int }
	return errors.As(err, &coded) && coded.Code()&0xff == 11
}

// losesStatements reports whether a pooler in transaction mode has lost a prepared statement, so that the server has two of a
// name (SQLSTATE 42P05) or none (26000).
func losesStatements(err error) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && (coded.SQLState() == "42P05" || coded.SQLState() == "26000")
}

// judge returns the exit code for a library error, and a suggestion for what to try next.
func (a *app) judge(err error, cmd *cobra.Command) (code int, try string) {
	var old *honker.OldSchemaError
	switch {
	case errors.Is(err, context.Canceled):
		return codeInterrupted, "the same again"
	case errors.Is(err, honker.ErrInvalid):
		return codeUsage, cmd.CommandPath() + " --help"
	case errors.Is(err, honker.ErrNotFound):
		return codeNo, a.command("jobs")
	case errors.Is(err, honker.ErrBusy):
		return codeRefused, "the same with --timeout 1m"
	case errors.Is(err, honker.ErrSchemaTooNew):
		return codeRefused, "go install github.com/honker-go/honker/cmd/honker@latest"
	case errors.Is(err, honker.ErrDatabaseReplaced): // another process has replaced the file
		return codeRefused, "the same again"
	case errors.As(err, &old):
		return codeRefused, a.command("upgrade")
	case errors.Is(err, os.ErrPermission):
		return codeRefused, "the same as a user that may use the file"
	case isDamage(err):
		return codeRefused, "a backup in its place; to recover what is readable: sqlite3 " + shellWord(cmp.Or(a.file, a.getenv(fileVariable))) + " .recover | sqlite3 recovered.db"
	case errors.Is(err, honker.ErrReadOnly) && a.onServer():
		return codeRefused, "the same with the DSN of the primary"
	case losesStatements(err):
		return codeRefused, "the same with --pooler"
	case errors.Is(err, honker.ErrUnsupported) && a.onServer():
		return codeRefused, cmd.CommandPath() + " --help"
	case errors.Is(err, honker.ErrUnsupported):
		return codeRefused, chooseFile
	default:
		return codeRefused, a.command("check")
	}
}
