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

// resultStore are the statements about results.
type resultStore interface {
	Save(ctx context.Context, q engine.Querier, id int64, value string, now, expires int64) error
	Get(ctx context.Context, q engine.Querier, id, now int64) (value string, found bool, err error)
	Fate(ctx context.Context, q engine.Querier, id, now int64) (row.Fate, error)
	Decided(ctx context.Context, q engine.Querier, ids []int64) ([]int64, error)
}

// SaveResult keeps v, as JSON, as the result of job id for ttl, up to a second
// longer; 0: for ever. A later save replaces it. The job need not be at hand: a result can be
// saved before or after the ack. Inside a handler, SetResult saves with the ack.
// [ErrNotInserted]: a trigger of the application has dropped it.
func (q *Queue[T]) SaveResult(ctx context.Context, id int64, v any, ttl time.Duration) error {
	text, err := q.encodeResult(v, ttl)
	if err != nil {
		return failID("save result of job", id, err)
	}
	err = q.db.engine.Write(ctx, "SaveResultTx", engine.SingleOp(func(ctx context.Context, tx engine.Querier, now time.Time) error {
		return q.db.results.Save(ctx, tx, id, text, now.Unix(), engine.Expiry(now, ttl))
	}))
	if err != nil {
		return failID("save result of job", id, err)
	}
	q.db.engine.Notifier.Wake(decided(id))
	return nil
}

// SaveResultTx is like [Queue.SaveResult], within tx.
func (q *Queue[T]) SaveResultTx(ctx context.Context, tx Tx, id int64, v any, ttl time.Duration) error {
	text, err := q.encodeResult(v, ttl)
	if err != nil {
		return failID("save result of job", id, err)
	}
	on, err := q.db.join(ctx, tx, decided(id))
	if err != nil {
		return failID("save result of job", id, err)
	}
	now := time.Now()
	return failID("save result of job", id, q.db.results.Save(ctx, on, id, text, now.Unix(), engine.Expiry(now, ttl)))
}

// decided is what the commit of a result, or of the end of a job, brings.
func decided(id int64) wake.Change {
	return wake.Change{Kind: wake.JobDone, Name: strconv.FormatInt(id, 10)}
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

// Result reads the result of job id into an R. [ErrNotFound]: there is none, or it has
// expired.
func Result[R any](ctx context.Context, db *DB, id int64) (r R, err error) {
	err = db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		text, found, err := db.results.Get(ctx, q, id, time.Now().Unix())
		if err != nil {
			return err
		}
		if !found {
			return ErrNotFound
		}
		return decodeResult(text, &r)
	})
	return r, failID("result of job", id, err)
}

func decodeResult(text string, r any) error {
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return fmt.Errorf("result does not decode: %w", err)
	}
	return nil
}

// WaitResult waits until job id has a result, and reads it into an R; one saved before
// the call is found at once. It ends with a [*JobFailedError] when the job has died,
// with [ErrNotFound] when the job is gone and has left no result, or no committed job has had
// this id, and with ctx. The id of an EnqueueTx is to be waited for after its commit.
func WaitResult[R any](ctx context.Context, db *DB, id int64) (R, error) {
	var r R
	text, err := db.waitResult(ctx, id)
	if err != nil {
		return r, failID("wait for the result of job", id, err)
	}
	return r, failID("wait for the result of job", id, decodeResult(text, &r))
}

// Other bindings may ack before they save the result, and move a job to the dead letters in
// two commits: a job that seems to have left nothing is looked at again after resultGrace.
const resultGrace = 250 * time.Millisecond

func (db *DB) waitResult(ctx context.Context, id int64) (result string, err error) {
	if err := db.engine.RefuseInTx(ctx, "Result"); err != nil {
		return "", err
	}
	gone := false
	err = db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		fate, err := db.fate(ctx, id)
		switch {
		case err != nil:
			return 0, err
		case fate.Result.Valid:
			result = fate.Result.String
			return wake.Done, nil
		case fate.Dead:
			return 0, &JobFailedError{ID: id, Attempts: int(fate.Attempts), LastError: fate.LastError}
		case fate.Live:
			return wake.Forever, nil
		case id <= 0 || gone && !fate.Known:
			return 0, fmt.Errorf("%w: no job has had this id", ErrNotFound)
		case gone:
			return 0, fmt.Errorf("%w: the job is gone and has left no result", ErrNotFound)
		}
		gone = true
		return resultGrace, nil
	}, wake.Key{Kind: wake.JobDone, Name: strconv.FormatInt(id, 10)})
	return result, err
}

// fate reads what has become of job id.
func (db *DB) fate(ctx context.Context, id int64) (fate row.Fate, err error) {
	err = db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		fate, err = db.results.Fate(ctx, q, id, time.Now().Unix())
		return err
	})
	return fate, err
}
