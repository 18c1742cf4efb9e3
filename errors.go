package honker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// Errors of opening a file. Test for all of these with errors.Is: what honker
// returns says the operation, the name and the cause as well.
var (
	// ErrUnsupported reports what cannot be safe: an in-memory database, a network
	// filesystem, a read-only file opened for writing, a file that is no database,
	// an engine with a known corruption bug.
	ErrUnsupported = sqlite.ErrUnsupported
	// ErrSchemaTooNew reports a file that a newer version of honker has written.
	// Nothing was changed.
	ErrSchemaTooNew = store.ErrTooNew
)

// Errors of any verb.
var (
	// ErrClosed reports a call after, or interrupted by, Close.
	ErrClosed = sqlite.ErrClosed
	// ErrInvalid reports a bad name, option, payload or argument. Nothing was
	// changed.
	ErrInvalid = sqlite.ErrInvalid
	// ErrInTx reports a plain verb called with the ctx of [DB.Tx]: it would wait
	// for its own caller. The text names the Tx form.
	ErrInTx = errors.New("called inside a transaction of its own caller")
	// ErrBusy reports that no turn to write came within BusyTimeout. Nothing was
	// changed.
	ErrBusy = sqlite.ErrBusy
	// ErrNotFound reports that there is no such job, result, consumer or group.
	ErrNotFound = store.ErrNotFound
	// ErrDatabaseReplaced reports that another file lies at the path now: close the
	// DB and open it again.
	ErrDatabaseReplaced = sqlite.ErrReplaced
)

// Errors of holding a job, or an event of a group.
var (
	// ErrClaimLost reports that the claim is no longer this one: it lapsed, the job
	// was given to somebody else, or it was settled or cancelled. Nothing was
	// changed.
	ErrClaimLost = errors.New("the claim is no longer this one")
	// ErrMemberTaken reports that somebody else is in the group under that name.
	ErrMemberTaken = errors.New("somebody else is a member under that name")
)

// Errors of locks, and of those who lead by one.
var (
	// ErrLockHeld reports that somebody holds the lock. The text says who, and until
	// when, if it is not renewed.
	ErrLockHeld = errors.New("the lock is held")
	// ErrLockLost reports that the lock is no longer this handle's: it was not renewed
	// in time, somebody else removed or took it, it was unlocked, or the DB was closed.
	ErrLockLost = errors.New("the lock is no longer held")
	// ErrLeadershipLost reports that another process leads now: what was to be done by
	// one process at a time has stopped here.
	ErrLeadershipLost = errors.New("another process leads now")
)

// opError is an error of a verb: what was done, to what, and why it failed.
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

// fail adds the operation and the name to err, once.
func fail(op, name string, err error) error {
	var done *opError
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &opError{op, name, err}
}

// failID is fail for a thing that has a number.
func failID(op string, id int64, err error) error {
	return fail(op+" "+strconv.FormatInt(id, 10), "", err)
}

// inTx refuses a verb that would wait for its own caller, and names the twin to use
// instead, if there is one.
func inTx(ctx context.Context, db *DB, twin string) error {
	switch {
	case ctx.Value(txKey{db}) == nil:
		return nil
	case twin == "":
		return fmt.Errorf("%w: call it after DB.Tx has returned", ErrInTx)
	}
	return fmt.Errorf("%w: use %s inside DB.Tx", ErrInTx, twin)
}

// ended says why ctx has ended: by Close, or as its owner wanted.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == ctx.Err() || errors.Is(cause, ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}

// pause returns an error when ctx ends before d has passed.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// JobFailedError reports that the job whose result was waited for went to the dead
// letters.
type JobFailedError struct {
	ID        int64
	Attempts  int
	LastError string
}

func (e *JobFailedError) Error() string {
	return fmt.Sprintf("job %d failed after %d attempts: %s", e.ID, e.Attempts, e.LastError)
}
