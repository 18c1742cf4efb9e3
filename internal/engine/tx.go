package engine

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/honker-go/honker/internal/wake"
)

// scope is stored in the ctx that Tx passes to its function. It holds the transaction and whether Tx has ended.
type scope struct {
	tx    *sql.Tx
	alive func() error // of the backend's transaction
	ended atomic.Bool

	mu      sync.Mutex
	changes map[wake.Change]bool // waiters of these changes are woken after the commit
	calls   []func()             // called after the waiters are woken
}

// note adds changes and call, which may be nil, to the work to do after the commit.
func (s *scope) note(changes []wake.Change, call func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call != nil {
		s.calls = append(s.calls, call)
	}
	if s.changes == nil && len(changes) > 0 {
		s.changes = make(map[wake.Change]bool, len(changes))
	}
	for _, c := range changes {
		s.changes[c] = true
	}
}

// noted returns the changes and calls noted so far. A goroutine left behind by the function may
// still add more before its statement fails.
func (s *scope) noted() ([]wake.Change, []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.changes)), slices.Clone(s.calls)
}

// scopeKey is the key of the scope in the ctx passed to Tx's function.
type scopeKey struct{ engine *Engine }

// scopeOf returns the scope in ctx, or nil.
func (e *Engine) scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{e}).(*scope)
	return s
}

var (
	errNilContext = fmt.Errorf("%w: nil context", ErrInvalid)
	errTxEnded    = fmt.Errorf("%w: the ctx belongs to a DB.Tx that has ended: use the ctx that was passed to DB.Tx", ErrInvalid)
)

// CheckContext returns ErrInvalid if ctx is nil. It is for verbs that use values from ctx.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	return nil
}

// Tx runs fn in a write transaction. It commits if fn returns nil, and rolls back if fn returns an error or panics.
// It waits for the write lock until ctx ends or the busy timeout elapses.
func (e *Engine) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := e.mayBegin(ctx, fn == nil); err != nil {
		return Wrap("tx", "", err)
	}
	begun, err := e.Backend.Begin(ctx)
	if err != nil {
		return Wrap("begin", "", withCause(ctx, err))
	}
	defer begun.Close() // rolls back after a panic or an error
	tx := begun.SQL()
	s := &scope{tx: tx, alive: begun.Alive}
	defer s.ended.Store(true)
	if err := fn(context.WithValue(ctx, scopeKey{e}, s), tx); err != nil {
		return err
	}
	if err := begun.Commit(); err != nil {
		return Wrap("commit", "", err)
	}
	changes, calls := s.noted()
	e.Notifier.Wake(changes...)
	for _, call := range calls {
		call()
	}
	return nil
}

// TxAgain is like Tx, for an fn that has no effects outside of the transaction. It calls fn again if another transaction was
// in the way.
func (e *Engine) TxAgain(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if b, ok := e.Backend.(Contended); ok {
		return b.Repeat(ctx, func() error { return e.Tx(ctx, fn) })
	}
	return e.Tx(ctx, fn)
}

// mayBegin returns an error if Tx cannot start a transaction under ctx.
func (e *Engine) mayBegin(ctx context.Context, nilFunc bool) error {
	if nilFunc {
		return fmt.Errorf("%w: nil function", ErrInvalid)
	}
	if err := e.Writable(); err != nil {
		return err
	}
	if err := e.RefuseInTx(ctx, "the open tx"); err != nil {
		return err
	}
	return e.open()
}

// RefuseInTx returns ErrInTx if ctx was passed to Tx's function, because a verb that waits for the
// write lock would wait for its own caller. The error names txForm, the form to use instead, unless
// it is "". If ctx is nil or belongs to a Tx that has ended, the error is ErrInvalid.
func (e *Engine) RefuseInTx(ctx context.Context, txForm string) error {
	s, err := e.liveScope(ctx)
	switch {
	case err != nil || s == nil:
		return err
	case txForm == "":
		return fmt.Errorf("%w: this verb has none; call it after DB.Tx has returned", ErrInTx)
	}
	return fmt.Errorf("%w: %s", ErrInTx, txForm)
}

// liveScope is like scopeOf, but returns an error if ctx is nil or belongs to a Tx that has ended.
func (e *Engine) liveScope(ctx context.Context) (*scope, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	s := e.scopeOf(ctx)
	if s != nil && s.ended.Load() {
		return nil, errTxEnded
	}
	return s, nil
}

// Join checks that tx can be used to write to this DB, and returns the Querier to run the write on. The waiters for
// changes are woken once tx is committed. If the commit can't be observed, as on an attached pool, the watcher
// detects it instead.
func (e *Engine) Join(ctx context.Context, tx Querier, changes ...wake.Change) (Querier, error) {
	on, _, err := e.JoinThen(ctx, tx, nil, changes...)
	return on, err
}

// JoinThen is like Join, but call is also called after tx is committed, by the goroutine that
// committed it. If the commit cannot be observed, seen is false and call is never called.
func (e *Engine) JoinThen(ctx context.Context, tx Querier, call func(), changes ...wake.Change) (on Querier, seen bool, err error) {
	if ctx == nil {
		return nil, false, errNilContext
	}
	if err := e.Writable(); err != nil {
		return nil, false, err
	}
	if isNil(tx) {
		return nil, false, fmt.Errorf("%w: nil transaction", ErrInvalid)
	}
	if err := e.open(); err != nil {
		return nil, false, err
	}
	// The transaction of Tx was checked when it began.
	if own := e.scopeOf(ctx); own != nil && tx == Querier(own.tx) {
		if err := own.alive(); err != nil {
			return nil, false, err
		}
		own.note(changes, call)
		return own.tx, true, nil
	}
	seen, err = e.Backend.CheckTx(ctx, tx, e.afterCommit(changes, call))
	if err != nil {
		return nil, false, err
	}
	return tx, seen, nil
}

// afterCommit returns the functions to call after a commit, by key. The keys ensure that equal
// changes in a transaction wake their waiters only once.
func (e *Engine) afterCommit(changes []wake.Change, call func()) map[any]func() {
	calls := make(map[any]func(), len(changes)+1)
	for _, c := range changes {
		calls[c] = func() { e.Notifier.Wake(c) }
	}
	if call != nil {
		calls[&call] = call
	}
	return calls
}

// isNil reports whether tx is nil, or a nil pointer such as a nil *sql.Tx.
func isNil(tx Querier) bool {
	v := reflect.ValueOf(tx)
	return tx == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
