package dispatch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// State is the state of a job.
type State string

// The states.
const (
	Dispatched State = "dispatched" // waiting for its first attempt or for a retry
	Started    State = "started"    // claimed by an actor
	Finished   State = "finished"
	Failed     State = "failed"   // moved to the dead letters
	Stopping   State = "stopping" // stopped, but its handler has not returned yet
	Stopped    State = "stopped"  // stopped before or during an attempt
)

// Status describes a job.
type Status struct {
	ID    int64
	State State
	Queue string // queue that the job was sent to

	// Output is a finished job's result, or its worker's reply. It is nil if there is no result or
	// if the result has expired, by default after an hour.
	Output    json.RawMessage
	Error     string // error of the last failed attempt
	Attempt   int    // attempts so far
	Worker    string // ID of the worker that has claimed the job
	SentAt    time.Time
	StartedAt time.Time // start of the last attempt; zero if there was none
	EndedAt   time.Time // zero if the job has not ended

	run   int64 // ID of the live job or copy
	twins bool  // whether copies wait in legacy queues
	held  time.Time

	unreadable error // error from decoding the reply with the codec
}

// over reports whether Await can stop waiting for the job.
func (s *Status) over() bool { return s.State != Dispatched && s.State != Started }

// Status returns the status of the job with the given ID, as returned by Send. The status is kept
// for an hour after the job has ended. For an unknown ID, Status returns [honker.ErrNotFound]. It
// never waits for a writer.
func (d *Dispatcher) Status(ctx context.Context, id int64) (Status, error) {
	s, err := d.status(ctx, id)
	return s, failID("read status of job", id, err)
}

func (d *Dispatcher) status(ctx context.Context, id int64) (s Status, err error) {
	found := false
	var reply row.DispatchReply
	err = d.read(ctx, func(ctx context.Context, q engine.Querier) error {
		now := d.engine.Now()
		row, there, err := d.store.Status(ctx, q, d.keys.prefix(), id, now)
		if found = there; found {
			s = newStatus(id, row, now)
			reply = row.Reply
		}
		return err
	})
	if err == nil && !found {
		err = honker.ErrNotFound
	}
	if s.State == Finished && reply.Queue != "" {
		s.Output, s.unreadable = d.readReply(ctx, reply)
	}
	return s, err
}

// readReply decodes a reply's payload with the DB's codec, if it has one.
func (d *Dispatcher) readReply(ctx context.Context, r row.DispatchReply) (json.RawMessage, error) {
	if !r.Text || d.engine.Codec == nil {
		return r.Payload, nil
	}
	return d.engine.Codec.Decode(ctx, r.Queue, r.Payload)
}

func newStatus(id int64, row row.DispatchStatus, now time.Time) Status {
	s := Status{
		ID: id, Queue: row.Queue, Error: row.LastError, Attempt: int(row.Attempts), Worker: row.Worker,
		SentAt: row.SentAt, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
		run: row.RunID, twins: row.Twins, held: row.HeldUntil,
	}
	switch {
	case row.State == string(honker.StateProcessing):
		s.State = Started
	case row.State != "":
		s.State = Dispatched
	case row.Stopped && row.HeldUntil.After(now):
		s.State, s.EndedAt = Stopping, time.Time{}
	case row.Stopped:
		s.State = Stopped
	case row.Dead:
		s.State = Failed
	default:
		s.State, s.Error = Finished, ""
		s.Output = row.Output
	}
	return s
}
