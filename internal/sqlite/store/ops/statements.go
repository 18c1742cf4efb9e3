package ops

import "github.com/honker-go/honker/internal/sqlite/store/rows"

// Statements returns the package's statements.
func Statements() []rows.Statement {
	return []rows.Statement{
		rows.Cold("sqlTrees", sqlTrees),
		rows.Cold("sqlPage", sqlPage),
		rows.Cold("sqlPageSize", sqlPageSize),
		rows.Hot("sqlPutWorkers", sqlPutWorkers),
		rows.Hot("sqlDropWorkers", sqlDropWorkers),
		rows.Cold("sqlWorkers", sqlWorkers),
		rows.Cold("sqlHolders", sqlHolders),
		rows.Cold("sqlHoldersOf", sqlHoldersOf),
		rows.Cold("sqlLapsedSince", sqlLapsedSince),
		rows.Hot("sqlErrors", sqlErrors),
		rows.Cold("sqlDiedSince", sqlDiedSince),
		rows.Cold("sqlDeadMembers", sqlDeadMembers),
		rows.Cold("sqlLateTasks", sqlLateTasks),
		rows.Cold("sqlSkippedFires", sqlSkippedFires),
		rows.Cold("sqlBehind", sqlBehind),
		rows.Cold("sqlOldKeyPauses", sqlOldKeyPauses),
		rows.Cold("sqlHeldKeys", sqlHeldKeys),
		rows.Cold("sqlKeyHasRoom", sqlKeyHasRoom),
		rows.Cold("sqlNewest", sqlNewest),
		rows.Cold("sqlRetains", sqlRetains),
		rows.Hot("sqlAddMinutes", sqlAddMinutes),
		rows.Hot("sqlMinuteQueues", sqlMinuteQueues),
		rows.Hot("sqlMinutes", sqlMinutes),
		rows.Hot("sqlAllMinutes", sqlAllMinutes),
		rows.Hot("sqlMinuteSteps", sqlMinuteSteps),
		rows.Hot("sqlMinuteSums", sqlMinuteSums),
		rows.Hot("sqlOldMinute", sqlOldMinute),
		rows.Hot("sqlTrimMinutes", sqlTrimMinutes),
		rows.Hot("sqlAddAudit", sqlAddAudit),
		rows.Hot("sqlTrimAudit", sqlTrimAudit),
		rows.Hot("sqlGrowAudit", sqlGrowAudit),
		rows.Hot("sqlAudit", sqlAudit),
		rows.Cold("sqlFileState", sqlFileState),
		rows.Cold("sqlHonkerTables", sqlHonkerTables),
		rows.Cold("sqlDefinitions", sqlDefinitions),
		rows.Cold("countRows", countRows("_honker_live")),
	}
}
