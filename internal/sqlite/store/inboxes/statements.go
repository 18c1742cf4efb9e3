package inboxes

import (
	"fmt"

	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Statements returns the package's statements.
func Statements() []rows.Statement {
	all := []rows.Statement{
		rows.Hot("sqlHasInbox", sqlHasInbox),
		rows.Hot("sqlReceive", sqlReceive),
		rows.Hot("sqlReceived", sqlReceived),
		rows.Hot("sqlReceivedOver", sqlReceivedOver),
		rows.Hot("sqlDropReceived", sqlDropReceived),
	}
	for i, v := range inboxInvariants {
		all = append(all, rows.Cold(fmt.Sprintf("inboxInvariants[%d]", i), v.query))
	}
	return all
}
