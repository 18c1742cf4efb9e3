package store

// ScheduleStatements returns the statements of schedules.
func ScheduleStatements() []Statement {
	all := []Statement{
		hot("sqlRegister", sqlRegister),
		hot("sqlUnregister", sqlUnregister),
		hot("sqlEnable", sqlEnable),
		hot("sqlUpdateTask", sqlUpdateTask),
		hot("sqlTaskSpec", sqlTaskSpec),
		hot("sqlGetTask", sqlGetTask),
		cold("sqlTasks", sqlTasks),
		hot("sqlDueTasks", sqlDueTasks),
		hot("sqlSoonest", sqlSoonest),
		hot("sqlAdvance", sqlAdvance),
		hot("sqlPauseTask", sqlPauseTask),
		hot("sqlSetMissed", sqlSetMissed),
		hot("sqlDropMissed", sqlDropMissed),
	}
	all = append(all, sqlInsertFires.statements("sqlInsertFires")...)
	return all
}
