package row

import "time"

// QueueStats holds a queue's job counts, times and limits.
type QueueStats struct {
	Queue string
	QueueCounts
	OldestReady time.Time // time since which a job has been ready; zero if none
	NextAt      time.Time // time of the next claim; zero if none
	Pause       *Pause    // nil if the queue is not paused
	Limits      QueueLimits
	Cancelled   int64 // cancelled jobs that still count toward Limits
}

// QueueCounts holds a queue's job count for each phase.
type QueueCounts struct {
	Ready, Scheduled, Running, Lapsed, Held, Expired, Dead, Done Count
}

// Count is a number of jobs. It is a lower bound if More is set.
type Count struct {
	N    int64
	More bool
}

// Plus returns the sum of c and d.
func (c Count) Plus(d Count) Count { return Count{c.N + d.N, c.More || d.More} }

// Minus returns c minus d, which must count a subset of c's jobs. If d is only a lower bound, nothing is known about
// the difference, and Minus returns a lower bound of 0.
func (c Count) Minus(d Count) Count {
	if d.More {
		return Count{More: true}
	}
	return Count{max(0, c.N-d.N), c.More}
}

// Stats combines h with the queue's counts c. Behind matters only if c has ready jobs.
func (h QueueHead) Stats(c QueueCounts) QueueStats {
	s := QueueStats{Queue: h.Queue, QueueCounts: c, OldestReady: h.Ready, NextAt: h.NextAt, Pause: h.Pause, Limits: h.Limits, Cancelled: h.Cancelled}
	if behind := h.Behind; !behind.IsZero() && c.Ready != (Count{}) && (s.OldestReady.IsZero() || behind.Before(s.OldestReady)) {
		s.OldestReady = behind
	}
	return s
}

// Sum returns the number of jobs in the phases that s selects.
func (c QueueCounts) Sum(s JobSelect) (sum Count) {
	for _, of := range []struct {
		phase Phase
		n     Count
	}{{PhaseReady, c.Ready}, {PhaseScheduled, c.Scheduled}, {PhaseRunning, c.Running}, {PhaseLapsed, c.Lapsed},
		{PhaseHeld, c.Held}, {PhaseExpired, c.Expired}, {PhaseDead, c.Dead}, {PhaseDone, c.Done}} {
		if s.HasPhase(of.phase) {
			sum = sum.Plus(of.n)
		}
	}
	return sum
}

// QueueHead describes the jobs at the head of a queue.
type QueueHead struct {
	Queue  string
	Ready  time.Time // time since which the first job has been ready; zero if none
	Behind time.Time // if set, there may be ready jobs behind many jobs that can't run; none of them became ready before Behind
	NextAt time.Time // time at which the next job can be claimed; zero if none

	// The database does not set the following fields. See WithPause and Limited.

	Pause     *Pause
	Limits    QueueLimits
	Cancelled int64
}

// WithPause returns h with the pause p. Jobs that are due before the pause ends wait for its end.
// NextAt is zero if the pause has no end.
func (h QueueHead) WithPause(p *Pause) QueueHead {
	h.Pause = p
	until := p.Until.Truncate(time.Second)
	switch {
	case p.Until.IsZero():
		h.NextAt = time.Time{}
	case !h.Ready.IsZero() || !h.Behind.IsZero() || !h.NextAt.IsZero() && h.NextAt.Before(until):
		h.NextAt = until
	}
	return h
}

// Limited returns h with the queue's limits l. Next is the time of the next claim that they allow, and
// cancelled is the number of cancelled jobs that still count toward them.
func (h QueueHead) Limited(l QueueLimits, next time.Time, cancelled int64) QueueHead {
	h.Limits, h.NextAt, h.Cancelled = l, next, cancelled
	return h
}
