package relay

import (
	"strconv"
	"time"

	"github.com/honker-go/honker"
)

// Message is a message as passed to a handler. The handler may keep and modify the Message; changes
// do not affect delivery.
type Message struct {
	Queue     string
	Partition int
	Seq       int64  // sequence number in its partition: 1, 2, 3 … without gaps; the same on every delivery
	ID        int64  // row ID; increases with each commit, across all queues
	Epoch     int64  // fencing token of the partition; increases with each batch
	Key       string // Key of the Outgoing; empty if none, or if sent before keys were stored
	Type      string // Type of the Outgoing
	Payload   []byte
	CreatedAt time.Time // in whole milliseconds
	Attempt   int       // number of earlier attempts as the first message of a batch, including attempts that ended in a crash
}

// IdempotencyKey returns "queue/partition/seq". It's the same on every delivery of the message and
// unique within the family.
func (m *Message) IdempotencyKey() string {
	return m.Queue + "/" + strconv.Itoa(m.Partition) + "/" + strconv.FormatInt(m.Seq, 10)
}

// Reject wraps err. When a handler returns the result, its message becomes a dead letter with err's
// text as the reason, and the partition continues. Reject is the same as [honker.Reject].
func Reject(err error) error { return honker.Reject(err) }

// RetryAfter wraps err. When a handler returns the result, its message is retried after d instead
// of after the increasing pause set by [RetryBase]. The whole partition waits. If d is zero or
// negative there is no pause. RetryAfter is the same as [honker.RetryAfter].
func RetryAfter(d time.Duration, err error) error { return honker.RetryAfter(d, err) }
