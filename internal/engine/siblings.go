package engine

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// of is set by the root package, because only the root package can access a *honker.DB's fields.
var of func(db any) *Engine

// Register sets the function that returns the engine of a *honker.DB. The root package calls it
// when it is initialised.
func Register(f func(db any) *Engine) { of = f }

// Of returns db's engine. db must be a *honker.DB: Of panics on any other type, because that is a
// bug in this module. Of is for packages in this module that build on the root package.
func Of(db any) *Engine { return of(db) }

// Database is an open database, from which NewDB makes a DB.
type Database struct {
	Backend Backend
	Stores  Stores
	Pool    func() *sql.DB // the application's pool
	Looks   *sql.DB        // the pool on which the notifier queries the effects of a commit
}

// Settings holds the options of a DB that its backend needs, with their defaults.
type Settings struct {
	Logger      *slog.Logger
	BusyTimeout time.Duration
	ReadOnly    bool
}

var newDB func(options any, open func(Settings) (Database, error)) (db any, err error)

// RegisterNew sets the function that NewDB calls. The root package calls it when it is initialised.
func RegisterNew(f func(options any, open func(Settings) (Database, error)) (db any, err error)) {
	newDB = f
}

// NewDB returns a *honker.DB for the database that open opens. options must be a honker.Options; NewDB checks it
// before it calls open. It is for modules of this repository with other databases.
func NewDB(options any, open func(Settings) (Database, error)) (db any, err error) {
	return newDB(options, open)
}

// Elsewhere opens a DB on another database in place of the file at path, or returns nil to open the file. It is nil
// outside of this module's tests, which it runs on a second database.
var Elsewhere func(ctx context.Context, path string, options any) (db any, err error)

// Views holds functions that convert rows to honker.JobInfo and honker.QueueStats, which are defined in the root
// package. now is the time as of which a job is described, and c is the DB's codec for job arguments.
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

// Sink receives the events of a stream that another package in this module pipes to somewhere else in the same file.
// The events passed to Add since the last call to Committed or Dropped form a batch.
type Sink interface {
	// Add converts an event, a *honker.Event, and adds it to the batch. It is called outside a
	// transaction.
	Add(ctx context.Context, event any) error
	// Write writes the batch in the transaction that saves the consumer's offset. It may be called
	// again if a lock blocked the commit.
	Write(ctx context.Context, q Querier, now time.Time) error
	// Committed is called after the batch was committed. It should wake the readers of the batch.
	Committed()
	// Dropped is called if the batch was not written because the offset had been moved.
	Dropped()
}

var pipe func(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error

// RegisterPipe sets the function with which Pipe reads a *honker.Stream. The root package calls it
// when it is initialised.
func RegisterPipe(f func(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error) {
	pipe = f
}

// Pipe reads stream, which must be a *honker.Stream of e's DB, and passes its events to the sink
// to, as honker.Pipe does. It panics if stream has any other type.
func Pipe(ctx context.Context, e *Engine, stream any, consumer string, to Sink) error {
	return pipe(ctx, e, stream, consumer, to)
}

// Along runs in the transaction of an enqueue, after its jobs were inserted. It may be called again if the commit fails. If
// it returns an error, the enqueue returns that error and adds nothing.
type Along func(ctx context.Context, q Querier, in row.Inserted, now time.Time) error

var along func(Along) any

// RegisterAlong sets the function that WithAlong calls. The root package calls it when it is initialised.
func RegisterAlong(f func(Along) any) { along = f }

// WithAlong returns a honker.EnqueueOption with which Enqueue and EnqueueMany call f. The Tx forms do not: their callers
// have the transaction.
func WithAlong(f Along) any { return along(f) }
