package worker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// Handoffs are the claims of one DB that wait for a job, by queue. An enqueue of the same DB
// takes one and inserts its job as claimed by it: one write and one commit lie between
// the enqueue and the handler, where a wake and a claim would add another commit
// (docs/decisions/005).
//
// It is a shortcut and not a promise. Every idle claim is woken by commits all the same.
type Handoffs struct {
	idle wake.FIFO[*idleClaim]
}

// idleClaim is a claim that waits. Only the enqueue that has popped it may set Rows, until it
// closes filled.
type idleClaim struct {
	*ClaimOp
	filled chan struct{} // closed: Rows are committed, or there are none
}

func (h *Handoffs) add(c *ClaimOp) *idleClaim {
	idle := &idleClaim{c, make(chan struct{})}
	h.idle.Push(c.source.Queue, idle)
	return idle
}

// remove returns when no enqueue will set the claim's Rows any more.
func (h *Handoffs) remove(idle *idleClaim) {
	if found, _, _ := h.idle.Remove(idle.source.Queue, idle); !found {
		<-idle.filled // an enqueue has it, and its transaction may have begun
	}
}

// handoffLimit bounds the jobs that one enqueue inserts for a worker: they cost a statement
// each, where plain inserts share one.
const handoffLimit = 8

// Handoff is the part of one enqueue. A nil *Handoff hands nothing over.
type Handoff struct {
	from  *Handoffs
	queue string
	to    *idleClaim
}

// Begin returns nil when no claim on queue is idle.
func (h *Handoffs) Begin(queue string) *Handoff {
	if h.idle.Empty(queue) {
		return nil
	}
	return &Handoff{from: h, queue: queue}
}

// Insert inserts as many of payloads as the claim that has waited longest can take, and
// returns their ids; the caller inserts the rest. It runs inside the enqueue's transaction,
// which must have begun to write: what waited for the writer in its own statement would have
// taken its time, and so the lease's end, from before the wait.
//
// A trigger of the application on the table of jobs may do to a row after its INSERT what
// comes too late for a handler that has it already. So where there is one, nothing is handed
// over.
func (o *Handoff) Insert(ctx context.Context, tx engine.Querier, job store.NewJob, payloads []string, now time.Time) (ids []int64, err error) {
	if o == nil || job.RunAt > now.Unix() {
		return nil, nil
	}
	idle, ok := o.from.idle.Pop(o.queue)
	if !ok {
		return nil, nil
	}
	o.to = idle
	idle.Began = now
	jobs := idle.source.Jobs
	if foreign, err := jobs.ForeignTriggers(ctx, tx); err != nil || foreign {
		return nil, err
	}
	expires := now.Unix() + engine.Seconds(idle.Hold)
	for _, payload := range payloads[:min(len(payloads), idle.Want, handoffLimit)] {
		row, inserted, err := jobs.InsertClaimed(ctx, tx, job, payload, idle.Worker, expires)
		if err != nil || !inserted { // not inserted: another job is due, and comes first
			return ids, err
		}
		idle.Rows = append(idle.Rows, row)
		ids = append(ids, row.ID)
	}
	return ids, nil
}

// End wakes the worker, by the outcome of the commit, and returns how many jobs it has got. It
// has to be called once the enqueue's write has returned.
func (o *Handoff) End(err error) (jobs int) {
	if o == nil || o.to == nil {
		return 0
	}
	if err != nil {
		o.to.Rows = nil
	}
	jobs = len(o.to.Rows) // before the worker has them
	close(o.to.filled)
	return jobs
}
