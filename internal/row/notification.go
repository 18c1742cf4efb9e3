package row

// Notification is a row of _honker_notifications.
type Notification struct {
	ID        int64
	Channel   string
	Payload   string
	CreatedAt int64
}
