package store

// NotifyStatements returns the statements of messages.
func NotifyStatements() []Statement {
	return []Statement{
		hot("sqlNotify", sqlNotify),
		hot("sqlLastNotification", sqlLastNotification),
		hot("sqlNotificationsSince", sqlNotificationsSince),
		hot("sqlLastMessage", sqlLastMessage),
		hot("sqlMessageHead", sqlMessageHead),
		hot("sqlChannelsSince", sqlChannelsSince),
		cold("sqlSurplus", sqlSurplus),
		hot("sqlDropNotifications", sqlDropNotifications),
		cold("sqlOldMessages", sqlOldMessages),
		hot("sqlDropMessages", sqlDropMessages),
	}
}
