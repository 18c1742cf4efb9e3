package worker

import (
	"context"
	"sync/atomic"
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

// IdleClaim is a claim that waits for a job of any of its queues. Only the enqueue that has taken it may
// set Rows, and only until it calls fill.
type IdleClaim struct {
	*ClaimOp
	taken  atomic.Bool   // by an enqueue, or withdrawn
	filled chan struct{} // closed when Rows are committed, or when there are none
}

// add offers c to enqueues into its queues. The caller must call remove before it uses c.Rows.
func (h *Handoffs) add(c *ClaimOp) *IdleClaim {
	idle := &IdleClaim{ClaimOp: c, filled: make(chan struct{})}
	for _, queue := range c.source.Queues {
		h.idle.Push(queue, idle)
	}
	return idle
}

// remove withdraws the claim. It blocks until no enqueue can set the claim's Rows any more.
func (h *Handoffs) remove(idle *IdleClaim) {
	if !idle.taken.CompareAndSwap(false, true) {
		<-idle.filled // an enqueue has it, and its transaction may have begun
	}
	for _, queue := range idle.source.Queues {
		h.idle.Remove(queue, idle)
	}
}

// take returns the claim on queue that has waited longest, or nil if none is waiting. now is the time
// of the enqueue. The caller must call fill on the claim. An enqueue should call take inside its
// transaction, so that the claim stays available to others while the enqueue waits for the writer.
func (h *Handoffs) take(queue string, now time.Time) *IdleClaim {
	for {
		idle, found := h.idle.Pop(queue)
		if !found {
			return nil
		}
		if idle.taken.CompareAndSwap(false, true) {
			idle.Began = now
			return idle
		}
	}
}

// handoffLimit is the maximum number of jobs that an enqueue inserts for a worker. Each of them
// takes its own statement, whereas plain inserts share a statement.
const handoffLimit = 8

// offer returns the claim as an offer to an enqueue of n jobs. A nil claim offers nothing. Jobs
// without a free slot are left for a later claim.
func (c *IdleClaim) offer(n int) *row.Offer {
	if c == nil {
		return nil
	}
	c.handedOver = true
	o := &row.Offer{Worker: c.Worker, N: c.slots.Fill(min(n, c.Want, handoffLimit)), Lease: c.Hold}
	if len(c.source.Queues) > 1 {
		o.Queues = c.source.Queues
	}
	return o
}

// fill passes jobs to the worker and wakes it. The enqueue must call it after its write, without
// jobs if the write failed. On a nil claim, fill does nothing.
func (c *IdleClaim) fill(jobs []*row.Job) {
	if c != nil {
		c.Rows = jobs
		close(c.filled)
	}
}

// InsertOp inserts jobs in a transaction of its own. If a claim of this process waits for jobs of the
// queue, the op hands them over to it.
type InsertOp struct {
	row.Insert
	Inserted row.Inserted // after Run
	At       time.Time    // after Run: the time of the transaction

	Along engine.Along // nil for none

	source   *Source
	handOver bool       // a claim is waiting
	idle     *IdleClaim // that claim, once Run has taken it
}

// Commit inserts the jobs and returns the number of jobs that were handed over. txForm is the verb to
// use inside a transaction, for the error.
func (op *InsertOp) Commit(ctx context.Context, s *Source, txForm string) (handed int, err error) {
	op.source = s
	op.handOver = op.Delay <= 0 && !op.RunAt.After(s.Engine.Now()) && op.Key == "" && op.Links == nil &&
		(op.Unique == nil || !s.Engine.Stores.Single) && !s.Handoffs.idle.Empty(op.Queue)
	err = s.Engine.Write(ctx, txForm, op)
	if err != nil {
		op.Inserted = row.Inserted{}
	}
	handed = len(op.Inserted.Claimed) // before the worker owns the jobs
	op.idle.fill(op.Inserted.Claimed)
	return handed, err
}

// Single implements engine.Op. In a file, a handoff needs an explicit transaction. Without it, Run would get the time
// before the wait for the writer, and the wait would shorten the lease.
func (op *InsertOp) Single() bool {
	if op.source.Engine.Stores.Single {
		return op.Unique == nil && op.Links == nil && op.Along == nil
	}
	return len(op.Payloads) == 1 && !op.handOver && op.plain()
}

// plain reports whether the op needs nothing beyond a plain insert.
func (op *InsertOp) plain() bool { return op.Plain() && op.Along == nil }

// MergeKey implements engine.Merges. Jobs of any queues can be inserted together if they are plain.
func (op *InsertOp) MergeKey() any {
	if _, ok := op.source.Engine.Stores.Jobs.(engine.Inserter); !ok || op.handOver || !op.plain() {
		return nil
	}
	return insertKey{}
}

type insertKey struct{}

// RunMerged implements engine.Merges.
func (op *InsertOp) RunMerged(ctx context.Context, q engine.Querier, ops []engine.Op, now time.Time) error {
	all := make([]*row.Insert, len(ops))
	for i, o := range ops {
		all[i] = &o.(*InsertOp).Insert
	}
	ids, err := op.source.Engine.Stores.Jobs.(engine.Inserter).InsertAll(ctx, q, all, now)
	if err != nil {
		return err
	}
	for i, o := range ops {
		o := o.(*InsertOp)
		o.At, o.Inserted = now, row.Inserted{IDs: ids[i]}
	}
	return nil
}

// Run implements engine.Op.
func (op *InsertOp) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	op.At = now
	if op.handOver {
		if op.idle == nil { // Run may be called again
			op.idle = op.source.Handoffs.take(op.Queue, now)
		}
		op.Offer = op.idle.offer(len(op.Payloads))
	}
	op.Inserted, err = op.source.Engine.Stores.Jobs.Insert(ctx, q, &op.Insert, now)
	if err == nil && op.Along != nil {
		err = op.Along(ctx, q, op.Inserted, now)
	}
	return err
}
