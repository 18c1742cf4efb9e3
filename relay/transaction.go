package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

var (
	errTxTimeout = errors.New("TxTimeout has passed")
	errTxBroken  = errors.New("the batch was rolled back")
)

// txGrace is how long a handler may take to return after TxTimeout. After that, its transaction is
// rolled back, because all other writers are waiting.
const txGrace = 100 * time.Millisecond

// handleTx handles a batch, saves its progress and takes the next batch, all in a single transaction.
// If the transaction itself fails, it is rolled back, and the outcome is saved in another transaction.
func (r *run) handleTx(s *slot, a *active) (next *active) {
	op := &stepOp{run: r, slot: s, done: a}
	var failure error // handler error that broke the transaction
	handled := false
	err := r.relay.engine.Tx(r.lasting, func(ctx context.Context, tx *sql.Tx) error {
		err := r.handleIn(ctx, tx, a)
		if is(err, errTxBroken) || is(err, ErrStuck) || is(err, worker.ErrGoexit) {
			failure = err
			return err
		}
		op.ended, op.want = a.outcomeOf(err), !r.draining.Load()
		r.resize(a, op.ended)
		if err := op.Run(context.WithoutCancel(ctx), tx, r.relay.engine.Now()); err != nil {
			return err
		}
		if !op.held {
			return errLeaseLost
		}
		handled = true
		return nil
	})
	if handled && r.relay.engine.Refused(err) {
		failure = err // the handler's writes violate a deferred constraint
	}
	switch {
	case err == nil:
		return r.stepped(op)
	case errors.Is(err, errLeaseLost):
		r.reportLost(a.taken)
		return nil
	}
	a.batch.undo()
	if failure != nil {
		return r.settle(s, a, a.outcomeOf(failure), true)
	}
	o := &outcome{err: err}
	a.putOff(o)
	return r.settle(s, a, o, true)
}

// handleIn calls the handler for each message of the batch within tx.
func (r *run) handleIn(ctx context.Context, tx *sql.Tx, a *active) error {
	deadline, cause := time.Now().Add(a.handler.txTimeout), errTxTimeout
	if a.deadline.Before(deadline) {
		deadline, cause = a.deadline, errLease
	}
	a.batch.deadline = deadline
	limited, cancel := context.WithDeadlineCause(ctx, deadline, cause)
	defer cancel()
	err := r.watched(a, deadline.Add(txGrace), func() error {
		return a.each(func(m *Message) error { return r.handleMessage(limited, ctx, tx, a, m) })
	})
	if err != nil && context.Cause(limited) == cause {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// handleMessage calls the handler within a savepoint and undoes the writes of a message that fails.
// lasting is the transaction's ctx; unlike ctx, it does not end with TxTimeout.
func (r *run) handleMessage(ctx, lasting context.Context, tx *sql.Tx, a *active, m *Message) error {
	end, err := r.relay.engine.Backend.Savepoint(lasting, tx)
	if err != nil {
		return fmt.Errorf("%w: %w", errTxBroken, err)
	}
	failed := r.attempt(a, m, func() error { return a.handler.tx(ctx, tx, m) })
	if err := end(lasting, failed == nil); err != nil {
		// Keep only the text of the handler's error, so that a Reject in it has no effect.
		return fmt.Errorf("%w: %w (%s)", errTxBroken, err, engine.Describe(failed))
	}
	return failed
}
