// Package engine runs honker's reads, writes and waits on a single database. It joins the caller's transactions and
// shuts down in an orderly way. The root package creates an Engine for each DB; other packages of this module reach
// it through [Of].
package engine

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// Querier runs statements, on a connection or in a transaction.
type Querier = row.Querier

// Config holds the options and dependencies of an Engine, besides its backend.
type Config struct {
	Stores     Stores
	Looks      *sql.DB // the pool on which the notifier queries the effects of a commit
	Logger     *slog.Logger
	MaxPayload int   // bytes
	Codec      Codec // for job payloads; nil for none
	CountLimit int   // limit of the counts in Stats
	WALLimit   int64 // maximum size of the write-ahead log in bytes; negative for no limit
	ReadOnly   bool
	Woke       func(cause string, waiters int)
	Piggybacks []Piggyback
	Observer   *observe.Observer // its panics are caught; for this module's other packages
}

// Engine runs the verbs of a DB on its backend. It is safe for concurrent use.
type Engine struct {
	Config
	Backend  Backend
	Notifier *wake.Notifier

	looks      wake.KeyedMutex // serializes operators' reads
	lastCounts sync.Map        // counted by queue, "" for all queues; only counts that took a long time
	lastHeads  keptHeads       // guarded by the "heads" lock of looks
	lastSums   pastSums
	tallies    tallies // numbers of events

	ctx    context.Context // ends with Close and ends all loops
	cancel context.CancelCauseFunc

	// Close has two steps, so that a handler that finishes while Work drains can still settle its job. From the first
	// step on, no new loops may start. From the second step on, verbs are rejected.
	mu      sync.Mutex // guards closing and closed, and orders loops.Add before closing
	loops   sync.WaitGroup
	closing bool
	closed  bool
}

// New returns an engine on b. It starts no goroutines.
func New(b Backend, c Config) *Engine {
	e := &Engine{Config: c, Backend: b}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.Notifier = wake.New(wake.Config{
		Statements: c.Stores.Wake,
		Reader:     c.Looks,
		Woke:       c.Woke,
		Watch:      b.Watch,
		Now:        b.Now,
	})
	return e
}

// Now returns the time of the backend's clock. Times that are stored, or compared with stored times, must come from it;
// time.Now is for durations within the process and for deadlines of a ctx.
func (e *Engine) Now() time.Time { return e.Backend.Now() }

// Local returns the time of the process's clock at which the backend's clock will show t. It is for timers and
// deadlines of a ctx.
func (e *Engine) Local(t time.Time) time.Time { return wake.Local(t, e.Now) }

// Enter registers a loop that Close will wait for. The returned ctx also ends when Close is called, with ErrClosed as
// its cause. The caller must call leave when the loop has ended.
func (e *Engine) Enter(ctx context.Context) (run context.Context, leave func(), err error) {
	if err := e.Writable(); err != nil {
		return nil, nil, err
	}
	return e.EnterReading(ctx)
}

// EnterReading is Enter for a loop that only reads.
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

// Closing reports whether Close has begun.
func (e *Engine) Closing() bool { return e.ctx.Err() != nil }

// UntilClose returns a ctx that also ends when Close is called, with ErrClosed as its cause. Use it for waits that
// Close doesn't need to wait for. The caller must call cancel.
func (e *Engine) UntilClose(ctx context.Context) (run context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { end(ErrClosed) })
	return ctx, func() { stop(); end(nil) }
}

// Close ends every wait, waits for the loops to end, and closes the backend.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.cancel(ErrClosed)
	e.loops.Wait()
	e.closePiggybacks()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return errors.Join(e.Notifier.Close(), e.Backend.Close())
}

// open returns ErrClosed once Close has waited for all loops, and nil until then.
func (e *Engine) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

// Writable returns ErrReadOnly if the engine is read-only. Verbs that may write should call it even
// if they find nothing to write.
func (e *Engine) Writable() error {
	if e.ReadOnly {
		return ErrReadOnly
	}
	return nil
}

// UsableToWrite is Usable for a verb that reads before it writes.
func (e *Engine) UsableToWrite(ctx context.Context, txForm string) error {
	if err := e.Writable(); err != nil {
		return err
	}
	return e.Usable(ctx, txForm)
}

// Usable checks the conditions that every verb requires: the DB is open, and ctx has not ended and does not belong to
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

// Read runs f on its own connection. If ctx belongs to [Engine.Tx], Read runs f in that
// transaction, which may hold an attached pool's only connection; f then sees the transaction's
// changes. If f fails because of a lock, Read may call it again.
//
// ctx limits the wait for a connection. A statement that has started is not interrupted, because an
// interrupt costs the driver a goroutine per statement and can leave the connection unusable.
func (e *Engine) Read(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return e.read(ctx, false, f)
}

// Snapshot is like Read, but all of f's statements see the same state of the database.
func (e *Engine) Snapshot(ctx context.Context, f func(ctx context.Context, q Querier) error) error {
	return e.read(ctx, true, f)
}

// AtOnce calls f with a ctx under which all of e's reads see the same state of the database. The reads share
// a connection, so f must not read from several goroutines. The ctx is valid until f returns. If a read fails
// because of a lock, AtOnce may call f again. Within [Engine.Tx], the state is that of the transaction.
func (e *Engine) AtOnce(ctx context.Context, f func(ctx context.Context) error) error {
	return e.Snapshot(ctx, func(ctx context.Context, q Querier) error {
		return f(context.WithValue(ctx, momentKey{e}, &moment{q, e.Now()}))
	})
}

// momentKey is the key of the moment in the ctx of AtOnce's function.
type momentKey struct{ engine *Engine }

// moment is a state of the database, and the time that its reads compare with.
type moment struct {
	q  Querier
	at time.Time
}

// moment returns the moment that AtOnce stored in ctx, or nil.
func (e *Engine) moment(ctx context.Context) *moment {
	m, _ := ctx.Value(momentKey{e}).(*moment)
	return m
}

// NowAt is the time for reads with ctx. All reads of AtOnce's function get the same time, so that a job that becomes
// due between two of them is scheduled for both.
func (e *Engine) NowAt(ctx context.Context) time.Time {
	if m := e.moment(ctx); m != nil {
		return m.at
	}
	return e.Now()
}

func (e *Engine) read(ctx context.Context, oneMoment bool, f func(ctx context.Context, q Querier) error) error {
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
	if m := e.moment(ctx); m != nil {
		return f(ctx, m.q)
	}
	return e.WrapCause(withCause(ctx, e.Backend.Read(ctx, oneMoment, f)))
}

// Refused reports whether err comes from a database constraint or trigger.
func (e *Engine) Refused(err error) bool { return e.Stores.Refused(err) }

// WrapCause returns the underlying reason for a failed read. If the DB was closed or its file was replaced, it
// returns that error, because the driver's error is only a consequence. It returns nil if err is nil.
func (e *Engine) WrapCause(err error) error {
	if err == nil {
		return nil
	}
	if closed := e.open(); closed != nil {
		return closed
	}
	if f, ok := e.Backend.(File); ok {
		if replaced := f.CheckIdentity(); errors.Is(replaced, ErrDatabaseReplaced) {
			return replaced
		}
	}
	return err
}

// Write commits op, alone or in a transaction with concurrent callers' ops. txForm is the form of
// the verb to use inside [Engine.Tx].
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

// OpFunc is an Op that runs several statements.
type OpFunc func(ctx context.Context, q Querier, now time.Time) error

// Run implements Op.
func (f OpFunc) Run(ctx context.Context, q Querier, now time.Time) error { return f(ctx, q, now) }

// Single implements Op.
func (OpFunc) Single() bool { return false }

// SingleOp is an Op that runs a single statement. SQLite undoes a failed statement by itself, so
// the statement needs no BEGIN when it runs alone, and no savepoint when it runs among other ops.
type SingleOp func(ctx context.Context, q Querier, now time.Time) error

// Run implements Op.
func (f SingleOp) Run(ctx context.Context, q Querier, now time.Time) error { return f(ctx, q, now) }

// Single implements Op.
func (SingleOp) Single() bool { return true }
