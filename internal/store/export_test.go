package store

import "fmt"

// Statement is one of the package's, for the tests of query plans.
type Statement struct {
	Name, SQL string
	Cold      bool // not in the way of a job: may read a whole table
}

// Fragments are constants that begin like a statement's name and are none.
var Fragments = map[string]string{
	"sqlInsertJob": "the head of sqlInsertJobs",
}

// Statements are all that the package runs, but for DDL and the PRAGMA of Check.
func Statements() []Statement {
	hot := func(name, sql string) Statement { return Statement{Name: name, SQL: sql} }
	cold := func(name, sql string) Statement { return Statement{Name: name, SQL: sql, Cold: true} }
	all := []Statement{
		hot("sqlOverdue", sqlOverdue),
		hot("sqlTakeWriteLock", sqlTakeWriteLock),
		hot("sqlBuryLapsed", sqlBuryLapsed),
		hot("sqlDropLapsed", sqlDropLapsed),
		hot("sqlBuryExhausted", sqlBuryExhausted),
		hot("sqlDropExhausted", sqlDropExhausted),
		hot("sqlReclaim", sqlReclaim),
		hot("sqlClaim", sqlClaim),
		hot("sqlQueueStates", sqlQueueStates),
		hot("sqlNextClaim", sqlNextClaim),
		hot("sqlGetDead", sqlGetDead),
		hot("sqlBuryExpired", sqlBuryExpired),
		hot("sqlDropExpired", sqlDropExpired),
		hot("sqlBuryExpiredLapsed", sqlBuryExpiredLapsed),
		hot("sqlDropExpiredLapsed", sqlDropExpiredLapsed),
		hot("sqlGetJob", sqlGetJob),
		hot("sqlCancelJob", sqlCancelJob),
		hot("sqlNotify", sqlNotify),
		hot("sqlLastNotification", sqlLastNotification),
		hot("sqlNotificationsSince", sqlNotificationsSince),
		hot("sqlChannelsSince", sqlChannelsSince),
		cold("sqlPruneNotifications", sqlPruneNotifications),
		cold("sqlPruneOld", sqlPruneOld),
		hot("sqlSaveResult", sqlSaveResult),
		hot("sqlGetResult", sqlGetResult),
		hot("sqlFate", sqlFate),
		hot("sqlDecided", sqlDecided),
		hot("sqlHeldLock", sqlHeldLock),
		hot("sqlAcquireLock", sqlAcquireLock),
		hot("sqlNextToken", sqlNextToken),
		hot("sqlRenewLock", sqlRenewLock),
		hot("sqlReleaseLock", sqlReleaseLock),
		hot("sqlLockStates", sqlLockStates),
		hot("sqlTakeRate", sqlTakeRate),
		hot("sqlRateCount", sqlRateCount),
		cold("sqlSweepRates", sqlSweepRates),
		hot("sqlHasMeta", sqlHasMeta),
		hot("sqlVersion", sqlVersion),
		hot("sqlSetVersion", sqlSetVersion),
		hot("sqlHasColumn", sqlHasColumn),
		hot("sqlAck", sqlAck),
		hot("sqlAckAttempt", sqlAckAttempt),
		hot("sqlAckAttempt[ids]", sqlAckAttempt+` RETURNING id`),
		hot("sqlAckMany", sqlAckMany),
		hot("sqlRetry", sqlRetry),
		hot("sqlSaveError", sqlSaveError),
		hot("sqlBury", sqlBury),
		hot("sqlDrop", sqlDrop),
		hot("sqlPutBack", sqlPutBack),
		hot("sqlExtend", sqlExtend),
		hot("sqlRenew", sqlRenew),
	}
	for _, n := range insertSizes {
		all = append(all, hot(fmt.Sprintf("sqlInsertJobs[%d]", n), sqlInsertJobs[n]))
	}
	for i, v := range invariants {
		all = append(all, cold(fmt.Sprintf("invariants[%d]", i), v.query))
	}
	return all
}
