package honker

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// SaveResult stores v as JSON as the result of the job with the given ID. The result is kept for ttl, or up to a
// second longer; a ttl of 0 means forever. A later call replaces the result. The job need not exist: the result can
// be saved before or after the ack. In a handler, use SetResult to save the result with the ack. SaveResult returns
// [ErrNotInserted] if an application's trigger drops the row.
func (q *Queue[T]) SaveResult(ctx context.Context, id int64, v any, ttl time.Duration) error {
	text, err := q.encodeResult(v, ttl)
	if err != nil {
		return failID("save result of job", id, err)
	}
	err = q.db.engine.Write(ctx, "SaveResultTx", engine.SingleOp(func(ctx context.Context, tx engine.Querier, now time.Time) error {
		return q.db.engine.Stores.Results.Save(ctx, tx, id, text, ttl, now)
	}))
	if err != nil {
		return failID("save result of job", id, err)
	}
	q.db.engine.Notifier.Wake(wake.Job(id))
	return nil
}

// SaveResultTx is like [Queue.SaveResult] but runs within tx.
func (q *Queue[T]) SaveResultTx(ctx context.Context, tx Tx, id int64, v any, ttl time.Duration) error {
	text, err := q.encodeResult(v, ttl)
	if err != nil {
		return failID("save result of job", id, err)
	}
	on, err := q.db.join(ctx, tx, wake.Job(id))
	if err != nil {
		return failID("save result of job", id, err)
	}
	return failID("save result of job", id, q.db.engine.Stores.Results.Save(ctx, on, id, text, ttl, q.db.engine.Now()))
}

func (q *queue) encodeResult(v any, ttl time.Duration) (string, error) {
	if q.err != nil {
		return "", q.err
	}
	if err := engine.NotNegative("ttl", ttl); err != nil {
		return "", err
	}
	return q.db.encode(v)
}

// Result returns the result of the job with the given ID, decoded into an R. It returns [ErrNotFound] if there is no
// result or if it has expired.
func Result[R any](ctx context.Context, db *DB, id int64) (r R, err error) {
	fate, err := db.fate(ctx, id)
	switch {
	case err != nil:
	case !fate.HasResult:
		err = ErrNotFound
	default:
		err = decodeResult(fate.Result, &r)
	}
	return r, failID("read result of job", id, err)
}

func decodeResult(text string, r any) error {
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return fmt.Errorf("cannot decode result: %w", err)
	}
	return nil
}

// WaitResult blocks until the job with the given ID has a result and returns it, decoded into an R. If the result was
// saved before the call, WaitResult returns immediately. It returns a [*JobFailedError] if the job is dead, and
// [ErrNotFound] if the job is gone without a result or if no committed job has ever had this ID. It also returns when
// ctx ends. If the job was enqueued with EnqueueTx, call WaitResult only after the transaction has committed.
func WaitResult[R any](ctx context.Context, db *DB, id int64) (R, error) {
	var r R
	text, err := db.waitResult(ctx, id)
	if err != nil {
		return r, failID("wait for the result of job", id, err)
	}
	return r, failID("wait for the result of job", id, decodeResult(text, &r))
}

// resultGrace is the delay before WaitResult checks again for a job that seems to be gone without a result. Other
// bindings may ack a job before they save its result, and may need two commits to dead-letter it.
const resultGrace = 250 * time.Millisecond

var errNeverExisted = fmt.Errorf("%w: no job with this id has ever existed", ErrNotFound)

func (db *DB) waitResult(ctx context.Context, id int64) (result string, err error) {
	if err := db.engine.RefuseInTx(ctx, "Result"); err != nil {
		return "", err
	}
	var grace wake.Grace
	err = db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		fate, err := db.fate(ctx, id)
		switch {
		case err != nil:
			return 0, err
		case fate.HasResult:
			result = fate.Result
			return wake.Done, nil
		case fate.Dead:
			return 0, &JobFailedError{ID: id, Attempts: int(fate.Attempts), LastError: fate.LastError}
		case fate.Live:
			return wake.Forever, nil
		case id <= 0:
			return 0, errNeverExisted
		}
		if left := grace.Left(resultGrace); left != wake.Done {
			return left, nil
		}
		if !fate.Known {
			return 0, errNeverExisted
		}
		return 0, fmt.Errorf("%w: the job no longer exists and has left no result", ErrNotFound)
	}, wake.Key{Kind: wake.JobDone, Name: strconv.FormatInt(id, 10)})
	return result, err
}

// fate returns the state of the job with the given ID.
func (db *DB) fate(ctx context.Context, id int64) (fate row.Fate, err error) {
	err = db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		fate, err = db.engine.Stores.Results.Fate(ctx, q, id, db.engine.Now())
		return err
	})
	return fate, err
}
