// Package engine is what every noun of honker stands on: how to write, to read, to join a
// caller's transaction, to wait, and to end. The root package builds one Engine for each DB;
// other packages of this module reach it through [Of].
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/wake"
)

// Querier is what a statement runs on.
type Querier = sqlite.Querier

// Op is a write. It runs inside a transaction that may carry the ops of other callers.
type Op = sqlite.Op

// Config is what an Engine needs beside its backend.
type Config struct {
	Statements wake.Statements
	Logger     *slog.Logger
	Stats      StatsStore
	Pauses     PauseStore
	Limits     LimitStore
	MaxPayload int   // bytes
	Codec      Codec // of the payloads of jobs; nil: none
	CountLimit int   // of Stats
	WALLimit   int64 // bytes that a write-ahead log may have; negative: any
	ReadOnly   bool
	Woke       func(cause string, waiters int)
	Riders     []Rider
	Observe    func(event any) // an event of the root package's Observer, from another package of this module
}

// Engine runs the verbs of one DB on its backend. It is safe for concurrent use.
type Engine struct {
	Config
	Backend  Backend
	Notifier *wake.Notifier

	looks      wake.KeyedMutex // of operators, which take turns
	lastCounts sync.Map        // counted of a queue, "" for all, where that took long
	lastHeads  keptHeads       // for the look that has its turn
	lastWaits  pastWaits

	ctx    context.Context // ends with Close, and all loops with it
	cancel context.CancelCauseFunc

	// Close has two steps, so that a handler that finishes while Work drains can still
	// settle its job: first no loop may start, then no verb is accepted.
	mu      sync.Mutex // guards closing and closed, and loops against closing
	loops   sync.WaitGroup
	closing bool
	closed  bool
}

// New returns an engine on b. It starts nothing.
func New(b Backend, c Config) *Engine {
	e := &Engine{Config: c, Backend: b}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.Notifier = wake.New(wake.Config{
		Statements: c.Statements,
		Reader:     b.Looks(),
		Woke:       c.Woke,
		Watch:      b.Watch,
	})
	return e
}

// Enter registers a loop that Close waits for. The returned ctx ends with Close too, with
// ErrClosed as its cause; leave must be called when the loop has ended.
func (e *Engine) Enter(ctx context.Context) (run context.Context, leave func(), err error) {
	if err := e.Writable(); err != nil {
		return nil, nil, err
	}
	return e.EnterReading(ctx)
}

// EnterReading is Enter for a loop that writes nothing.
func (e *Engine) EnterReading(ctx context.Context) (run context.Context, leave func(), err error) {
	if ctx == nil {
		return nil, nil, errNilContext
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return ctx, nil, ErrClosed
	}
	e.loops.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil); e.loops.Done() }, nil
}

// Closing reports that Close has begun.
func (e *Engine) Closing() bool { return e.ctx.Err() != nil }

// UntilClose returns a ctx that also ends with Close, with ErrClosed as its cause, for a wait
// that Close does not have to wait for. cancel must be called.
func (e *Engine) UntilClose(ctx context.Context) (run context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { end(ErrClosed) })
	return ctx, func() { stop(); end(nil) }
}

// Close ends every wait, waits for the loops, and closes the backend.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.cancel(ErrClosed)
	e.loops.Wait()
	e.endRides()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return errors.Join(e.Notifier.Close(), e.Backend.Close())
}

// open refuses a verb after Close.
func (e *Engine) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

// Writable refuses a verb that may write, whether or not it would find something to write.
func (e *Engine) Writable() error {
	if e.ReadOnly {
		return ErrReadOnly
	}
	return nil
}

// UsableToWrite is Usable for a verb that looks before it writes.
func (e *Engine) UsableToWrite(ctx context.Context, txForm string) error {
	if err := e.Writable(); err != nil {
		return err
	}
	return e.Usable(ctx, txForm)
}

// Usable checks what any verb needs: the DB is open, ctx has not ended and is not that of
// the caller's own transaction. txForm is the form of the verb to use inside [Engine.Tx].
func (e *Engine) Usable(ctx context.Context, txForm string) error {
	if err := e.RefuseInTx(ctx, txForm); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return Cause(ctx)
	}
	return nil
}

// Read runs f on a connection of its own. Under the ctx of [Engine.Tx] it runs f in the
// transaction, and f sees what that has written: the transaction may have the only connection
// of an attached pool. f may run again when it has met a lock. ctx bounds the wait for a
// connection. A statement that has started is not interrupted: an interrupt costs the driver a
// goroutine for each statement and can spoil the connection.
func (e *Engine) Read(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	s, err := e.liveScope(ctx)
	if err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return Cause(ctx)
	}
	if s != nil {
		return e.WrapCause(f(context.WithoutCancel(ctx), s.tx))
	}
	return e.WrapCause(withCause(ctx, e.Backend.Read(ctx, f)))
}

// Snapshot is Read in one transaction: all that f reads is of one moment.
func (e *Engine) Snapshot(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return e.Read(ctx, func(ctx context.Context, q Querier) error {
		return sqlite.Snapshot(ctx, q, func(ctx context.Context) error { return f(ctx, q) })
	})
}

// WrapCause returns the reason behind an error of a read: where the DB was closed meanwhile,
// or the file was replaced, what the driver says is a consequence.
func (e *Engine) WrapCause(err error) error {
	if err == nil {
		return nil
	}
	if closed := e.open(); closed != nil {
		return closed
	}
	if replaced := e.Backend.CheckIdentity(); errors.Is(replaced, ErrDatabaseReplaced) {
		return replaced
	}
	return err
}

// Write commits op: alone, or in one transaction with the ops of concurrent callers. txForm is
// the form of the verb to use inside [Engine.Tx].
func (e *Engine) Write(ctx context.Context, txForm string, op Op) error {
	if err := e.Writable(); err != nil {
		return err
	}
	if err := e.RefuseInTx(ctx, txForm); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	return withCause(ctx, e.write(ctx, op))
}

// OpFunc is an Op of a function that runs several statements.
type OpFunc func(ctx context.Context, q Querier, now time.Time) error

// Run implements Op.
func (f OpFunc) Run(ctx context.Context, q Querier, now time.Time) error { return f(ctx, q, now) }

// Single implements Op.
func (OpFunc) Single() bool { return false }

// SingleOp is an Op of a function that runs one statement, which SQLite undoes by itself when
// it fails: alone it needs no BEGIN, among others no savepoint.
type SingleOp func(ctx context.Context, q Querier, now time.Time) error

// Run implements Op.
func (f SingleOp) Run(ctx context.Context, q Querier, now time.Time) error { return f(ctx, q, now) }

// Single implements Op.
func (SingleOp) Single() bool { return true }
