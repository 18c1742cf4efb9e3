package pgbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// Pauses between looks. Tests change them.
var (
	// safetyLook limits the delay if no notice comes: if its sender was killed between the commit and the notice, if the
	// notice was lost with its connection, or if the transaction was older than the registration.
	safetyLook = 5 * time.Second
	// registerEarly is the rest of a registration at which it is renewed. A registration lasts for ten seconds.
	registerEarly, registration = 5 * time.Second, 10 * time.Second
	// again are the pauses of the looks after a registration. A transaction may have found nobody registered and commit
	// after the look.
	again = []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond, time.Second}
)

const (
	// ownLook is the longest time until a look after a commit of this process. The goroutines that a verb knows about are
	// woken at once and not by a look.
	ownLook = 50 * time.Millisecond

	// Without notices.
	fastPoll    = 20 * time.Millisecond
	fastFor     = time.Second            // after a look that has woken somebody
	unlinked    = 100 * time.Millisecond // the longest pause until the LISTEN connection is there
	defaultPoll = 500 * time.Millisecond

	// Busy: more notices come than looks are worth.
	burst       = 400 // notices in a second
	firstBusy   = 5 * time.Millisecond
	slowestBusy = 100 * time.Millisecond

	// slowestRetry is the longest pause after looks that have failed.
	slowestRetry = 5 * time.Second
	quietAfter   = 500 * time.Millisecond // busy ends after this time without a look that has woken somebody
)

// watcher looks at the database when a notice has come, when this process has committed, at times that were asked for,
// and now and then. It runs from the first AddWaiter until Close.
//
// It is listening, busy or polling. While it listens, the process is registered for the signals of its waiters, and
// transactions that raise them send notices. A notice takes a lock of the whole server. So with more than a hundred
// notices in a second it is busy: the registration ends, and it looks every few milliseconds instead. It polls while
// there is no LISTEN connection.
type watcher struct {
	backend *Backend
	events  wake.Events
	process string
	notices notices
	kick    chan struct{} // has capacity 1
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	waiters  int
	anyWaits int       // waiters for any commit
	awaited  [64]int   // waiters for each signal
	deadline time.Time // the earliest time of WakeAt
	raised   wake.Signals
	lookBy   time.Time // a look is due by then; zero if none was asked for
	unseen   bool      // a commit that nobody has observed may have left work
	linked   bool      // the LISTEN connection works
	relinked bool      // it works since the last look
	moved    bool      // another server has taken over since the last look
	listener Listener
	count    int // notices since countFrom
	from     time.Time
	started  bool
	sending  bool
	closed   bool

	// The fields below belong to the goroutine.
	pause      time.Duration // until the next look by timer
	busy       bool
	lastFound  time.Time // when a look has last woken somebody
	registered wake.Signals
	until      time.Time // the end of the registration
	repeats    int       // looks after the registration that are still due
	moment     string    // of the last look
	failed     bool      // the last look has failed
	notBefore  time.Time // of the next look after a failed look
}

// Watch implements engine.Backend.
func (b *Backend) Watch(e wake.Events) wake.Watcher {
	w := &watcher{backend: b, events: e, process: rand.Text(), kick: make(chan struct{}, 1)}
	w.notices = notices{backend: b, process: w.process, kick: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	b.watcher.Store(w)
	return w
}

// poll returns the longest pause between two looks without notices.
func (b *Backend) poll() time.Duration {
	if b.opts.Poll > 0 {
		return b.opts.Poll
	}
	return defaultPoll
}

// AddWaiter implements wake.Watcher. If nobody has waited for one of the signals, the goroutine registers them and looks.
func (w *watcher) AddWaiter(signals wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters++
	isNew := w.waiters == 1
	if signals == 0 {
		w.anyWaits++
	}
	for rest := uint64(signals); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		w.awaited[i]++
		isNew = isNew || w.awaited[i] == 1
	}
	if !w.started && !w.closed {
		w.started = true
		w.running.Go(w.run)
		if w.backend.opts.Listen != nil {
			w.running.Go(func() { w.listen(w.ctx) })
		}
	}
	if isNew {
		w.wakeUp()
	}
}

// RemoveWaiter implements wake.Watcher.
func (w *watcher) RemoveWaiter(signals wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters--
	if signals == 0 {
		w.anyWaits--
	}
	for rest := uint64(signals); rest != 0; rest &= rest - 1 {
		w.awaited[bits.TrailingZeros64(rest)]--
	}
}

// Raise implements wake.Watcher. Other processes get the signals in a notice.
func (w *watcher) Raise(signals wake.Signals) {
	if signals == 0 || w.backend.opts.Reads {
		return
	}
	w.mu.Lock()
	if !w.sending && !w.closed {
		w.sending = true
		w.running.Go(func() { w.notices.run(w.ctx) })
	}
	w.mu.Unlock()
	w.notices.add(signals)
}

// Committed implements wake.Watcher.
func (w *watcher) Committed() { w.lookWithin(ownLook, 0) }

// WakeAt implements wake.Watcher.
func (w *watcher) WakeAt(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline.IsZero() || t.Before(w.deadline) {
		w.deadline = t
		w.wakeUp()
	}
}

// Close implements wake.Watcher. It sends the last notice.
func (w *watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.running.Wait()
	return nil
}

// committed tells waiters about a commit of this process that left work, which is done.
func (w *watcher) committed(left pgsql.Work) {
	var raised wake.Signals
	if left&pgsql.Resolve != 0 {
		raised = pgsql.Released
		w.lookWithin(0, pgsql.Released)
	}
	if left&pgsql.Ended != 0 {
		raised |= wake.KindSignals(wake.JobDone)
	}
	if left&pgsql.Planned != 0 {
		raised |= wake.KindSignals(wake.ScheduleDue)
	}
	if left&pgsql.Room != 0 {
		raised |= wake.KindSignals(wake.QueueReady)
	}
	w.Raise(raised)
	w.Committed()
}

func (w *watcher) wakeUp() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// lookWithin requests a look for signals, or for all if they are 0.
func (w *watcher) lookWithin(d time.Duration, signals wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters == 0 {
		return
	}
	if signals == 0 {
		signals = wake.AllSignals
	}
	w.raised |= signals
	if by := time.Now().Add(d); w.lookBy.IsZero() || by.Before(w.lookBy) {
		w.lookBy = by
		w.wakeUp()
	}
}

// noticed handles a notice. unseen means that it is of a transaction whose commit no process has observed.
func (w *watcher) noticed(signals wake.Signals, unseen bool) {
	w.mu.Lock()
	w.unseen = w.unseen || unseen
	if now := time.Now(); now.Sub(w.from) > time.Second {
		w.from, w.count = now, 0
	}
	w.count++
	w.mu.Unlock()
	w.lookWithin(0, signals)
}

// forget drops the knowledge of an earlier server, and looks.
func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved, w.relinked = true, true
	w.wakeUp()
}

func (w *watcher) setLinked(linked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.linked, w.relinked = linked, w.relinked || linked
	w.wakeUp()
}

// demand is the state that the goroutine acts on.
type demand struct {
	waits    bool
	signals  wake.Signals // that are waited for
	deadline time.Time
	lookBy   time.Time
	linked   bool
	relinked bool
	moved    bool
	burst    bool
}

func (w *watcher) demand() (d demand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d = demand{waits: w.waiters > 0, deadline: w.deadline, lookBy: w.lookBy, linked: w.linked, relinked: w.relinked, moved: w.moved}
	w.moved = false
	d.burst = w.count > burst && time.Since(w.from) < time.Second
	for i, n := range w.awaited {
		if n > 0 {
			d.signals |= 1 << i
		}
	}
	if w.anyWaits > 0 {
		d.signals = wake.AllSignals
	}
	return d
}

// run looks until the watcher is closed.
func (w *watcher) run() {
	defer w.leave()
	for {
		d := w.demand()
		if d.moved {
			w.registered, w.until, w.moment = 0, time.Time{}, "" // the registration may be lost with other commits
		}
		if !d.waits {
			select {
			case <-w.kick:
				continue
			case <-w.ctx.Done():
				return
			}
		}
		if pause := time.Until(w.notBefore); pause > 0 {
			if !rest(w.ctx, pause) {
				return
			}
			continue
		}
		missing := w.register(d)
		reason, pause := w.nextLook(d, time.Now())
		if pause > 0 && missing == nil && !d.relinked {
			timer := time.NewTimer(pause)
			select {
			case <-w.kick:
				timer.Stop()
				continue
			case <-timer.C:
				missing = w.register(d) // this look may renew the registration as well
			case <-w.ctx.Done():
				timer.Stop()
				return
			}
		}
		if d.relinked {
			reason = wake.Restart
		}
		if !w.look(reason, missing, d.linked && !w.busy) {
			return
		}
	}
}

// register sets the mode, and returns the signals to register, or nil if there is nothing to change.
func (w *watcher) register(d demand) *wake.Signals {
	now := time.Now()
	if d.linked && d.burst && !w.busy {
		w.busy, w.pause, w.lastFound = true, firstBusy, now
	} else if w.busy && (!d.linked || now.Sub(w.lastFound) > quietAfter) {
		w.busy = false
	}
	left := w.until.Sub(now)
	switch wanted := d.signals; {
	case w.backend.opts.Reads:
	case !d.linked || w.busy:
		if w.busy && left > 0 && w.registered != 0 {
			return new(wake.Signals)
		}
	case left <= 0 || wanted&^w.registered != 0:
		w.repeats = len(again)
		return &wanted
	case left < registerEarly:
		return &wanted
	}
	return nil
}

// nextLook returns when the next look is due and why.
func (w *watcher) nextLook(d demand, now time.Time) (reason wake.Reason, pause time.Duration) {
	switch longest := w.backend.poll(); {
	case w.busy:
		pause = w.pause
	case !d.linked:
		if w.backend.opts.Listen != nil {
			longest = min(longest, unlinked)
		}
		if now.Sub(w.lastFound) < fastFor {
			w.pause = fastPoll
		}
		pause = min(max(w.pause, fastPoll), longest)
	case w.repeats > 0:
		pause = again[len(again)-w.repeats]
	default:
		pause = min(safetyLook, max(w.until.Sub(now)-registerEarly, 0))
	}
	reason = wake.Commit
	if !d.lookBy.IsZero() {
		pause = min(pause, d.lookBy.Sub(now))
	}
	if !d.deadline.IsZero() && d.deadline.Sub(now) <= pause {
		reason, pause = wake.Deadline, d.deadline.Sub(now)
	}
	return reason, pause
}

// rest waits for d. It returns false if ctx ends.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// look does the work that commits have left, and calls Changed. told means that notices come. look returns false if the
// database is gone.
func (w *watcher) look(reason wake.Reason, register *wake.Signals, told bool) bool {
	now := time.Now()
	w.mu.Lock()
	signals, byRequest := w.raised, !w.lookBy.IsZero() && !w.lookBy.After(now)
	unseen := w.unseen
	w.raised, w.lookBy, w.relinked, w.unseen = 0, time.Time{}, false, false
	if !w.deadline.IsZero() && !w.deadline.After(now) {
		w.deadline, byRequest = time.Time{}, false
	}
	w.mu.Unlock()
	if !byRequest || register != nil || reason == wake.Restart || w.failed {
		signals = wake.AllSignals
	}
	if w.repeats > 0 && register == nil && !byRequest {
		w.repeats--
	}
	did, moment, err := false, w.moment, error(nil)
	// Whoever observes a commit does the work that it has left, before it sends a notice.
	if !byRequest || register != nil || unseen || reason == wake.Restart || w.failed {
		did, moment, err = w.attend(register, reason == wake.Restart || w.failed)
	}
	switch {
	case err != nil:
		return w.lookFailed(err)
	case w.failed:
		reason = wake.Restart
	case did:
		signals = wake.AllSignals
	case reason == wake.Commit && !byRequest && (told || moment == w.moment):
		reason = wake.Deadline // nothing was committed, as far as the watcher knows
	case reason == wake.Commit && signals != wake.AllSignals:
		reason = wake.Notice
	}
	w.moment, w.failed = moment, false
	if register != nil {
		w.registered, w.until = *register, now.Add(registration)
	}
	found := w.events.Changed(reason, signals) > 0
	switch {
	case found:
		w.lastFound, w.pause = time.Now(), 0
	case w.busy:
		w.pause = min(max(2*w.pause, firstBusy), slowestBusy)
	default:
		w.pause = max(2*w.pause, fastPoll)
	}
	return true
}

// lookFailed handles an error of a look, and sets the pause before the next. It returns false if the database is gone.
func (w *watcher) lookFailed(err error) bool {
	b := w.backend
	switch {
	case w.ctx.Err() != nil:
		return false
	case pgstore.Dropped(err):
		err = fmt.Errorf("%w: %w", engine.ErrDatabaseReplaced, err)
		fallthrough
	case errors.Is(err, engine.ErrDatabaseReplaced):
		w.events.Lost(err)
		return false
	}
	if !w.failed {
		b.opts.Logger.WarnContext(w.ctx, "honker: a look for commits failed and is repeated", "db", b.name, "err", err)
		w.failed, w.pause = true, 0
	}
	if pgsql.Decided(err) {
		w.events.Changed(wake.Restart, wake.AllSignals) // the waiters' statements may fail, too, and they return the error
	}
	w.pause = min(max(2*w.pause, fastPoll), slowestRetry)
	w.notBefore = time.Now().Add(w.pause)
	return true
}
