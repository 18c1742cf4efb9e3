package honker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// After makes the job wait until the jobs with the given ids are done. They may belong to any queue. The job then
// behaves as if it had never waited: its Delay or RunAt counts from the enqueue and must have passed too, and its
// Key, Priority and unique key apply as usual. ExpiresIn also runs while the job waits. The results of the other
// jobs are kept for as long as the waiting job exists, whatever their TTL; read them with [Result].
//
// A job is done when it is acked, by any binding, as of the commit of the ack. A job that was cancelled (see package
// admin) or discarded counts as done. If a job is dead or dies, the waiting job keeps waiting: after the dead job is
// requeued, it is waited for again. See [EvenIfDead].
//
// The jobs may be enqueued in the same transaction, as with EnqueueManyTx and then EnqueueTx, so that a chain, a
// fan-out or a fan-in is added as a whole or not at all. Cycles are impossible, because a job has no id before its
// enqueue. An id that was never assigned to a job is [ErrInvalid], and so are more than 10,000 ids in a single enqueue,
// counting repeated options together; use a batch for more. After without ids has no effect.
//
// Other bindings delete a job before they add it to the dead letters. After such a delete the waiting job can be
// claimed after two seconds at the earliest. It is held again if the delete turns out to be a death.
//
// With EnqueueMany, After applies to each of the jobs. With [Limits].InOrder a waiting job keeps its turn, so later
// jobs of its key wait too.
func After(ids ...int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.link().Jobs = append(o.links.Jobs, ids...)
		o.err = errors.Join(o.err, checkIDs("After", ids))
	}
}

// AfterBatch is like [After] for all members of a batch, including members that are still to be added: the job waits
// until the batch is sealed and its members are done. A member of the batch cannot wait for it, nor can a job that a
// member waits for: both are [ErrInvalid]. In a queue with [Limits].InOrder, a later member with the same [Key] is
// [ErrInvalid] too, because each job would wait for the other. InOrder does not check jobs that were enqueued before
// it was set: such a pair waits until either job is cancelled.
func AfterBatch(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.link().Batches = append(o.links.Batches, batch)
		o.err = errors.Join(o.err, checkIDs("AfterBatch", []int64{batch}))
	}
}

// EvenIfDead, used with [After] or [AfterBatch], lets the job run even if some of the jobs it waits for are dead: it
// waits for them to end in any way. Without After or AfterBatch it is [ErrInvalid].
func EvenIfDead() EnqueueOption { return func(o *enqueueOptions) { o.link().IfDead = true } }

// In makes the job a member of a batch. It is [ErrBatchDone] if the batch is sealed and none of its members waits or
// runs; until then a member's handler may add members. An id that was never assigned to a batch is [ErrInvalid], and
// so is a second In.
func In(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.err = errors.Join(o.err, checkIDs("In", []int64{batch}))
		if o.link().In != 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: In is given twice: a job can be a member of a single batch", ErrInvalid))
		}
		o.links.In = batch
	}
}

func (o *enqueueOptions) link() *row.Links {
	if o.links == nil {
		o.links = new(row.Links)
	}
	return o.links
}

func checkIDs(option string, ids []int64) error {
	if i := slices.IndexFunc(ids, func(id int64) bool { return id <= 0 }); i >= 0 {
		return fmt.Errorf("%w: %s: id %d is not positive", ErrInvalid, option, ids[i])
	}
	return nil
}

// Bounds of a single enqueue. It holds the writer while it adds its edges, at some microseconds each.
const (
	maxAfter = 10_000
	maxEdges = 100_000 // of all jobs together
)

// checkLinks rejects options that cannot be combined, for an enqueue of the given number of jobs.
func (o *enqueueOptions) checkLinks(jobs int) error {
	switch n := len(o.links.Jobs) + len(o.links.Batches); {
	case n > maxAfter:
		return fmt.Errorf("%w: After and AfterBatch name %d ids; the maximum is %d: use a batch", ErrInvalid, n, maxAfter)
	case n*jobs > maxEdges:
		return fmt.Errorf("%w: %d jobs with %d ids in After each make %d edges; the maximum is %d: use a batch", ErrInvalid, jobs, n, n*jobs, maxEdges)
	case n == 0 && o.links.IfDead:
		return fmt.Errorf("%w: EvenIfDead requires After or AfterBatch", ErrInvalid)
	case slices.Contains(o.links.Batches, o.links.In):
		return fmt.Errorf("%w: a member of batch %d cannot wait for the batch", ErrInvalid, o.links.In)
	case n == 0 && o.links.In == 0:
		o.links = nil // After() without ids
	}
	return nil
}

// afterTimeout bounds the read of [Job.After], which has no ctx.
const afterTimeout = 10 * time.Second

// After returns the ids, in order, of the jobs that this job was enqueued [After], including the members of its
// batches. Their results can be read with [Result] until this job is settled. It returns nil if the job waited for no
// other job, or only for a batch that was done before the enqueue.
//
// After reads the file without waiting for the writer, and within the transaction in WorkTx. If the read fails, it logs
// the error and returns nil. On an attached pool with a single connection, call After before the handler begins a
// transaction of its own.
func (j *Job[T]) After() []int64 {
	if j.claim == nil {
		return nil
	}
	ctx := j.inTx
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, afterTimeout)
	defer cancel()
	var ids []int64
	err := j.q.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		ids, err = j.q.db.engine.Stores.Jobs.AfterOf(ctx, q, j.ID)
		return err
	})
	if err != nil {
		j.q.db.opts.Logger.Error("honker: cannot read the jobs that a job was enqueued after", "queue", j.q.name, "job", j.ID, "error", err)
		return nil
	}
	if len(ids) == 0 {
		return nil
	}
	return ids
}
