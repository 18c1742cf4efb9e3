package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// Call sends payload to t and waits for the result, read into an R. It is Send and then [Await].
func Call[R any](ctx context.Context, d *Dispatcher, t Target, payload any, opts ...SendOption) (R, error) {
	id, err := d.Send(ctx, t, payload, opts...)
	if err != nil {
		var none R
		return none, err
	}
	return Await[R](ctx, d, id)
}

// Await waits for the end of a job that Send has returned, and reads its result into an R; an end
// before the call is found at once. The result is what the worker has saved, as an actor of this
// package does, or else the last payload that waits in the queue [Keys.Reply] or [Keys.LegacyReply] of
// the job, where a worker in another language pushes it: before its ack, or up to a quarter of a second
// after. Await only reads that queue, so each later Await finds the same.
//
// Await returns a [*honker.JobFailedError] if the job has failed, [honker.ErrCancelled] if it was
// stopped, [ErrNoResult] if it has finished and there is no result, and [honker.ErrNotFound] for an id
// that is not known. The end of ctx ends the wait and leaves the job running. A handler that returns
// nil has a result, null, which is the zero R.
func Await[R any](ctx context.Context, d *Dispatcher, id int64) (R, error) {
	var r R
	s, err := d.await(ctx, id)
	if err == nil {
		err = s.outcome()
	}
	if err != nil {
		return r, failID("await job", id, err)
	}
	if err := json.Unmarshal(s.Output, &r); err != nil {
		return r, failID("await job", id, fmt.Errorf("result does not decode: %w", err))
	}
	return r, nil
}

// outcome is the error of a job that has not finished well.
func (s *Status) outcome() error {
	switch s.State {
	case Failed:
		return &honker.JobFailedError{ID: s.ID, Attempts: s.Attempt, LastError: s.Error}
	case Stopping, Stopped:
		return fmt.Errorf("stopped: %w", honker.ErrCancelled)
	}
	switch {
	case s.unreadable != nil:
		return fmt.Errorf("reply does not decode: codec: %w", s.unreadable)
	case s.Output == nil:
		return ErrNoResult
	}
	return nil
}

// saveGrace is how long other bindings may take to save the result after the end of a job, or to move
// it to the dead letters, which they do in two commits.
const saveGrace = 250 * time.Millisecond

// await waits until the job is over.
func (d *Dispatcher) await(ctx context.Context, id int64) (s Status, err error) {
	if err := d.engine.RefuseInTx(ctx, "Status"); err != nil {
		return s, err
	}
	for {
		keys, err := d.endKeys(ctx, id)
		if err != nil {
			return s, err
		}
		var claimed, graced bool
		err = d.engine.Notifier.Until(ctx, func() (time.Duration, error) {
			if s, err = d.status(ctx, id); err != nil {
				return 0, err
			}
			claimed = len(keys) > 1 && !s.twins
			switch {
			case s.State == Finished && s.Output == nil && s.unreadable == nil && !graced:
				graced = true
				return saveGrace, nil
			case s.over() || claimed: // then one key is left to wait for
				return wake.Done, nil
			}
			return wake.Forever, nil
		}, keys...)
		if err != nil || s.over() {
			return s, err
		}
	}
}

// endKeys are those of the live jobs that may stand for id.
func (d *Dispatcher) endKeys(ctx context.Context, id int64) (keys []wake.Key, err error) {
	s, err := d.status(ctx, id)
	if err != nil {
		return nil, err
	}
	ids := []int64{s.run}
	if s.twins {
		err = d.read(ctx, func(ctx context.Context, q engine.Querier) error {
			all, err := d.store.Copies(ctx, q, id)
			for _, c := range all {
				if c.ID != s.run {
					ids = append(ids, c.ID)
				}
			}
			return err
		})
	}
	for _, id := range ids {
		keys = append(keys, wake.Key{Kind: wake.JobDone, Name: strconv.FormatInt(id, 10)})
	}
	return keys, err
}
