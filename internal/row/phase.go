package row

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
