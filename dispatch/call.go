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

// Call sends payload to t, waits for the result and decodes it into an R. It is Send followed by
// [Await].
func Call[R any](ctx context.Context, d *Dispatcher, t Target, payload any, opts ...SendOption) (R, error) {
	id, err := d.Send(ctx, t, payload, opts...)
	if err != nil {
		var none R
		return none, err
	}
	return Await[R](ctx, d, id)
}

// Await waits for the job with the given ID, as returned by Send, to end and decodes its result
// into an R. It returns immediately if the job has already ended.
//
// The result is the value saved by the worker. Actors in this package save a result. Workers in
// other languages may instead enqueue a reply in [Keys.Reply] or [Keys.LegacyReply], no later than
// a quarter of a second after the ack. Await then uses the last payload in that queue. It does not
// claim the reply, so later calls return the same result.
//
// Await returns a [*honker.JobFailedError] if the job has failed, [honker.ErrCancelled] if it was
// stopped, [ErrNoResult] if it has finished without a result, and [honker.ErrNotFound] if the ID is
// unknown. If ctx ends, Await returns ctx's error and the job keeps running. If the handler returns
// nil, the result is JSON null, which decodes to the zero R.
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
		return r, failID("await job", id, fmt.Errorf("cannot decode result: %w", err))
	}
	return r, nil
}

// outcome returns nil if the job has finished with a result, and otherwise the error that Await
// returns.
func (s *Status) outcome() error {
	switch s.State {
	case Failed:
		return &honker.JobFailedError{ID: s.ID, Attempts: s.Attempt, LastError: s.Error}
	case Stopping, Stopped:
		return fmt.Errorf("stopped: %w", honker.ErrCancelled)
	}
	switch {
	case s.unreadable != nil:
		return fmt.Errorf("cannot decode reply: codec: %w", s.unreadable)
	case s.Output == nil:
		return ErrNoResult
	}
	return nil
}

// saveGrace is how long Await waits after a job has ended for another binding to save the result or
// to move the job to the dead letters. Other bindings do this in a second transaction.
const saveGrace = 250 * time.Millisecond

// await waits until the job has ended and returns its status.
func (d *Dispatcher) await(ctx context.Context, id int64) (s Status, err error) {
	if err := d.engine.RefuseInTx(ctx, "Status"); err != nil {
		return s, err
	}
	for {
		keys, err := d.endKeys(ctx, id)
		if err != nil {
			return s, err
		}
		var claimed bool
		var grace wake.Grace
		err = d.engine.Notifier.Until(ctx, func() (time.Duration, error) {
			if s, err = d.status(ctx, id); err != nil {
				return 0, err
			}
			claimed = len(keys) > 1 && !s.twins
			if s.State == Finished && s.Output == nil && s.unreadable == nil {
				return grace.Left(saveGrace), nil
			}
			if s.over() || claimed { // the copies are gone: wait again for the remaining job only
				return wake.Done, nil
			}
			return wake.Forever, nil
		}, keys...)
		if err != nil || s.over() {
			return s, err
		}
	}
}

// endKeys returns the wake keys that signal the end of job id or of its copies in legacy queues.
func (d *Dispatcher) endKeys(ctx context.Context, id int64) (keys []wake.Key, err error) {
	s, err := d.status(ctx, id)
	if err != nil {
		return nil, err
	}
	ids := []int64{s.run}
	if s.twins {
		err = d.read(ctx, func(ctx context.Context, q engine.Querier) error {
			all, err := d.store.Copies(ctx, q, id, d.engine.Now())
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
