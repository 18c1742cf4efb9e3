package streams

import (
	"fmt"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Hot("sqlGetOffset", sqlGetOffset),
		rows.Hot("sqlSaveOffset", sqlSaveOffset),
		rows.Hot("sqlTouchConsumer", sqlTouchConsumer),
		rows.Hot("sqlSetOffset", sqlSetOffset),
		rows.Hot("sqlAddConsumer", sqlAddConsumer),
		rows.Hot("sqlDescribeConsumer", sqlDescribeConsumer),
		rows.Hot("sqlGetConsumer", sqlGetConsumer),
		rows.Cold("sqlConsumers", sqlConsumers),
		rows.Cold("sqlAllConsumers", sqlAllConsumers),
		rows.Cold("sqlEventTime", sqlEventTime),
		rows.Hot("sqlDropConsumer", sqlDropConsumer),
		rows.Hot("sqlForget", sqlForget),
		rows.Hot("sqlTopicEvents", sqlTopicEvents),
		rows.Hot("sqlTopicHorizon", sqlTopicHorizon),
		rows.Hot("sqlHorizon", sqlHorizon),
		rows.Hot("sqlLastEvent", sqlLastEvent),
		rows.Hot("sqlLastOffset", sqlLastOffset),
		rows.Hot("sqlEventHead", sqlEventHead),
		rows.Hot("sqlTopicsSince", sqlTopicsSince),
		rows.Cold("sqlTopicStates", sqlTopicStates),
		rows.Cold("sqlAllCompacted", sqlAllCompacted),
		rows.Cold("sqlCountDown", sqlCountDown),
		rows.Cold("sqlFollowing", sqlFollowing),
		rows.Cold("sqlTimesAfter", sqlTimesAfter),
		rows.Hot("sqlGetGroup", sqlGetGroup),
		rows.Hot("sqlGroupByID", sqlGroupByID),
		rows.Cold("sqlGroups", sqlGroups),
		rows.Cold("sqlAllGroups", sqlAllGroups),
		rows.Hot("sqlAddGroup", sqlAddGroup),
		rows.Hot("sqlTouchMember", sqlTouchMember),
		rows.Hot("sqlGetMember", sqlGetMember),
		rows.Hot("sqlDropSilent", sqlDropSilent),
		rows.Hot("sqlDropMember", sqlDropMember),
		rows.Hot("sqlReturnAll", sqlReturnAll),
		rows.Cold("sqlMemberStates", sqlMemberStates),
		rows.Cold("sqlCounts", sqlCounts),
		rows.Hot("sqlNextEpoch", sqlNextEpoch),
		rows.Hot("sqlGroupStates", sqlGroupStates),
		rows.Hot("sqlMoveGroup", sqlMoveGroup),
		rows.Hot("sqlReturnLapsed", sqlReturnLapsed),
		rows.Hot("sqlHold", sqlHold),
		rows.Hot("sqlReturned", sqlReturned),
		rows.Hot("sqlHoldAgain", sqlHoldAgain),
		rows.Hot("sqlDropGone", sqlDropGone),
		rows.Cold("sqlDropOdd", sqlDropOdd),
		rows.Hot("sqlAckDelivery", sqlAckDelivery),
		rows.Hot("sqlAckDeliveries", sqlAckDeliveries),
		rows.Hot("sqlNack", sqlNack),
		rows.Hot("sqlRelease", sqlRelease),
		rows.Hot("sqlExtendDelivery", sqlExtendDelivery),
		rows.Cold("sqlDeadDeliveries", sqlDeadDeliveries),
		rows.Hot("sqlRevive", sqlRevive),
		rows.Hot("sqlDropDead", sqlDropDead),
		rows.Hot("sqlSetRetention", sqlSetRetention),
		rows.Hot("sqlDropRetention", sqlDropRetention),
		rows.Hot("sqlGetRetention", sqlGetRetention),
		rows.Cold("sqlRetained", sqlRetained),
		rows.Hot("sqlRank", sqlRank),
		rows.Hot("sqlBefore", sqlBefore),
		rows.Cold("sqlConsumerPins", sqlConsumerPins),
		rows.Cold("sqlSwappedPins", sqlSwappedPins),
		rows.Cold("sqlGroupPins", sqlGroupPins),
		rows.Hot("sqlCompact", sqlCompact),
		rows.Hot("sqlHasCompacted", sqlHasCompacted),
		rows.Hot("sqlNoteCompacted", sqlNoteCompacted),
		rows.Hot("sqlDropGroupClaims", sqlDropGroupClaims),
		rows.Hot("sqlClaimsLeft", sqlClaimsLeft),
	}
	all = append(all, sqlInsertEvents.Statements("sqlInsertEvents")...)
	all = append(all, sqlInsertKeyedEvents.Statements("sqlInsertKeyedEvents")...)
	for i, statement := range sqlDropGroup {
		all = append(all, rows.Cold(fmt.Sprintf("sqlDropGroup[%d]", i), statement))
	}
	either := &row.Filter{Op: row.Or, Of: []row.Filter{{Op: row.KeyIs, Key: "k"}, {Op: row.KeyPrefix, Key: "p"}}}
	for _, s := range []row.Selection{{Topic: "t"}, {Topic: "t:*"}, {Topic: "t", Filter: either}, {Topic: "*", Filter: either}} {
		all = append(all, rows.Hot(fmt.Sprintf("read[%s %v]", s.Topic, s.Filter != nil), selectionRead(s, 0, 0, 0).sql.String()))
	}
	for _, topic := range []string{"t", "t:*"} {
		all = append(all, rows.Hot(fmt.Sprintf("compacted[%s]", topic), selectionCompacted(row.Selection{Topic: topic}).sql.String()))
	}
	return all
}
