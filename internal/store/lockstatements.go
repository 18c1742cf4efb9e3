package store

// LockStatements returns the statements of locks and of rate limits.
func LockStatements() []Statement {
	return []Statement{
		hot("sqlHeldLock", sqlHeldLock),
		hot("sqlAcquireLock", sqlAcquireLock),
		hot("sqlNextToken", sqlNextToken),
		hot("sqlRenewLock", sqlRenewLock),
		hot("sqlReleaseLock", sqlReleaseLock),
		hot("sqlLockStates", sqlLockStates),
		cold("sqlHeldLocks", sqlHeldLocks),
		hot("sqlTakeRate", sqlTakeRate),
		hot("sqlRateCount", sqlRateCount),
		cold("sqlSweepRates", sqlSweepRates),
		cold("sqlRateWindows", sqlRateWindows),
		cold("sqlOverWindows", sqlOverWindows),
		hot("sqlDropWindows", sqlDropWindows),
		cold("sqlOldWindows", sqlOldWindows),
		hot("sqlDropOld", sqlDropOld),
	}
}
