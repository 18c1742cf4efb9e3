package watch

import (
	"errors"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/wake"
)

// wait blocks until there is a reason to check for a commit, and returns the reason.
func (w *Watcher) wait() reason {
	// RemoveWaiter doesn't wake the watcher, which notices here, after its next check, that its last waiter has left.
	// If a waiter returns before then, events are still enabled.
	waiting, deadline := w.demand()
	for !waiting {
		if !w.sleep() {
			return byClose
		}
		waiting, deadline = w.demand()
	}
	if w.followEvents() {
		return byRequest
	}
	pause, ends := w.nextPause(time.Now(), deadline)
	// The minimum pause is a millisecond, for which the runtime's timers are precise enough. For shorter pauses,
	// search sleeps with a system call, because the runtime would round them up.
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-w.wake:
		return byRequest
	case <-w.events.C():
		return byEvent
	case <-w.signals.C():
		w.signalCame = true
		return bySignal
	case <-timer.C:
		return ends
	case <-w.ctx.Done():
		return byClose
	}
}

// sleep waits for a request, with no timers or events. It returns false when the watcher is closed.
func (w *Watcher) sleep() bool {
	// Events cost every process that writes to the file some time.
	w.events.unsubscribe()
	w.signals.unwatch(w.events)
	w.state = sleeping
	w.missed = false
	select {
	case <-w.wake:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// followEvents enables events or signals according to the state. It returns true if a check is due immediately,
// because earlier writes caused neither.
func (w *Watcher) followEvents() bool {
	if w.state == busy {
		added := !w.cfg.NoSignals && w.signals.watch(w.events, w.awaitedSignals())
		w.events.unsubscribe()
		return added
	}
	wasSleeping := w.state == sleeping
	switch {
	case w.events.subscribe():
		w.signals.unwatch(w.events)
		// A commit in progress may already have caused its event, so the watcher searches. On a filesystem that has
		// failed to send events before, a new watch proves nothing: only an actual event ends polling.
		w.enter(searching, afterEvent)
		if w.eventMissed {
			w.enter(polling, w.cfg.Poll)
		}
		return true
	case !w.events.subscribed() && w.state != polling:
		w.enter(polling, w.cfg.Poll)
	}
	return wasSleeping
}

// enter sets the state and its first pause.
func (w *Watcher) enter(s state, pause time.Duration) { w.state, w.pause = s, pause }

// nextPause returns how long to wait without a request or event, and the reason to report after that.
func (w *Watcher) nextPause(now, deadline time.Time) (time.Duration, reason) {
	if !w.signalCame {
		w.lookAt = now.Add(w.pause)
	}
	w.signalCame = false
	pause, ends := max(w.lookAt.Sub(now), 0), byTimer
	if w.postponed.Load() {
		pause = min(pause, max(w.notBefore.Sub(now), 0))
	}
	if !deadline.IsZero() {
		until := max(deadline.Sub(now), 0)
		if until <= pause {
			return until, byDeadline
		}
		// The deadline is a wall clock time, and the wall clock can be set, but the timer uses the monotonic clock.
		pause = min(pause, max(clockCheck, w.cfg.Poll))
	}
	if w.state == searching || w.state == listening {
		pause = alignWakeups(now, pause)
	}
	return pause, ends
}

// alignWakeups shortens a long pause so that it ends at a multiple of its length. The watchers of all files then wake
// up at the same time, which avoids most of the cost of a check: waking a sleeping thread.
func alignWakeups(now time.Time, pause time.Duration) time.Duration {
	if pause < alignFrom {
		return pause
	}
	return now.Add(pause).Truncate(pause).Sub(now)
}

// look reads the version and reports a change. No matter why the watcher woke up, only the version proves that there
// was a commit. The exception is a signal: it is raised after a commit, so there's no need to read the version.
func (w *Watcher) look(why reason) {
	now := time.Now()
	if why == byDeadline {
		w.clearDeadline(now)
	}
	if why == byRequest && now.Before(w.notBefore) {
		w.postponed.Store(true)
		return
	}
	if why != bySignal {
		w.postponed.Store(false) // before reading the version: a later commit must request another check
	}
	switch {
	case why == byEvent:
		w.search(now)
	case why == bySignal:
		w.signaled()
	case w.changed():
		w.found(now, why)
	case why == byDeadline:
		w.cfg.Changed(wake.Deadline, wake.AllSignals)
	case why == byTimer:
		// Only a timer lengthens the pause. A request without a change means a rollback, which doesn't show that the
		// file is quiet.
		w.foundNothing(now)
	}
}

// signaled wakes the waiters for the raised signals. More commits for them may follow within raiseGap without a
// signal, so the next check must come soon.
func (w *Watcher) signaled() {
	raised := w.signals.take()
	if raised == 0 || w.cfg.Changed(wake.Commit, raised) == 0 {
		return
	}
	w.pause = min(w.pause, w.cfg.Poll)
	if soon := time.Now().Add(w.pause); soon.Before(w.lookAt) {
		w.lookAt = soon
	}
}

// clearDeadline clears a deadline that has passed. The call to Changed sets the next deadline.
func (w *Watcher) clearDeadline(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deadline.After(now) {
		w.deadline = time.Time{}
	}
}

// search looks for the commit announced by an event. The event comes when the WAL is written, shortly before the
// commit becomes visible. Timers are too coarse, so the goroutine sleeps with system calls here.
func (w *Watcher) search(now time.Time) {
	w.eventMissed = false
	w.enter(searching, afterEvent)
	if w.tooFast(now) {
		w.enter(busy, max(w.poll(busy), burstGap))
	}
	// If this process has committed since the last event, this event was probably caused by that commit, for which
	// Committed has already requested a check. A single check is then enough, in case another process has committed
	// too. The count doesn't have to be exact: a later check finds any commits that it misses.
	own := w.cfg.Commits()
	mine := own != w.ownCommits
	w.ownCommits = own
	for until := now.Add(searchFor); ; sqlite.Pause(searchEvery) {
		if w.changed() {
			w.found(now, byEvent)
			sqlite.Pause(afterFound)
			return
		}
		if mine || time.Now().After(until) {
			// Either there was a rollback or a checkpoint, or the disk delays the writer between the event and the
			// commit. There will be no second event, so the timer continues the search with growing pauses. The extra
			// delay is thus proportional to the disk's delay.
			return
		}
	}
}

// tooFast reports whether events arrive too close together. For each event, the writer has to wake this process.
// Above a certain rate, polling is cheaper for both and hardly any slower.
func (w *Watcher) tooFast(now time.Time) bool {
	if now.Sub(w.lastEvent) < burstGap {
		w.fastEvents++
	} else {
		w.fastEvents = 0
	}
	w.lastEvent = now
	return w.fastEvents >= burstEvents
}

// found reports a commit. If the commit woke no waiter, the watcher checks less often.
func (w *Watcher) found(now time.Time, why reason) {
	w.lastCommit = now
	cause := wake.Commit
	if w.connLost {
		w.connLost, cause = false, wake.Restart
	}
	began := time.Now()
	woken := w.cfg.Changed(cause, wake.AllSignals)
	took := time.Since(began)
	cost := min(took, w.took) // a single check may have been delayed by other work
	w.took = took
	w.missed = woken == 0
	if w.missed {
		w.foundOthers(time.Now(), cost)
		return
	}
	w.backoff, w.notBefore = 0, time.Time{}
	switch {
	case w.state == polling, w.state == busy:
		w.pause = w.poll(w.state)
	case w.state == searching && why == byTimer:
		// The event came before the commit was visible. If the commit was found immediately, the state doesn't
		// change, because the event may belong to the next commit, which isn't visible yet.
		w.enter(listening, max(afterCommit, w.cfg.Poll))
	case w.state == listening && why == byTimer:
		// The commit caused no event. Some filesystems accept a watch and never send events.
		w.eventMissed = true
		w.enter(polling, w.cfg.Poll)
	default:
		w.pause = max(afterCommit, w.cfg.Poll)
	}
}

// foundOthers makes the watcher check less often, even after this process's own commits: a commit that wakes no
// waiter here is usually followed by others like it. Calls in this process wake their waiters directly. cost is the
// time it took to find out that the commit wasn't for any waiter here.
func (w *Watcher) foundOthers(now time.Time, cost time.Duration) {
	w.backoff = min(max(2*w.backoff, firstBackoff), slowestBackoff)
	pause := min(max(w.backoff, lookShare*cost), slowestLook)
	w.notBefore = now.Add(pause)
	if w.state != polling {
		w.state = busy
	}
	w.pause = max(pause, w.poll(w.state))
}

// poll returns the minimum pause between checks in a state without events. In the busy state it is at most
// slowestBackoff: a longer Poll is meant for when events are on, but the busy state turns them off, and some programs
// raise no signals when they commit.
func (w *Watcher) poll(s state) time.Duration {
	if s == busy {
		return min(w.cfg.Poll, slowestBackoff)
	}
	return w.cfg.Poll
}

// foundNothing lengthens the next pause, and leaves states that are not needed for a quiet file.
func (w *Watcher) foundNothing(now time.Time) {
	quiet := now.Sub(w.lastCommit)
	switch {
	case w.state == busy && (quiet > othersQuiet || quiet > quietAfter && !w.missed):
		// followEvents then adds the watches again, and leaves the polling state immediately.
		w.fastEvents, w.missed = 0, false
		w.enter(polling, w.cfg.Poll)
	case w.state == busy, w.state == polling && quiet <= idleAfter:
		// Commits come in groups, so pauses stay short for a while after a commit.
		if w.missed {
			w.pause = max(min(2*w.pause, slowestBackoff), w.poll(w.state))
		} else if w.state == polling {
			w.pause = w.cfg.Poll
		}
	case w.state == polling:
		// From now on, checks are late by about a hundredth of the preceding quiet time.
		w.pause = max(min(2*w.pause, quiet/100, slowestPoll), w.cfg.Poll)
	default: // searching or listening
		longest := w.longestPause()
		w.pause = min(2*w.pause, longest)
		if w.pause == longest {
			w.state = listening
		}
	}
}

// longestPause returns how long the watcher relies on events alone.
func (w *Watcher) longestPause() time.Duration {
	if w.cfg.Untrusted || !w.events.followsLog() {
		return max(uncertainLook, w.cfg.Poll)
	}
	return max(safetyLook, w.cfg.Poll)
}

// changed reads the version, and reports whether there may have been a commit since it was last read. It returns true
// for the first read, when there is nothing to compare with, and after a reconnect, because the version is specific
// to a connection.
func (w *Watcher) changed() bool {
	v, err := w.cfg.Version.Version(w.ctx)
	if err != nil {
		w.versionFailed(err)
		return false
	}
	changed := w.connLost || !w.versionKnown || v != w.version
	w.version, w.versionKnown = v, true
	return changed
}

// versionFailed handles an error from Version. The last version is kept, so that the next successful read finds any
// difference.
func (w *Watcher) versionFailed(err error) {
	w.pause = min(w.pause, afterCommit) // the check failed, so try again soon
	if sqlite.IsBusy(err) {
		return
	}
	if errors.Is(err, engine.ErrDatabaseReplaced) || w.ctx.Err() != nil {
		return // Identity will report it at the next check, or Close caused it
	}
	if !w.connLost {
		w.cfg.Logger.Warn("honker: the watcher lost its connection and will open another", "error", err)
	}
	w.connLost = true
}
