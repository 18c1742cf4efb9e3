package watch

import (
	"errors"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
)

// wait blocks until there is a reason to look.
func (w *Watcher) wait() reason {
	// RemoveWaiter wakes nothing: a watcher notices here, after its next look, that its
	// last waiter has left. A waiter that comes back sooner finds the events still on.
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
	// The shortest pause between looks is a millisecond, which the runtime's timers keep.
	// What is shorter than that, search spends in sleeps of the system: the runtime would
	// round them up.
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

// sleep waits for a request without a timer or events, and returns false on Close.
func (w *Watcher) sleep() bool {
	// Each event costs every process that writes to the file a little.
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

// followEvents has events or signals come, as the state wants, and returns whether a look is
// due at once: what was written before makes neither.
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
		// A commit that is under way may have made its event already, so this state is
		// searching. On a filesystem that sent no events before, setting a watch again
		// proves nothing: only an event that comes does.
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

// enter sets the state, and the pause with which it begins.
func (w *Watcher) enter(s state, pause time.Duration) { w.state, w.pause = s, pause }

// nextPause returns how long to wait without any request or event, and what the end of
// that pause is.
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
		// The deadline is a time on the wall clock, and the timer counts another one.
		pause = min(pause, max(clockCheck, w.cfg.Poll))
	}
	if w.state == searching || w.state == listening {
		pause = alignWakeups(now, pause)
	}
	return pause, ends
}

// alignWakeups shortens a long pause so that it ends at a multiple of its length, and the
// watchers of all files wake up at the same moments. Most of what a look costs is to wake
// a thread that sleeps.
func alignWakeups(now time.Time, pause time.Duration) time.Duration {
	if pause < alignFrom {
		return pause
	}
	return now.Add(pause).Truncate(pause).Sub(now)
}

// look reads the version and reports what it finds. Whatever woke the watcher, the version
// alone says that there was a commit, except after a signal: it is raised after the commit,
// and is worth no second question.
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
		w.postponed.Store(false) // before the version is read: a later commit asks again
	}
	switch {
	case why == byEvent:
		w.search(now)
	case why == bySignal:
		w.signaled()
	case w.changed():
		w.found(now, why)
	case why == byDeadline:
		w.cfg.Changed(Deadline, AllSignals)
	case why == byTimer:
		// Only a timer lengthens the pause: a request that finds nothing was a rollback,
		// and says nothing about how quiet the file is.
		w.foundNothing(now)
	}
}

// signaled asks for what the signals stand for. More commits for the same waiters may follow
// within raiseGap, so the next look comes soon.
func (w *Watcher) signaled() {
	raised := w.signals.take()
	if raised == 0 || w.cfg.Changed(Commit, raised) == 0 {
		return
	}
	w.pause = min(w.pause, w.cfg.Poll)
	if soon := time.Now().Add(w.pause); soon.Before(w.lookAt) {
		w.lookAt = soon
	}
}

// clearDeadline forgets a deadline that has come. The call of Changed names the next one.
func (w *Watcher) clearDeadline(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deadline.After(now) {
		w.deadline = time.Time{}
	}
}

// search looks for the commit that an event announces. The event comes when the log is
// written, a moment before the commit is visible; a timer would be late by most of its
// resolution, so the goroutine waits here, with sleeps of the system.
func (w *Watcher) search(now time.Time) {
	w.eventMissed = false
	w.enter(searching, afterEvent)
	if w.tooFast(now) {
		w.enter(busy, max(w.poll(busy), burstGap))
	}
	// If this process has committed since the last event, the event is probably of that
	// commit, for which Committed has asked for a look already. One look is enough then,
	// for another process may have committed too; more would be spinning for nothing.
	// The count is exact enough: a commit that it misses is found by a later look.
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
			// A rollback or a checkpoint, or the disk holds the writer up between the
			// event and the commit. No second event comes then: the timer goes on looking,
			// at growing distances, so that the delay is in proportion to the disk's own.
			return
		}
	}
}

// tooFast counts events that come close together. Each costs the writer the time to wake
// this process, so beyond some rate a poll is cheaper for both, and hardly later.
func (w *Watcher) tooFast(now time.Time) bool {
	if now.Sub(w.lastEvent) < burstGap {
		w.fastEvents++
	} else {
		w.fastEvents = 0
	}
	w.lastEvent = now
	return w.fastEvents >= burstEvents
}

// found reports a commit, and paces the looks by whether it concerns a waiter here.
func (w *Watcher) found(now time.Time, why reason) {
	w.lastCommit = now
	cause := Commit
	if w.connLost {
		w.connLost, cause = false, Restart
	}
	began := time.Now()
	woken := w.cfg.Changed(cause, AllSignals)
	took := time.Since(began)
	cost := min(took, w.took) // one look may have been held up by other work
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
		// The event was early for it. An event that was found at once leaves the state as
		// it is: it may have been of the next commit, which is not visible yet.
		w.enter(listening, max(afterCommit, w.cfg.Poll))
	case w.state == listening && why == byTimer:
		// No event came for it. Some filesystems accept a watch and never send an event.
		w.eventMissed = true
		w.enter(polling, w.cfg.Poll)
	default:
		w.pause = max(afterCommit, w.cfg.Poll)
	}
}

// foundOthers makes the looks rarer, those for commits of this process too: a commit that
// concerns no waiter here is followed by others as a rule. The verbs of this process have
// woken the waiters that they concern. cost is how long it takes to find out.
func (w *Watcher) foundOthers(now time.Time, cost time.Duration) {
	w.backoff = min(max(2*w.backoff, firstBackoff), slowestBackoff)
	pause := min(max(w.backoff, lookShare*cost), slowestLook)
	w.notBefore = now.Add(pause)
	if w.state != polling {
		w.state = busy
	}
	w.pause = max(pause, w.poll(w.state))
}

// poll is the shortest pause between looks in a state in which no events come. A Poll beyond slowestBackoff is meant for
// where there are none: busy has turned them off itself, and some programs that commit raise no signals.
func (w *Watcher) poll(s state) time.Duration {
	if s == busy {
		return min(w.cfg.Poll, slowestBackoff)
	}
	return w.cfg.Poll
}

// foundNothing makes the next pause longer, and ends a state that a quiet file does not need.
func (w *Watcher) foundNothing(now time.Time) {
	quiet := now.Sub(w.lastCommit)
	switch {
	case w.state == busy && (quiet > othersQuiet || quiet > quietAfter && !w.missed):
		// followEvents sets the watches again and leaves polling at once.
		w.fastEvents, w.missed = 0, false
		w.enter(polling, w.cfg.Poll)
	case w.state == busy, w.state == polling && quiet <= idleAfter:
		// Commits come in groups: for a while after one, the looks stay as close as asked.
		if w.missed {
			w.pause = max(min(2*w.pause, slowestBackoff), w.poll(w.state))
		} else if w.state == polling {
			w.pause = w.cfg.Poll
		}
	case w.state == polling:
		// From then on they are late by about a hundredth of the quiet time before.
		w.pause = max(min(2*w.pause, quiet/100, slowestPoll), w.cfg.Poll)
	default: // searching or listening
		longest := w.longestPause()
		w.pause = min(2*w.pause, longest)
		if w.pause == longest {
			w.state = listening
		}
	}
}

// longestPause is how long the watcher relies on events alone.
func (w *Watcher) longestPause() time.Duration {
	if w.cfg.Untrusted || !w.events.followsLog() {
		return max(uncertainLook, w.cfg.Poll)
	}
	return max(safetyLook, w.cfg.Poll)
}

// changed reads the version, and reports whether there may have been a commit since it
// was read last. The first read has nothing to compare with, and a new connection counts
// from another number: both count as a commit.
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

// versionFailed decides what an error means. The old version stays, so the next read
// finds the difference.
func (w *Watcher) versionFailed(err error) {
	w.pause = min(w.pause, afterCommit) // it has not looked: try again soon
	if sqlite.IsBusy(err) {
		return
	}
	if errors.Is(err, sqlite.ErrReplaced) || w.ctx.Err() != nil {
		return // the next look's Identity reports it, or Close has been called
	}
	if !w.connLost {
		w.cfg.Logger.Warn("honker: the watcher lost its connection and will open another", "error", err)
	}
	w.connLost = true
}
