package honker

import (
	"context"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// Errors of opening a file. Test for all of these with errors.Is: what honker
// returns says the operation, the name and the cause as well.
var (
	// ErrUnsupported reports what cannot be safe: an in-memory database, a network
	// filesystem, a read-only file opened for writing, a file that is not a database or is damaged,
	// one with an older schema opened to be read only, an engine with a known corruption bug; in a
	// bubble of testing/synctest, notices of the system.
	ErrUnsupported = engine.ErrUnsupported
	// ErrSchemaTooNew reports a file that a newer version of honker has written.
	// Nothing was changed.
	ErrSchemaTooNew = engine.ErrSchemaTooNew
)

// Errors of any verb.
var (
	// ErrClosed reports a call after, or interrupted by, Close.
	ErrClosed = engine.ErrClosed
	// ErrInvalid reports a bad name, option, payload or argument, a nil one included. Nothing was
	// changed.
	ErrInvalid = engine.ErrInvalid
	// ErrInTx reports a plain verb called with the ctx of [DB.Tx]: it would wait
	// for its own caller. The text names the Tx form.
	ErrInTx = engine.ErrInTx
	// ErrReadOnly reports a verb that may write, on a DB that was opened with Options.ReadOnly. Nothing
	// was changed.
	ErrReadOnly = engine.ErrReadOnly
	// ErrBusy reports that the writer was not free within BusyTimeout. Nothing was
	// changed.
	ErrBusy = engine.ErrBusy
	// ErrNotFound reports that there is no such job, result, consumer, group or schedule.
	ErrNotFound = engine.ErrNotFound
	// ErrNotInserted reports that a trigger of the application's on one of honker's tables has
	// dropped the row that was to be inserted, by RAISE(IGNORE). A verb that inserts several
	// rows has inserted none. What the trigger itself has written may stay.
	ErrNotInserted = engine.ErrNotInserted
	// ErrDatabaseReplaced reports that another file lies at the path now: close the DB and open
	// it again. To a loop that reads events or messages it also reports that a backup was
	// restored over the open file; the DB goes on then, and the loop can be started again.
	ErrDatabaseReplaced = engine.ErrDatabaseReplaced
)

// Errors of batches.
var (
	// ErrBatchDone reports an enqueue to a batch that is sealed, and of which no member waits or runs.
	// Nothing was changed.
	ErrBatchDone = engine.ErrBatchDone
)

// Errors of holding a job, or an event of a group.
var (
	// ErrClaimLost reports that the claim no longer holds: it lapsed, the job was claimed
	// again, or it was settled or cancelled. Nothing was changed.
	ErrClaimLost = engine.ErrClaimLost
	// ErrCancelled is the cause of the end of a handler's ctx when its job was cancelled.
	ErrCancelled = worker.ErrCancelled
	// ErrMemberTaken reports that another member of the group has that name. The text says
	// in which process, and until when, if it is not renewed.
	ErrMemberTaken = errors.New("member name taken")
)

// Errors of locks, and of loops that lead by one.
var (
	// ErrLockHeld reports that the lock is held. The text says by which owner, and until
	// when, if it is not renewed.
	ErrLockHeld = errors.New("lock held")
	// ErrLockLost reports that the lock is no longer this handle's: it was not renewed
	// in time, another program removed or took it, it was unlocked, or the DB was closed.
	ErrLockLost = engine.ErrLockLost
	// ErrLeadershipLost reports that another process leads now: what is to be done by
	// one process at a time has stopped here.
	ErrLeadershipLost = errors.New("leadership lost")
)

// errorTypes are the names of those that ErrorType knows, the most telling first.
var errorTypes = []struct {
	err  error
	name string
}{
	{ErrClaimLost, "claim_lost"}, {ErrCancelled, "cancelled"}, {ErrLockLost, "lock_lost"}, {ErrLockHeld, "lock_held"},
	{ErrInTx, "in_tx"}, {ErrReadOnly, "read_only"}, {ErrBusy, "busy"}, {ErrNotFound, "not_found"}, {ErrClosed, "closed"},
	{ErrDatabaseReplaced, "database_replaced"}, {ErrNotInserted, "not_inserted"}, {ErrInvalid, "invalid"}, {ErrUnsupported, "unsupported"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "context_canceled"},
}

// ErrorType names the kind of an error, for a metric or a span: "busy" for [ErrBusy] and so on for honker's own,
// "timeout" and "context_canceled" for those of a ctx, else the type in Go, such as "*net.OpError", without what
// wraps it to add text. It has nothing of the error's text, which may hold ids and names. It is "" for nil, and for a
// [Snooze] or [SlowDown], which are no failures.
func ErrorType(err error) string {
	var d *worker.Directive
	if err == nil || errors.As(err, &d) && d.Outcome == worker.Snoozed {
		return ""
	}
	for _, known := range errorTypes {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	for {
		name, inner := fmt.Sprintf("%T", err), errors.Unwrap(err)
		wraps := name == "*fmt.wrapError" || name == "*worker.Directive"
		if inner == nil || !wraps {
			return name
		}
		err = inner
	}
}

// fail adds the operation and the name to err, once.
func fail(op, name string, err error) error { return engine.Wrap(op, name, err) }

// failID is fail for a thing that has a number.
func failID(op string, id int64, err error) error { return engine.WrapID(op, id, err) }

// JobFailedError reports that a result was waited for and its job went to the dead letters.
type JobFailedError struct {
	ID        int64
	Attempts  int
	LastError string
}

// Error implements error.
func (e *JobFailedError) Error() string {
	return fmt.Sprintf("job %d failed after %d attempts: %s", e.ID, e.Attempts, e.LastError)
}

// OldSchemaError reports that a file, opened with ReadOnly, has an older schema than this version of the library
// needs. Opening it once without ReadOnly upgrades it. It is [ErrUnsupported] too.
type OldSchemaError struct {
	Version int // of the file; 0: another binding of honker has made it, without this library's tables
	Current int // of this library
}

// Error implements error.
func (e *OldSchemaError) Error() string {
	if e.Version == 0 {
		return "it was made by another binding of honker and lacks this library's tables: open it for writing once"
	}
	return fmt.Sprintf("its schema is older, version %d where this library has %d: open it for writing once", e.Version, e.Current)
}

// BrokenError reports that [DB.Check] has read the file, and that it is not sound.
type BrokenError struct {
	Rules []string // that the file breaks, and examples of what breaks them
}

// Error implements error.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("%d rules broken: %q", len(e.Rules), e.Rules)
}
