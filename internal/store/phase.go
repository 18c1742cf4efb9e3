package store

// Phase is where a job is at a moment, as the root package names it.
type Phase string

const (
	PhaseReady     Phase = "ready"
	PhaseScheduled Phase = "scheduled"
	PhaseRunning   Phase = "running"
	PhaseLapsed    Phase = "lapsed"
	PhaseHeld      Phase = "held"
	PhaseExpired   Phase = "expired"
	PhaseDead      Phase = "dead"
	PhaseDone      Phase = "done"
)

// Phase is where the job is at now. The statements of stats.go count by the same rule, which is
// that of a claim: what is ready or lapsed can be claimed, and what is expired goes to the
// dead letters. A row that was not read has none.
func (j *Job) Phase(now int64) Phase {
	expired := j.ExpiresAt != 0 && j.ExpiresAt <= now
	exhausted := j.Attempts >= j.MaxAttempts
	switch j.State {
	case "pending":
		return waitingPhase(j.RunAt > now, expired, exhausted)
	case "processing":
		return claimedPhase(j.ClaimExpiresAt >= now, expired || exhausted)
	case Held:
		return PhaseHeld
	case "dead":
		return PhaseDead
	case "done":
		return PhaseDone
	}
	return ""
}

// waitingPhase is that of a job that waits. One without an attempt left, which only another
// binding can leave behind, is settled when its time has come.
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

// claimedPhase is that of a job that was claimed. While the claim is valid it may still be done.
func claimedPhase(valid, over bool) Phase {
	switch {
	case valid:
		return PhaseRunning
	case over:
		return PhaseExpired
	}
	return PhaseLapsed
}
