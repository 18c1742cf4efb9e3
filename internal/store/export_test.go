package store

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Claim, Ready, States and NextClaim are like ClaimAt, ReadyAt, StatesAt and NextClaimAt but take
// whole seconds.
func (j Jobs) Claim(ctx context.Context, q row.Querier, queue, worker string, n int, now, expires int64) ([]*row.Job, []row.Death, error) {
	return j.ClaimAt(ctx, q, queue, worker, n, inMS(now), expires)
}

func (j Jobs) Ready(ctx context.Context, q row.Querier, queue string, now int64) (bool, error) {
	return j.ReadyAt(ctx, q, queue, inMS(now))
}

func (j Jobs) States(ctx context.Context, q row.Querier, queues []string, now int64) ([]row.QueueState, error) {
	return j.StatesAt(ctx, q, queues, inMS(now))
}

func (j Jobs) NextClaim(ctx context.Context, q row.Querier, queue string, now int64) (int64, error) {
	return j.NextClaimAt(ctx, q, queue, inMS(now))
}

// inMS converts a unix second to milliseconds, saturating at the maximum.
func inMS(unix int64) int64 {
	if unix > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return unix * 1000
}

// Statement is a statement of the package, for the tests of query plans.
type Statement struct {
	Name, SQL string
	Cold      bool // off the path of jobs; may scan a whole table
}

// Fragments lists constants that are named like statements but are not.
var Fragments = map[string]string{}

// MakeCompacted creates the table of topics that have lost events.
const MakeCompacted = makeCompacted

// Statements returns all statements that the package runs, except DDL and the PRAGMA of Check.
func Statements() []Statement {
	hot := func(name, sql string) Statement { return Statement{Name: name, SQL: sql} }
	cold := func(name, sql string) Statement { return Statement{Name: name, SQL: sql, Cold: true} }
	all := []Statement{
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
		hot("sqlOverdue", sqlOverdue),
		hot("sqlTakeWriteLock", sqlTakeWriteLock),
		hot("sqlDropDied", sqlDropDied),
		hot("sqlDeadLetterLapsed", sqlDeadLetterLapsed),
		hot("sqlDeadLetterExhausted", sqlDeadLetterExhausted),
		hot("sqlReclaim", sqlReclaim),
		hot("sqlPostponeLapsed", sqlPostponeLapsed),
		hot("sqlPostponeExhausted", sqlPostponeExhausted),
		hot("sqlClaim", sqlClaim),
		hot("sqlClaimAll", sqlClaimAll),
		hot("sqlClaimAllKeys", sqlClaimAllKeys),
		hot("sqlOutlookRow", sqlOutlookRow),
		hot("sqlCountRunning", sqlCountRunning),
		hot("sqlUnsettled", sqlUnsettled),
		hot("sqlFreedWaiters", sqlFreedWaiters),
		hot("sqlCountAhead", sqlCountAhead),
		hot("sqlOutlookHead", sqlOutlookHead),
		hot("sqlHeldOfKeys", sqlHeldOfKeys),
		hot("sqlKeyOutlooks", sqlKeyOutlooks),
		hot("sqlFirstWaiting", sqlFirstWaiting),
		hot("sqlJobSide", sqlJobSide),
		hot("sqlRunningJobs", sqlRunningJobs),
		hot("sqlRunningJobsOfKey", sqlRunningJobsOfKey),
		hot("sqlOpenEdges", sqlOpenEdges),
		hot("sqlHighestJob", sqlHighestJob),
		hot("sqlClaimKeys", sqlClaimKeys),
		hot("sqlClaimThese", sqlClaimThese),
		hot("sqlClaimStrictKeys", sqlClaimStrictKeys),
		hot("sqlClaimFairKeys", sqlClaimFairKeys),
		hot("sqlBeginClaim", sqlBeginClaim),
		hot("sqlEndClaim", sqlEndClaim),
		hot("sqlChanges", sqlChanges),
		hot("sqlRunningOfKey", sqlRunningOfKey),
		hot("sqlHoldJobs", sqlHoldJobs),
		hot("sqlRoom", sqlRoom),
		hot("sqlGetLimits", sqlGetLimits),
		cold("sqlAllLimits", sqlAllLimits),
		hot("sqlSetLimits", sqlSetLimits),
		hot("sqlForgetTats", sqlForgetTats),
		hot("sqlDropKeys", sqlDropKeys),
		hot("sqlBeginFit", sqlBeginFit),
		hot("sqlFitting", sqlFitting),
		hot("sqlFitKey", sqlFitKey),
		hot("sqlFitJob", sqlFitJob),
		hot("sqlEndFit", sqlEndFit),
		hot("sqlFitKeysTo", sqlFitKeysTo),
		hot("sqlFitJobsTo", sqlFitJobsTo),
		hot("sqlToFit", sqlToFit),
		hot("sqlDueReserved", sqlDueReserved),
		hot("sqlNotReserved", sqlNotReserved),
		hot("sqlNotPaused", sqlNotPaused),
		hot("sqlLetAllGo", sqlLetAllGo),
		hot("sqlOrderByID", sqlOrderByID),
		hot("sqlOrderByTime", sqlOrderByTime),
		hot("sqlHeldKeysOf", sqlHeldKeysOf),
		hot("sqlLetSomeGo", sqlLetSomeGo),
		hot("sqlKeepPlace", sqlKeepPlace),
		hot("sqlForgetEnded", sqlForgetEnded),
		hot("sqlKeyWaits", sqlKeyWaits),
		hot("sqlKeepPlaceOf", sqlKeepPlaceOf),
		hot("sqlKeepPlaceMany", sqlKeepPlaceMany),
		hot("sqlFreePlace", sqlFreePlace),
		hot("sqlRenewPlaces", sqlRenewPlaces),
		hot("sqlDropPlacesOver", sqlDropPlacesOver),
		hot("sqlCountPlaces", sqlCountPlaces),
		hot("sqlCancelledJobs", sqlCancelledJobs),
		hot("sqlKeysOfEnded", sqlKeysOfEnded),
		hot("sqlAnyWaiting", sqlAnyWaiting),
		cold("sqlAllFitting", sqlAllFitting),
		cold("sqlOverPlaces", sqlOverPlaces),
		cold("sqlDropPlaces", sqlDropPlaces),
		hot("sqlSetSide", sqlSetSide),
		hot("sqlAddAttempts", sqlAddAttempts),
		hot("sqlDropOldAttempts", sqlDropOldAttempts),
		hot("sqlDropOldLogs", sqlDropOldLogs),
		hot("sqlAttempts", sqlAttempts),
		hot("sqlReplaceSide", sqlReplaceSide),
		hot("sqlSaveProgress", sqlSaveProgress),
		hot("sqlSaveCheckpoint", sqlSaveCheckpoint),
		cold("sqlKeyStats", sqlKeyStats),
		hot("sqlKeyOf", sqlKeyOf),
		hot("sqlGetKeyPause", sqlGetKeyPause),
		hot("sqlSetKeyPause", sqlSetKeyPause),
		hot("sqlEndKeyPause", sqlEndKeyPause),
		hot("sqlAddQueue", sqlAddQueue),
		hot("sqlCountKeyPauses", sqlCountKeyPauses),
		cold("sqlEndKeyPauses", sqlEndKeyPauses),
		cold("sqlDropIdleKeys", sqlDropIdleKeys),
		cold("sqlCountAllKeys", sqlCountAllKeys),
		hot("sqlLetKeyGo", sqlLetKeyGo),
		cold("sqlDueOfKey", sqlDueOfKey),
		cold("sqlNoWaitOfKey", sqlNoWaitOfKey),
		cold("sqlNeeds", sqlNeeds),
		cold("sqlSlotsOfRunning", sqlSlotsOfRunning),
		cold("sqlNoneRuns", sqlNoneRuns),
		hot("sqlDeadLetterExpiredKeyed", sqlDeadLetterExpiredKeyed),
		cold("sqlDeadLetterExpiredHeld", sqlDeadLetterExpiredHeld),
		hot("sqlOverdueLanes", sqlOverdueLanes),
		hot("sqlClaimStrict", sqlClaimStrict),
		hot("sqlClaimFair", sqlClaimFair),
		hot("sqlInsertClaimed", sqlInsertClaimed),
		hot("sqlReady", sqlReady),
		hot("sqlQueueStates", sqlQueueStates),
		hot("sqlNextClaim", sqlNextClaim),
		hot("sqlPaused", sqlPaused),
		hot("sqlGetPause", sqlGetPause),
		hot("sqlSetPause", sqlSetPause),
		hot("sqlEndPause", sqlEndPause),
		cold("sqlEndPauses", sqlEndPauses),
		cold("sqlPauses", sqlPauses),
		cold("sqlOverPauses", sqlOverPauses),
		hot("sqlFindDead", sqlFindDead),
		hot("sqlDeadJob", sqlDeadJob),
		hot("sqlRequeueJob", sqlRequeueJob),
		hot("sqlDeadPayload", sqlDeadPayload),
		hot("sqlRequeueSide", sqlRequeueSide),
		hot("sqlForgetDead", sqlForgetDead),
		hot("sqlJobBase", sqlJobBase),
		hot("sqlDiscard", sqlDiscard),
		hot("sqlCancelMany", sqlCancelMany),
		hot("sqlRunNow", sqlRunNow),
		hot("sqlGetDead", sqlGetDead),
		cold("sqlHeads", sqlHeads),
		cold("sqlAllHeads", sqlAllHeads),
		cold("counts", countsQuery(&row.JobSelect{Queues: []string{"q"}})),
		cold("all counts", countsQuery(&row.JobSelect{})),
		hot("sqlDeadLetterExpired", sqlDeadLetterExpired),
		hot("sqlDeadLetterExpiredLapsed", sqlDeadLetterExpiredLapsed),
		hot("sqlFindJob", sqlFindJob),
		hot("sqlGetJob", sqlGetJob),
		hot("sqlCancelJob", sqlCancelJob),
		hot("sqlForeignTriggers", sqlForeignTriggers),
		hot("sqlNotify", sqlNotify),
		hot("sqlLastNotification", sqlLastNotification),
		hot("sqlNotificationsSince", sqlNotificationsSince),
		hot("sqlLastMessage", sqlLastMessage),
		hot("sqlChannelsSince", sqlChannelsSince),
		cold("sqlSurplus", sqlSurplus),
		hot("sqlDropNotifications", sqlDropNotifications),
		hot("sqlSaveResult", sqlSaveResult),
		hot("sqlGetResult", sqlGetResult),
		cold("sqlSweepResults", sqlSweepResults),
		hot("sqlFate", sqlFate),
		hot("sqlDecided", sqlDecided),
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
		hot("sqlHasMeta", sqlHasMeta),
		hot("sqlHasTables", sqlHasTables),
		hot("sqlIsWAL", sqlIsWAL),
		hot("sqlVersion", sqlVersion),
		hot("sqlSetVersion", sqlSetVersion),
		hot("sqlHasColumn", sqlHasColumn),
		hot("sqlAck", sqlAck),
		hot("sqlAckAttempt", sqlAckAttempt),
		hot("sqlAckAttempt[ids]", sqlAckAttempt+` RETURNING id`),
		hot("sqlAckAll", sqlAckAll),
		hot("sqlAckMany", sqlAckMany),
		hot("sqlKeep", sqlKeep),
		hot("sqlKeepAttempt", sqlKeepAttempt),
		hot("sqlKeepAttempt[ids]", sqlKeepAttempt+` RETURNING job_id`),
		hot("sqlKeepAll", sqlKeepAll),
		hot("sqlKeepMany", sqlKeepMany),
		hot("sqlFindDone", sqlFindDone),
		hot("sqlGetDone", sqlGetDone),
		hot("sqlSameJob", sqlSameJob),
		hot("sqlSetQueueRetention", sqlSetQueueRetention),
		hot("sqlGetQueueRetention", sqlGetQueueRetention),
		cold("sqlQueueRetentions", sqlQueueRetentions),
		hot("sqlDoneRank", sqlDoneRank),
		hot("sqlDoneOver", sqlDoneOver),
		hot("sqlDropDone", sqlDropDone),
		hot("sqlDeadRank", sqlDeadRank),
		hot("sqlDeadOver", sqlDeadOver),
		hot("sqlDropDeadJobs", sqlDropDeadJobs),
		hot("sqlHeld", sqlHeld),
		hot("sqlRetry", sqlRetry),
		hot("sqlSaveError", sqlSaveError),
		hot("sqlDeadLetter", sqlDeadLetter),
		hot("sqlDrop", sqlDrop),
		hot("sqlPutBack", sqlPutBack),
		hot("sqlExtend", sqlExtend),
		hot("sqlRenew", sqlRenew),
		hot("sqlGone", sqlGone),
		hot("sqlGetOffset", sqlGetOffset),
		hot("sqlSaveOffset", sqlSaveOffset),
		hot("sqlTouchConsumer", sqlTouchConsumer),
		hot("sqlSetOffset", sqlSetOffset),
		hot("sqlAddConsumer", sqlAddConsumer),
		hot("sqlDescribeConsumer", sqlDescribeConsumer),
		hot("sqlConsumerFilter", sqlConsumerFilter),
		cold("sqlConsumers", sqlConsumers),
		cold("sqlAllConsumers", sqlAllConsumers),
		cold("sqlEventTime", sqlEventTime),
		hot("sqlDropConsumer", sqlDropConsumer),
		hot("sqlForget", sqlForget),
		hot("sqlTopicEvents", sqlTopicEvents),
		hot("sqlTopicHorizon", sqlTopicHorizon),
		hot("sqlHorizon", sqlHorizon),
		hot("sqlLastEvent", sqlLastEvent),
		hot("sqlLastOffset", sqlLastOffset),
		hot("sqlTopicsSince", sqlTopicsSince),
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
		cold("sqlTopicStates", sqlTopicStates),
		cold("sqlFileState", sqlFileState),
		cold("sqlHonkerTables", sqlHonkerTables),
		cold("sqlDefinitions", sqlDefinitions),
		cold("countRows", countRows(liveTable)),
		hot("sqlGetGroup", sqlGetGroup),
		hot("sqlGroupByID", sqlGroupByID),
		cold("sqlGroups", sqlGroups),
		cold("sqlAllGroups", sqlAllGroups),
		hot("sqlAddGroup", sqlAddGroup),
		hot("sqlTouchMember", sqlTouchMember),
		hot("sqlGetMember", sqlGetMember),
		hot("sqlDropSilent", sqlDropSilent),
		hot("sqlDropMember", sqlDropMember),
		hot("sqlReturnAll", sqlReturnAll),
		hot("sqlMembers", sqlMembers),
		cold("sqlMemberStates", sqlMemberStates),
		cold("sqlCounts", sqlCounts),
		hot("sqlNextEpoch", sqlNextEpoch),
		hot("sqlGroupStates", sqlGroupStates),
		hot("sqlMoveGroup", sqlMoveGroup),
		hot("sqlReturnLapsed", sqlReturnLapsed),
		hot("sqlHold", sqlHold),
		hot("sqlReturned", sqlReturned),
		hot("sqlHoldAgain", sqlHoldAgain),
		hot("sqlDropGone", sqlDropGone),
		cold("sqlDropOdd", sqlDropOdd),
		hot("sqlAckDelivery", sqlAckDelivery),
		hot("sqlNack", sqlNack),
		hot("sqlRelease", sqlRelease),
		hot("sqlExtendDelivery", sqlExtendDelivery),
		cold("sqlDeadDeliveries", sqlDeadDeliveries),
		hot("sqlRevive", sqlRevive),
		hot("sqlDropDead", sqlDropDead),
		hot("sqlSetRetention", sqlSetRetention),
		hot("sqlDropRetention", sqlDropRetention),
		hot("sqlGetRetention", sqlGetRetention),
		cold("sqlRetained", sqlRetained),
		hot("sqlRank", sqlRank),
		hot("sqlBefore", sqlBefore),
		cold("sqlConsumerPins", sqlConsumerPins),
		cold("sqlSwappedPins", sqlSwappedPins),
		cold("sqlGroupPins", sqlGroupPins),
		hot("sqlCompact", sqlCompact),
		hot("sqlHasCompacted", sqlHasCompacted),
		hot("sqlNoteCompacted", sqlNoteCompacted),
		cold("sqlQueues", sqlQueues),
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
		cold("sqlExpired", sqlExpired),
		hot("sqlDeadLetterExpiredIDs", sqlDeadLetterExpiredIDs),
		cold("sqlOverResults", sqlOverResults),
		hot("sqlDropResults", sqlDropResults),
		cold("sqlOverWindows", sqlOverWindows),
		hot("sqlDropWindows", sqlDropWindows),
		cold("sqlOldMessages", sqlOldMessages),
		hot("sqlDropMessages", sqlDropMessages),
		cold("sqlOldWindows", sqlOldWindows),
		hot("sqlDropOld", sqlDropOld),
		cold("sqlRelayDead", sqlRelayDead),
		cold("sqlCountRelayDead", sqlCountRelayDead),
		hot("sqlRelayDead by key", Relays{}.selects(sqlRelayDead, row.RelayDeadFilter{Key: "k"})),
		hot("sqlCountRelayDead by key", Relays{}.selects(sqlCountRelayDead, row.RelayDeadFilter{Key: "k"})),
		hot("sqlFreeRelayDead by key", Relays{}.selects(sqlFreeRelayDead, row.RelayDeadFilter{Key: "k"})),
		cold("sqlRelayDead of an earlier version", strings.NewReplacer(deadColumns, keylessColumns, deadFilter, keylessFilter).Replace(sqlRelayDead)),
		hot("sqlHasRelayKeys", sqlHasRelayKeys),
		cold("sqlOpenRelayDead", sqlOpenRelayDead),
		hot("sqlFreeRelayDead", sqlFreeRelayDead),
		hot("sqlHoldRelayDead", sqlHoldRelayDead),
		hot("sqlResolveRelayDead", sqlResolveRelayDead),
		hot("sqlRejectRelayDead", sqlRejectRelayDead),
		hot("sqlRequeueRelayDead", sqlRequeueRelayDead),
		hot("sqlDropRequeued", sqlDropRequeued),
		hot("sqlDiscardRelayDead", sqlDiscardRelayDead),
		cold("sqlSettledRelayDead", sqlSettledRelayDead),
		hot("sqlDropRelayDead", sqlDropRelayDead),
		cold("sqlRelayInfo", sqlRelayInfo),
		cold("sqlRelayMisplaced", sqlRelayMisplaced),
		cold("sqlRelayBlocked", sqlRelayBlocked),
		hot("sqlRelayBreak", sqlRelayBreak),
		cold("sqlRelayTables", sqlRelayTables),
		hot("sqlDropGroupClaims", sqlDropGroupClaims),
		hot("sqlClaimsLeft", sqlClaimsLeft),
		hot("sqlHasRelay", sqlHasRelay),
		hot("sqlRelayQueue", sqlRelayQueue),
		hot("sqlAddRelayQueue", sqlAddRelayQueue),
		hot("sqlAddRelayPartitions", sqlAddRelayPartitions),
		hot("sqlRelayTake", sqlRelayTake),
		hot("sqlRelayRead", sqlRelayRead),
		hot("sqlRelaySave", sqlRelaySave),
		hot("sqlRelayDelete", sqlRelayDelete),
		hot("sqlRelayDeadLetter", sqlRelayDeadLetter),
		hot("sqlHasRelayMessage", sqlHasRelayMessage),
		hot("sqlRelayStates", sqlRelayStates),
		cold("sqlRelayStrays", sqlRelayStrays),
		cold("sqlRelayFinished", sqlRelayFinished),
		cold("sqlRelayVacuum", sqlRelayVacuum),
		hot("sqlInsertUnique", sqlInsertUnique),
		hot("sqlInsertHeld", sqlInsertHeld),
		hot("sqlSaveKey", sqlSaveKey),
		hot("sqlTakeKey", sqlTakeKey),
		hot("sqlSetNext", sqlSetNext),
		hot("sqlGetKey", sqlGetKey),
		hot("sqlDeadKey", sqlDeadKey),
		hot("sqlReplaceJob", sqlReplaceJob),
		hot("sqlHasTrigger", sqlHasTrigger),
		hot("sqlUnhold", sqlUnhold),
		hot("sqlNoSuchJob", sqlNoSuchJob),
		hot("sqlNoSuchBatch", sqlNoSuchBatch),
		hot("sqlBatchTakes", sqlBatchTakes),
		hot("sqlWaitsAlready", sqlWaitsAlready),
		hot("sqlJoinBatch", sqlJoinBatch),
		hot("sqlAddMembers", sqlAddMembers),
		hot("sqlAddTotal", sqlAddTotal),
		hot("sqlAfterJobs", sqlAfterJobs),
		hot("sqlAfterBatches", sqlAfterBatches),
		hot("sqlHoldWaiters", sqlHoldWaiters),
		hot("sqlNextOfKeyOf", sqlNextOfKeyOf),
		hot("sqlHasEdges", sqlHasEdges),
		hot("sqlAfterOf", sqlAfterOf),
		hot("sqlWaiters", sqlWaiters),
		hot("sqlDropWaiters", sqlDropWaiters),
		hot("sqlInsertBatch", sqlInsertBatch),
		hot("sqlSealBatch", sqlSealBatch),
		hot("sqlBatchMembers", sqlBatchMembers),
		hot("sqlEndEdges", sqlEndEdges),
		hot("sqlEndEdgesAttempt", sqlEndEdgesAttempt),
		hot("sqlEndEdgesAll", sqlEndEdgesAll),
		hot("sqlEndEdgesMany", sqlEndEdgesMany),
		hot("sqlEndEdgesCancel", sqlEndEdgesCancel),
		hot("sqlEndEdgesCancelMany", sqlEndEdgesCancelMany),
		hot("sqlCancellable", sqlCancellable),
		cold("sqlNewestBatches", sqlNewestBatches),
		cold("sqlOldestBatches", sqlOldestBatches),
		cold("sqlOneBatch", sqlOneBatch),
		cold("sqlDeadOfBatch", sqlDeadOfBatch),
		cold("sqlOverBatches", sqlOverBatches),
		cold("sqlDropBatches", sqlDropBatches),
		hot("sqlForgetKey", sqlForgetKey),
		hot("sqlReleaseKey", sqlReleaseKey),
		cold("sqlKeysOver", sqlKeysOver),
		hot("sqlDropKeysOver", sqlDropKeysOver),
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
		hot("sqlHasInbox", sqlHasInbox),
		hot("sqlReceive", sqlReceive),
		hot("sqlReceived", sqlReceived),
		hot("sqlReceivedOver", sqlReceivedOver),
		hot("sqlDropReceived", sqlDropReceived),
	}
	for _, n := range insertSizes {
		all = append(all, hot(fmt.Sprintf("sqlInsertJobs[%d]", n), sqlInsertJobs.sized[n]))
		all = append(all, hot(fmt.Sprintf("sqlInsertSides[%d]", n), sqlInsertSides.sized[n]))
		all = append(all, hot(fmt.Sprintf("sqlInsertFires[%d]", n), sqlInsertFires.sized[n]))
		all = append(all, hot(fmt.Sprintf("sqlInsertEvents[%d]", n), sqlInsertEvents.sized[n]))
		all = append(all, hot(fmt.Sprintf("sqlInsertKeyedEvents[%d]", n), sqlInsertKeyedEvents.sized[n]))
		all = append(all, hot(fmt.Sprintf("sqlInsertRelay[%d]", n), sqlInsertRelay.sized[n]))
	}
	for i, statement := range sqlDropGroup {
		all = append(all, cold(fmt.Sprintf("sqlDropGroup[%d]", i), statement))
	}
	either := &row.Filter{Op: row.Or, Of: []row.Filter{{Op: row.KeyIs, Key: "k"}, {Op: row.KeyPrefix, Key: "p"}}}
	for _, s := range []row.Selection{{Topic: "t"}, {Topic: "t:*"}, {Topic: "t", Filter: either}, {Topic: "*", Filter: either}} {
		all = append(all, hot(fmt.Sprintf("read[%s %v]", s.Topic, s.Filter != nil), selectionRead(s, 0, 0, 0).sql.String()))
	}
	for _, topic := range []string{"t", "t:*"} {
		all = append(all, hot(fmt.Sprintf("compacted[%s]", topic), selectionCompacted(row.Selection{Topic: topic}).sql.String()))
	}
	for _, l := range listStatements() {
		all = append(all, cold(l[0], l[1]))
	}
	for i, v := range relayInvariants {
		all = append(all, cold(fmt.Sprintf("relayInvariants[%d]", i), v.query))
	}
	for i, v := range dispatchInvariants {
		all = append(all, cold(fmt.Sprintf("dispatchInvariants[%d]", i), v.query))
	}
	for i, v := range inboxInvariants {
		all = append(all, cold(fmt.Sprintf("inboxInvariants[%d]", i), v.query))
	}
	for i, v := range invariants {
		all = append(all, cold(fmt.Sprintf("invariants[%d]", i), v.query))
	}
	return all
}

// listStatements returns the statements that find and load the jobs of lists.
func listStatements() (all [][2]string) {
	phase := []row.Phase{row.PhaseReady, row.PhaseExpired}
	for _, l := range []struct {
		name  string
		s     row.JobSelect
		order row.Order
		by    row.Access
		after *row.Place
	}{
		{"newest", row.JobSelect{}, row.NewestFirst, row.Walk, &row.Place{ID: 1}},
		{"oldest", row.JobSelect{}, row.OldestFirst, row.Walk, nil},
		{"ids", row.JobSelect{IDs: []int64{1}, Phases: phase}, row.NewestFirst, row.Walk, nil},
		{"sides", row.JobSelect{Key: "k"}, row.NewestFirst, row.Walk, nil},
		{"batch", row.JobSelect{Batch: 1}, row.NewestFirst, row.Walk, nil},
		{"phases", row.JobSelect{Phases: append(phase, row.PhaseLapsed)}, row.NewestFirst, row.Collect, nil},
		{"queue", row.JobSelect{Queues: []string{"q"}}, row.NewestFirst, row.Collect, nil},
		{"claims", row.JobSelect{Queues: []string{"q"}}, row.ClaimOrder, row.Walk, &row.Place{ID: 1}},
		{"deaths", row.JobSelect{}, row.LastDiedFirst, row.Walk, nil},
		{"later deaths", row.JobSelect{Queues: []string{"q"}}, row.LastDiedFirst, row.Walk, &row.Place{ID: 1}},
	} {
		for i, a := range selectArms(&l.s, l.order, l.by, l.after) {
			all = append(all, [2]string{fmt.Sprintf("list[%s %d]", l.name, i), a.query})
		}
	}
	s := row.JobSelect{Queues: []string{"q"}, Phases: phase, Unique: "u"}
	for in := range tables {
		query, _ := loadQuery(&s, row.Table(in), nil)
		all = append(all, [2]string{fmt.Sprintf("load[%d]", in), query})
	}
	return all
}

// RelayRules returns the rules on the tables of a relay.
func RelayRules() (rules []string) {
	for _, i := range relayInvariants {
		rules = append(rules, i.rule)
	}
	return rules
}
