package notify

import "github.com/honker-go/honker/internal/sqlite/store/rows"

// Statements returns the package's statements.
func Statements() []rows.Statement {
	return []rows.Statement{
		rows.Hot("sqlNotify", sqlNotify),
		rows.Hot("sqlLastNotification", sqlLastNotification),
		rows.Hot("sqlNotificationsSince", sqlNotificationsSince),
		rows.Hot("sqlLastMessage", sqlLastMessage),
		rows.Hot("sqlMessageHead", sqlMessageHead),
		rows.Hot("sqlChannelsSince", sqlChannelsSince),
		rows.Cold("sqlSurplus", sqlSurplus),
		rows.Hot("sqlDropNotifications", sqlDropNotifications),
		rows.Cold("sqlOldMessages", sqlOldMessages),
		rows.Hot("sqlDropMessages", sqlDropMessages),
	}
}
