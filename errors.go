package honker

import (
	"context"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// Errors returned when a file is opened. Use errors.Is to test for the errors in this file, because returned
// errors also contain the operation, the name and the cause.
var (
	// ErrUnsupported reports a setup that cannot be safe: an in-memory database, a network filesystem, a
	// read-only file opened for writing, a damaged file or a file that is not a database, a file with an older
	// schema opened with ReadOnly, an SQLite version with a known corruption bug, or file notices inside a
	// testing/synctest bubble.
	ErrUnsupported = engine.ErrUnsupported
	// ErrSchemaTooNew reports a file that was written by a newer version of honker. Nothing was changed.
	ErrSchemaTooNew = engine.ErrSchemaTooNew
)

// Errors that any verb can return.
var (
	// ErrClosed reports a call that was made after Close or interrupted by it.
	ErrClosed = engine.ErrClosed
	// ErrInvalid reports a bad name, option, payload or argument, including a nil argument. Nothing was changed.
	ErrInvalid = engine.ErrInvalid
	// ErrInTx reports a plain verb called with the ctx of [DB.Tx]. The verb would deadlock on the caller's own
	// transaction. The error text names the Tx form to use instead.
	ErrInTx = engine.ErrInTx
	// ErrReadOnly reports a call of a verb that may write, on a DB opened with Options.ReadOnly or on a server that
	// accepts no writes. Nothing was changed.
	ErrReadOnly = engine.ErrReadOnly
	// ErrBusy reports that the write lock did not become free within BusyTimeout. Nothing was changed.
	ErrBusy = engine.ErrBusy
	// ErrUncertain reports that the connection to a server was lost before the server had answered a commit. The
	// transaction may or may not have taken effect, and may still do so. Repeat the call only if a second run has no
	// effect, for instance because of a unique key. honker does so by itself when it settles claims. SQLite files never
	// return ErrUncertain.
	ErrUncertain = engine.ErrUncertain
	// ErrNotFound reports that a job, result, consumer, group, schedule or batch does not exist.
	ErrNotFound = engine.ErrNotFound
	// ErrNotInserted reports that a trigger created by the application dropped a row that honker was inserting,
	// with RAISE(IGNORE). A verb that inserts several rows has inserted none of them. Rows written by the
	// trigger itself may remain.
	ErrNotInserted = engine.ErrNotInserted
	// ErrDatabaseReplaced reports that the path now names a different file: close the DB and open it again. In a
	// loop that reads events or messages, it also reports that a backup was restored over the open file. In that
	// case the DB stays usable, and the loop can be started again.
	ErrDatabaseReplaced = engine.ErrDatabaseReplaced
)

// Errors related to batches.
var (
	// ErrBatchDone reports an enqueue to a sealed batch without waiting or running members. Nothing was changed.
	ErrBatchDone = engine.ErrBatchDone
)

// Errors related to claims of jobs and of group events.
var (
	// ErrClaimLost reports that the claim is no longer valid: it lapsed, or the job was claimed again, settled or
	// cancelled. Nothing was changed.
	ErrClaimLost = engine.ErrClaimLost
	// ErrCancelled is the cancellation cause of a handler's ctx after its job was cancelled.
	ErrCancelled = worker.ErrCancelled
	// ErrMemberTaken reports that another member of the group has the name. The error text contains that
	// member's process and the time at which its hold on the name expires.
	ErrMemberTaken = errors.New("member name taken")
)

// Errors related to locks and to loops that elect a leader with a lock.
var (
	// ErrLockHeld reports that the lock is held. The error text contains the owner and the time at which the
	// lock expires unless it is renewed.
	ErrLockHeld = errors.New("lock held")
	// ErrLockLost reports that this handle no longer holds the lock: it was not renewed in time, another program
	// removed or took it, it was unlocked, or the DB was closed.
	ErrLockLost = engine.ErrLockLost
	// ErrLeadershipLost reports that another process has become the leader. Leader-only work in this process has
	// stopped.
	ErrLeadershipLost = errors.New("leadership lost")
)

// errorTypes lists the errors that ErrorType can name, most specific first.
var errorTypes = []struct {
	err  error
	name string
}{
	{ErrClaimLost, "claim_lost"}, {ErrCancelled, "cancelled"}, {ErrLockLost, "lock_lost"}, {ErrLockHeld, "lock_held"},
	{ErrUncertain, "uncertain"}, {ErrInTx, "in_tx"}, {ErrReadOnly, "read_only"}, {ErrBusy, "busy"}, {ErrNotFound, "not_found"}, {ErrClosed, "closed"},
	{ErrDatabaseReplaced, "database_replaced"}, {ErrNotInserted, "not_inserted"}, {ErrInvalid, "invalid"}, {ErrUnsupported, "unsupported"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "context_canceled"},
}

// ErrorType returns a short name for the kind of err, for use in a metric or a span. It returns "busy" for [ErrBusy],
// similar names for honker's other errors, and "timeout" or "context_canceled" for context errors. For any other
// error it returns the Go type, such as "*net.OpError", after removing wrappers that only add text. The name never
// contains parts of the error's text, which may include IDs and names. ErrorType returns "" for nil, and for [Snooze]
// and [SlowDown], which are not failures.
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

// fail adds the operation and the name to err, unless they were already added.
func fail(op, name string, err error) error { return engine.Wrap(op, name, err) }

// failID is like fail, but for an object with a numeric ID.
func failID(op string, id int64, err error) error { return engine.WrapID(op, id, err) }

// JobFailedError reports that the job became a dead letter while a caller was waiting for its result.
type JobFailedError struct {
	ID        int64
	Attempts  int
	LastError string
}

// Error implements error.
func (e *JobFailedError) Error() string {
	return fmt.Sprintf("job %d failed after %d attempts: %s", e.ID, e.Attempts, e.LastError)
}

// OldSchemaError reports that a database has an older schema than this version of the library needs, and was opened in a way
// that does not upgrade it: a file with ReadOnly, or a PostgreSQL schema with ReadOnly or honkerpg's NoMigrate. Open it once
// without them to upgrade it. errors.Is also matches [ErrUnsupported].
type OldSchemaError struct {
	Version int // schema version of the database; 0 if it lacks this library's tables, for example because another honker binding made the file
	Current int // schema version of this library
}

// Error implements error.
func (e *OldSchemaError) Error() string {
	if e.Version == 0 {
		return "it lacks this library's tables: open it once for writing"
	}
	return fmt.Sprintf("its schema has version %d, and this library needs version %d: open it once for writing", e.Version, e.Current)
}

// BrokenError reports that [DB.Check] has found the file to be inconsistent.
type BrokenError struct {
	Rules []string // violated rules, with examples
}

// Error implements error.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the file breaks %d rules: %q", len(e.Rules), e.Rules)
}
