package relays

import (
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Cold("sqlRelayDead", sqlRelayDead),
		rows.Cold("sqlCountRelayDead", sqlCountRelayDead),
		rows.Hot("sqlRelayDead by key", Relays{}.selects(sqlRelayDead, row.RelayDeadFilter{Key: "k"})),
		rows.Hot("sqlCountRelayDead by key", Relays{}.selects(sqlCountRelayDead, row.RelayDeadFilter{Key: "k"})),
		rows.Hot("sqlFreeRelayDead by key", Relays{}.selects(sqlFreeRelayDead, row.RelayDeadFilter{Key: "k"})),
		rows.Cold("sqlRelayDead of an earlier version", strings.NewReplacer(deadColumns, keylessColumns, deadFilter, keylessFilter).Replace(sqlRelayDead)),
		rows.Hot("sqlHasRelayKeys", sqlHasRelayKeys),
		rows.Cold("sqlOpenRelayDead", sqlOpenRelayDead),
		rows.Hot("sqlFreeRelayDead", sqlFreeRelayDead),
		rows.Hot("sqlHoldRelayDead", sqlHoldRelayDead),
		rows.Hot("sqlResolveRelayDead", sqlResolveRelayDead),
		rows.Hot("sqlRejectRelayDead", sqlRejectRelayDead),
		rows.Hot("sqlRequeueRelayDead", sqlRequeueRelayDead),
		rows.Hot("sqlDropRequeued", sqlDropRequeued),
		rows.Hot("sqlDiscardRelayDead", sqlDiscardRelayDead),
		rows.Cold("sqlSettledRelayDead", sqlSettledRelayDead),
		rows.Hot("sqlDropRelayDead", sqlDropRelayDead),
		rows.Cold("sqlRelayInfo", sqlRelayInfo),
		rows.Cold("sqlRelayMisplaced", sqlRelayMisplaced),
		rows.Cold("sqlRelayQueues", sqlRelayQueues),
		rows.Cold("sqlRelayBlocked", sqlRelayBlocked),
		rows.Cold("sqlRelayFailing", sqlRelayFailing),
		rows.Cold("sqlRelayDeaths", sqlRelayDeaths),
		rows.Hot("sqlRelayBreak", sqlRelayBreak),
		rows.Cold("sqlRelayTables", sqlRelayTables),
		rows.Hot("sqlHasRelay", sqlHasRelay),
		rows.Hot("sqlRelayQueue", sqlRelayQueue),
		rows.Hot("sqlAddRelayQueue", sqlAddRelayQueue),
		rows.Hot("sqlAddRelayPartitions", sqlAddRelayPartitions),
		rows.Hot("sqlRelayTake", sqlRelayTake),
		rows.Hot("sqlRelayRead", sqlRelayRead),
		rows.Hot("sqlRelaySave", sqlRelaySave),
		rows.Hot("sqlRelayDelete", sqlRelayDelete),
		rows.Hot("sqlRelayDeadLetter", sqlRelayDeadLetter),
		rows.Hot("sqlHasRelayMessage", sqlHasRelayMessage),
		rows.Hot("sqlRelayStates", sqlRelayStates),
		rows.Cold("sqlRelayStrays", sqlRelayStrays),
		rows.Cold("sqlRelayFinished", sqlRelayFinished),
		rows.Cold("sqlRelayVacuum", sqlRelayVacuum),
	}
	all = append(all, sqlInsertRelay.Statements("sqlInsertRelay")...)
	for i, v := range relayInvariants {
		all = append(all, rows.Cold(fmt.Sprintf("relayInvariants[%d]", i), v.query))
	}
	return all
}
