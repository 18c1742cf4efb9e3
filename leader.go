package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// whileLeading waits for the lock called name and calls do with a ctx that ends with it
// too. [ErrLeadershipLost]: it ended so; whatever do returns then is not its own fault.
func (db *DB) whileLeading(ctx context.Context, name string, do func(ctx context.Context, lock *Lock) error) error {
	lock, err := db.becomeLeader(ctx, name)
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

// becomeLeader waits for the lock. What fails and may pass is logged and tried again.
func (db *DB) becomeLeader(ctx context.Context, name string) (*Lock, error) {
	o, err := (*LockOptions)(nil).withDefaults()
	if err != nil {
		return nil, err
	}
	for {
		lock, err := db.waitLock(ctx, name, o)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrDatabaseReplaced) {
			return lock, err
		}
		db.opts.Logger.Error("honker: a lock could not be taken and will be tried again", "lock", name, "error", err)
		if err := pause(ctx, leaderPause); err != nil {
			return nil, err
		}
	}
}

// leaderPause is how long one who could not take the lock waits before it tries again.
const leaderPause = time.Second

// stillHeld is asked within a transaction: the lock may be lost, and its holder not know
// yet.
func (l *Lock) stillHeld(ctx context.Context, q store.Querier, unix int64) error {
	row, held, err := store.Locks{}.Held(ctx, q, l.name, unix)
	if err == nil && (!held || row.Owner != l.owner) {
		l.cancel(fmt.Errorf("%w: somebody else took it", ErrLockLost))
		err = ErrLockLost
	}
	return err
}
