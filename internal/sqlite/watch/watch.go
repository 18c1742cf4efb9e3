// Package watch detects commits by other connections to a database file.
//
// Only PRAGMA data_version shows whether there was a commit. Reading it to find out is called a look. Other sources
// tell the watcher when to look: a commit by this process, an operating system event for the -wal file, a signal from
// another process, a waiter's deadline, or a timer that ensures a look every few seconds.
//
// A watcher is always in one of five states:
//
//	sleeping --AddWaiter--> searching --a commit for no waiter here, 16 fast events--> busy
//	                         |  ^  ^                                                    |
//	  a later look found it, |  |  '--event--- polling <--------------------------------'
//	  or the search gave up  |  | event          ^            no commit for a while
//	                         v  |                |
//	                       listening ------------'
//	                                 a commit without an event, or no events
//
// In any state, the last RemoveWaiter leads to sleeping. Like searching, listening can lead to busy.
//
// The states, and when the next look happens if nothing requests it earlier:
//
//   - sleeping: there is no waiter. No timer runs, and events are off.
//   - searching: an event came, but its commit may not be visible yet. The watcher looks at intervals that double
//     from a millisecond to a few seconds.
//   - listening: no event is pending. Events are on, with a look every four seconds just in case.
//   - polling: there are no events, or they proved unreliable. The watcher looks every Poll.
//   - busy: commits come too fast for events to be worth it, or aren't for any waiter here. Events are off and
//     signals are on. The watcher looks every Poll, or every 100 ms if Poll is longer, and less often after each
//     commit that isn't for any waiter here. With events, fifty idle processes would all wake up for each commit of a
//     busy process and leave it no processor time. See docs/internals/decisions/007.
package watch

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/wake"
)

// Version reads PRAGMA data_version, always on the same connection.
type Version interface {
	Version(ctx context.Context) (int64, error)
	Close() error
}

// Config configures a Watcher.
type Config struct {
	Path      string        // path of the database file
	Version   Version       // closed by the watcher when it ends
	Identity  func() error  // returns an error once the file was replaced
	Commits   func() int64  // number of commits by this process; their events need no search
	Poll      time.Duration // pause between looks without events
	Notices   bool          // use file events where the platform has them
	NoSignals bool          // create no files next to the database; other processes then cannot wake this process before its next look
	Untrusted bool          // the filesystem may accept a watch and never send an event
	Lost      func(error)   // called when the watcher has ended because the file was replaced
	Logger    *slog.Logger

	// Changed is called when there may be news for the waiters of signals. It must return the number of waiters it
	// woke. It runs on the watcher's goroutine.
	Changed func(cause wake.Reason, signals wake.Signals) (woken int)
}

// Pauses with events.
const (
	// safetyLook limits the delay when no event comes: after an event was lost, or when another file appears at the
	// path because a parent directory was renamed. A look at a thousand files takes 25 to 30 ms, so a look every four
	// seconds costs 0.6 to 0.8 % of a core.
	safetyLook = 4 * time.Second
	// uncertainLook replaces safetyLook where events may be missing: on an untrusted filesystem, and without a
	// -wal file, whose creation causes no event.
	uncertainLook = 500 * time.Millisecond
	// clockCheck limits the delay of a deadline after the wall clock was set or the machine was suspended. Timers
	// don't notice either of these.
	clockCheck = 500 * time.Millisecond
	// alignFrom is the shortest pause that is aligned with other files' pauses.
	alignFrom = 500 * time.Millisecond

	afterEvent  = time.Millisecond      // first pause after an event without a visible commit
	afterCommit = 25 * time.Millisecond // first pause after a commit
)

// The search after an event. The event usually precedes the visible commit by less than a timer's resolution.
const (
	searchFor   = 600 * time.Microsecond
	searchEvery = 30 * time.Microsecond
	afterFound  = 250 * time.Microsecond // gives the writer a break; events queue up during it
)

// Pauses without events.
const (
	slowestPoll = 100 * time.Millisecond // after ten quiet seconds, unless Poll is longer
	idleAfter   = time.Second            // polling slows down after this time without a commit

	// After commits that aren't for any waiter here, the pauses grow from firstBackoff to slowestBackoff.
	firstBackoff   = 2 * time.Millisecond
	slowestBackoff = 100 * time.Millisecond

	burstGap    = time.Millisecond       // maximum time between events in a burst
	burstEvents = 16                     // number of events in a burst that disables events
	quietAfter  = 20 * time.Millisecond  // a burst ends after this time without a commit
	othersQuiet = 200 * time.Millisecond // the same for commits that aren't for any waiter here

	// lookShare limits the cost of fruitless looks: after such a look, the watcher waits lookShare times as long
	// as the look took. A look is slow if there are thousands of names to query. The wait is at most
	// slowestLook, because the look may also have been delayed by a lent connection or by the disk.
	lookShare   = 30
	slowestLook = time.Second
)

// state is the state of a watcher; see the package comment.
type state int

const (
	sleeping state = iota
	searching
	listening
	polling
	busy
)

// reason is the reason for the end of a wait.
type reason int

const (
	byRequest reason = iota // AddWaiter, Committed, WakeAt, or new watches
	byEvent
	bySignal
	byDeadline
	byTimer
	byClose
)

// Watcher looks for commits on a goroutine. It runs from the first AddWaiter until Close.
type Watcher struct {
	cfg     Config
	signals *signalFiles
	wake    chan struct{}   // has capacity 1; requests for a look are merged
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    chan struct{}
	events  *fileEvents
	bubble  bool // created in a testing/synctest bubble

	mu       sync.Mutex
	waiters  int
	awaited  [64]int   // number of waiters of each signal
	deadline time.Time // earliest time passed to WakeAt
	started  bool
	closed   bool

	postponed atomic.Bool // a look was requested before notBefore

	// The fields below belong to the goroutine.
	state        state
	pause        time.Duration // until the next look by timer
	lookAt       time.Time     // time of that look; signals do not delay it
	signalCame   bool          // a signal ended the last wait
	version      int64
	versionKnown bool // version was read at least once
	connLost     bool // the connection was lost after version was read
	lastCommit   time.Time
	missed       bool          // the last commit wasn't for any waiter here
	backoff      time.Duration // grows with each such commit in a row
	took         time.Duration // duration of Changed after the last commit
	notBefore    time.Time     // earliest time of a look by request
	lastEvent    time.Time
	fastEvents   int   // number of consecutive events, each within burstGap of the previous
	eventMissed  bool  // a timer found a commit without an event
	ownCommits   int64 // number of commits by this process at the last event
}

// New returns a watcher. It starts with the first AddWaiter.
func New(cfg Config) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{cfg: cfg, signals: newSignalFiles(cfg.Path), wake: make(chan struct{}, 1), ctx: ctx, stop: stop, done: make(chan struct{}), bubble: wake.InBubble()}
}

// AddWaiter makes the watcher look for commits. Commits made after AddWaiter returns will be noticed, immediately if
// another process raises a signal in signals. Each call must be paired with a RemoveWaiter with the same signals.
func (w *Watcher) AddWaiter(signals wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters++
	isNew := w.waiters == 1
	for rest := uint64(signals); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		w.awaited[i]++
		isNew = isNew || w.awaited[i] == 1
	}
	if !w.started && !w.closed {
		w.started = true
		go w.run()
	}
	if isNew {
		w.requestLook()
	}
}

// RemoveWaiter undoes an AddWaiter.
func (w *Watcher) RemoveWaiter(signals wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters--
	for rest := uint64(signals); rest != 0; rest &= rest - 1 {
		w.awaited[bits.TrailingZeros64(rest)]--
	}
}

// Committed requests a look after a commit by this process. It never blocks, because the caller has other work to do.
func (w *Watcher) Committed() {
	if waiting, _ := w.demand(); waiting && !w.postponed.Load() {
		w.requestLook()
	}
}

// Raise wakes the processes that have a waiter for a signal in signals. It must be called after a commit that those
// waiters are waiting for. It costs a system call or two.
func (w *Watcher) Raise(signals wake.Signals) { w.signals.raise(signals) }

// WakeAt requests a call to Changed at wall clock time t, even without a commit.
func (w *Watcher) WakeAt(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline.IsZero() || t.Before(w.deadline) {
		w.deadline = t
		w.requestLook() // the current timer may end later
	}
}

// Close stops the goroutine and waits for it to end.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	started := w.started
	w.mu.Unlock()
	w.stop()
	if started {
		<-w.done
	}
	return nil
}

func (w *Watcher) requestLook() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// awaitedSignals returns the signals that have a waiter.
func (w *Watcher) awaitedSignals() (set wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range w.awaited {
		if n > 0 {
			set |= 1 << i
		}
	}
	return set
}

// demand reports whether there is a waiter, and returns the next deadline.
func (w *Watcher) demand() (waiting bool, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiters > 0, w.deadline
}

func (w *Watcher) run() {
	defer close(w.done)
	defer w.cfg.Version.Close()
	if w.bubble != wake.InBubble() { // wait uses channels from outside the bubble, so the bubble's time doesn't advance
		w.cfg.Logger.Error("honker: a DB that was opened outside of a testing/synctest bubble is used inside it, so the bubble's time does not pass: open it in the bubble, as package honkertest does",
			"path", w.cfg.Path)
	}
	w.events = newFileEvents(w.cfg)
	defer w.events.close()
	defer w.signals.close(w.events)
	for {
		why := w.wait()
		if why == byClose {
			return
		}
		// If the file was replaced, the connection continues to read the old file without an error. So check the
		// identity before each look.
		if err := w.cfg.Identity(); err != nil {
			w.cfg.Lost(err)
			return
		}
		w.look(why)
	}
}
