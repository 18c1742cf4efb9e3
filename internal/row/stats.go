package row

// QueueStats is what lies in a queue. A time that there is not is 0.
type QueueStats struct {
	Queue string
	QueueCounts
	OldestReady, NextAt int64
	Pause               *Pause
	Limits              QueueLimits
	Cancelled           int64 // that still take a place, see Limits
}

// QueueCounts are the jobs of a queue by phase.
type QueueCounts struct {
	Ready, Scheduled, Running, Lapsed, Held, Expired, Dead, Done Count
}

// Count is a number of jobs, or a lower bound of it.
type Count struct {
	N    int64
	More bool
}

// plus adds what another one has.
func (c Count) Plus(d Count) Count { return Count{c.N + d.N, c.More || d.More} }

// minus takes away what is part of it. A bound takes away what it may stand for.
func (c Count) Minus(d Count) Count {
	if d.More {
		return Count{More: true}
	}
	return Count{max(0, c.N-d.N), c.More}
}

// Stats is what lies in a queue, of what was counted and what is at its head.
func (h QueueHead) Stats(c QueueCounts) QueueStats {
	s := QueueStats{Queue: h.Queue, QueueCounts: c, OldestReady: h.Ready, NextAt: h.NextAt, Pause: h.pause, Limits: h.limits, Cancelled: h.cancelled}
	if behind := h.Behind; behind != 0 && c.Ready != (Count{}) && (s.OldestReady == 0 || behind < s.OldestReady) {
		s.OldestReady = behind
	}
	return s
}

// Sum is the number of jobs in some phases.
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

// QueueHead is what is at the head of a queue. A time that there is not is 0.
type QueueHead struct {
	Queue     string
	Ready     int64 // since when the first job could have run
	Behind    int64 // not 0: jobs that can run may be behind many that cannot, and none of them is older
	NextAt    int64
	pause     *Pause
	limits    QueueLimits
	cancelled int64
}

// Paused waits for the pause, as jobs that are due do.
func (h QueueHead) Paused(p *Pause) QueueHead {
	h.pause = p
	until := p.UntilMS / 1000
	switch {
	case until == 0:
		h.NextAt = 0
	case h.Ready != 0 || h.Behind != 0 || h.NextAt != 0 && h.NextAt < until:
		h.NextAt = until
	}
	return h
}

// Limited has the limits of its queue, the time of the next claim that they allow, and how many cancelled jobs still take
// a place.
func (h QueueHead) Limited(l QueueLimits, next, cancelled int64) QueueHead {
	h.limits, h.NextAt, h.cancelled = l, next, cancelled
	return h
}
