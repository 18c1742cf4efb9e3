package relay

import (
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/contain"
)

// Observer contains callbacks for metrics and traces. Nil fields are skipped, and later versions may
// add fields. The callbacks are called after the commit, except for a Sent with Tx set, by the
// goroutine that made the change, so they should return quickly. A panic in a callback is logged.
type Observer struct {
	Sent      func(Sent)      // messages were sent
	Taken     func(Taken)     // a batch was taken
	Finished  func(Finished)  // the progress of a batch was saved
	Retried   func(Retried)   // a batch failed, and its partition pauses
	Dead      func(Died)      // a message became a dead letter
	LeaseLost func(LeaseLost) // the progress of a batch was not saved because another process had taken the partition
}

// Sent describes messages that were sent.
type Sent struct {
	Queue string
	IDs   []int64
	Tx    bool // sent in the caller's transaction, which may still be rolled back
}

// Taken describes a batch that was taken.
type Taken struct {
	Queue     string
	Partition int
	Epoch     int64
	Messages  int
	Attempt   int           // earlier attempts at the first message
	Wait      time.Duration // time from sending the first message until the batch was taken
}

// Finished describes a batch whose progress was saved.
type Finished struct {
	Queue     string
	Partition int
	Epoch     int64
	Processed int           // finished messages, including rejected messages; 0 if the first message failed
	Took      time.Duration // running time of the handler
}

// Retried describes a batch that failed.
type Retried struct {
	Queue     string
	Partition int
	Epoch     int64
	Attempt   int // attempts so far at the message to be retried
	At        time.Time
	Err       error
}

// Died describes a message that became a dead letter.
type Died struct {
	Queue     string
	Partition int
	Seq, ID   int64
	Rejected  bool // true if its handler rejected it, false if its attempts were exhausted
	Reason    string
}

// LeaseLost describes a batch that lost its lease. None of its progress was saved.
type LeaseLost struct {
	Queue     string
	Partition int
	Epoch     int64
}

// contained returns a copy of o whose functions recover from panics. o may be nil.
func (o *Observer) contained(log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	return &Observer{
		Sent:      contain.Func(log, "relay: Observer.Sent", o.Sent),
		Taken:     contain.Func(log, "relay: Observer.Taken", o.Taken),
		Finished:  contain.Func(log, "relay: Observer.Finished", o.Finished),
		Retried:   contain.Func(log, "relay: Observer.Retried", o.Retried),
		Dead:      contain.Func(log, "relay: Observer.Dead", o.Dead),
		LeaseLost: contain.Func(log, "relay: Observer.LeaseLost", o.LeaseLost),
	}
}
