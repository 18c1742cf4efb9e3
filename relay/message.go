package relay

import (
	"strconv"
	"time"

	"github.com/honker-go/honker"
)

// Message is a message as its handler gets it. It is the handler's to keep: nothing that is done
// to it after the handler has returned has an effect on its delivery.
type Message struct {
	Queue     string
	Partition int
	Seq       int64  // 1, 2, 3 … in its partition, without a gap; the same at each delivery
	ID        int64  // of the row; it rises with each commit, over all queues
	Epoch     int64  // the fencing token of the partition: it rises with each batch
	Key       string // what Outgoing said; "": none, or sent before keys were stored
	Type      string // what Outgoing said
	Payload   []byte
	CreatedAt time.Time // in whole milliseconds
	Attempt   int       // how often the partition was taken for it before, as its first message: 0 at first. A process that died counts
}

// IdempotencyKey is "queue/partition/seq", the same at each delivery of this message and of no
// other message of the family.
func (m *Message) IdempotencyKey() string {
	return m.Queue + "/" + strconv.Itoa(m.Partition) + "/" + strconv.FormatInt(m.Seq, 10)
}

// Reject returns what a handler returns to make its message a dead letter, with err's text as the
// reason. The partition goes on. It is [honker.Reject].
func Reject(err error) error { return honker.Reject(err) }

// RetryAfter returns what a handler returns to have its message tried again after d, instead of
// the pause that grows with each failure. The partition waits for it. A d that is not positive
// is none. It is [honker.RetryAfter].
func RetryAfter(d time.Duration, err error) error { return honker.RetryAfter(d, err) }
