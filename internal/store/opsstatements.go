package store

// OpsStatements returns the statements on workers, the audit, traffic and the file.
func OpsStatements() []Statement {
	return []Statement{
		hot("sqlPutWorkers", sqlPutWorkers),
		hot("sqlDropWorkers", sqlDropWorkers),
		cold("sqlWorkers", sqlWorkers),
		cold("sqlHolders", sqlHolders),
		cold("sqlHoldersOf", sqlHoldersOf),
		cold("sqlLapsedSince", sqlLapsedSince),
		cold("sqlDiedSince", sqlDiedSince),
		cold("sqlDeadMembers", sqlDeadMembers),
		cold("sqlLateTasks", sqlLateTasks),
		cold("sqlBehind", sqlBehind),
		cold("sqlOldKeyPauses", sqlOldKeyPauses),
		cold("sqlHeldKeys", sqlHeldKeys),
		cold("sqlKeyHasRoom", sqlKeyHasRoom),
		cold("sqlNewest", sqlNewest),
		cold("sqlRetains", sqlRetains),
		hot("sqlAddMinutes", sqlAddMinutes),
		hot("sqlMinuteQueues", sqlMinuteQueues),
		hot("sqlMinutes", sqlMinutes),
		hot("sqlAllMinutes", sqlAllMinutes),
		hot("sqlMinuteSteps", sqlMinuteSteps),
		hot("sqlWaits", sqlWaits),
		hot("sqlOldMinute", sqlOldMinute),
		hot("sqlTrimMinutes", sqlTrimMinutes),
		hot("sqlAddAudit", sqlAddAudit),
		hot("sqlTrimAudit", sqlTrimAudit),
		hot("sqlGrowAudit", sqlGrowAudit),
		hot("sqlAudit", sqlAudit),
		cold("sqlFileState", sqlFileState),
		cold("sqlHonkerTables", sqlHonkerTables),
		cold("sqlDefinitions", sqlDefinitions),
		cold("countRows", countRows("_honker_live")),
	}
}
