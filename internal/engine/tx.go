package engine

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"sync/atomic"
)

// scope is what the ctx of Tx's function carries: its transaction, and whether Tx has ended.
type scope struct {
	tx    *sql.Tx
	ended atomic.Bool
}

// scopeKey marks the ctx of Tx's function with its scope.
type scopeKey struct{ engine *Engine }

// scopeOf returns the scope that ctx carries, or nil.
func (e *Engine) scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{e}).(*scope)
	return s
}

var (
	errNilContext = fmt.Errorf("%w: nil context", ErrInvalid)
	errTxEnded    = fmt.Errorf("%w: the context of a DB.Tx that has ended: use the one that DB.Tx was called with", ErrInvalid)
)

// Tx runs fn in a write transaction: committed when fn returns nil, rolled back when it
// returns an error or panics.
func (e *Engine) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := e.mayBegin(ctx, fn == nil); err != nil {
		return Wrap("tx", "", err)
	}
	tx, release, err := e.Backend.Begin(ctx)
	if err != nil {
		return Wrap("begin", "", withCause(ctx, err))
	}
	defer release()
	defer tx.Rollback() // after a panic or an error; a no-op after Commit
	s := &scope{tx: tx}
	defer s.ended.Store(true)
	if err := fn(context.WithValue(ctx, scopeKey{e}, s), tx); err != nil {
		return err
	}
	return Wrap("commit", "", e.Backend.Commit(tx))
}

func (e *Engine) mayBegin(ctx context.Context, nilFunc bool) error {
	if nilFunc {
		return fmt.Errorf("%w: nil function", ErrInvalid)
	}
	if err := e.RefuseInTx(ctx, "the tx at hand"); err != nil {
		return err
	}
	return e.open()
}

// RefuseInTx returns ErrInTx for the ctx of Tx's function: a verb that waits for the writer
// would wait for its own caller. The text names txForm, the form to use instead; "" is none.
// A nil ctx, and one of a Tx that has ended, are ErrInvalid.
func (e *Engine) RefuseInTx(ctx context.Context, txForm string) error {
	s, err := e.liveScope(ctx)
	switch {
	case err != nil || s == nil:
		return err
	case txForm == "":
		return fmt.Errorf("%w: there is none; call it after DB.Tx has returned", ErrInTx)
	}
	return fmt.Errorf("%w: %s", ErrInTx, txForm)
}

// liveScope is scopeOf for a ctx that may be none, or out of date.
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

// Join checks that tx can carry a write of this DB, and returns what to run that on.
func (e *Engine) Join(ctx context.Context, tx Querier) (Querier, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if isNil(tx) {
		return nil, fmt.Errorf("%w: nil transaction", ErrInvalid)
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	// The transaction of Tx was checked when it began.
	if own := e.scopeOf(ctx); own != nil && tx == Querier(own.tx) {
		return own.tx, nil
	}
	if err := e.Backend.CheckTx(ctx, tx); err != nil {
		return nil, err
	}
	return tx, nil
}

// isNil reports a nil tx, also that of a type such as *sql.Tx.
func isNil(tx Querier) bool {
	v := reflect.ValueOf(tx)
	return tx == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
