package sqlfunc

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

func sendMessage(c call) (driver.Value, error) {
	return result(notify.Notifications{}.Insert(c.ctx, c.q, c.text(0), c.text(1), c.time))
}

// result converts an ID or a number to an SQL value. It returns NULL for a row that was dropped by one of the
// application's triggers, so that the statement continues. In this case honker itself returns the ID of another row.
func result(n int64, err error) (driver.Value, error) {
	if errors.Is(err, row.ErrNotInserted) {
		return nil, nil
	}
	return n, err
}

// enqueue prefers delay to run_at if both are given.
func enqueue(c call) (driver.Value, error) {
	job := jobs.NewJob{
		Queue:       c.text(0),
		Priority:    c.integer(4),
		RunAt:       c.now(),
		MaxAttempts: c.integer(5),
		CreatedAt:   c.now(),
	}
	switch {
	case c.given(3):
		job.RunAt = c.in(c.integer(3))
	case c.given(2):
		job.RunAt = c.integer(2)
	}
	if c.given(6) {
		job.ExpiresAt = rows.ExpiryIn(c.now(), c.integer(6))
	}
	return result(jobs.Jobs{}.InsertOne(c.ctx, c.q, job, c.text(1)))
}

func claimBatch(c call) (driver.Value, error) {
	n := int(max(-1, min(c.integer(2), math.MaxInt32))) // -1 for no limit
	expires := c.in(c.integer(3))
	jobs, err := c.claim(c.text(0), c.text(1), n, expires)
	if err != nil {
		return nil, err
	}
	return array(jobs, func(j *row.Job) []member { return claimed(j, expires) }), nil
}

// claimed describes a job that is claimed until the Unix time expires.
func claimed(j *row.Job, expires int64) []member {
	return []member{
		{"attempts", j.Attempts},
		{"claim_expires_at", expires},
		{"id", j.ID},
		{"payload", j.Payload},
		{"queue", j.Queue},
		{"worker_id", j.WorkerID},
	}
}

// errBlob is the error recorded for a job whose payload is a BLOB, which JSON cannot represent and
// no binding expects.
const errBlob = "payload is a BLOB, not text"

// claim claims up to n jobs with text payloads. Jobs with other payloads are dead-lettered and replaced by other
// jobs, so that they don't block the queue.
func (c call) claim(queue, worker string, n int, expires int64) (out []*row.Job, err error) {
	for {
		claimed, _, err := jobs.Jobs{}.ClaimAt(c.ctx, c.q, queue, worker, n, c.time.UnixMilli(), expires)
		if err != nil {
			return nil, err
		}
		dead := 0
		for _, j := range claimed {
			if _, ok := j.Payload.(string); ok {
				out = append(out, j)
				continue
			}
			dead++
			held := row.Claim{ID: j.ID, Worker: worker, Attempt: j.Attempts}
			if _, err := (jobs.Jobs{}).DeadLetter(c.ctx, c.q, held, errBlob, c.now()); err != nil {
				return nil, err
			}
		}
		if n = min(n, dead); dead == 0 {
			return out, nil
		}
	}
}

func ack(c call) (driver.Value, error) {
	held, found, err := c.held()
	if err != nil || !found {
		return done(false, err)
	}
	return done(jobs.Jobs{}.Ack(c.ctx, c.q, held, c.now()))
}

// held returns the claim on the job in argument 0 by the worker in argument 1. honker's functions aren't passed the
// attempt, so it is looked up in the statement's transaction.
func (c call) held() (row.Claim, bool, error) {
	return jobs.Jobs{}.Held(c.ctx, c.q, c.integer(0), c.text(1))
}

func ackBatch(c call) (driver.Value, error) {
	n, err := jobs.Jobs{}.AckAll(c.ctx, c.q, c.text(0), c.text(1), c.now())
	if err != nil && !json.Valid([]byte(c.text(0))) { // SQLite accepts more than strict JSON
		err = invalid{err}
	}
	return count(n, err)
}

func retry(c call) (driver.Value, error) {
	held, found, err := c.held()
	if err != nil || !found {
		return done(false, err)
	}
	ok, _, err := jobs.Jobs{}.Retry(c.ctx, c.q, held, c.in(c.integer(2)), c.text(3), c.now())
	return done(ok, err)
}

func fail(c call) (driver.Value, error) {
	held, found, err := c.held()
	if err != nil || !found {
		return done(false, err)
	}
	return done(jobs.Jobs{}.DeadLetter(c.ctx, c.q, held, c.text(2), c.now()))
}

func heartbeat(c call) (driver.Value, error) {
	held, found, err := c.held()
	if err != nil || !found {
		return done(false, err)
	}
	return done(jobs.Jobs{}.ExtendUntil(c.ctx, c.q, held, c.in(c.integer(2)), c.now()))
}

func cancel(c call) (driver.Value, error) {
	return done(jobs.Jobs{}.Drop(c.ctx, c.q, c.integer(0), c.now()))
}

func getJob(c call) (driver.Value, error) {
	j, found, err := jobs.Jobs{}.Live(c.ctx, c.q, c.integer(0))
	if err != nil || !found {
		return "", err
	}
	if _, ok := j.Payload.(string); !ok {
		return nil, fmt.Errorf("job %d: %s", j.ID, errBlob)
	}
	return string(appendObject(nil, described(j))), nil
}

func described(j jobs.Stored) []member {
	worker := any(j.WorkerID)
	if j.WorkerID == "" && j.State != "processing" {
		worker = nil
	}
	return []member{
		{"attempts", j.Attempts},
		{"claim_expires_at", orNull(j.Times.ClaimExpiresAt)},
		{"created_at", j.Times.CreatedAt},
		{"expires_at", orNull(j.Times.ExpiresAt)},
		{"id", j.ID},
		{"max_attempts", j.MaxAttempts},
		{"payload", j.Payload},
		{"priority", j.Priority},
		{"queue", j.Queue},
		{"run_at", j.Times.RunAt},
		{"state", j.State},
		{"worker_id", worker},
	}
}

// orNull returns unix, or nil if it is 0, which in the store stands for a missing time.
func orNull(unix int64) any {
	if unix == 0 {
		return nil
	}
	return unix
}

func sweepExpired(c call) (driver.Value, error) {
	swept, err := jobs.Jobs{}.SweepExpired(c.ctx, c.q, c.text(0), c.now())
	return count(len(swept), err)
}

func queueNextClaimAt(c call) (driver.Value, error) {
	return result(jobs.Jobs{}.NextClaimAt(c.ctx, c.q, c.text(0), c.time.UnixMilli()))
}
