package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Errors returned by verbs. The root package exports them.
var (
	ErrClosed      = wake.ErrClosed
	ErrNotFound    = row.ErrNotFound
	ErrNotInserted = row.ErrNotInserted
	ErrBatchDone   = row.ErrBatchDone
	ErrInTx        = errors.New("called inside DB.Tx: use the Tx form")
	ErrClaimLost   = errors.New("claim lost")
	ErrLockLost    = errors.New("lock lost")
)

// opError is a verb's error, along with the operation and the name of its object.
type opError struct {
	op, name string
	err      error
}

func (e *opError) Error() string {
	if e.name == "" {
		return "honker: " + e.op + ": " + e.err.Error()
	}
	return "honker: " + e.op + " " + strconv.Quote(e.name) + ": " + e.err.Error()
}

func (e *opError) Unwrap() error { return e.err }

// Wrap adds the operation and the name to err, unless an inner verb has already done so. It returns
// nil for nil.
func Wrap(op, name string, err error) error {
	var wrapped *opError
	if err == nil || errors.As(err, &wrapped) {
		return err
	}
	return &opError{op, name, err}
}

// WrapID is Wrap for an object that is identified by a number.
func WrapID(op string, id int64, err error) error {
	if err == nil {
		return nil
	}
	return Wrap(op+" "+strconv.FormatInt(id, 10), "", err)
}

// Cause returns why ctx has ended: ErrClosed after Close, and otherwise ctx's error, with its cause if ctx's owner
// has set it.
func Cause(ctx context.Context) error { return wake.Cause(ctx) }

// Ended reports whether ctx has ended. Endless iterators then stop without an error. A nil ctx has
// not ended: iterators must yield an error for it.
func Ended(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

// withCause adds ctx's cause to an error that contains only ctx.Err, such as the error from waiting
// for the write lock.
func withCause(ctx context.Context, err error) error {
	ended, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || ended == nil || !errors.Is(err, ended) || errors.Is(err, cause) {
		return err
	}
	if err == ended {
		return Cause(ctx)
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// Final reports whether err means that no later try can succeed, because the DB is closed or its file was replaced.
func Final(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrDatabaseReplaced)
}

// Database errors. The root package exports them.
var (
	ErrBusy             = errors.New("the database is busy")
	ErrInvalid          = errors.New("invalid argument")
	ErrDatabaseReplaced = errors.New("the database file was replaced; close it and open it again")
	ErrUnsupported      = errors.New("not supported")
	ErrReadOnly         = errors.New("the database was opened read-only")
	ErrUncertain        = errors.New("the connection was lost during the commit, which may have taken effect; repeat the call only if a second run does no harm")
)

// ErrSchemaTooNew reports that the file was written by a newer version of this package.
var ErrSchemaTooNew = errors.New("the schema is newer than this version of honker")
