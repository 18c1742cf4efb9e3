package honker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// LockOptions configures the acquisition of a lock. The zero value of a field means its default.
type LockOptions struct {
	// Owner is the holder's name in the file; default host-pid-random. It should be unique: an owner that
	// already holds the lock cannot acquire it again.
	Owner string
	// TTL is how long the lock remains held after its holder dies; default 60s. It is rounded up to whole seconds and
	// counted from the end of the current second. The lock is renewed every third of the TTL.
	TTL time.Duration
}

func (o *LockOptions) withDefaults() (LockOptions, error) {
	var out LockOptions
	if o != nil {
		out = *o
	}
	err := engine.NotNegative("TTL", out.TTL)
	if out.TTL == 0 {
		out.TTL = time.Minute
	}
	if out.Owner == "" {
		out.Owner = newWorkerID()
	}
	return out, errors.Join(err, engine.CheckName("lock owner", out.Owner))
}

// Lock is a named lock held by this process. It excludes all other processes that use the file, in any language.
// A goroutine renews it until [Lock.Unlock] or [DB.Close]. A Lock that is discarded without Unlock stays held.
//
// A lock is a lease. A process that is suspended for longer than the TTL, or whose clock is set forward, loses
// the lock without noticing until it resumes. Code that must never run twice at the same time should watch
// [Lock.Context] and pass [Lock.Token] to the systems it writes to.
type Lock struct {
	db    *DB
	name  string
	owner string
	ttl   time.Duration
	token int64

	held    context.Context // ends when the lock is lost or released
	endHeld context.CancelCauseFunc
	ctx     context.Context // ends with held and with the ctx passed to Lock or TryLock
	endCtx  context.CancelCauseFunc
	expires atomic.Pointer[time.Time] // expiry as of the last renewal

	releasing sync.Once
	released  chan struct{} // closed after the lock has been released or given up
	err       error         // result of Unlock; set before released is closed
}

// errUnlocked is the cancellation cause of a lock's contexts after Unlock.
var errUnlocked = fmt.Errorf("%w: it was unlocked", ErrLockLost)

// TryLock acquires the lock called name. If the lock is held, even by this process under the same Owner, TryLock
// returns [ErrLockHeld] without waiting for the holder and without taking the write lock. A nil opts means
// defaults.
//
// TryLock waits for the writer until ctx ends or BusyTimeout has passed. If ctx ends after TryLock has returned,
// the lock's Context ends too, but the lock is held and renewed until Unlock.
func (db *DB) TryLock(ctx context.Context, name string, opts *LockOptions) (*Lock, error) {
	o, err := opts.withDefaults()
	if err := errors.Join(engine.CheckName("lock name", name), err); err != nil {
		return nil, fail("lock", name, err)
	}
	l, err := db.acquire(ctx, ctx, name, o)
	return l, fail("lock", name, err)
}

// Lock is like [DB.TryLock], but waits until the lock is free, ctx ends, or the DB is closed. It does not poll: it
// wakes up when any process releases the lock and when the lock expires. Goroutines in this process that wait for the
// same lock acquire it in the order in which they called Lock. TryLock and other processes may acquire it in between.
//
// The lock's Context ends with ctx, even if a deadline of ctx was only meant for the wait. To bound only the
// wait, cancel ctx with time.AfterFunc and stop the timer once Lock has returned.
func (db *DB) Lock(ctx context.Context, name string, opts *LockOptions) (*Lock, error) {
	o, err := opts.withDefaults()
	if err := errors.Join(engine.CheckName("lock name", name), err, db.engine.RefuseInTx(ctx, "")); err != nil {
		return nil, fail("lock", name, err)
	}
	l, err := db.waitLock(ctx, name, o)
	return l, fail("lock", name, err)
}

func (db *DB) waitLock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	wait, leave, err := db.engine.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	next, err := db.waiting.Lock(wait, "lock "+name)
	if err != nil {
		return nil, err
	}
	defer next()
	// Try first: the lock is usually free, and subscribing would start the watcher unnecessarily.
	l, err := db.acquire(wait, ctx, name, o)
	if !errors.Is(err, ErrLockHeld) {
		return l, err
	}
	err = db.engine.Notifier.Until(wait, func() (time.Duration, error) {
		var held *heldError
		l, err = db.acquire(wait, ctx, name, o)
		if errors.As(err, &held) {
			db.engine.Notifier.WakeAt(held.Expires)
			return wake.Forever, nil
		}
		return wake.Done, err
	}, wake.Key{Kind: wake.LockFree, Name: name})
	return l, err
}

// heldError is an ErrLockHeld that describes the holder.
type heldError struct{ row.Lock }

func (e *heldError) Error() string {
	return fmt.Sprintf("%v by %q until %s", ErrLockHeld, e.Owner, e.Expires.UTC().Format(time.RFC3339))
}

func (e *heldError) Unwrap() error { return ErrLockHeld }

// acquire takes the lock if it is free. The lock's Context is derived from parent. It reads before it writes, so that
// trying to acquire a held lock does not block other writers.
func (db *DB) acquire(ctx, parent context.Context, name string, o LockOptions) (*Lock, error) {
	if err := db.engine.UsableToWrite(ctx, ""); err != nil {
		return nil, err
	}
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		return db.checkFree(ctx, q, name, db.engine.Now())
	})
	if err != nil {
		return nil, err
	}
	open, leave, err := db.engine.Enter(context.Background())
	if err != nil {
		return nil, err
	}
	l := &Lock{db: db, name: name, owner: o.Owner, ttl: o.TTL, released: make(chan struct{})}
	if err := db.engine.Write(ctx, "", engine.OpFunc(l.insert)); err != nil {
		leave()
		return nil, err
	}
	l.held, l.endHeld = context.WithCancelCause(context.WithoutCancel(parent))
	l.ctx, l.endCtx = context.WithCancelCause(parent)
	go l.renewLoop(open, leave)
	return l, nil
}

func (db *DB) checkFree(ctx context.Context, q engine.Querier, name string, now time.Time) error {
	held, err := db.engine.Stores.Locks.Held(ctx, q, name, now)
	if err == nil && len(held) > 0 {
		return &heldError{held[0]}
	}
	return err
}

func (l *Lock) insert(ctx context.Context, q engine.Querier, now time.Time) error {
	row, token, err := l.db.engine.Stores.Locks.Acquire(ctx, q, l.name, l.owner, l.ttl, now)
	if err != nil {
		return err
	}
	if token == 0 { // another process was faster
		return &heldError{row}
	}
	l.token = token
	l.expires.Store(&row.Expires)
	return nil
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// Owner returns the name of the holder as stored in the file.
func (l *Lock) Owner() string { return l.owner }

// Context returns a context derived from the ctx that was passed to Lock or TryLock. It ends when that ctx ends, even
// though the lock stays held until Unlock. It also ends when the lock is no longer held: after Unlock or DB.Close,
// when the lock expires without being renewed, and when a renewal finds that another program has removed or taken the
// lock. A renewal is due every third of the TTL. context.Cause returns [ErrLockLost] with the reason, or the cause of
// the original ctx.
func (l *Lock) Context() context.Context { return l.ctx }

// end marks the lock as no longer held and cancels its contexts with cause.
func (l *Lock) end(cause error) {
	l.endHeld(cause)
	l.endCtx(cause)
}

// Token returns a fencing token. It is larger than the token of any earlier acquisition of the same lock through
// this library. A system that rejects tokens smaller than the largest it has seen is protected from a holder
// that lost the lock without noticing. Tokens have gaps. Like any commit, the latest tokens may be lost in a
// power failure unless Durability is [Full].
func (l *Lock) Token() int64 { return l.token }

// Unlock releases the lock and cancels its Context. It returns nil if the lock is now free, and [ErrLockLost] if
// it had already been lost, in which case nothing was changed. After any other storage error, the lock is no
// longer renewed and will expire. Later calls return the result of the first.
//
// Unlock waits for the writer for up to BusyTimeout even if ctx has ended. Otherwise a holder that is asked to stop
// would leave its lock behind.
func (l *Lock) Unlock(ctx context.Context) error {
	if err := l.db.engine.RefuseInTx(ctx, ""); err != nil {
		return fail("unlock", l.name, err)
	}
	l.end(errUnlocked)
	l.releaseOnce()
	return fail("unlock", l.name, l.err)
}

// A failed renewal is retried after a quarter of the remaining lease, but not sooner than renewFloor.
const (
	renewRetryPart = 4
	renewFloor     = 50 * time.Millisecond
)

// renewLoop renews the lock until it is unlocked or lost, or until the DB closes and open ends. It then releases
// the lock unless it is lost.
func (l *Lock) renewLoop(open context.Context, leave func()) {
	defer leave()
	defer context.AfterFunc(open, func() { l.end(fmt.Errorf("%w: %w", ErrLockLost, ErrClosed)) })()
	third := max(l.ttl, time.Second) / 3
	engine.Every(l.held, third, func() time.Duration {
		if err := l.renew(); err != nil {
			return l.renewFailed(err)
		}
		return third
	})
	if context.Cause(l.held) == errUnlocked {
		<-l.released // Unlock releases the lock, and Close waits for it
		return
	}
	l.releaseOnce()
}

// releaseOnce releases the lock on its first call and sets err.
func (l *Lock) releaseOnce() {
	l.releasing.Do(func() {
		l.err = l.release()
		close(l.released)
	})
}

// renew extends the lock. It waits for the writer no longer than until the lock expires.
func (l *Lock) renew() error {
	ctx, cancel := context.WithDeadline(l.held, l.db.engine.Local(*l.expires.Load()))
	defer cancel()
	var expires time.Time
	err := l.db.engine.Write(ctx, "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) error {
		if !l.lasts(now) {
			return ErrLockLost
		}
		until, held, err := l.db.engine.Stores.Locks.Renew(ctx, q, l.name, l.owner, l.ttl, now)
		if err == nil && !held {
			return ErrLockLost
		}
		expires = until
		return err
	}))
	if err != nil {
		return err
	}
	l.expires.Store(&expires)
	return nil
}

// lasts reports whether the lock has yet to expire. It must be checked before the file is read: after the expiry, a
// row with the same owner may belong to another holder.
func (l *Lock) lasts(now time.Time) bool { return now.Before(*l.expires.Load()) }

// renewFailed returns the delay before the next try. If it has given up the lock, it returns 0.
func (l *Lock) renewFailed(err error) time.Duration {
	if l.held.Err() != nil {
		return 0
	}
	left := l.expires.Load().Sub(l.db.engine.Now())
	switch {
	case errors.Is(err, ErrLockLost):
	case left <= 0:
		err = fmt.Errorf("%w: it could not be renewed in time: %w", ErrLockLost, err)
	default:
		l.db.opts.Logger.Error("honker: lock not renewed, retrying", "lock", l.name, "error", err)
		return min(max(left/renewRetryPart, renewFloor), left)
	}
	l.end(err)
	l.db.opts.Logger.Warn("honker: lock lost", "lock", l.name, "owner", l.owner, "error", err)
	return 0
}

// release frees the lock if this Lock still holds it, and returns the result of Unlock.
func (l *Lock) release() error {
	why := context.Cause(l.held)
	if why != errUnlocked && !errors.Is(why, ErrClosed) {
		return why
	}
	freed := false
	err := l.db.engine.Write(context.WithoutCancel(l.held), "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if l.lasts(now) {
			freed, err = l.db.engine.Stores.Locks.Release(ctx, q, l.name, l.owner)
		}
		return err
	}))
	l.db.engine.Notifier.Wake(wake.Lock(l.name))
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

// withLeadership waits for the lock called name and calls do with a ctx that also ends when the lock does. If
// the lock is lost, withLeadership returns [ErrLeadershipLost] instead of do's error, which is a consequence of
// the loss.
func (db *DB) withLeadership(ctx context.Context, name string, do func(ctx context.Context, lock *Lock) error) error {
	lock, err := db.becomeLeader(ctx, name)
	if err != nil {
		return err
	}
	defer lock.Unlock(context.WithoutCancel(ctx))
	err = do(lock.Context(), lock)
	if ctx.Err() != nil {
		return engine.Cause(ctx)
	}
	if lock.Context().Err() != nil || errors.Is(err, ErrLockLost) {
		return fmt.Errorf("%w: %w", ErrLeadershipLost, context.Cause(lock.Context()))
	}
	return err
}

// becomeLeader waits for the lock. It retries after errors that may be temporary.
func (db *DB) becomeLeader(ctx context.Context, name string) (*Lock, error) {
	o, err := (*LockOptions)(nil).withDefaults()
	if err != nil {
		return nil, err
	}
	o.TTL = db.leaderTTL(o.TTL)
	failures := engine.Retry{Log: db.opts.Logger, Message: "lock not taken, retrying", Attrs: []any{"lock", name}}
	for {
		lock, err := db.waitLock(ctx, name, o)
		if err == nil {
			return lock, nil
		}
		if err := failures.After(ctx, err); err != nil {
			return nil, err
		}
	}
}

// leaderTTL returns ttl or, inside a testing/synctest bubble, PollInterval if that is longer. No other process
// in a bubble could die or take over, and each renewal of a lock costs a real commit: 4,320 a day at a TTL of a
// minute. A test with several DBs on the same file must set a short PollInterval anyway, so that the DBs notice
// each other's commits, and then runs with the production TTL.
func (db *DB) leaderTTL(ttl time.Duration) time.Duration {
	if wake.InBubble() {
		return max(ttl, db.opts.PollInterval)
	}
	return ttl
}

// stillHeld checks within a transaction that the lock is still held. The holder may not have noticed that it has
// lost the lock.
func (l *Lock) stillHeld(ctx context.Context, q engine.Querier, now time.Time) error {
	held, err := l.db.engine.Stores.Locks.Held(ctx, q, l.name, now)
	if err == nil && (len(held) == 0 || held[0].Owner != l.owner) {
		l.end(fmt.Errorf("%w: another process took it", ErrLockLost))
		return ErrLockLost
	}
	return err
}
