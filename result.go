package honker

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// SaveResult keeps v, as JSON, as the result of job id for ttl, rounded up to seconds;
// 0: for ever. A later save replaces it. The job need not be at hand: a result can be
// saved before or after the ack. Inside a handler, SetResult saves with the ack.
func (q *Queue[T]) SaveResult(ctx context.Context, id int64, v any, ttl time.Duration) error {
	text, err := q.q.resultText(v, ttl)
	if err == nil {
		err = q.q.db.do(ctx, "SaveResultTx", writeOne(func(ctx context.Context, tx store.Querier, now time.Time) error {
			return store.Results{}.Save(ctx, tx, id, text, now.Unix(), expiry(now.Unix(), ttl))
		}))
	}
	return failID("save result of job", id, err)
}

// SaveResultTx is like [Queue.SaveResult], within tx.
func (q *Queue[T]) SaveResultTx(ctx context.Context, tx Tx, id int64, v any, ttl time.Duration) error {
	text, err := q.q.resultText(v, ttl)
	if err == nil {
		tx, err = q.q.db.in(ctx, tx)
	}
	if err == nil {
		now := time.Now().Unix()
		err = store.Results{}.Save(ctx, tx, id, text, now, expiry(now, ttl))
	}
	return failID("save result of job", id, err)
}

func (q *queue) resultText(v any, ttl time.Duration) (string, error) {
	if q.err != nil {
		return "", q.err
	}
	if err := notNegative("ttl", ttl); err != nil {
		return "", err
	}
	return encode(v, q.db.opts.MaxPayload)
}

// Result reads the result of job id into an R. [ErrNotFound]: there is none, or it has
// expired.
func Result[R any](ctx context.Context, db *DB, id int64) (R, error) {
	var r R
	text, err := db.result(ctx, id)
	if err == nil {
		err = decodeResult(text, &r)
	}
	return r, failID("result of job", id, err)
}

func (db *DB) result(ctx context.Context, id int64) (string, error) {
	if db.isClosed() {
		return "", ErrClosed
	}
	text, found, err := store.Results{}.Get(ctx, db.own, id, time.Now().Unix())
	if err == nil && !found {
		err = ErrNotFound
	}
	return text, db.because(err)
}

func decodeResult(text string, r any) error {
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return fmt.Errorf("result does not decode: %w", err)
	}
	return nil
}

// WaitResult waits until job id has a result, and reads it into an R; one saved before
// the call is found at once. It ends with a [*JobFailedError] when the job has died,
// with [ErrNotFound] when the job is gone and has left no result, and with ctx. For an
// id that was never given to a job it waits.
func WaitResult[R any](ctx context.Context, db *DB, id int64) (R, error) {
	var r R
	text, err := db.waitResult(ctx, id)
	if err == nil {
		err = decodeResult(text, &r)
	}
	return r, failID("wait for the result of job", id, err)
}

func (db *DB) waitResult(ctx context.Context, id int64) (string, error) {
	if err := inTx(ctx, db, "Result"); err != nil {
		return "", err
	}
	s := db.hub.subscribe(topic{jobResult, strconv.FormatInt(id, 10)})
	defer s.leave()
	for gone := false; ; {
		if err := db.hub.state(); err != nil {
			return "", err
		}
		fate, err := store.Results{}.Fate(ctx, db.own, id, time.Now().Unix())
		switch {
		case err != nil:
			return "", db.because(err)
		case fate.Result.Valid:
			return fate.Result.String, nil
		case fate.Dead:
			return "", &JobFailedError{ID: id, Attempts: int(fate.Attempts), LastError: fate.LastError}
		case !fate.Known || fate.Live || id <= 0:
			err = s.wait(ctx)
		case gone:
			return "", fmt.Errorf("%w: the job is gone and has left no result", ErrNotFound)
		default:
			gone, err = true, s.waitFor(ctx, resultGrace)
		}
		if err != nil {
			return "", err
		}
	}
}

// Other bindings may ack before they save the result, and move a job to the dead in two
// commits: look again before saying that it has left nothing.
const resultGrace = 250 * time.Millisecond
