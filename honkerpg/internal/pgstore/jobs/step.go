package jobs

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const sqlStep = `SELECT what, id, queue, payload, priority, run_at, attempts, max_attempts, created_at, expires_at, last_error,
  unique_key, key, headers, batch, checkpoint
FROM honker.step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)`

// Step implements engine.JobStore. It takes a single call of a function, and a second one if the claim has reached the
// bound for payloads of unknown sizes. A step never needs a transaction of its own: an ack leaves tokens for the jobs
// that wait for the acked job, and the resolver releases them.
func (s Jobs) Step(ctx context.Context, q row.Querier, step row.Step, now time.Time) (row.Claimed, error) {
	settle := newSettling(step.Settle, now)
	var c row.Claimed
	if step.Claim != nil {
		c.Lanes = step.Claim.Lanes
	}
	if len(step.Settle) == 0 && firstClaim(step.Claim) == 0 {
		return c, nil
	}
	got, err := s.step(ctx, q, settle, step.Claim, c.Lanes, firstClaim(step.Claim), now)
	if err != nil {
		return row.Claimed{}, err
	}
	if got.bits&bitLinked != 0 {
		if err := s.LeaveTokens(ctx, q); err != nil {
			return row.Claimed{}, err
		}
	}
	if len(step.Settle) > 0 || len(got.dead) > 0 {
		pgsql.Leave(q, pgsql.Ended)
	}
	for n := firstClaim(step.Claim); n > 0; n = nextClaim(step.Claim, &c) {
		if c.Jobs != nil {
			if got, err = s.step(ctx, q, newSettling(nil, now), step.Claim, c.Lanes, n, now); err != nil {
				return row.Claimed{}, err
			}
		}
		c.Dead = append(c.Dead, got.dead...)
		c.Lanes = row.Advance(c.Lanes, got.jobs)
		c.Jobs = append(c.Jobs, got.jobs...)
		_, largest := row.PayloadBytes(got.jobs)
		c.Largest = max(c.Largest, largest)
		c.Limited = c.Limited || got.bits&bitLimits != 0
		if c.More = len(got.jobs) == n || got.bits&bitMore != 0; len(got.jobs) < n {
			break
		}
	}
	if len(c.Dead) > 0 {
		pgsql.Leave(q, pgsql.Resolve)
	}
	if len(c.Jobs) == 0 {
		c.Paused = got.bits&bitPaused != 0
		if got.bits&bitStuck != 0 {
			return row.Claimed{}, row.ErrStuck
		}
	}
	return c, nil
}

// The kinds of rows of honker.step, and the bits of the last kind.
const (
	rowClaimed = 0
	rowSettled = 1
	rowBits    = 2
	rowDied    = 3

	bitLinked = 1
	bitPaused = 2
	bitStuck  = 4
	bitMore   = 8
	bitLimits = 32
)

// stepped is the outcome of a call of honker.step.
type stepped struct {
	jobs []*row.Job
	dead []row.Death
	bits int64
}

// step calls honker.step and sets the outcomes of the settlements. The server sends the rows before it commits a call
// that is alone, so nobody may see the jobs before the last row was read.
func (s Jobs) step(ctx context.Context, q row.Querier, all *settling, r *row.ClaimRequest, lanes []row.Lane, n int, now time.Time) (out stepped, err error) {
	worker, until := all.worker, now
	queues, starts, steps := make([]string, len(lanes)), make([]int64, len(lanes)), make([]int64, len(lanes))
	for i, l := range lanes {
		queues[i], starts[i], steps[i] = l.Queue, l.Start, l.Step
	}
	if r != nil {
		worker, until = r.Worker, pgsql.StampUp(now.Add(r.Lease))
	}
	if len(all.acked)+len(all.others) > 0 {
		worker = all.worker
	}
	args := append(all.args(worker, now), queues, starts, steps, until, int64(n))
	shown := pgsql.Shown(until)
	err = pgsql.Each(ctx, q, s.SQL(sqlStep), func(r *sql.Rows) error {
		var f fields
		if err := f.scan(r); err != nil {
			return err
		}
		switch f.what {
		case rowClaimed:
			j := f.job()
			j.State, j.WorkerID, j.ClaimExpiresAt = "processing", worker, shown
			out.jobs = append(out.jobs, j)
		case rowSettled:
			all.became(f.id.Int64, f.attempts.Int64, f.priority.Int64 != 0)
		case rowDied:
			out.dead = append(out.dead, row.Death{Queue: f.queue.String, ID: f.id.Int64, Attempts: f.attempts.Int64,
				Worker: f.payload.String, Reason: f.cause.String})
		case rowBits:
			out.bits |= f.id.Int64
		}
		return nil
	}, args...)
	sortLanes(out.jobs, lanes)
	return out, err
}

// fields are the columns of a row of honker.step.
type fields struct {
	what                                                int
	id, priority, attempts, max, batch                  sql.NullInt64
	queue, payload, cause, unique, key, headers, toGoOn sql.NullString
	runAt, created, expires                             sql.NullTime
}

func (f *fields) scan(r *sql.Rows) error {
	return r.Scan(&f.what, &f.id, &f.queue, &f.payload, &f.priority, &f.runAt, &f.attempts, &f.max, &f.created, &f.expires, &f.cause,
		&f.unique, &f.key, &f.headers, &f.batch, &f.toGoOn)
}

func (f *fields) job() *row.Job {
	return &row.Job{
		Fine: true, ID: f.id.Int64, Queue: f.queue.String, Payload: f.payload.String, Priority: f.priority.Int64, RunAt: pgsql.Instant(f.runAt),
		Attempts: f.attempts.Int64, MaxAttempts: f.max.Int64, CreatedAt: pgsql.Instant(f.created), ExpiresAt: pgsql.Instant(f.expires),
		LastError: f.cause.String, Unique: f.unique.String, Key: f.key.String, Headers: f.headers.String, Batch: f.batch.Int64,
		Checkpoint: f.toGoOn.String,
	}
}

// settling is a step's settlements as parameters: plain acks of the most common attempt, and the others.
type settling struct {
	worker        string
	nth           int64
	acked, others []*row.Settlement
	runs          []time.Time // of others
}

// newSettling divides the settlements. It sets each outcome to the requested one, which is the usual case. Rows are
// locked in the order of ids in all transactions.
func newSettling(all []*row.Settlement, now time.Time) *settling {
	s := &settling{}
	if len(all) == 0 {
		return s
	}
	s.worker, s.nth = all[0].Worker, all[0].Attempt
	for _, t := range all {
		t.Became, t.Gone = t.Outcome, false
		if t.Outcome == row.Acked && t.Result == nil && t.Progress == nil && t.Attempt == s.nth {
			s.acked = append(s.acked, t)
		} else {
			s.others = append(s.others, t)
		}
	}
	slices.SortStableFunc(s.others, func(a, b *row.Settlement) int { return int(min(1, max(-1, a.ID-b.ID))) })
	for _, t := range s.others {
		at := pgsql.Stamp(now) // not rounded up: the job is due now
		if t.Delay > 0 {
			at = pgsql.StampUp(now.Add(t.Delay))
		}
		if t.Outcome == row.Retried {
			t.RunAt = pgsql.Shown(at)
		}
		s.runs = append(s.runs, at)
	}
	return s
}

// became records an outcome other than the requested one. place counts from 1, acks first.
func (s *settling) became(place, outcome int64, gone bool) {
	place--
	var t *row.Settlement
	if place < int64(len(s.acked)) {
		t = s.acked[place]
	} else {
		t = s.others[place-int64(len(s.acked))]
	}
	t.Became, t.Gone = row.Lost, gone
	if outcome == codes[row.Died] {
		t.Became = row.Died
	}
}

// codes are the outcomes as honker.settle numbers them.
var codes = map[row.Outcome]int64{row.Acked: 1, row.Retried: 2, row.Died: 3, row.Snoozed: 4, row.Released: 5, row.Cancelled: 6}
