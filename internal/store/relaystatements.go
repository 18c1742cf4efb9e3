package store

import (
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// RelayStatements returns the statements of relays.
func RelayStatements() []Statement {
	all := []Statement{
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
	}
	all = append(all, sqlInsertRelay.statements("sqlInsertRelay")...)
	for i, v := range relayInvariants {
		all = append(all, cold(fmt.Sprintf("relayInvariants[%d]", i), v.query))
	}
	return all
}
