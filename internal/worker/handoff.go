package worker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Handoffs are the claims of one DB that wait for a job, by queue. An enqueue of the same DB
// takes one and inserts its job as claimed by it: one write and one commit lie between
// the enqueue and the handler, where a wake and a claim would add another commit
// (docs/internals/decisions/005).
//
// It is a shortcut and not a promise. Every idle claim is woken by commits all the same.
type Handoffs struct {
	idle wake.FIFO[*IdleClaim]
}

// IdleClaim is a claim that waits. Only the enqueue that has taken it may set Rows, until it
// calls Fill.
type IdleClaim struct {
	*ClaimOp
	filled chan struct{} // closed: Rows are committed, or there are none
}

func (h *Handoffs) add(c *ClaimOp) *IdleClaim {
	idle := &IdleClaim{c, make(chan struct{})}
	h.idle.Push(c.source.Queue, idle)
	return idle
}

// remove returns when no enqueue will set the claim's Rows any more.
func (h *Handoffs) remove(idle *IdleClaim) {
	if found, _, _ := h.idle.Remove(idle.source.Queue, idle); !found {
		<-idle.filled // an enqueue has it, and its transaction may have begun
	}
}

// Waiting reports whether a claim on queue waits for a job.
func (h *Handoffs) Waiting(queue string) bool { return !h.idle.Empty(queue) }

// Take removes the claim on queue that has waited longest, for an enqueue with the time now: nil
// when there is none any more. It has to be filled. An enqueue takes it inside of its
// transaction and not before: while it waits for the writer, the claim is free for another.
func (h *Handoffs) Take(queue string, now time.Time) *IdleClaim {
	idle, _ := h.idle.Pop(queue)
	if idle != nil {
		idle.Began = now
	}
	return idle
}

// handoffLimit bounds the jobs that one enqueue inserts for a worker: they cost a statement
// each, where plain inserts share one.
const handoffLimit = 8

// Insert inserts as many of payloads as the claim can take, and returns their ids; the caller
// inserts the rest. A nil claim takes none. It runs inside the enqueue's transaction, which must
// have begun to write: what waited for the writer in its own statement would have taken its
// time, and so the lease's end, from before the wait.
//
// A trigger of the application on the table of jobs may do to a row after its INSERT what
// comes too late for a handler that has it already. So where there is one, nothing is handed
// over.
func (c *IdleClaim) Insert(ctx context.Context, tx engine.Querier, job row.NewJob, payloads []string, now time.Time) (ids []int64, err error) {
	if c == nil {
		return nil, nil
	}
	jobs := c.source.Jobs
	if foreign, err := jobs.ForeignTriggers(ctx, tx); err != nil || foreign {
		return nil, err
	}
	// What there is no slot for is left to a claim that waits for one.
	slots := c.slots.Fill(min(len(payloads), c.Want, handoffLimit))
	c.handedOver = true
	expires := now.Unix() + engine.Seconds(c.Hold)
	for _, payload := range payloads[:slots] {
		row, err := jobs.InsertClaimed(ctx, tx, job, payload, c.Worker, expires)
		if err != nil || row == nil { // nothing inserted: another job is due, and comes first
			return ids, err
		}
		c.Rows = append(c.Rows, row)
		ids = append(ids, row.ID)
	}
	return ids, nil
}

// Fill wakes the worker, by the outcome of the commit, and returns how many jobs it has got. It
// is called once the enqueue's write has returned; a nil claim has got none.
func (c *IdleClaim) Fill(err error) (jobs int) {
	if c == nil {
		return 0
	}
	if err != nil {
		c.Rows = nil
	}
	jobs = len(c.Rows) // before the worker has them
	close(c.filled)
	return jobs
}
