package store

import (
	"fmt"

	"github.com/honker-go/honker/internal/row"
)

// StreamStatements returns the statements of streams.
func StreamStatements() []Statement {
	all := []Statement{
		hot("sqlGetOffset", sqlGetOffset),
		hot("sqlSaveOffset", sqlSaveOffset),
		hot("sqlTouchConsumer", sqlTouchConsumer),
		hot("sqlSetOffset", sqlSetOffset),
		hot("sqlAddConsumer", sqlAddConsumer),
		hot("sqlDescribeConsumer", sqlDescribeConsumer),
		hot("sqlGetConsumer", sqlGetConsumer),
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
		hot("sqlEventHead", sqlEventHead),
		hot("sqlTopicsSince", sqlTopicsSince),
		cold("sqlTopicStates", sqlTopicStates),
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
		hot("sqlDropGroupClaims", sqlDropGroupClaims),
		hot("sqlClaimsLeft", sqlClaimsLeft),
	}
	all = append(all, sqlInsertEvents.statements("sqlInsertEvents")...)
	all = append(all, sqlInsertKeyedEvents.statements("sqlInsertKeyedEvents")...)
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
	return all
}
