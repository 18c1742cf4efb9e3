package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// Codec changes the payloads of jobs on their way into the file and back: it encrypts them, or makes them
// smaller. See [Options.Codec], and package seal for one. All processes that enqueue to a queue or work it off
// need a codec that understands the others'. The methods are called by many goroutines at once, and keep none
// of the slices that they are given.
type Codec interface {
	// Encode returns what is stored for payload, the arguments of a job of queue, which are JSON. What it
	// returns is JSON too, of no more than Options.MaxPayload. Its error is that of the enqueue, which writes nothing.
	Encode(ctx context.Context, queue string, payload json.RawMessage) (json.RawMessage, error)

	// Decode returns the payload of what is stored for a job of queue. That may be what no Encode has
	// made: a job from before there was a codec, of a SQL function, or of a program in another language.
	// An error is one of the attempt, as if a handler had returned it: the job is tried again after the queue's
	// Backoff, until its attempts are spent, since another process may have the key that this one lacks. [Reject] sends the
	// job to the dead letters at once, and [RetryAfter] and [Snooze] say when it is tried again. No job is
	// lost: it keeps its payload there, and can be requeued.
	Decode(ctx context.Context, queue string, stored json.RawMessage) (json.RawMessage, error)
}

// decode reads the arguments. stored is the payload as the file has it: text, as a rule. Text that is
// no T will never be one, so that error is one of [Reject]; an error of the codec says nothing of the job.
func (j *JobInfo) decode(ctx context.Context, stored any, args any) error {
	text := j.Payload
	if _, isText := stored.(string); isText && j.codec != nil {
		var err error
		if text, err = j.codec.Decode(ctx, j.Queue, j.Payload); err != nil {
			return fmt.Errorf("codec: %w", err)
		}
	}
	if err := engine.Decode(stored, text, args); err != nil {
		return Reject(err)
	}
	return nil
}

// unreadable settles a claimed job of which the arguments cannot be read, as a Work does after an error
// of the handler.
func (j *Job[T]) unreadable(ctx context.Context, cause error) error {
	var d *worker.Directive
	switch {
	case !errors.As(cause, &d):
		return j.Retry(ctx, max(0, j.q.opts.Backoff(j.Attempts, cause)), cause)
	case d.Outcome == worker.Died:
		return j.Reject(ctx, cause)
	case d.Outcome == worker.Snoozed:
		return j.Snooze(ctx, d.Delay)
	}
	return j.Retry(ctx, d.Delay, cause)
}
