package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Attempt describes a failed attempt of a job.
type Attempt struct {
	N      int // 1 for the first; JobInfo.Attempts at that time
	Worker string
	Start  time.Time     // start of the handler, or of the claim if Work did not call a handler; to the millisecond
	Ran    time.Duration // until the handler returned or the job was settled
	Error  string
	Log    string // the last 64 KiB that the handler wrote to its Logger; "" also if the log has been dropped
}

// Attempts returns the last 20 failed attempts of a job, oldest first. It includes attempts that a worker
// of this library ended with an error, and rejections. An attempt is missing if its process was killed, if
// its claim was lost, or if a worker in another language made it. At most the last 256 KiB of logs are kept
// for a job.
//
// The attempts of a job are deleted when the job is done or cancelled. A dead job keeps them, also through
// a requeue, until it is discarded. A job that a worker in another language dead-letters may lose its
// attempts.
//
// Attempts never waits for the writer. It returns [honker.ErrNotFound] if no live or dead job has the id,
// and [honker.ErrInvalid] if db is nil.
func Attempts(ctx context.Context, db *honker.DB, id int64) ([]Attempt, error) {
	var all []Attempt
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Operators.Attempts(ctx, q, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return exists(ctx, q, s.Jobs, id)
		}
		all = make([]Attempt, len(rows))
		for i, a := range rows {
			all[i] = Attempt{
				N: int(a.N), Worker: a.Worker, Start: a.Start,
				Ran: a.Ran, Error: a.Error, Log: a.Log,
			}
		}
		return nil
	})
	return all, engine.WrapID("list attempts of job", id, err)
}

// exists returns ErrNotFound unless a live or dead job has the id.
func exists(ctx context.Context, q engine.Querier, jobs engine.JobStore, id int64) error {
	job, found, err := jobs.Find(ctx, q, id, "")
	if err == nil && (!found || job.State == "done") {
		err = honker.ErrNotFound
	}
	return err
}
