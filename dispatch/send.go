package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// A SendOption configures a call to [Dispatcher.Send].
type SendOption func(*sendOptions)

type sendOptions struct {
	enqueue    []honker.EnqueueOption
	replyQueue string
	replyTopic string
	err        error
}

// With sets the job's enqueue options, such as [honker.Delay], [honker.MaxAttempts] and
// [honker.ExpiresIn]. [honker.Priority] orders jobs within their queue.
func With(opts ...honker.EnqueueOption) SendOption {
	return func(o *sendOptions) { o.enqueue = append(o.enqueue, opts...) }
}

// ReplyTo enqueues an [Outcome] in queue when the job has ended, in the transaction that saves its
// result. No reply is sent if the job succeeds but its worker saves no result, as old workers may
// do.
func ReplyTo(queue string) SendOption {
	return func(o *sendOptions) {
		o.replyQueue = queue
		o.err = errors.Join(o.err, engine.CheckName("queue to reply to", queue))
	}
}

// ReplyToStream is like [ReplyTo], but publishes the outcome as an event on topic.
func ReplyToStream(topic string) SendOption {
	return func(o *sendOptions) {
		o.replyTopic = topic
		o.err = errors.Join(o.err, engine.CheckName("topic to reply to", topic))
		if (row.Selection{Topic: topic}).Pattern() {
			o.err = errors.Join(o.err, fmt.Errorf("%w: topic %q is a pattern", honker.ErrInvalid, topic))
		}
	}
}

// Outcome is the payload of a reply requested with [ReplyTo] or [ReplyToStream].
type Outcome[R any] struct {
	ID     int64  `json:"id"`
	State  State  `json:"state"` // Finished, Failed or Stopped
	Output R      `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Send encodes payload as JSON and enqueues it in t's queue, or in the queue chosen by
// Options.IfAbsent. It returns the job's ID after the commit.
//
// Send waits for other writers until ctx ends or BusyTimeout has passed, and then returns
// [honker.ErrBusy]. It returns [honker.ErrInvalid] for an invalid target, option or payload. Within
// [honker.DB.Tx] it returns [honker.ErrInTx]; use SendTx there.
func (d *Dispatcher) Send(ctx context.Context, t Target, payload any, opts ...SendOption) (id int64, err error) {
	o, err := d.sendOptions(t, opts)
	if err == nil {
		err = d.engine.RefuseInTx(ctx, "SendTx")
	}
	if err != nil {
		return 0, fail("send", t.String(), err)
	}
	err = d.engine.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = d.send(ctx, tx, t, payload, o)
		return err
	})
	if err != nil {
		return 0, fail("send", t.String(), err)
	}
	return id, nil
}

// SendTx is like Send but runs in the caller's transaction and does not block. Actors see the job
// once tx is committed. The caller must roll tx back if SendTx fails.
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

// send enqueues the job and its copies in legacy queues and adds the job to the dispatch tables.
func (d *Dispatcher) send(ctx context.Context, tx honker.Tx, t Target, payload any, o sendOptions) (int64, error) {
	on, err := d.engine.Join(ctx, tx)
	if err != nil {
		return 0, err
	}
	now := d.engine.Now()
	s := row.Sent{ReplyQueue: o.replyQueue, ReplyTopic: o.replyTopic}
	if err := d.store.Lock(ctx, on); err != nil {
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
	added, err := d.store.Add(ctx, on, s, now)
	if err != nil || !added { // the unique key belongs to an earlier job
		return s.ID, err
	}
	if old := d.pushes(t, d.keys.Work(t)); len(old) > 0 {
		twins := make([]int64, len(old))
		for i, queue := range old {
			if twins[i], err = d.enqueue(ctx, tx, queue, payload, o); err != nil {
				return 0, err
			}
		}
		if err := d.store.AddTwins(ctx, on, s.ID, twins); err != nil {
			return 0, err
		}
	}
	return s.ID, d.logSent(ctx, tx, s)
}

// logSent publishes the first event of a job if Options.Log is set.
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

// events returns the event log's topic.
func (d *Dispatcher) events() string { return d.keys.prefix() + "events" }

// Event is a state change of a job. If Options.Log is set, events are published on the stream
// <prefix>events with the state as their key. An event is published in the transaction that changes
// the job, even if another binding's worker changes it.
type Event struct {
	ID      int64  `json:"id"` // ID returned by Send
	Queue   string `json:"queue"`
	State   State  `json:"state"` // Dispatched again if the job will be retried
	Attempt int    `json:"attempt,omitempty"`
	Error   string `json:"error,omitempty"` // error of a failed attempt
}
