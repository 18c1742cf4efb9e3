package row

// Phase is a job's state at a moment in time. It depends on the stored state and the clock. The
// values are the same as in the root package.
type Phase string

const (
	PhaseReady     Phase = "ready"     // can be claimed
	PhaseScheduled Phase = "scheduled" // waits for RunAt
	PhaseRunning   Phase = "running"   // has a valid claim
	PhaseLapsed    Phase = "lapsed"    // the claim has ended; can be claimed again
	PhaseHeld      Phase = "held"      // waits for other jobs
	PhaseExpired   Phase = "expired"   // can no longer run; the next claim or sweep dead-letters it
	PhaseDead      Phase = "dead"
	PhaseDone      Phase = "done"
)

// waitingPhase returns the phase of a pending job. Only another binding can leave a pending job
// without attempts. Such a job is dead-lettered when it is due, not earlier.
func waitingPhase(early, expired, exhausted bool) Phase {
	switch {
	case expired:
		return PhaseExpired
	case early:
		return PhaseScheduled
	case exhausted:
		return PhaseExpired
	}
	return PhaseReady
}

// claimedPhase returns the phase of a claimed job. A valid claim takes precedence over a passed
// deadline or a last attempt, because the worker can still complete the job.
func claimedPhase(valid, over bool) Phase {
	switch {
	case valid:
		return PhaseRunning
	case over:
		return PhaseExpired
	}
	return PhaseLapsed
}

// StatsPhases lists the phases counted by queue statistics.
var StatsPhases = []Phase{PhaseReady, PhaseScheduled, PhaseRunning, PhaseLapsed, PhaseHeld, PhaseExpired, PhaseDead}
