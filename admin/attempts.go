package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// Attempt is an attempt of a job that has failed.
type Attempt struct {
	N      int // 1 for the first: JobInfo.Attempts at that time
	Worker string
	Start  time.Time     // of the handler, or of the claim where Work did not call one; to the millisecond
	Ran    time.Duration // until the handler has returned or the job was settled
	Error  string
	Log    string // what the handler has written to its Logger, the last 64 KiB; "" also where the log is kept no longer
}

// attemptStore are the statements about attempts.
type attemptStore interface {
	Attempts(ctx context.Context, q engine.Querier, id int64) ([]row.Attempt, error)
	Find(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	FindDead(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
}

var attempted attemptStore = store.Jobs{}

// Attempts returns the last 20 attempts of a job that have failed, the oldest first: those that a worker of this library
// has ended with an error, and a job that was rejected. An attempt between them that is missing was lost with its
// process or its claim, or was of a worker in another language. Of all logs of a job the last 256 KiB are kept.
//
// They go with the job when it is done or is cancelled, and stay with a dead one, also through a requeue, until it
// is discarded; one that a worker in another language dead-letters may have lost them. [honker.ErrNotFound]: no live or dead job
// has the id. It never waits for the writer. nil as the DB is [honker.ErrInvalid].
func Attempts(ctx context.Context, db *honker.DB, id int64) ([]Attempt, error) {
	var all []Attempt
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		rows, err := attempted.Attempts(ctx, q, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return exists(ctx, q, id)
		}
		all = make([]Attempt, len(rows))
		for i, a := range rows {
			all[i] = Attempt{
				N: int(a.N), Worker: a.Worker, Start: engine.InstantMS(a.StartMS),
				Ran: time.Duration(a.RanMS) * time.Millisecond, Error: a.Error, Log: a.Log,
			}
		}
		return nil
	})
	return all, engine.WrapID("attempts of job", id, err)
}

// exists is an error, unless a live or dead job has the id.
func exists(ctx context.Context, q engine.Querier, id int64) error {
	_, live, err := attempted.Find(ctx, q, id)
	if err != nil || live {
		return err
	}
	_, dead, err := attempted.FindDead(ctx, q, id)
	if err == nil && !dead {
		err = honker.ErrNotFound
	}
	return err
}
