package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// Codec transforms the payloads of jobs on their way into the file and back, to encrypt or compress them for example.
// See [Options.Codec]; package seal provides an encrypting Codec. All processes that enqueue to a queue or work on it
// need codecs that understand each other. Codecs must be safe for concurrent use and must not retain the slices they
// are given.
type Codec interface {
	// Encode returns the stored form of payload, the JSON arguments of a job of queue. The stored form must be JSON
	// too, of at most Options.MaxPayload bytes. If Encode returns an error, the enqueue fails with it and writes nothing.
	Encode(ctx context.Context, queue string, payload json.RawMessage) (json.RawMessage, error)

	// Decode returns the payload for the stored form of a job of queue. The stored form may not come from Encode: the
	// job may be older than the codec, or come from an SQL function or a program in another language.
	//
	// An error fails the attempt, as if a handler had returned it: the job is retried after the queue's Backoff until
	// its attempts are spent, since another process may have the key that this process lacks. [Reject] sends the job
	// to the dead letters at once; [RetryAfter] and [Snooze] say when to try again. No job is lost: a dead job keeps its
	// payload and can be requeued.
	Decode(ctx context.Context, queue string, stored json.RawMessage) (json.RawMessage, error)
}

// decode reads the arguments from stored, the payload as it is in the file, usually text. Text that does not decode into
// T never will, so that error is a [Reject]. An error of the codec may be temporary and is returned as it is.
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

// unreadable settles a claimed job whose arguments cannot be read, in the way Work does after an error of the handler.
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
