package dispatch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// State is how far a job has come.
type State string

// The states.
const (
	Dispatched State = "dispatched" // waits, also for another attempt
	Started    State = "started"    // an actor has it
	Finished   State = "finished"
	Failed     State = "failed"   // went to the dead letters
	Stopping   State = "stopping" // was stopped, and its handler has not returned yet
	Stopped    State = "stopped"  // will not run, or not to its end
)

// Status is what became of a job.
type Status struct {
	ID        int64
	State     State
	Queue     string          // where it was sent to
	Output    json.RawMessage // of a finished job: its result, or the reply of its worker, while that is kept (an hour by default)
	Error     string          // why it has failed, or why its last attempt has
	Attempt   int             // attempts so far
	Worker    string          // that has it
	SentAt    time.Time
	StartedAt time.Time // the last attempt; zero: none
	EndedAt   time.Time // zero: it has not ended

	run   int64 // the live job that stands for it
	twins bool  // copies wait in legacy queues
	held  time.Time

	unreadable error // of a reply that the codec cannot read
}

// over tells whether nothing can change any more that Wait would tell of.
func (s *Status) over() bool { return s.State != Dispatched && s.State != Started }

// Status reads what became of a job. A job is known for an hour after its end; then, and for an id
// that Send has not returned, it is [honker.ErrNotFound]. It never waits for the writer.
func (d *Dispatcher) Status(ctx context.Context, id int64) (Status, error) {
	s, err := d.status(ctx, id)
	return s, failID("status of job", id, err)
}

func (d *Dispatcher) status(ctx context.Context, id int64) (s Status, err error) {
	found := false
	var queue string
	var reply any
	err = d.read(ctx, func(ctx context.Context, q engine.Querier) error {
		now := time.Now()
		row, there, err := d.store.Status(ctx, q, d.keys.prefix(), id, now.Unix())
		if found = there; found {
			s = newStatus(id, row, now)
			reply, queue = row.Reply, row.ReplyQueue
		}
		return err
	})
	if err == nil && !found {
		err = honker.ErrNotFound
	}
	if s.State == Finished && queue != "" {
		s.Output, s.unreadable = d.readReply(ctx, queue, reply)
	}
	return s, err
}

// readReply returns what a job of a reply queue carries.
func (d *Dispatcher) readReply(ctx context.Context, queue string, stored any) (json.RawMessage, error) {
	text := engine.PayloadText(stored)
	if _, isText := stored.(string); !isText || d.engine.Codec == nil {
		return text, nil
	}
	return d.engine.Codec.Decode(ctx, queue, text)
}

func newStatus(id int64, row row.DispatchStatus, now time.Time) Status {
	s := Status{
		ID: id, Queue: row.Queue, Error: row.LastError, Attempt: int(row.Attempts), Worker: row.Worker,
		SentAt: engine.InstantMS(row.SentMS), StartedAt: engine.InstantMS(row.StartedMS), EndedAt: engine.InstantMS(row.EndedMS),
		run: row.RunID, twins: row.Twins, held: engine.InstantMS(row.HeldUntilMS),
	}
	switch {
	case row.State == string(honker.StateProcessing):
		s.State = Started
	case row.State != "":
		s.State = Dispatched
	case row.Stopped && row.HeldUntilMS > now.UnixMilli():
		s.State, s.EndedAt = Stopping, time.Time{}
	case row.Stopped:
		s.State = Stopped
	case row.Dead:
		s.State = Failed
	default:
		s.State, s.Error = Finished, ""
		if row.Output.Valid {
			s.Output = json.RawMessage(row.Output.String)
		}
	}
	return s
}
