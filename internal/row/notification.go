package row

import "time"

// Notification is a message published on a channel.
type Notification struct {
	ID        int64
	Channel   string
	Payload   string
	CreatedAt time.Time
}
