package honker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/watch"
)

// lockStore are the statements about locks.
type lockStore interface {
	Held(ctx context.Context, q engine.Querier, name string, now int64) (row.Lock, bool, error)
	Acquire(ctx context.Context, q engine.Querier, name, owner string, now, expires int64) (token int64, ok bool, err error)
	Renew(ctx context.Context, q engine.Querier, name, owner string, now, expires int64) (bool, error)
	Release(ctx context.Context, q engine.Querier, name, owner string) (bool, error)
	States(ctx context.Context, q engine.Querier, names []string, now int64) (map[string]int64, error)
}

// LockOptions of one acquisition. The zero value of a field means its default.
type LockOptions struct {
	// Owner is the holder's name in the file; default host-pid-random. It should be
	// unique: the lock is refused to an owner that holds it already.
	Owner string
	// TTL is how long the lock outlives a holder that dies; default 60s. It is rounded
	// up to whole seconds, counted from the end of the current one, and renewed at a
	// third of it.
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

// Lock is a named lock that this process holds, alone among all processes on the file,
// in any language. It is renewed in a goroutine of its own until [Lock.Unlock] or
// [DB.Close]; one that is dropped without Unlock stays held.
//
// A lock is a lease: a process that stands still for longer than its TTL, or has its clock
// set forward, loses it, and finds out when it goes on. What must not be done by two
// at a time should watch [Lock.Context], and hand [Lock.Token] to what it writes to.
type Lock struct {
	db    *DB
	name  string
	owner string
	ttl   time.Duration
	token int64

	held    context.Context // ends with the hold
	endHeld context.CancelCauseFunc
	ctx     context.Context // ends with the hold, and with the ctx that the lock was taken with
	endCtx  context.CancelCauseFunc
	expires atomic.Int64 // as of the last renewal; a unix second

	releasing sync.Once
	released  chan struct{} // closed when it has been released, or given up
	err       error         // of Unlock; set before released is closed
}

// errUnlocked is the end that was wanted.
var errUnlocked = fmt.Errorf("%w: it was unlocked", ErrLockLost)

// TryLock takes the lock called name, or returns [ErrLockHeld] when it is held, by this
// process and the same Owner included. It does not wait for the holder, and a lock that is
// held is only looked at, without the write lock. nil opts means defaults.
//
// It waits for the writer until ctx ends or BusyTimeout has passed. The end of ctx ends the
// lock's Context too, but not the lock, which is held and renewed until Unlock.
func (db *DB) TryLock(ctx context.Context, name string, opts *LockOptions) (*Lock, error) {
	o, err := opts.withDefaults()
	if err := errors.Join(engine.CheckName("lock name", name), err); err != nil {
		return nil, fail("lock", name, err)
	}
	l, err := db.acquire(ctx, ctx, name, o)
	return l, fail("lock", name, err)
}

// Lock is like [DB.TryLock] and waits until the lock is free, ctx ends, or the DB is
// closed. It does not poll: it is woken when the lock is released, by any process, and
// when it expires. Goroutines of one process that wait for the same lock get it in the order
// in which they came; TryLock and other processes may come between.
//
// The lock's Context ends with ctx, also with a deadline that was meant for the wait. To bound
// the wait alone, cancel ctx by a time.AfterFunc, and stop that once Lock has returned.
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
	// Mostly it is free: a subscription would start the watcher for nothing.
	l, err := db.acquire(wait, ctx, name, o)
	if !errors.Is(err, ErrLockHeld) {
		return l, err
	}
	err = db.engine.Notifier.Until(wait, func() (time.Duration, error) {
		var held *heldError
		l, err = db.acquire(wait, ctx, name, o)
		if errors.As(err, &held) {
			db.engine.Notifier.WakeAt(engine.Instant(held.ExpiresAt))
			return wake.Forever, nil
		}
		return wake.Done, err
	}, wake.Key{Kind: wake.LockFree, Name: name})
	return l, err
}

// heldError is ErrLockHeld with the holder.
type heldError struct{ row.Lock }

func (e *heldError) Error() string {
	return fmt.Sprintf("%v by %q until %s", ErrLockHeld, e.Owner, engine.Instant(e.ExpiresAt).UTC().Format(time.RFC3339))
}

func (e *heldError) Unwrap() error { return ErrLockHeld }

// acquire takes a lock that is free, with a Context that derives from parent. It looks before
// it writes: for a lock that is held no other writer has to wait.
func (db *DB) acquire(ctx, parent context.Context, name string, o LockOptions) (*Lock, error) {
	if err := db.engine.UsableToWrite(ctx, ""); err != nil {
		return nil, err
	}
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		return db.checkFree(ctx, q, name, time.Now())
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
	row, held, err := db.locks.Held(ctx, q, name, now.Unix())
	if err == nil && held {
		return &heldError{row}
	}
	return err
}

func (l *Lock) insert(ctx context.Context, q engine.Querier, now time.Time) error {
	expires := l.until(now)
	token, ok, err := l.db.locks.Acquire(ctx, q, l.name, l.owner, now.Unix(), expires)
	if err != nil {
		return err
	}
	if !ok { // another holder was faster
		return cmp.Or(l.db.checkFree(ctx, q, l.name, now), ErrNotInserted)
	}
	l.token = token
	l.expires.Store(expires)
	return nil
}

// until is the second at which the lock expires if it is renewed now. Both are rounded
// up: a lock of one second must outlast the current one to be renewed at all.
func (l *Lock) until(now time.Time) int64 { return engine.UnixUp(now) + engine.Seconds(l.ttl) }

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// Owner returns the holder's name in the file.
func (l *Lock) Owner() string { return l.owner }

// Context derives from the ctx that the lock was taken with: it has its values and ends with
// it, while the lock is held on until Unlock. It also ends when the lock is no longer held: it
// was unlocked or the DB closed, it was not renewed before it expired, or a renewal, at a
// third of the TTL, has found that another program removed or took it. context.Cause says
// which: [ErrLockLost] with the reason, or the cause of the ctx that the lock was taken with.
func (l *Lock) Context() context.Context { return l.ctx }

// end ends the hold for this process, and tells what runs under Context why.
func (l *Lock) end(cause error) {
	l.endHeld(cause)
	l.endCtx(cause)
}

// Token is a fencing token: larger than that of any earlier acquisition of the name
// through this library. What refuses a token smaller than the largest it has seen is
// safe from a holder that has lost the lock and does not know yet. Tokens have gaps.
// As any commit, the last ones may be lost in a power cut unless Durability is [Full].
func (l *Lock) Token() int64 { return l.token }

// Unlock releases the lock, cancels its Context, and returns nil when it is free to be
// taken. [ErrLockLost]: it had been lost before, and nothing was changed. Another
// storage error: it is not renewed any more, and will expire. Later calls return what the
// first one did.
//
// It waits for the writer until BusyTimeout has passed, also when ctx has ended: a
// lock must not stay behind because its holder was told to stop.
func (l *Lock) Unlock(ctx context.Context) error {
	if err := l.db.engine.RefuseInTx(ctx, ""); err != nil {
		return fail("unlock", l.name, err)
	}
	l.end(errUnlocked)
	l.releaseOnce()
	return fail("unlock", l.name, l.err)
}

// A renewal that has failed is tried again after this part of what is left of the lease, and
// not sooner than renewFloor.
const (
	renewRetryPart = 4
	renewFloor     = 50 * time.Millisecond
)

// renewLoop renews the lock until it is unlocked, lost, or the DB closes (open ends), and then
// releases it, unless it is lost.
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
		<-l.released // Unlock releases, and Close waits for that
		return
	}
	l.releaseOnce()
}

// releaseOnce releases the lock at its first call, and sets err.
func (l *Lock) releaseOnce() {
	l.releasing.Do(func() {
		l.err = l.release()
		close(l.released)
	})
}

// renew does not wait for the writer beyond the lock's end.
func (l *Lock) renew() error {
	ctx, cancel := context.WithDeadline(l.held, time.Unix(l.expires.Load(), 0))
	defer cancel()
	var expires int64
	err := l.db.engine.Write(ctx, "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) error {
		expires = l.until(now)
		if !l.lasts(now) {
			return ErrLockLost
		}
		held, err := l.db.locks.Renew(ctx, q, l.name, l.owner, now.Unix(), expires)
		if err == nil && !held {
			return ErrLockLost
		}
		return err
	}))
	if err != nil {
		return err
	}
	l.expires.Store(expires)
	return nil
}

// lasts is asked before the file is. Once the lock has expired, a row with its owner may be
// that of another holder with the same name.
func (l *Lock) lasts(now time.Time) bool { return now.Unix() < l.expires.Load() }

// renewFailed ends the hold (0), or returns when to try again.
func (l *Lock) renewFailed(err error) time.Duration {
	if l.held.Err() != nil {
		return 0
	}
	left := time.Until(time.Unix(l.expires.Load(), 0))
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

// release frees the lock, if it is still this one's, and returns what Unlock has to say.
func (l *Lock) release() error {
	why := context.Cause(l.held)
	if why != errUnlocked && !errors.Is(why, ErrClosed) {
		return why
	}
	freed := false
	err := l.db.engine.Write(context.WithoutCancel(l.held), "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if l.lasts(now) {
			freed, err = l.db.locks.Release(ctx, q, l.name, l.owner)
		}
		return err
	}))
	l.db.engine.Notifier.Wake(wake.Change{Kind: wake.LockFree, Name: l.name})
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

// withLeadership waits for the lock called name and calls do with a ctx that ends with it
// too. [ErrLeadershipLost]: it ended so; what do returns then is a consequence.
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

// becomeLeader waits for the lock. What fails and may pass is tried again.
func (db *DB) becomeLeader(ctx context.Context, name string) (*Lock, error) {
	o, err := (*LockOptions)(nil).withDefaults()
	if err != nil {
		return nil, err
	}
	o.TTL = db.leaderTTL(o.TTL)
	failures := engine.Retry{Log: db.opts.Logger, What: "lock not taken, retrying", Attrs: []any{"lock", name}}
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

// leaderTTL returns ttl, and in a bubble of testing/synctest PollInterval if that is longer. A bubble has no other process
// that could die or take over, and each renewal of a lock costs a commit in real time: 4,320 in a day at a TTL of a minute.
// A test of several DBs on one file sets a short PollInterval, without which they do not hear of each other, and has the
// TTL of production.
func (db *DB) leaderTTL(ttl time.Duration) time.Duration {
	if watch.InBubble() {
		return max(ttl, db.opts.PollInterval)
	}
	return ttl
}

// stillHeld is asked within a transaction: the lock may be lost, and its holder not know
// yet.
func (l *Lock) stillHeld(ctx context.Context, q engine.Querier, unix int64) error {
	row, held, err := l.db.locks.Held(ctx, q, l.name, unix)
	if err == nil && (!held || row.Owner != l.owner) {
		l.end(fmt.Errorf("%w: another process took it", ErrLockLost))
		return ErrLockLost
	}
	return err
}
