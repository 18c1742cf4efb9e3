package inbox

import (
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Observer is told what happens, for metrics and traces. Nil fields are skipped, and later
// versions may have more. The functions are called after the commit, but for those of ReceiveTx,
// by the goroutine that did it: they should be quick. A panic in one is logged.
type Observer struct {
	Received  func(Received) // a message was recorded, and its handler has run
	Duplicate func(Received) // a message that had been recorded before was delivered again
	Refused   func(Refused)  // a Handler has answered with something else than 2xx
}

// Received is a message that was delivered.
type Received struct {
	Source string
	ID     string
	Took   time.Duration // the wait for the writer included; 0 with Tx
	Tx     bool          // in the caller's transaction, which may still be rolled back
}

// Refused is a request that was not taken. Nothing was changed.
type Refused struct {
	Source string
	ID     string // of the message; empty if the request did not verify
	Status int    // that was answered
	Err    error
}

// contained returns o with functions that contain panics. nil is an observer of nothing.
func (o *Observer) contained(log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	return &Observer{
		Received:  engine.Contained(log, "inbox: Observer.Received", o.Received),
		Duplicate: engine.Contained(log, "inbox: Observer.Duplicate", o.Duplicate),
		Refused:   engine.Contained(log, "inbox: Observer.Refused", o.Refused),
	}
}
