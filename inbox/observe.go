package inbox

import (
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/contain"
)

// Observer contains callbacks for metrics and traces. Nil fields are skipped, and later versions
// may add fields. Callbacks run after the commit, or during ReceiveTx, in the goroutine that
// received the message, so they should return quickly. A panic in a callback is logged.
type Observer struct {
	Received  func(Received) // a message was recorded and its handler has run
	Duplicate func(Received) // a message was delivered again after it had been recorded
	Refused   func(Refused)  // a Handler has responded with a status other than 2xx
}

// Received describes a message that was delivered.
type Received struct {
	Source string
	ID     string
	Took   time.Duration // time including the wait for the writer; 0 if Tx is set
	Tx     bool          // received in the caller's transaction, which may still be rolled back
}

// Refused describes a request that was refused. Nothing was changed.
type Refused struct {
	Source string
	ID     string // message ID; empty if the request failed verification
	Status int    // HTTP status of the response
	Err    error
}

// contained returns a copy of o whose functions recover from panics. o may be nil.
func (o *Observer) contained(log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	return &Observer{
		Received:  contain.Func(log, "inbox: Observer.Received", o.Received),
		Duplicate: contain.Func(log, "inbox: Observer.Duplicate", o.Duplicate),
		Refused:   contain.Func(log, "inbox: Observer.Refused", o.Refused),
	}
}
