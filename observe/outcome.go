package observe

// Outcome is how a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	OutcomeAcked    Outcome = "acked"
	OutcomeRetried  Outcome = "retried"
	OutcomeDied     Outcome = "died"     // the job was dead-lettered
	OutcomeSnoozed  Outcome = "snoozed"  // the attempt does not count
	OutcomeReleased Outcome = "released" // unfinished when Work ended; the attempt does not count
	OutcomeLost     Outcome = "lost"     // the worker no longer held the claim

	OutcomeCancelled Outcome = "cancelled" // the job was cancelled while it was claimed
)
