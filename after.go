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

// After lets the job wait until the jobs ids, of whatever queues, are done. Then it is as if it was enqueued
// before: its Delay or RunAt counts from the enqueue, and has to be over too; it expires by its ExpiresIn also while
// it waits; its Key, Priority and unique key are as with any job. [Result] reads what those jobs have left: their
// results are kept for as long as it is there, whatever their time.
//
// A job is done when it is acked, by any binding, in the commit of the ack. One that is gone counts as done, be it
// cancelled, see package admin, or discarded. If one is dead, or dies, the job goes on waiting: requeue the dead
// one, and it is waited for again. See [EvenIfDead].
//
// The jobs may be in the same transaction, as with EnqueueManyTx and then EnqueueTx, so that all of a chain, a
// fan-out or a fan-in is there or nothing of it. There are no circles, since a job has no id before its enqueue. An id
// that no job has had is [ErrInvalid], as are more than 10,000 ids in one enqueue, repeated options together; use a
// batch for more. No ids are nothing to wait for.
//
// Another binding deletes a job before it is among the dead letters. After such a delete the job that waits can be
// claimed two seconds later at the earliest, and is held again if it turns out to be a death.
//
// With EnqueueMany each of the jobs waits. With [Limits].InOrder a job that waits keeps its turn, and those of its
// key that come later wait too.
func After(ids ...int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.link().Jobs = append(o.links.Jobs, ids...)
		o.err = errors.Join(o.err, checkIDs("After", ids))
	}
}

// AfterBatch is [After] for all members of a batch, also those that are still to come: the job waits until the batch
// is sealed and its members are done. No member of the batch, and nothing that one waits for, can wait for it: that
// is [ErrInvalid]. So is a later member that shares its [Key] in a queue with [Limits].InOrder: each would wait for the
// other. InOrder that is set after both were enqueued does not look at such jobs: they wait until one of them is cancelled.
func AfterBatch(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.link().Batches = append(o.links.Batches, batch)
		o.err = errors.Join(o.err, checkIDs("AfterBatch", []int64{batch}))
	}
}

// EvenIfDead, with [After] or [AfterBatch], lets the job run also when some of the others are dead: it waits for
// their ends, whatever they are. Without one of these it is [ErrInvalid].
func EvenIfDead() EnqueueOption { return func(o *enqueueOptions) { o.link().IfDead = true } }

// In makes the job a member of a batch. It is [ErrBatchDone] if the batch is sealed and none of its members waits or
// runs: before that a handler of a member may add others. An id that no batch has had, and a second In, are
// [ErrInvalid].
func In(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.err = errors.Join(o.err, checkIDs("In", []int64{batch}))
		if o.link().In != 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: In of two batches", ErrInvalid))
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
		return fmt.Errorf("%w: %s %d", ErrInvalid, option, ids[i])
	}
	return nil
}

// Bounds of one enqueue, which holds the writer meanwhile: an edge takes some microseconds.
const (
	maxAfter = 10_000
	maxEdges = 100_000 // of all jobs together
)

// checkLinks refuses what does not go together, for an enqueue of so many jobs.
func (o *enqueueOptions) checkLinks(jobs int) error {
	switch n := len(o.links.Jobs) + len(o.links.Batches); {
	case n > maxAfter:
		return fmt.Errorf("%w: After %d jobs, at most %d: use a batch", ErrInvalid, n, maxAfter)
	case n*jobs > maxEdges:
		return fmt.Errorf("%w: %d jobs After %d, at most %d together: use a batch", ErrInvalid, jobs, n, maxEdges)
	case n == 0 && o.links.IfDead:
		return fmt.Errorf("%w: EvenIfDead without After or AfterBatch", ErrInvalid)
	case slices.Contains(o.links.Batches, o.links.In):
		return fmt.Errorf("%w: AfterBatch %d of a member of it", ErrInvalid, o.links.In)
	case n == 0 && o.links.In == 0:
		o.links = nil // After()
	}
	return nil
}

// afterTimeout bounds the read of [Job.After], which has no ctx.
const afterTimeout = 10 * time.Second

// After returns the ids of the jobs that this one was enqueued [After], and of the members of such batches, in
// order: their results can be read, with [Result], until this job is settled. It reads the file, in WorkTx within the
// transaction, and does not wait for the writer; where that fails it logs the error and returns nil. nil is also a job
// that has waited for none, or for a batch that was done before its enqueue. On an attached pool with one connection
// call it before a transaction of the handler's own.
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
		ids, err = j.q.db.jobs.AfterOf(ctx, q, j.ID)
		return err
	})
	if err != nil {
		j.q.db.opts.Logger.Error("honker: cannot read what a job was enqueued after", "queue", j.q.name, "job", j.ID, "error", err)
		return nil
	}
	if len(ids) == 0 {
		return nil
	}
	return ids
}
