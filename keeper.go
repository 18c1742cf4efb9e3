package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// How soon a renewal that has failed is tried again, as a part of what is left, and not
// sooner than that.
const (
	retryPart  = 4
	retryFloor = 50 * time.Millisecond
)

// keep renews the lock until it is unlocked, lost, or the DB closes (open ends), and then
// releases it, unless it is lost.
func (l *Lock) keep(open context.Context, leave func()) {
	defer leave()
	defer context.AfterFunc(open, func() { l.cancel(fmt.Errorf("%w: %w", ErrLockLost, ErrClosed)) })()
	third := max(l.ttl, time.Second) / 3
	for pause := third; l.rest(pause); {
		pause = third
		if err := l.renew(); err != nil {
			pause = l.failed(err)
		}
	}
	if context.Cause(l.ctx) == errUnlocked {
		<-l.over // whoever unlocks releases: Close waits for that
		return
	}
	l.end()
}

// end releases the lock once, and sets err.
func (l *Lock) end() {
	l.ending.Do(func() {
		l.err = l.release()
		close(l.over)
	})
}

// rest returns true when it is time to renew, and false when the hold has ended.
func (l *Lock) rest(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return l.ctx.Err() == nil
	case <-l.ctx.Done():
		return false
	}
}

// renew does not wait for the writer beyond the lock's end.
func (l *Lock) renew() error {
	ctx, cancel := context.WithDeadline(l.ctx, time.Unix(l.expires.Load(), 0))
	defer cancel()
	var expires int64
	err := l.db.do(ctx, "", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		held := false
		expires = l.until(now)
		if l.lasts(now) {
			held, err = store.Locks{}.Renew(ctx, q, l.name, l.owner, now.Unix(), expires)
		}
		if err == nil && !held {
			err = ErrLockLost
		}
		return err
	}))
	if err == nil {
		l.expires.Store(expires)
	}
	return err
}

// lasts is asked before the file is. Once the lock has expired, a row with its owner is
// somebody else's who calls himself the same.
func (l *Lock) lasts(now time.Time) bool { return now.Unix() < l.expires.Load() }

// failed decides after a renewal that has failed: it ends the hold, or says when to try
// again.
func (l *Lock) failed(err error) time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	left := time.Until(time.Unix(l.expires.Load(), 0))
	switch {
	case errors.Is(err, ErrLockLost):
	case left <= 0:
		err = fmt.Errorf("%w: it could not be renewed in time: %w", ErrLockLost, err)
	default:
		l.db.opts.Logger.Error("honker: a lock was not renewed", "lock", l.name, "error", err)
		return min(max(left/retryPart, retryFloor), left)
	}
	l.cancel(err)
	l.db.opts.Logger.Warn("honker: a lock was lost", "lock", l.name, "owner", l.owner, "error", err)
	return 0
}

// release frees the lock, if it is still this one's, and returns what Unlock has to say.
func (l *Lock) release() error {
	why := context.Cause(l.ctx)
	if why != errUnlocked && !errors.Is(why, ErrClosed) {
		return why
	}
	freed := false
	err := l.db.do(context.WithoutCancel(l.ctx), "", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		if l.lasts(now) {
			freed, err = store.Locks{}.Release(ctx, q, l.name, l.owner)
		}
		return err
	}))
	l.db.sighted.forget(l.name)
	l.db.hub.hint(lockFree, l.name)
	switch {
	case err != nil:
		return err
	case !freed:
		return ErrLockLost
	case why == errUnlocked:
		return nil
	}
	return why
}
