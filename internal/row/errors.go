package row

import (
	"errors"
	"fmt"
)

// Errors of inserts and of steps.
var (
	// ErrBatchDone is returned when a job joins a sealed batch that has no waiting or running members.
	ErrBatchDone = errors.New("the batch is done")
	// ErrAwaited is returned when a job may have waiters, so that ending it takes several statements. Nothing
	// was changed.
	ErrAwaited = errors.New("other jobs may wait for the job")
	// ErrClaimsLost is returned by a Step that is not exact if some claim no longer holds. The transaction
	// must be rolled back, and the step run again as an exact one.
	ErrClaimsLost = errors.New("a claim of the batch was lost")
)

// ErrNotFound reports that a row required by a statement does not exist.
var ErrNotFound = errors.New("not found")

// ErrIgnored reports a change that a trigger of the application has dropped, by
// RAISE(IGNORE). To the database that is no error: the statement has changed no row.
var ErrIgnored = errors.New("a trigger has dropped the change")

// Errors for statements that had no effect because of a trigger of the application.
var (
	// ErrNotInserted is returned when an inserted row does not exist afterwards.
	ErrNotInserted = fmt.Errorf("not inserted: %w", ErrIgnored)
	// ErrStuck is returned when work is due but cannot be done. A caller that retries at once would loop
	// forever.
	ErrStuck = fmt.Errorf("no progress: %w", ErrIgnored)
)
