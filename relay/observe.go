package relay

import (
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Observer is told what happens, for metrics and traces. Nil fields are skipped, and later
// versions may have more. The functions are called after the commit, but for Sent in a
// transaction, by the goroutine that did it: they should be quick. A panic in one is logged.
type Observer struct {
	Sent      func(Sent)      // messages were sent
	Taken     func(Taken)     // a batch was taken
	Finished  func(Finished)  // the progress of a batch was saved
	Retried   func(Retried)   // a batch has failed, and its partition waits
	Dead      func(Died)      // a message has become a dead letter
	LeaseLost func(LeaseLost) // the progress of a batch was not saved, since another process has taken the partition
}

// Sent are messages that were sent.
type Sent struct {
	Queue string
	IDs   []int64
	Tx    bool // in the caller's transaction, which may still be rolled back
}

// Taken is a batch that was taken.
type Taken struct {
	Queue     string
	Partition int
	Epoch     int64
	Messages  int
	Attempt   int           // of the first message
	Wait      time.Duration // since the first message was sent
}

// Finished is a batch of which the progress was saved.
type Finished struct {
	Queue     string
	Partition int
	Epoch     int64
	Processed int           // messages, rejected ones included; 0 after a failure of the first
	Took      time.Duration // of the handler
}

// Retried is a batch that has failed.
type Retried struct {
	Queue     string
	Partition int
	Epoch     int64
	Attempt   int // of the message that is tried again
	At        time.Time
	Err       error
}

// Died is a message that has become a dead letter.
type Died struct {
	Queue     string
	Partition int
	Seq, ID   int64
	Rejected  bool // by its handler; otherwise its attempts were spent
	Reason    string
}

// LeaseLost is a batch that has lost its lease. Nothing of it was saved.
type LeaseLost struct {
	Queue     string
	Partition int
	Epoch     int64
}

// contained is o with functions of which no panic gets out. nil is an observer of nothing.
func (o *Observer) contained(log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	return &Observer{
		Sent:      engine.Contained(log, "relay: Observer.Sent", o.Sent),
		Taken:     engine.Contained(log, "relay: Observer.Taken", o.Taken),
		Finished:  engine.Contained(log, "relay: Observer.Finished", o.Finished),
		Retried:   engine.Contained(log, "relay: Observer.Retried", o.Retried),
		Dead:      engine.Contained(log, "relay: Observer.Dead", o.Dead),
		LeaseLost: engine.Contained(log, "relay: Observer.LeaseLost", o.LeaseLost),
	}
}
