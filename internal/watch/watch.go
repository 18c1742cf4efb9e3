// Package watch answers one question: did somebody commit to this file?
//
// PRAGMA data_version is the truth. Everything else only says when to look: a nudge
// after a commit of our own, a notice of the operating system that the -wal file
// was written, a deadline that the listener named, and a safety poll.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
)

// Version reads PRAGMA data_version of one and the same connection.
type Version interface {
	Version(ctx context.Context) (int64, error)
	Close() error
}

// Config says what is watched and who is told.
type Config struct {
	Path     string          // the database file
	Version  Version         //
	Identity func() error    // an error once the file was replaced
	Commits  func() int64    // commits of this process so far; their notices need no search
	Poll     time.Duration   // cadence where there are no notices
	Notices  bool            // use them where the platform has them
	Wary     bool            // the filesystem may not keep its word: never rest for long
	Look     func(why Cause) // there may be something new; runs in the watcher's goroutine
	Dead     func(error)     // the file is gone for good; the watcher ends
	Logger   *slog.Logger
}

// Cause is why the watcher looked.
type Cause string

// The causes.
const (
	Commit   Cause = "commit"   // data_version moved
	Deadline Cause = "deadline" // a time named by Expect has come
	Restart  Cause = "restart"  // the connection was lost: there may have been commits
)

// How long the watcher trusts what it has.
const (
	safety      = 25 * time.Millisecond  // first poll after a commit, while notices work
	promised    = 500 * time.Millisecond // for what has to be noticed within a second, and makes no notice
	longest     = 10 * time.Minute       // pause, if there is nothing of the kind
	idleAfter   = time.Second
	storm       = time.Millisecond      // notices closer than this are a storm
	stormCount  = 16                    // after so many of them, poll instead
	calm        = 20 * time.Millisecond // and listen again after such a pause
	afterHit    = 250 * time.Microsecond
	searchFor   = 600 * time.Microsecond // a notice comes before the commit is visible
	searchEvery = 30 * time.Microsecond
	tailFirst   = time.Millisecond // then look at growing distances: the disk may hold the writer up
	tailDoubles = 100 * time.Millisecond
)

// Watcher is one goroutine that looks. It runs from Start to Close, and sleeps
// without a timer while nobody waits.
type Watcher struct {
	cfg    Config
	nudge  chan struct{}   // one slot: a look is due; two are no more than one
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	done   chan struct{}
	notice *notices

	mu       sync.Mutex
	waiters  int
	deadline time.Time // the earliest that somebody expects something without a commit
	started  bool
	closed   bool

	// the goroutine's own
	seen       int64
	known      bool // seen was read once
	lost       bool // the connection broke since seen was read
	lastChange time.Time
	lastNotice time.Time
	rapid      int           // notices in a row that came in a storm
	announced  bool          // a poll may find a commit: of a notice, or of before the first
	doubtful   bool          // a poll found what no notice had announced
	ownCommits int64         // as of the last notice
	tail       time.Duration // next pause while notices come
	pollEvery  time.Duration // next pause while none come
}

// New returns a watcher that does nothing until somebody waits.
func New(cfg Config) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{
		cfg:       cfg,
		nudge:     make(chan struct{}, 1),
		ctx:       ctx,
		stop:      stop,
		done:      make(chan struct{}),
		pollEvery: cfg.Poll,
		tail:      tailFirst,
	}
}

// Wait announces somebody who waits, and starts the goroutine for the first one.
// Commits after it returns are looked at. Each Wait needs a Leave.
func (w *Watcher) Wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters++
	if !w.started && !w.closed {
		w.started = true
		go w.run()
	}
	if w.waiters == 1 {
		w.poke()
	}
}

// Leave takes back a Wait.
func (w *Watcher) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters--
}

// Nudge says that this process has committed.
func (w *Watcher) Nudge() {
	w.mu.Lock()
	waiting := w.waiters > 0
	w.mu.Unlock()
	if waiting {
		w.poke()
	}
}

func (w *Watcher) poke() {
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// Expect asks for a look at t even if nobody commits until then.
func (w *Watcher) Expect(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline.IsZero() || t.Before(w.deadline) {
		w.deadline = t
		w.poke()
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

func (w *Watcher) run() {
	defer close(w.done)
	defer w.cfg.Version.Close()
	w.notice = newNotices(w.cfg)
	defer w.notice.close()
	for {
		why, ok := w.rest()
		if !ok {
			return
		}
		if err := w.cfg.Identity(); err != nil {
			w.cfg.Dead(err)
			return
		}
		w.act(why)
	}
}

// reason is what ended a rest.
type reason int

const (
	byNudge reason = iota
	byNotice
	byDeadline
	byPoll
)

// rest sleeps until there is a reason to look; false when it is time to end.
func (w *Watcher) rest() (reason, bool) {
	waiting, deadline := w.state()
	if !waiting {
		// Notices cost every writer of the machine a little: not for nobody.
		w.notice.drop()
		select {
		case <-w.nudge:
			return byNudge, true
		case <-w.ctx.Done():
			return 0, false
		}
	}
	if w.rapid < stormCount && w.notice.arm() {
		w.tail, w.announced = tailFirst, true
		return byNudge, true // what was written before makes no notice
	}
	pause, isDeadline := w.patience(time.Now(), deadline)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-w.nudge:
		return byNudge, true
	case <-w.notice.C():
		return byNotice, true
	case <-timer.C:
		if isDeadline {
			return byDeadline, true
		}
		return byPoll, true
	case <-w.ctx.Done():
		return 0, false
	}
}

func (w *Watcher) state() (waiting bool, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiters > 0, w.deadline
}

// patience says how long to rest, and whether a deadline ends it.
func (w *Watcher) patience(now time.Time, deadline time.Time) (time.Duration, bool) {
	pause := w.pollPause(now)
	if deadline.IsZero() {
		return pause, false
	}
	if until := deadline.Sub(now); until <= pause {
		return max(until, 0), true
	}
	// It is a time on the wall: that clock may be set, and the machine may sleep.
	return min(pause, max(promised, w.cfg.Poll)), false
}

// pollPause is the pause if nothing ends it.
func (w *Watcher) pollPause(now time.Time) time.Duration {
	switch {
	case w.rapid >= stormCount:
		return min(max(w.cfg.Poll, storm), safety)
	case w.trusting():
		return together(now, min(w.tail, w.longestPause()))
	}
	// It grows with each look that finds nothing, once nobody has committed for a while.
	w.pollEvery = max(min(2*w.pollEvery, safety), w.cfg.Poll)
	if now.Sub(w.lastChange) <= idleAfter {
		w.pollEvery = w.cfg.Poll
	}
	return w.pollEvery
}

// together moves the end of a long pause, by an eighth at most, so that the watchers of
// all files wake up at the same moments: most of what a look costs is to wake up.
func together(now time.Time, pause time.Duration) time.Duration {
	if pause < time.Second {
		return pause
	}
	return now.Add(pause).Round(pause / 4).Sub(now)
}

// trusting says that notices come, and that none was missed.
func (w *Watcher) trusting() bool { return w.notice.armed() && !w.doubtful }

// longestPause is short where a commit or a replaced file might make no notice.
func (w *Watcher) longestPause() time.Duration {
	if w.notice.guarded() && !w.cfg.Wary {
		return max(w.cfg.Poll, longest)
	}
	return max(w.cfg.Poll, promised)
}

// act looks, for as long as the reason promises something.
func (w *Watcher) act(why reason) {
	now := time.Now()
	if why == byDeadline {
		w.passed(now)
	}
	switch {
	case why == byNotice:
		w.noticed(now)
	case w.moved():
		// Some filesystems take a watch and never keep their word.
		w.doubtful = w.doubtful || why == byPoll && w.notice.armed() && !w.announced
		w.hit(now)
	case why == byDeadline:
		w.cfg.Look(Deadline)
	case why == byPoll:
		w.missed(now)
	}
}

// passed forgets the deadline; the look names the next one.
func (w *Watcher) passed(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deadline.After(now) {
		w.deadline = time.Time{}
	}
}

// noticed searches for the commit that a notice announces.
func (w *Watcher) noticed(now time.Time) {
	w.doubtful, w.announced = false, true
	w.countStorm(now)
	own := w.cfg.Commits()
	mine := own != w.ownCommits
	w.ownCommits = own
	// The nudge of our own commit has been answered already: search for a foreign
	// one only where there was none of ours.
	for until := now.Add(searchFor); ; sqlite.Pause(searchEvery) {
		if w.moved() {
			w.hit(now)
			w.announced = true // it may be of the next commit, which is not visible yet
			// Leave the writer some air; notices queue up meanwhile.
			sqlite.Pause(afterHit)
			return
		}
		if mine || time.Now().After(until) {
			break
		}
	}
	w.tail = tailFirst
}

func (w *Watcher) countStorm(now time.Time) {
	if now.Sub(w.lastNotice) < storm {
		w.rapid++
	} else {
		w.rapid = 0
	}
	w.lastNotice = now
	if w.rapid >= stormCount {
		w.notice.drop()
	}
}

func (w *Watcher) hit(now time.Time) {
	w.lastChange, w.announced, w.tail = now, false, max(safety, w.cfg.Poll)
	if w.lost {
		w.lost = false
		w.cfg.Look(Restart)
		return
	}
	w.cfg.Look(Commit)
}

func (w *Watcher) missed(now time.Time) {
	w.grow()
	if w.rapid >= stormCount && now.Sub(w.lastChange) > calm {
		w.rapid = 0
		w.poke() // listen again, and look once for what came before
	}
}

// grow makes the next pause longer.
func (w *Watcher) grow() {
	if w.tail < tailDoubles {
		w.tail *= 2
		return
	}
	w.tail = max(min(8*w.tail, longest), w.cfg.Poll)
}

// moved reads the version. A busy database keeps the old one: the next look sees
// the difference. A lost connection means that commits may have been missed.
func (w *Watcher) moved() bool {
	v, err := w.cfg.Version.Version(w.ctx)
	if err != nil {
		w.tail = min(w.tail, safety) // it has not looked: try again soon
	}
	switch {
	case err == nil:
		changed := w.lost || v != w.seen || !w.known // not known since when: look once
		w.seen, w.known = v, true
		return changed
	case sqlite.IsBusy(err):
	case errors.Is(err, sqlite.ErrReplaced), w.ctx.Err() != nil: // told by Identity in a moment, or ending
	default:
		if !w.lost {
			w.cfg.Logger.Warn("honker: the watcher lost its connection and will open another", "error", err)
		}
		w.lost = true
	}
	return false
}
