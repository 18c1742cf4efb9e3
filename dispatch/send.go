package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// SendOption configures a single Send.
type SendOption func(*sendOptions)

type sendOptions struct {
	enqueue    []honker.EnqueueOption
	replyQueue string
	replyTopic string
	err        error
}

// With passes options of honker's on: [honker.Delay], [honker.MaxAttempts], [honker.ExpiresIn],
// [honker.Priority] within a queue, and so on.
func With(opts ...honker.EnqueueOption) SendOption {
	return func(o *sendOptions) { o.enqueue = append(o.enqueue, opts...) }
}

// ReplyTo copies the outcome of the job into a queue, as a job with an [Outcome] for whatever works
// on that queue, in the transaction that saves the result. A worker that saves none, which an old
// one may be, sends no reply when it succeeds.
func ReplyTo(queue string) SendOption {
	return func(o *sendOptions) {
		o.replyQueue = queue
		o.err = errors.Join(o.err, engine.CheckName("queue to reply to", queue))
	}
}

// ReplyToStream is like [ReplyTo], with an event on topic.
func ReplyToStream(topic string) SendOption {
	return func(o *sendOptions) {
		o.replyTopic = topic
		o.err = errors.Join(o.err, engine.CheckName("topic to reply to", topic))
		if (row.Selection{Topic: topic}).Pattern() {
			o.err = errors.Join(o.err, fmt.Errorf("%w: topic %q is a pattern", honker.ErrInvalid, topic))
		}
	}
}

// Outcome is what ReplyTo sends.
type Outcome[R any] struct {
	ID     int64  `json:"id"`
	State  State  `json:"state"` // Finished, Failed or Stopped
	Output R      `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Send sends payload, as JSON, to the queue of t, or to where Options.IfAbsent says, and returns the
// job's id once it is committed. It waits for the writer until ctx ends or BusyTimeout has passed
// ([honker.ErrBusy]). A bad target, option or payload is [honker.ErrInvalid], and nothing was
// written. Under the ctx of [honker.DB.Tx] it is [honker.ErrInTx]: use SendTx.
func (d *Dispatcher) Send(ctx context.Context, t Target, payload any, opts ...SendOption) (id int64, err error) {
	o, err := d.sendOptions(t, opts)
	if err == nil {
		err = d.engine.RefuseInTx(ctx, "SendTx")
	}
	if err != nil {
		return 0, fail("send", t.String(), err)
	}
	err = d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = d.send(ctx, tx, t, payload, o)
		return err
	})
	if err != nil {
		return 0, fail("send", t.String(), err)
	}
	return id, nil
}

// SendTx is Send in the caller's transaction, which must be rolled back after an error. It does not
// wait. Actors see the job once tx is committed.
func (d *Dispatcher) SendTx(ctx context.Context, tx honker.Tx, t Target, payload any, opts ...SendOption) (int64, error) {
	o, err := d.sendOptions(t, opts)
	if err != nil {
		return 0, fail("send", t.String(), err)
	}
	id, err := d.send(ctx, tx, t, payload, o)
	return id, fail("send", t.String(), err)
}

func (d *Dispatcher) sendOptions(t Target, opts []SendOption) (o sendOptions, err error) {
	for _, option := range opts {
		if option == nil {
			return o, fmt.Errorf("%w: nil option", honker.ErrInvalid)
		}
		option(&o)
	}
	return o, errors.Join(d.checkTarget(t), o.err)
}

// send enqueues the job, and its copies for old actors, and notes it.
func (d *Dispatcher) send(ctx context.Context, tx honker.Tx, t Target, payload any, o sendOptions) (int64, error) {
	on, err := d.engine.Join(ctx, tx)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	s := row.Sent{ReplyQueue: o.replyQueue, ReplyTopic: o.replyTopic}
	parts := []row.DispatchPart{tables, life}
	if s.ReplyQueue != "" || s.ReplyTopic != "" {
		parts = append(parts, replies)
	}
	old := d.pushes(t, d.keys.Work(t))
	if len(old) > 0 {
		parts = append(parts, copies)
	}
	if err := d.store.Bootstrap(ctx, on, parts...); err != nil {
		return 0, err
	}
	to, err := d.resolve(ctx, on, t, now)
	if err != nil {
		return 0, err
	}
	s.Queue = d.keys.Work(to)
	if s.ID, err = d.enqueue(ctx, tx, s.Queue, payload, o); err != nil {
		return 0, err
	}
	if d.opts.Log {
		s.Events = d.events()
	}
	added, err := d.store.Add(ctx, on, s, now.UnixMilli())
	if err != nil || !added { // a unique key has found a job that was sent before
		return s.ID, err
	}
	for _, queue := range old {
		twin, err := d.enqueue(ctx, tx, queue, payload, o)
		if err != nil {
			return 0, err
		}
		if err := d.store.AddTwin(ctx, on, twin, s.ID); err != nil {
			return 0, err
		}
	}
	return s.ID, d.logSent(ctx, tx, s)
}

// logSent publishes the first event of a job.
func (d *Dispatcher) logSent(ctx context.Context, tx honker.Tx, s row.Sent) error {
	if s.Events == "" {
		return nil
	}
	event := Event{ID: s.ID, Queue: s.Queue, State: Dispatched}
	_, err := honker.NewStream[Event](d.db, s.Events, nil).PublishTx(ctx, tx, event, honker.EventKey(string(Dispatched)))
	return err
}

func (d *Dispatcher) enqueue(ctx context.Context, tx honker.Tx, queue string, payload any, o sendOptions) (int64, error) {
	return honker.NewQueue[any](d.db, queue, nil).EnqueueTx(ctx, tx, payload, o.enqueue...)
}

// events is the topic of the log.
func (d *Dispatcher) events() string { return d.keys.prefix() + "events" }

// Event is what the log says of a job, on the stream <prefix>events with the state as its key. It is
// published in the transaction that changes the job, also by a worker of another binding.
type Event struct {
	ID      int64  `json:"id"` // what Send has returned
	Queue   string `json:"queue"`
	State   State  `json:"state"` // Dispatched also when it is to be tried again
	Attempt int    `json:"attempt,omitempty"`
	Error   string `json:"error,omitempty"` // of one that has failed
}
