package row

import (
	"errors"
	"fmt"
)

// Errors returned by inserts and steps.
var (
	// ErrBatchDone is returned when a job joins a sealed batch that has no waiting or running members.
	ErrBatchDone = errors.New("the batch is done")
	// ErrAwaited is returned when other jobs may be waiting for a job, so that ending it takes several
	// statements. Nothing was changed.
	ErrAwaited = errors.New("other jobs may wait for the job")
	// ErrClaimsLost is returned by a Step without Exact if any of its claims is no longer valid. The transaction must
	// be rolled back, and the step must be run again with Exact.
	ErrClaimsLost = errors.New("a claim of the batch was lost")
)

// ErrNotFound reports that a row required by a statement does not exist.
var ErrNotFound = errors.New("not found")

// ErrIgnored reports a change that one of the application's triggers dropped with RAISE(IGNORE). The database
// does not report this as an error: the statement simply changes no row.
var ErrIgnored = errors.New("a trigger has dropped the change")

// Errors for statements that had no effect because of one of the application's triggers.
var (
	// ErrNotInserted is returned when an inserted row does not exist after the insert.
	ErrNotInserted = fmt.Errorf("not inserted: %w", ErrIgnored)
	// ErrStuck is returned when work is due but cannot be done. A caller that retried immediately would loop
	// forever.
	ErrStuck = fmt.Errorf("no progress: %w", ErrIgnored)
)
