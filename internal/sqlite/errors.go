package sqlite

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// What can go wrong between Go and the file. The root package exports these.
var (
	ErrBusy        = errors.New("the database is busy")
	ErrClosed      = errors.New("the database is closed")
	ErrInvalid     = errors.New("invalid argument")
	ErrReplaced    = errors.New("the database file was replaced; close it and open it again")
	ErrUnsupported = errors.New("not supported")
	ErrReadOnly    = errors.New("the database was opened to be read only")

	// ErrIgnored reports a change that a trigger of the application has dropped, by
	// RAISE(IGNORE). To SQLite that is no error: the statement has changed no row.
	ErrIgnored = errors.New("a trigger has dropped the change")
)

// Primary result codes, https://sqlite.org/rescode.html.
const (
	codeBusy       = 5
	codeNoMem      = 7
	codeReadOnly   = 8
	codeInterrupt  = 9
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeConstraint = 19
	codeNotADB     = 26

	codeBusySnapshot = 5 | 2<<8
)

// Code returns the extended result code inside err: 0 when there is none.
func Code(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return 0
}

// IsBusy reports whether another connection holds the lock that the statement
// needs, so that the same statement may succeed later. A snapshot that has become
// too old to write (BUSY_SNAPSHOT) never will: it is not busy in this sense.
func IsBusy(err error) bool {
	if err == nil {
		return false
	}
	if code := Code(err); code != 0 {
		return code&0xff == codeBusy && code != codeBusySnapshot
	}
	// Attach meets drivers with types of their own for codes.
	return strings.Contains(err.Error(), "database is locked")
}

// IsConstraint reports a write that a constraint or a trigger of the file refuses.
func IsConstraint(err error) bool {
	return Code(err)&0xff == codeConstraint || errors.Is(err, ErrIgnored)
}

// IsReadOnly reports a write to something that cannot be written.
func IsReadOnly(err error) bool { return Code(err)&0xff == codeReadOnly }

// Explain adds to an engine's error on opening the file at path what a reader of the
// error has to know. It returns every other error as it is, and nil for nil.
func Explain(err error, path string) error {
	switch {
	case err == nil, errors.Is(err, ErrUnsupported), errors.Is(err, ErrReadOnly):
		return err
	case IsReadOnly(err):
		return fmt.Errorf("%w: %s is read-only: %w", ErrUnsupported, path, err)
	case Code(err)&0xff == codeNotADB:
		return fmt.Errorf("%w: %s is not a SQLite database: %w", ErrUnsupported, path, err)
	case Code(err)&0xff == codeCorrupt:
		return fmt.Errorf("%w: %s is damaged: %w", ErrUnsupported, path, err)
	case Code(err)&0xff == codeCantOpen:
		if cause := checkAccess(path); cause != nil {
			return fmt.Errorf("%w: %w", cause, err)
		}
	}
	return err
}

// panicError makes an error of a recovered panic, with the stack that led to it; nil for
// none.
func panicError(p any) error {
	if p == nil {
		return nil
	}
	return fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
}
