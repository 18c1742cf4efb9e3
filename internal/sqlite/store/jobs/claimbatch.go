package jobs

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Bounds of a claim. A claim holds the writer and rewrites every claimed row, including its payload. A
// statement costs as much as five small jobs, so small jobs are claimed by a single statement.
const (
	claimBytes = 1 << 20 // payload bytes; the first statement may exceed them if payloads have grown
	claimFirst = 32      // jobs in the first statement, whatever their size
	claimGrows = 7       // growth of each further statement, as a multiple of the jobs claimed so far
)

// claim makes the claim r in as few statements as its bounds allow.
func (j Jobs) claim(ctx context.Context, q row.Querier, r *row.ClaimRequest, now time.Time) (c row.Claimed, err error) {
	c.Lanes = r.Lanes
	sum := 0
	for n := firstClaim(r); n > 0; n = nextClaim(r, &c, sum) {
		jobs, dead, err := j.claimSome(ctx, q, r, &c, n, now)
		if err != nil {
			return row.Claimed{}, err
		}
		if c.Jobs == nil {
			c.Jobs = jobs // usually the only jobs, so avoid a copy
		} else {
			c.Jobs = append(c.Jobs, jobs...)
		}
		c.Dead = append(c.Dead, dead...)
		bytes, largest := row.PayloadBytes(jobs)
		sum, c.Largest = sum+bytes, max(c.Largest, largest)
		if c.More = len(jobs) == n; !c.More {
			break
		}
	}
	if len(c.Jobs) == 0 {
		c.Paused, err = j.anyPaused(ctx, q, r, now.Unix())
	}
	return c, err
}

// claimSome runs a single claim of up to n jobs and advances c's lanes.
func (j Jobs) claimSome(ctx context.Context, q row.Querier, r *row.ClaimRequest, c *row.Claimed, n int, now time.Time) (jobs []*row.Job, dead []row.Death, err error) {
	nowMS, expires := now.UnixMilli(), now.Unix()+engine.Seconds(r.Lease)
	if len(r.Lanes) > 1 {
		jobs, dead, err = j.ClaimLanes(ctx, q, c.Lanes, r.Worker, n, nowMS, expires)
		c.Lanes = row.Advance(c.Lanes, jobs)
		return jobs, dead, err
	}
	queue := r.Lanes[0].Queue
	jobs, dead, err = j.ClaimAt(ctx, q, queue, r.Worker, n, nowMS, expires)
	for i := range dead {
		dead[i].Queue = queue
	}
	return jobs, dead, err
}

// firstClaim returns how many jobs the first statement takes: as many as fit if no payload is larger
// than the recent maximum.
func firstClaim(r *row.ClaimRequest) int {
	n := claimFirst
	if r.Largest > 0 {
		n = max(n, claimBytes/r.Largest)
	}
	return min(n, r.N, row.ClaimRows)
}

// nextClaim returns how many jobs the next statement takes: as many as fit if no payload is larger than
// those so far, which have sum bytes. It returns 0 to end the claim, for example when the next
// statement would be too small to be worthwhile.
func nextClaim(r *row.ClaimRequest, c *row.Claimed, sum int) int {
	rest := min(r.N, row.ClaimRows) - len(c.Jobs)
	n := min(rest, claimGrows*len(c.Jobs), (claimBytes-sum)/max(c.Largest, 1))
	if n < min(rest, claimFirst) {
		return 0
	}
	return n
}

// anyPaused reports whether any of r's queues is paused.
func (j Jobs) anyPaused(ctx context.Context, q row.Querier, r *row.ClaimRequest, now int64) (paused bool, err error) {
	for _, l := range r.Lanes {
		if paused, err = j.paused(ctx, q, l.Queue, now); err != nil || paused {
			return paused, err
		}
	}
	return false, nil
}
