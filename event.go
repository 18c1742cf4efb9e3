package honker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Event is an event of a stream.
type Event[E any] struct {
	Offset    int64
	Topic     string
	Key       string // "" also for none
	CreatedAt time.Time
	Payload   json.RawMessage // as stored; other bindings may store text that is no JSON
	Data      E

	by *follower // whose Subscribe yielded it; nil: nobody's
}

// newEvent makes an event of a row. With an error, the event has no Data.
func newEvent[E any](row *store.Event) (*Event[E], error) {
	e := &Event[E]{
		Offset:    row.Offset,
		Topic:     row.Topic,
		Key:       row.Key,
		CreatedAt: instant(row.CreatedAt),
		Payload:   row.Payload,
	}
	if err := decodeEvent(row.Payload, &e.Data); err != nil {
		return e, failID("read event", e.Offset, err)
	}
	return e, nil
}

func decodeEvent(payload json.RawMessage, data any) error {
	if raw, ok := data.(*json.RawMessage); ok && json.Valid(payload) {
		*raw = payload
		return nil
	}
	if err := json.Unmarshal(payload, data); err != nil {
		return fmt.Errorf("payload does not decode: %w", err)
	}
	return nil
}

// Ack saves the offset of this event for the consumer whose [Stream.Subscribe] yielded
// it, now: everything up to it counts as handled. It never goes back. An event of
// anybody else's, such as [Stream.Read], is [ErrInvalid].
func (e *Event[E]) Ack(ctx context.Context) error {
	if e.by == nil {
		return failID("ack event", e.Offset, errNoConsumer)
	}
	_, err := e.by.s.saveOffset(ctx, "AckTx", e.by.consumer, e.Offset)
	return failID("ack event", e.Offset, err)
}

// AckTx is like [Event.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack. [ErrClaimLost]: the consumer is that far already, by another loop
// that runs for it; let tx roll back.
func (e *Event[E]) AckTx(ctx context.Context, tx Tx) error {
	if e.by == nil {
		return failID("ack event", e.Offset, errNoConsumer)
	}
	moved, err := e.by.s.saveOffsetTx(ctx, tx, e.by.consumer, e.Offset)
	if err == nil && !moved {
		err = ErrClaimLost
	}
	return failID("ack event", e.Offset, err)
}

var errNoConsumer = fmt.Errorf("%w: no consumer has subscribed to it", ErrInvalid)
