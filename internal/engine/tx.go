package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// txKey marks the ctx of Tx's function with its transaction.
type txKey struct{ engine *Engine }

// Tx runs fn in a write transaction: committed when fn returns nil, rolled back when it
// returns an error or panics.
func (e *Engine) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := e.RefuseInTx(ctx, "the tx at hand"); err != nil {
		return Wrap("tx", "", err)
	}
	if err := e.open(); err != nil {
		return Wrap("tx", "", err)
	}
	tx, release, err := e.Backend.Begin(ctx)
	if err != nil {
		return Wrap("begin", "", withCause(ctx, err))
	}
	defer release()
	defer tx.Rollback() // after a panic or an error; a no-op after Commit
	if err := fn(context.WithValue(ctx, txKey{e}, tx), tx); err != nil {
		return err
	}
	return Wrap("commit", "", e.Backend.Commit(tx))
}

// txOf returns the transaction of the Tx that has called its function with ctx, or nil.
func (e *Engine) txOf(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(txKey{e}).(*sql.Tx)
	return tx
}

// RefuseInTx returns ErrInTx for the ctx of Tx's function: a verb that waits for the writer
// would wait for its own caller. The text names txForm, the form to use instead; "" is none.
func (e *Engine) RefuseInTx(ctx context.Context, txForm string) error {
	switch {
	case e.txOf(ctx) == nil:
		return nil
	case txForm == "":
		return fmt.Errorf("%w: there is none; call it after DB.Tx has returned", ErrInTx)
	}
	return fmt.Errorf("%w: %s", ErrInTx, txForm)
}

// Join checks that tx can carry a write of this DB, and returns what to run that on.
func (e *Engine) Join(ctx context.Context, tx Querier) (Querier, error) {
	if tx == nil {
		return nil, errors.Join(ErrInvalid, errors.New("nil transaction"))
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	// The transaction of Tx was checked when it began.
	if own := e.txOf(ctx); own != nil && tx == Querier(own) {
		return own, nil
	}
	if err := e.Backend.CheckTx(ctx, tx); err != nil {
		return nil, err
	}
	return tx, nil
}
