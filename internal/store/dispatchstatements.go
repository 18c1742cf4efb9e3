package store

import (
	"fmt"
)

// DispatchStatements returns the statements of dispatches.
func DispatchStatements() []Statement {
	all := []Statement{
		hot("sqlDispatchObjects", sqlDispatchObjects),
		hot("sqlAddSent", sqlAddSent),
		hot("sqlAddTwin", sqlAddTwin),
		hot("sqlDispatched", sqlDispatched),
		hot("sqlDispatchStatus", sqlDispatchStatus),
		hot("sqlDispatchCopies", sqlDispatchCopies),
		hot("sqlStopSent", sqlStopSent),
		hot("sqlEndStopped", sqlEndStopped),
		hot("sqlLogStopped", sqlLogStopped),
		hot("sqlDispatchWaiting", sqlDispatchWaiting),
		hot("sqlDispatchRunning", sqlDispatchRunning),
		hot("sqlAddPresence", sqlAddPresence),
		hot("sqlBeatPresences", sqlBeatPresences),
		hot("sqlDropPresence", sqlDropPresence),
		hot("sqlPresences", sqlPresences),
		cold("sqlAllPresences", sqlAllPresences),
		hot("sqlDropTwins", sqlDropTwins),
		cold("sqlDispatchLoads", sqlDispatchLoads),
		cold("sqlOverSent", sqlOverSent),
		cold("sqlDropSent", sqlDropSent),
		cold("sqlDropPresences", sqlDropPresences),
		cold("sqlDispatchPrefixes", sqlDispatchPrefixes),
		hot("sqlOldReplies", sqlOldReplies),
		hot("sqlDropReplies", sqlDropReplies),
		cold("sqlStalePresence", sqlStalePresence),
		cold("sqlNeedsLife", sqlNeedsLife),
		cold("sqlNeedsLegacy", sqlNeedsLegacy),
		cold("sqlNeedsReplies", sqlNeedsReplies),
	}
	for i, v := range dispatchInvariants {
		all = append(all, cold(fmt.Sprintf("dispatchInvariants[%d]", i), v.query))
	}
	return all
}
