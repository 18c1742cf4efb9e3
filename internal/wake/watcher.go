package wake

// Reason is why Changed was called.
type Reason string

// Reasons.
const (
	Commit   Reason = "commit"   // data_version has changed
	Notice   Reason = "notice"   // another process has named the signals of its commit, and asking the database is slow
	Deadline Reason = "deadline" // a time passed to WakeAt was reached
	Restart  Reason = "restart"  // the connection was lost, and there may have been commits
)
