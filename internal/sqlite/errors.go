package sqlite

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
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

// Code returns the extended result code of err, or 0 if it has none.
func Code(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return 0
}

// IsBusy reports whether err means that another connection holds the lock that the statement needs, so that the
// statement may succeed later. It returns false for BUSY_SNAPSHOT: a snapshot that is too old to write from stays too
// old.
func IsBusy(err error) bool {
	if err == nil {
		return false
	}
	if code := Code(err); code != 0 {
		return code&0xff == codeBusy && code != codeBusySnapshot
	}
	// Attached pools may use drivers whose errors have no Code method.
	return strings.Contains(err.Error(), "database is locked")
}

// IsConstraint reports whether err means that one of the file's constraints or triggers rejected a
// write.
func IsConstraint(err error) bool {
	return Code(err)&0xff == codeConstraint || errors.Is(err, row.ErrIgnored)
}

// IsReadOnly reports whether err was caused by a write to a read-only database.
func IsReadOnly(err error) bool { return Code(err)&0xff == codeReadOnly }

// Explain adds the cause and a remedy to an error from opening the file at path. It returns all
// other errors unchanged, and returns nil if err is nil.
func Explain(err error, path string) error {
	switch {
	case err == nil, errors.Is(err, engine.ErrUnsupported), errors.Is(err, engine.ErrReadOnly):
		return err
	case IsReadOnly(err):
		return fmt.Errorf("%w: %s is read-only: %w", engine.ErrUnsupported, path, err)
	case Code(err)&0xff == codeNotADB:
		return fmt.Errorf("%w: %s is not a SQLite database: %w", engine.ErrUnsupported, path, err)
	case Code(err)&0xff == codeCorrupt:
		return fmt.Errorf("%w: %s is damaged: %w", engine.ErrUnsupported, path, err)
	case Code(err)&0xff == codeCantOpen:
		if cause := checkAccess(path); cause != nil {
			return fmt.Errorf("%w: %w", cause, err)
		}
	}
	return err
}

// panicError converts a recovered panic to an error that includes the stack trace. It returns nil if p is nil.
func panicError(p any) error {
	if p == nil {
		return nil
	}
	return fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
}
