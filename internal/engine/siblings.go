package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// of is set by the root package, because only the root package can access the fields of a
// *honker.DB.
var of func(db any) *Engine

// Register sets the function that returns the engine of a *honker.DB. The root package calls it
// when it is initialised.
func Register(f func(db any) *Engine) { of = f }

// Of returns the engine of db, which must be a *honker.DB. It is for packages of this module that
// build on the root package. It panics on any other type, which would be a bug in this module.
func Of(db any) *Engine { return of(db) }

// Views holds functions that convert rows to honker.JobInfo and honker.QueueStats, the types of the
// root package. now is the time at which a job is described, and c is the codec of the DB for the
// arguments of the job.
type Views struct {
	Job   func(row row.Job, now time.Time, c Codec) any
	Stats func(row QueueStats) any
}

var views Views

// RegisterViews sets the functions that View returns. The root package calls it when it is
// initialised.
func RegisterViews(v Views) { views = v }

// View returns the functions set by RegisterViews.
func View() Views { return views }

// Sink receives the events of a stream that a package of this module pipes to another place in the
// same file. The events passed to Add since the last call of Committed or Dropped form a batch.
type Sink interface {
	// Add converts an event, a *honker.Event, and adds it to the batch. It is called outside a
	// transaction.
	Add(ctx context.Context, event any) error
	// Write writes the batch, in the transaction that saves the consumer's offset. It may be called
	// again if the commit was blocked by a lock.
	Write(ctx context.Context, q Querier, now time.Time) error
	// Committed is called after the batch was committed. It should wake the readers of the batch.
	Committed()
	// Dropped is called if the batch was not written, because the offset was moved in the meantime.
	Dropped()
}

var pipe func(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error

// RegisterPipe sets the function with which Pipe reads a *honker.Stream. The root package calls it
// when it is initialised.
func RegisterPipe(f func(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error) {
	pipe = f
}

// Pipe reads stream, a *honker.Stream of the DB of e, and passes its events to the sink to, as
// honker.Pipe does. It panics on any other type of stream.
func Pipe(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error {
	return pipe(ctx, e, stream, consumer, to)
}
