package moves

import (
	"fmt"

	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Hot("sqlMoveMeta", sqlMoveMeta),
		rows.Hot("sqlMoveSetMeta", sqlMoveSetMeta),
		rows.Hot("sqlMoveNewSource", sqlMoveNewSource),
		rows.Hot("sqlMoveFirstParcel", sqlMoveFirstParcel),
		rows.Hot("sqlMoveAddParcel", sqlMoveAddParcel),
		rows.Hot("sqlMoveDropParcel", sqlMoveDropParcel),
		rows.Hot("sqlMoveNextLive", sqlMoveNextLive),
		rows.Hot("sqlMoveNextDead", sqlMoveNextDead),
		rows.Hot("sqlMoveNextBatch", sqlMoveNextBatch),
		rows.Hot("sqlMoveUnique", sqlMoveUnique),
		rows.Hot("sqlMoveReceived", sqlMoveReceived),
		rows.Hot("sqlMoveHasReceived", sqlMoveHasReceived),
		rows.Hot("sqlMoveEvents", sqlMoveEvents),
		rows.Cold("sqlMoveSequences", sqlMoveSequences),
		rows.Cold("sqlMoveParcel", sqlMoveParcel),
		rows.Cold("sqlMoveKept", sqlMoveKept),
		rows.Cold("sqlMoveAre", sqlMoveAre),
		rows.Cold("sqlMoveJoined", sqlMoveJoined),
		rows.Cold("sqlMoveSchedules", sqlMoveSchedules),
		rows.Cold("sqlMoveDropSchedules", sqlMoveDropSchedules),
		rows.Cold("sqlMoveSettings", sqlMoveSettings),
		rows.Cold("sqlMoveTopics", sqlMoveTopics),
		rows.Cold("sqlMoveReaders", sqlMoveReaders),
		rows.Cold("sqlMoveLeft", sqlMoveLeft),
		rows.Cold("sqlMoveLeftDead", sqlMoveLeftDead),
		rows.Cold("sqlMoveLeftDone", sqlMoveLeftDone),
		rows.Cold("sqlMoveLeftSchedules", sqlMoveLeftSchedules),
		rows.Cold("sqlMoveRelayTables", sqlMoveRelayTables),
		rows.Cold("sqlMoveRelayQueues", sqlMoveRelayQueues),
		rows.Cold("sqlMoveRelayLeased", sqlMoveRelayLeased),
		rows.Cold("sqlMoveRelayMark", sqlMoveRelayMark),
		rows.Cold("sqlMoveRelayClosed", sqlMoveRelayClosed),
		rows.Cold("sqlMoveRelayClose", sqlMoveRelayClose),
		rows.Hot("sqlMoveRelayMessages", sqlMoveRelayMessages),
		rows.Cold("sqlMoveRelayDead", sqlMoveRelayDead),
		rows.Hot("sqlMoveRelayDrop", sqlMoveRelayDrop),
		rows.Hot("sqlMoveRelayDropDead", sqlMoveRelayDropDead),
		rows.Cold("sqlMoveRelayLast", sqlMoveRelayLast),
	}
	for i, statement := range removals {
		all = append(all, rows.Cold(fmt.Sprintf("moveRemovals[%d]", i), statement))
	}
	return all
}
