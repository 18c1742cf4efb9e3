// Package watch answers one question: has another connection committed to this file?
//
// PRAGMA data_version is the answer. Everything else only says when to read it: a commit
// of this process, an event of the operating system for the -wal file, a signal of another
// process, a deadline that a waiter named, and a safety look every few seconds.
//
// The watcher is always in one of five states:
//
//	sleeping --AddWaiter--> searching --a commit for no waiter here, 16 fast events--> busy
//	                         |  ^  ^                                                    |
//	  a later look found it, |  |  '--event--- polling <--------------------------------'
//	  or the search gave up  |  | event          ^            no commit for a while
//	                         v  |                |
//	                       listening ------------'
//	                                 a commit without an event, or no events
//
// From any state the last RemoveWaiter leads to sleeping; listening leads to busy as
// searching does.
//
// What they mean, and when the next look comes without any request:
//
//   - sleeping: there is no waiter. No timer runs, and no events come.
//   - searching: an event came, but the commit that it announced may not be visible yet.
//     Looks follow at distances that double from a millisecond to a few seconds.
//   - listening: nothing is announced. Events come, and a safety look every four seconds.
//   - polling: there are no events, or they proved unreliable. Looks come every Poll.
//   - busy: commits come faster than events are worth, or concern no waiter here. Events
//     are off, signals are on. Looks come every Poll, or 100 ms if that is longer, and less often with each commit that
//     concerns no waiter: with events, each of fifty idle processes would wake up at each
//     commit of one that works, and leave it no processor to work on. See
//     docs/internals/decisions/007.
package watch

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Version reads PRAGMA data_version of one and the same connection.
type Version interface {
	Version(ctx context.Context) (int64, error)
	Close() error
}

// Config says what is watched and what is called.
type Config struct {
	Path      string        // the database file
	Version   Version       // closed by the watcher when it ends
	Identity  func() error  // an error once the file was replaced
	Commits   func() int64  // commits of this process so far; their events need no search
	Poll      time.Duration // between looks where there are no events
	Notices   bool          // use file events where the platform has them
	NoSignals bool          // make no files beside the database; other processes then wake this one no sooner than the next look
	Untrusted bool          // the filesystem may accept a watch and never send an event
	Lost      func(error)   // the file was replaced; the watcher has ended
	Logger    *slog.Logger

	// Changed says that there may be something new for the waiters of signals, and returns
	// how many it woke. It runs in the watcher's goroutine.
	Changed func(cause Cause, signals Signals) (woken int)
}

// Signals is a set of signals. A waiter waits for some, and a process that commits for
// others raises theirs, so that a process is woken from busy by commits that concern it.
// What a signal stands for is the caller's matter: it has to be the same in all processes.
type Signals uint64

// AllSignals is what a look that no signal has asked for concerns.
const AllSignals = ^Signals(0)

// Cause is why Changed was called.
type Cause string

// The causes.
const (
	Commit   Cause = "commit"   // data_version moved
	Deadline Cause = "deadline" // a time given to WakeAt has come
	Restart  Cause = "restart"  // the connection was lost: there may have been commits
)

// Pauses while events come.
const (
	// safetyLook bounds how late the watcher is where no event comes: for a file put at
	// the path by renaming a folder above it, and for a lost event. A look of a thousand
	// files takes 25 to 30 ms, so every four seconds costs 0.6 to 0.8 % of a core.
	safetyLook = 4 * time.Second
	// uncertainLook replaces it where events may be missing: on an untrusted filesystem,
	// and without a -wal file, which may appear without an event.
	uncertainLook = 500 * time.Millisecond
	// clockCheck bounds how late a deadline is noticed after the wall clock was set or the
	// machine was suspended. Timers know of neither.
	clockCheck = 500 * time.Millisecond
	// alignFrom is the shortest pause that is aligned with those of the other files.
	alignFrom = 500 * time.Millisecond

	afterEvent  = time.Millisecond      // first pause after an event without a visible commit
	afterCommit = 25 * time.Millisecond // first pause after a commit
)

// The search right after an event. It comes before the commit is visible, usually by less
// than a timer of the runtime can measure.
const (
	searchFor   = 600 * time.Microsecond
	searchEvery = 30 * time.Microsecond
	afterFound  = 250 * time.Microsecond // leaves the writer some air; events queue up meanwhile
)

// Pauses while no events come.
const (
	slowestPoll = 100 * time.Millisecond // after ten quiet seconds, unless Poll is longer
	idleAfter   = time.Second            // without a commit, polling slows down

	// After commits that concern no waiter here, the pauses grow from the first of these to
	// the second.
	firstBackoff   = 2 * time.Millisecond
	slowestBackoff = 100 * time.Millisecond

	burstGap    = time.Millisecond       // events closer than this belong to a burst
	burstEvents = 16                     // so many of them in a row turn events off
	quietAfter  = 20 * time.Millisecond  // without a commit, a burst is over
	othersQuiet = 200 * time.Millisecond // the same for commits that concern no waiter here

	// lookShare bounds what looks for nothing cost: so many times as long as one takes, the
	// watcher does not look again. With thousands of names to ask for, a look is long. It does
	// look after slowestLook: what holds looks up may be a lent connection, or the disk.
	lookShare   = 30
	slowestLook = time.Second
)

// state is what the watcher is doing; the package comment has a picture.
type state int

const (
	sleeping state = iota
	searching
	listening
	polling
	busy
)

// reason is why a wait ended.
type reason int

const (
	byRequest reason = iota // AddWaiter, Committed, WakeAt, or new watches on the files
	byEvent
	bySignal
	byDeadline
	byTimer
	byClose
)

// Watcher is one goroutine that looks for commits. It runs from the first AddWaiter to
// Close.
type Watcher struct {
	cfg     Config
	signals *signalFiles
	wake    chan struct{}   // capacity 1: a look is due, and two are no more than one
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    chan struct{}
	events  *fileEvents
	bubble  bool // it was made in a bubble of testing/synctest

	mu       sync.Mutex
	waiters  int
	awaited  [64]int   // waiters of each signal
	deadline time.Time // the earliest time given to WakeAt
	started  bool
	closed   bool

	postponed atomic.Bool // a look was asked for before notBefore

	// The rest belongs to the goroutine.
	state        state
	pause        time.Duration // before the next look by timer
	lookAt       time.Time     // when that look is; signals do not put it off
	signalCame   bool          // the last wait has ended with one
	version      int64
	versionKnown bool // version was read once
	connLost     bool // the connection broke after version was read
	lastCommit   time.Time
	missed       bool          // the last commit concerned no waiter here
	backoff      time.Duration // grows with each such commit in a row
	took         time.Duration // by the last look that found a commit
	notBefore    time.Time     // the next look that a request may have
	lastEvent    time.Time
	fastEvents   int   // events in a row, each within burstGap of the one before
	eventMissed  bool  // a timer found a commit that no event had announced
	ownCommits   int64 // as of the last event
}

// New returns a watcher that does nothing before the first AddWaiter.
func New(cfg Config) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{cfg: cfg, signals: newSignalFiles(cfg.Path), wake: make(chan struct{}, 1), ctx: ctx, stop: stop, done: make(chan struct{}), bubble: InBubble()}
}

// AddWaiter has the watcher look for commits. Commits after it returns are noticed, those
// for which another process raises one of signals at once. Each call needs a RemoveWaiter
// of the same signals.
func (w *Watcher) AddWaiter(signals Signals) {
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

// RemoveWaiter takes back an AddWaiter.
func (w *Watcher) RemoveWaiter(signals Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters--
	for rest := uint64(signals); rest != 0; rest &= rest - 1 {
		w.awaited[bits.TrailingZeros64(rest)]--
	}
}

// Committed says that this process has committed. It never blocks: the caller has just
// written and goes on.
func (w *Watcher) Committed() {
	if waiting, _ := w.demand(); waiting && !w.postponed.Load() {
		w.requestLook()
	}
}

// Raise wakes the processes in which a waiter waits for one of signals. It is called after
// a commit for them, and costs a system call or two.
func (w *Watcher) Raise(signals Signals) { w.signals.raise(signals) }

// WakeAt asks for a call of Changed at t, on the wall clock, even without a commit.
func (w *Watcher) WakeAt(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline.IsZero() || t.Before(w.deadline) {
		w.deadline = t
		w.requestLook() // the timer that runs may be set for later
	}
}

// Close ends the goroutine and returns when it has ended.
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

// awaitedSignals returns those that have a waiter.
func (w *Watcher) awaitedSignals() (set Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range w.awaited {
		if n > 0 {
			set |= 1 << i
		}
	}
	return set
}

// demand returns whether there is a waiter, and the next deadline.
func (w *Watcher) demand() (waiting bool, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiters > 0, w.deadline
}

func (w *Watcher) run() {
	defer close(w.done)
	defer w.cfg.Version.Close()
	if w.bubble != InBubble() { // the wait below is on channels from elsewhere, for which a bubble's time does not pass
		w.cfg.Logger.Error("honker: a DB is used in a bubble of testing/synctest that was not opened there, so time does not pass: open it in the bubble, as package honkertest does",
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
		// A connection goes on reading the old file without an error when another file
		// was put at the path, so each look compares them first.
		if err := w.cfg.Identity(); err != nil {
			w.cfg.Lost(err)
			return
		}
		w.look(why)
	}
}
