package schedules

import "github.com/honker-go/honker/internal/sqlite/store/rows"

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Hot("sqlRegister", sqlRegister),
		rows.Hot("sqlUnregister", sqlUnregister),
		rows.Hot("sqlEnable", sqlEnable),
		rows.Hot("sqlUpdateTask", sqlUpdateTask),
		rows.Hot("sqlTaskSpec", sqlTaskSpec),
		rows.Hot("sqlGetTask", sqlGetTask),
		rows.Cold("sqlTasks", sqlTasks),
		rows.Hot("sqlDueTasks", sqlDueTasks),
		rows.Hot("sqlSoonest", sqlSoonest),
		rows.Hot("sqlAdvance", sqlAdvance),
		rows.Hot("sqlPauseTask", sqlPauseTask),
		rows.Hot("sqlSetMissed", sqlSetMissed),
		rows.Hot("sqlResetMissed", sqlResetMissed),
		rows.Hot("sqlSaveLast", sqlSaveLast),
	}
	all = append(all, sqlInsertFires.Statements("sqlInsertFires")...)
	return all
}
