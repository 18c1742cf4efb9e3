package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Attempt describes a failed attempt to run a job.
type Attempt struct {
	N      int // 1 for the first attempt; JobInfo.Attempts at that time
	Worker string
	Start  time.Time     // when the handler started, or when the job was claimed if no handler ran; to the millisecond
	Ran    time.Duration // time until the handler returned or the job was settled
	Error  string
	Log    string // last 64 KiB the handler wrote to its Logger; "" if it logged nothing or the log was dropped
}

// Attempts returns a job's last 20 failed attempts, oldest first. An attempt is recorded when a worker
// using this library fails or rejects the job. It is not recorded if the process was killed, if the claim
// was lost, or if the worker was written in another language. At most 256 KiB of logs are kept per job.
//
// A job's attempts are deleted when the job is done or cancelled. A dead job keeps its attempts, even
// across a requeue, until it is discarded. The attempts may be lost if a worker in another language
// dead-letters the job.
//
// Attempts never waits for the writer. It returns [honker.ErrNotFound] if no live or dead job has the
// given ID, and [honker.ErrInvalid] if db is nil.
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

// exists returns ErrNotFound unless a live or dead job has the given ID.
func exists(ctx context.Context, q engine.Querier, jobs engine.JobStore, id int64) error {
	job, found, err := jobs.Find(ctx, q, id, "")
	if err == nil && (!found || job.State == "done") {
		err = honker.ErrNotFound
	}
	return err
}
