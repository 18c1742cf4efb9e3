package relay

import (
	"strconv"
	"time"

	"github.com/honker-go/honker"
)

// Message is a message as it is passed to a handler. The handler may keep and modify it; changes
// have no effect on its delivery.
type Message struct {
	Queue     string
	Partition int
	Seq       int64  // number in its partition: 1, 2, 3 … without gaps, the same at each delivery
	ID        int64  // row id; increases with each commit, across all queues
	Epoch     int64  // fencing token of the partition; increases with each batch
	Key       string // Key of the Outgoing; empty if none, or if sent before keys were stored
	Type      string // Type of the Outgoing
	Payload   []byte
	CreatedAt time.Time // in whole milliseconds
	Attempt   int       // earlier attempts as the first message of a batch, those of crashed processes included; 0 at first
}

// IdempotencyKey returns "queue/partition/seq". It is the same at each delivery of the message and
// unique within the family.
func (m *Message) IdempotencyKey() string {
	return m.Queue + "/" + strconv.Itoa(m.Partition) + "/" + strconv.FormatInt(m.Seq, 10)
}

// Reject wraps err so that a handler that returns it turns its message into a dead letter. The text
// of err becomes the reason. The partition then continues. Reject is the same as [honker.Reject].
func Reject(err error) error { return honker.Reject(err) }

// RetryAfter wraps err so that a handler that returns it has its message tried again after d,
// instead of after the increasing pause of [RetryBase]. The whole partition waits. If d is zero or
// negative there is no pause. RetryAfter is the same as [honker.RetryAfter].
func RetryAfter(d time.Duration, err error) error { return honker.RetryAfter(d, err) }
