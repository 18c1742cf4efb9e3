package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/webhook"
)

// Message is a message from another node.
type Message struct {
	Source  string    // Options.Source of the inbox
	ID      string    // the same for each delivery
	Type    string    // the Content-Type
	SentAt  time.Time // time of this attempt, in whole seconds
	Payload []byte    // the unmodified body
}

// Decode decodes the payload from JSON into v. Its error is a [honker.Reject], because the payload
// will not change if the sender delivers the message again.
func (m *Message) Decode(v any) error {
	if err := json.Unmarshal(m.Payload, v); err != nil {
		return honker.Reject(fmt.Errorf("cannot decode payload: %w", err))
	}
	return nil
}

// HandlerFunc handles a message in the transaction that records it. All other writers of the
// database have to wait for the handler, so it must not block or use the network. If it returns
// nil, the transaction commits. If it fails or panics, nothing is recorded, and the next delivery
// calls it again.
type HandlerFunc func(ctx context.Context, tx *sql.Tx, m *Message) error

// Enqueue returns a handler that decodes the payload into a T and adds it to q as a job. A payload
// that cannot be decoded is rejected. Use json.RawMessage as T to accept any JSON unchanged.
func Enqueue[T any](q *honker.Queue[T], opts ...honker.EnqueueOption) HandlerFunc {
	return func(ctx context.Context, tx *sql.Tx, m *Message) error {
		var args T
		if err := m.Decode(&args); err != nil {
			return err
		}
		_, err := q.EnqueueTx(ctx, tx, args, opts...)
		return err
	}
}

// Publish is like [Enqueue], but publishes the payload as an event on s.
func Publish[E any](s *honker.Stream[E], opts ...honker.PublishOption) HandlerFunc {
	return func(ctx context.Context, tx *sql.Tx, m *Message) error {
		var data E
		if err := m.Decode(&data); err != nil {
			return err
		}
		_, err := s.PublishTx(ctx, tx, data, opts...)
		return err
	}
}

// Receive records a message and calls h in a single transaction. If the inbox has already recorded
// the ID, Receive doesn't call h and returns false. Receive does not verify the message, which may
// come from Verify or from another transport, and it ignores m.Source. Receive waits for the writer
// until ctx ends or BusyTimeout has passed ([honker.ErrBusy]). It returns [honker.ErrInvalid] if m
// or h is nil, [ErrID] for an invalid ID, and [honker.ErrInTx] with a ctx from [honker.DB.Tx]; use
// ReceiveTx there. If Receive returns an error, nothing was changed.
func (in *Inbox) Receive(ctx context.Context, m *Message, h HandlerFunc) (first bool, err error) {
	if h == nil {
		return false, in.fail("receive", fmt.Errorf("%w: nil handler", honker.ErrInvalid))
	}
	if err := m.check(); err != nil {
		return false, in.fail("receive", err)
	}
	if err := in.engine.RefuseInTx(ctx, "ReceiveTx"); err != nil {
		return false, in.fail("receive", err)
	}
	began := time.Now()
	err = in.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if first, err = in.record(ctx, tx, m); err != nil || !first {
			return err
		}
		return h(ctx, tx, m)
	})
	if err != nil {
		return false, in.fail("receive", err)
	}
	in.tell(Received{Source: in.opts.Source, ID: m.ID, Took: time.Since(began)}, first)
	return first, nil
}

// ReceiveTx records a message in the caller's transaction. If it returns an error, the caller must
// roll back the transaction. If the ID was already recorded, first is false and the caller must not
// apply the message again. Otherwise ReceiveTx is like [Inbox.Receive].
func (in *Inbox) ReceiveTx(ctx context.Context, tx honker.Tx, m *Message) (first bool, err error) {
	if err := m.check(); err != nil {
		return false, in.fail("receive", err)
	}
	on, err := in.engine.Join(ctx, tx)
	if err == nil {
		first, err = in.record(ctx, on, m)
	}
	if err != nil {
		return false, in.fail("receive", err)
	}
	in.tell(Received{Source: in.opts.Source, ID: m.ID, Tx: true}, first)
	return first, nil
}

func (m *Message) check() error {
	if m == nil {
		return fmt.Errorf("%w: nil message", honker.ErrInvalid)
	}
	return webhook.CheckID(m.ID)
}

// record stores a message's ID until its retention has passed. It returns false if the ID is
// already there.
func (in *Inbox) record(ctx context.Context, q engine.Querier, m *Message) (first bool, err error) {
	now := in.engine.Now()
	return in.store.Receive(ctx, q, in.opts.Source, m.ID, now, now.Add(in.opts.Retention))
}

// tell reports a received message to the observer; first is false for a repeated delivery.
func (in *Inbox) tell(r Received, first bool) {
	if first {
		in.opts.Observer.Received(r)
		return
	}
	in.engine.Logger.Debug("honker: inbox: a message was delivered again", "source", r.Source, "id", r.ID)
	in.opts.Observer.Duplicate(r)
}
