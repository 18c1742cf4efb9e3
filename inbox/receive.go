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

// Message is a message of another node.
type Message struct {
	Source  string    // Options.Source of the inbox
	ID      string    // the same at each delivery
	Type    string    // the Content-Type
	SentAt  time.Time // the time of this attempt, in whole seconds
	Payload []byte    // the body, byte for byte
}

// Decode reads the payload, JSON, into v. Its error is a [honker.Reject]: the sender should not
// deliver the message again.
func (m *Message) Decode(v any) error {
	if err := json.Unmarshal(m.Payload, v); err != nil {
		return honker.Reject(fmt.Errorf("payload does not decode: %w", err))
	}
	return nil
}

// HandlerFunc handles a message in the transaction that records it. Other writers of the file
// wait meanwhile: no network and no waiting inside. nil commits. After an error, or a panic,
// nothing was recorded or written, and the next delivery runs the handler again.
type HandlerFunc func(ctx context.Context, tx *sql.Tx, m *Message) error

// Enqueue returns a handler that adds the payload, decoded into a T, as a job of q. A payload
// that does not decode is rejected. A T of json.RawMessage keeps any JSON as it is.
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

// Publish is like [Enqueue], with an event of s.
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

// Receive records a message and runs h, in one transaction. first is false, and h is not called,
// for an id that the inbox has recorded before. It waits for the writer until ctx ends or
// BusyTimeout has passed ([honker.ErrBusy]). It does not verify: it is for a message that came by
// another transport, or from Verify. The message's Source does not count. A nil message or h is
// [honker.ErrInvalid], a bad id is [ErrID], and after any error nothing was changed. Under the
// ctx of [honker.DB.Tx] it is [honker.ErrInTx]: use ReceiveTx.
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

// ReceiveTx records a message in the caller's transaction, which must be rolled back after an
// error. first is false for an id that was recorded before: the caller must leave the effects of
// the message out then. Otherwise it is like Receive.
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

// record inserts the row of a message, and creates the table before the first.
func (in *Inbox) record(ctx context.Context, q engine.Querier, m *Message) (first bool, err error) {
	if err := in.store.Bootstrap(ctx, q, schema); err != nil {
		return false, err
	}
	now := time.Now()
	return in.store.Receive(ctx, q, in.opts.Source, m.ID, now.UnixMilli(), engine.DeadlineMS(now, in.opts.Retention))
}

// tell reports a message that was received for the first time, or again.
func (in *Inbox) tell(r Received, first bool) {
	if first {
		in.opts.Observer.Received(r)
		return
	}
	in.engine.Logger.Debug("honker: inbox: a message was delivered again", "source", r.Source, "id", r.ID)
	in.opts.Observer.Duplicate(r)
}
