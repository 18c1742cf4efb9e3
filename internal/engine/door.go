package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// of is set by the root package, which alone can look into a *honker.DB.
var of func(db any) *Engine

// Register tells how to reach the engine of a *honker.DB. The root package calls it when it
// is initialised.
func Register(f func(db any) *Engine) { of = f }

// Of returns the engine of db, a *honker.DB: for the packages of this module that build on
// the root without being part of it. It panics on anything else, which is a mistake of this
// module's own.
func Of(db any) *Engine { return of(db) }

// Views make the types of the root package, honker.JobInfo and honker.QueueStats, of rows as they
// are at now. The codec is that of the DB, by which the arguments of the job are read.
type Views struct {
	Job   func(row row.Job, now time.Time, c Codec) any
	Stats func(row QueueStats) any
}

var views Views

// RegisterViews tells how to make them, as [Register] does for the engine.
func RegisterViews(v Views) { views = v }

// View returns what RegisterViews was given.
func View() Views { return views }

// Sink takes the events of a stream that a package of this module pipes to somewhere in the
// same file. What it was given by Add since the last Committed or Dropped is a batch.
type Sink interface {
	// Add makes something of an event, a *honker.Event, outside of a transaction.
	Add(ctx context.Context, event any) error
	// Write writes the batch, in the transaction that saves the consumer's offset. It may run
	// again, when the commit has met a lock.
	Write(ctx context.Context, q Querier, now time.Time) error
	// Committed is called when the batch is committed, to wake its readers.
	Committed()
	// Dropped is called when the batch was not written: the offset was moved meanwhile.
	Dropped()
}

var pipe func(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error

// RegisterPipe tells how to pipe a *honker.Stream, as [Register] does for the engine.
func RegisterPipe(f func(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error) {
	pipe = f
}

// Pipe reads stream, a *honker.Stream of the DB with e, as honker.Pipe does, into what to makes
// of the events. It panics on anything else.
func Pipe(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error {
	return pipe(ctx, e, stream, consumer, to)
}
