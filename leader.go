package honker

import (
	"context"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/store"
)

// whileLeading waits for the lock called name and calls do with a ctx that ends with it
// too. [ErrLeadershipLost]: it ended so; whatever do returns then is not its own fault.
func (db *DB) whileLeading(ctx context.Context, name string, do func(ctx context.Context, lock *Lock) error) error {
	lock, err := db.Lock(ctx, name, nil)
	if err != nil {
		return err
	}
	defer lock.Unlock(context.WithoutCancel(ctx))
	held, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })()
	err = do(held, lock)
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if held.Err() != nil || errors.Is(err, ErrLockLost) {
		return fmt.Errorf("%w: %w", ErrLeadershipLost, context.Cause(lock.Context()))
	}
	return err
}

// stillHeld is asked within a transaction: the lock may be lost, and its holder not know
// yet.
func (l *Lock) stillHeld(ctx context.Context, q store.Querier, unix int64) error {
	row, held, err := store.HeldLock(ctx, q, l.name, unix)
	if err == nil && (!held || row.Owner != l.owner) {
		l.cancel(fmt.Errorf("%w: somebody else took it", ErrLockLost))
		err = ErrLockLost
	}
	return err
}
