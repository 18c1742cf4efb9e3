package honker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// LockOptions of one acquisition. The zero value of a field means its default.
type LockOptions struct {
	// Owner is what the file says of who holds the lock; default host-pid-random. It
	// should be unique: the lock is refused to an owner who holds it already.
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
	err := notNegative("TTL", out.TTL)
	if out.TTL == 0 {
		out.TTL = time.Minute
	}
	if out.Owner == "" {
		out.Owner = newWorkerID()
	}
	return out, errors.Join(err, checkName("lock owner", out.Owner))
}

// Lock is a named lock that this process holds, alone among all processes on the file,
// in any language. It is renewed in a goroutine of its own until [Lock.Unlock] or
// [DB.Close]; one that is dropped without Unlock stays held.
//
// A lock is a lease: a process that stands still for longer than its TTL, or whose clock
// is set forward, loses it, and finds out when it goes on. What must not be done by two
// at a time should watch [Lock.Context], and hand [Lock.Token] to what it writes to.
type Lock struct {
	db    *DB
	name  string
	owner string
	ttl   time.Duration
	token int64

	ctx     context.Context // ends with the hold
	cancel  context.CancelCauseFunc
	expires atomic.Int64 // as of the last renewal; a unix second

	ending sync.Once
	over   chan struct{} // closed when it has been released, or given up
	err    error         // of Unlock; set before over is closed
}

// errUnlocked is the end that was wanted.
var errUnlocked = fmt.Errorf("%w: it was unlocked", ErrLockLost)

// TryLock takes the lock called name, or returns [ErrLockHeld] when somebody holds it,
// this process and the same Owner included. It does not wait for the holder. A lock that
// is tried again while it is held is only looked at, without a turn to write. nil opts
// means defaults.
//
// It waits for its turn to write until ctx ends or BusyTimeout has passed. ctx bounds the
// acquiring only; the lock's Context has its values.
func (db *DB) TryLock(ctx context.Context, name string, opts *LockOptions) (*Lock, error) {
	o, err := opts.withDefaults()
	if err = errors.Join(checkName("lock name", name), err); err != nil {
		return nil, fail("lock", name, err)
	}
	l, err := db.tryLock(ctx, name, o)
	return l, fail("lock", name, err)
}

// Lock is like [DB.TryLock] and waits until the lock is free, ctx ends, or the DB is
// closed. It does not poll: it is woken when the lock is released, by any process, and
// when it expires. Those of one process who wait for the same lock get it in the order
// in which they came; TryLock and other processes may come between.
func (db *DB) Lock(ctx context.Context, name string, opts *LockOptions) (*Lock, error) {
	o, err := opts.withDefaults()
	if err = errors.Join(checkName("lock name", name), err, inTx(ctx, db, "")); err != nil {
		return nil, fail("lock", name, err)
	}
	l, err := db.waitLock(ctx, name, o)
	return l, fail("lock", name, err)
}

func (db *DB) waitLock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	ctx, leave, err := db.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	next, err := db.lines.join(ctx, "lock "+name)
	if err != nil {
		return nil, err
	}
	defer next()
	l, err := db.tryLock(ctx, name, o)
	if !errors.Is(err, ErrLockHeld) {
		return l, err
	}
	s := db.hub.subscribe(topic{lockFree, name})
	defer s.leave()
	for {
		l, err := db.tryLock(ctx, name, o) // after subscribing: a release between is not missed
		var held *heldError
		if !errors.As(err, &held) {
			return l, err
		}
		db.hub.expect(held.ExpiresAt)
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// heldError is ErrLockHeld by somebody.
type heldError struct{ store.Lock }

func (e *heldError) Error() string {
	return fmt.Sprintf("%v by %q until %s", ErrLockHeld, e.Owner, instant(e.ExpiresAt).UTC().Format(time.RFC3339))
}

func (e *heldError) Unwrap() error { return ErrLockHeld }

func (db *DB) tryLock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	if err := db.mayLook(ctx, ""); err != nil {
		return nil, err
	}
	if now := time.Now(); db.sighted.held(name, now) {
		if err := checkFree(context.WithoutCancel(ctx), db.own, name, now); err != nil {
			return nil, db.sight(name, err)
		}
	}
	open, leave, err := db.enter(context.Background())
	if err != nil {
		return nil, err
	}
	l := &Lock{db: db, name: name, owner: o.Owner, ttl: o.TTL, over: make(chan struct{})}
	if err := db.do(ctx, "", write(l.acquire)); err != nil {
		leave()
		return nil, db.sight(name, err)
	}
	db.sighted.saw(name, l.expires.Load())
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go l.keep(open, leave)
	return l, nil
}

// sight remembers who holds the lock, if that is what err says.
func (db *DB) sight(name string, err error) error {
	var held *heldError
	if errors.As(err, &held) {
		db.sighted.saw(name, held.ExpiresAt)
		return err
	}
	return db.because(err)
}

func checkFree(ctx context.Context, q store.Querier, name string, now time.Time) error {
	row, held, err := store.Locks{}.Held(ctx, q, name, now.Unix())
	if err == nil && held {
		err = &heldError{row}
	}
	return err
}

func (l *Lock) acquire(ctx context.Context, q store.Querier, now time.Time) error {
	expires := l.until(now)
	token, ok, err := store.Locks{}.Acquire(ctx, q, l.name, l.owner, now.Unix(), expires)
	if err != nil {
		return err
	}
	if !ok { // somebody was faster
		return checkFree(ctx, q, l.name, now)
	}
	l.token = token
	l.expires.Store(expires)
	return nil
}

// until is the second at which the lock expires if it is renewed now. Both are rounded
// up: a lock of one second must outlast the current one to be renewed at all.
func (l *Lock) until(now time.Time) int64 { return unixUp(now) + seconds(l.ttl) }

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.name }

// Owner returns what the file says of who holds the lock.
func (l *Lock) Owner() string { return l.owner }

// Context is cancelled when the lock is no longer held: it was unlocked or the DB closed,
// it was not renewed before it expired, or a renewal, at a third of the TTL, has found
// that somebody removed or took it. context.Cause says which, and is always
// [ErrLockLost]. Its values are those of the ctx that the lock was taken with.
func (l *Lock) Context() context.Context { return l.ctx }

// Token is a fencing token: larger than that of any earlier acquisition of the name
// through this library. What refuses a token smaller than the largest it has seen is
// safe from a holder that has lost the lock and does not know yet. Tokens have gaps.
// As any commit, the last ones may be lost in a power cut unless Durability is [Full].
func (l *Lock) Token() int64 { return l.token }

// Unlock releases the lock, cancels its Context, and returns nil when somebody else can
// take it. [ErrLockLost]: it had been lost before, and nothing was changed. Another
// storage error: it is not renewed any more, and will expire. Later calls return what the
// first one did.
//
// It waits for its turn to write until BusyTimeout has passed, also when ctx has ended: a
// lock must not stay behind because its holder was told to stop.
func (l *Lock) Unlock(ctx context.Context) error {
	if err := inTx(ctx, l.db, ""); err != nil {
		return fail("unlock", l.name, err)
	}
	l.cancel(errUnlocked)
	l.end()
	return fail("unlock", l.name, l.err)
}
