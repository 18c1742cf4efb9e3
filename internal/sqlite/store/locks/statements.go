package locks

import "github.com/honker-go/honker/internal/sqlite/store/rows"

// Statements returns the package's statements.
func Statements() []rows.Statement {
	return []rows.Statement{
		rows.Hot("sqlHeldLock", sqlHeldLock),
		rows.Hot("sqlAcquireLock", sqlAcquireLock),
		rows.Hot("sqlNextToken", sqlNextToken),
		rows.Hot("sqlRenewLock", sqlRenewLock),
		rows.Hot("sqlReleaseLock", sqlReleaseLock),
		rows.Hot("sqlLockStates", sqlLockStates),
		rows.Cold("sqlHeldLocks", sqlHeldLocks),
		rows.Hot("sqlTakeRate", sqlTakeRate),
		rows.Hot("sqlRateCount", sqlRateCount),
		rows.Cold("sqlSweepRates", sqlSweepRates),
		rows.Cold("sqlRateWindows", sqlRateWindows),
		rows.Cold("sqlOverWindows", sqlOverWindows),
		rows.Hot("sqlDropWindows", sqlDropWindows),
		rows.Cold("sqlOldWindows", sqlOldWindows),
		rows.Hot("sqlDropOld", sqlDropOld),
	}
}
