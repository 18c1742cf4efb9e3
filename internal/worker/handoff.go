package worker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Handoffs holds the waiting claims of one DB by queue. An enqueue of the same DB takes a waiting
// claim and inserts its job as already claimed. The job then reaches its handler after a single
// commit; a wake-up and a separate claim would need a second commit (docs/internals/decisions/005).
//
// The handoff is only an optimization. Commits wake every idle claim in any case.
type Handoffs struct {
	idle wake.FIFO[*IdleClaim]
}

// IdleClaim is a claim that waits for a job. Only the enqueue that has taken it may set Rows, and
// only until it calls Fill.
type IdleClaim struct {
	*ClaimOp
	filled chan struct{} // closed when Rows are committed, or when there are none
}

// add offers c to the enqueues on its queue. The caller must call remove before it uses c.Rows.
func (h *Handoffs) add(c *ClaimOp) *IdleClaim {
	idle := &IdleClaim{c, make(chan struct{})}
	h.idle.Push(c.source.Queue, idle)
	return idle
}

// remove withdraws the claim. It blocks until no enqueue can set the claim's Rows any more.
func (h *Handoffs) remove(idle *IdleClaim) {
	if found, _, _ := h.idle.Remove(idle.source.Queue, idle); !found {
		<-idle.filled // an enqueue has it, and its transaction may have begun
	}
}

// Waiting reports whether a claim on queue is waiting for a job.
func (h *Handoffs) Waiting(queue string) bool { return !h.idle.Empty(queue) }

// Take removes and returns the claim on queue that has waited longest, or nil if none is waiting.
// now is the time of the enqueue. The caller must call Fill on the claim. An enqueue should call
// Take inside its transaction, so that the claim stays available to others while the enqueue waits
// for the writer.
func (h *Handoffs) Take(queue string, now time.Time) *IdleClaim {
	idle, _ := h.idle.Pop(queue)
	if idle != nil {
		idle.Began = now
	}
	return idle
}

// handoffLimit is the maximum number of jobs that an enqueue inserts for a worker. Each of them
// takes its own statement, whereas plain inserts share a statement.
const handoffLimit = 8

// Insert inserts as many payloads as the claim can take and returns the ids of the jobs. The caller
// must insert the rest. A nil claim takes none. Insert must be called inside the transaction of the
// enqueue, after its first write. Otherwise now, and with it the end of the lease, would date from
// before the wait for the writer.
//
// A trigger of the application on the table of jobs may change a row after its INSERT, too late for
// a handler that already has the job. Insert therefore takes no jobs if there is such a trigger.
func (c *IdleClaim) Insert(ctx context.Context, tx engine.Querier, job row.NewJob, payloads []string, now time.Time) (ids []int64, err error) {
	if c == nil {
		return nil, nil
	}
	jobs := c.source.Engine.Stores.Jobs
	if foreign, err := jobs.ForeignTriggers(ctx, tx); err != nil || foreign {
		return nil, err
	}
	// Jobs without a free slot are left for a later claim.
	slots := c.slots.Fill(min(len(payloads), c.Want, handoffLimit))
	c.handedOver = true
	expires := now.Unix() + engine.Seconds(c.Hold)
	for _, payload := range payloads[:slots] {
		row, err := jobs.InsertClaimed(ctx, tx, job, payload, c.Worker, expires)
		if err != nil || row == nil { // not inserted: another job is due and comes first
			return ids, err
		}
		c.Rows = append(c.Rows, row)
		ids = append(ids, row.ID)
	}
	return ids, nil
}

// Fill wakes the worker and returns the number of jobs handed to it. It must be called once the
// enqueue's write has returned, with the error of that write. After an error, and for a nil claim,
// the number is 0.
func (c *IdleClaim) Fill(err error) (jobs int) {
	if c == nil {
		return 0
	}
	if err != nil {
		c.Rows = nil
	}
	jobs = len(c.Rows) // read before the worker owns Rows
	close(c.filled)
	return jobs
}
