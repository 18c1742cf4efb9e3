package dispatches

import (
	"fmt"

	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Hot("sqlDispatchObjects", sqlDispatchObjects),
		rows.Hot("sqlAddSent", sqlAddSent),
		rows.Hot("sqlAddTwin", sqlAddTwin),
		rows.Hot("sqlDispatched", sqlDispatched),
		rows.Hot("sqlDispatchStatus", sqlDispatchStatus),
		rows.Hot("sqlDispatchCopies", sqlDispatchCopies),
		rows.Hot("sqlStopSent", sqlStopSent),
		rows.Hot("sqlEndStopped", sqlEndStopped),
		rows.Hot("sqlLogStopped", sqlLogStopped),
		rows.Hot("sqlDispatchWaiting", sqlDispatchWaiting),
		rows.Hot("sqlDispatchRunning", sqlDispatchRunning),
		rows.Hot("sqlAddPresence", sqlAddPresence),
		rows.Hot("sqlBeatPresences", sqlBeatPresences),
		rows.Hot("sqlDropPresence", sqlDropPresence),
		rows.Hot("sqlPresences", sqlPresences),
		rows.Cold("sqlAllPresences", sqlAllPresences),
		rows.Hot("sqlDropTwins", sqlDropTwins),
		rows.Cold("sqlDispatchLoads", sqlDispatchLoads),
		rows.Cold("sqlOverSent", sqlOverSent),
		rows.Cold("sqlDropSent", sqlDropSent),
		rows.Cold("sqlDropPresences", sqlDropPresences),
		rows.Cold("sqlDispatchPrefixes", sqlDispatchPrefixes),
		rows.Hot("sqlOldReplies", sqlOldReplies),
		rows.Hot("sqlDropReplies", sqlDropReplies),
		rows.Cold("sqlStalePresence", sqlStalePresence),
		rows.Cold("sqlNeedsLife", sqlNeedsLife),
		rows.Cold("sqlNeedsLegacy", sqlNeedsLegacy),
		rows.Cold("sqlNeedsReplies", sqlNeedsReplies),
	}
	for i, v := range dispatchInvariants {
		all = append(all, rows.Cold(fmt.Sprintf("dispatchInvariants[%d]", i), v.query))
	}
	return all
}
