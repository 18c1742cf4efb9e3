package store

import (
	"fmt"
)

// InboxStatements returns the statements of inboxes.
func InboxStatements() []Statement {
	all := []Statement{
		hot("sqlHasInbox", sqlHasInbox),
		hot("sqlReceive", sqlReceive),
		hot("sqlReceived", sqlReceived),
		hot("sqlReceivedOver", sqlReceivedOver),
		hot("sqlDropReceived", sqlDropReceived),
	}
	for i, v := range inboxInvariants {
		all = append(all, cold(fmt.Sprintf("inboxInvariants[%d]", i), v.query))
	}
	return all
}
