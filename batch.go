package honker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// BatchOptions configures a new batch. The zero value of a field means its default.
type BatchOptions struct {
	Name    string            // shown in lists; need not be unique
	Headers map[string]string // kept with the batch and shown in lists: at most 64, with 8 KiB of names and values
}

func (o *BatchOptions) encode() (name, headers string, err error) {
	if o == nil {
		return "", "", nil
	}
	if o.Name != "" {
		err = engine.CheckName("batch name", o.Name)
	}
	headers, bad := engine.EncodeHeaders(o.Headers)
	return o.Name, headers, errors.Join(err, bad)
}

// Batch is a set of jobs, of any queues, that other jobs can wait for together: see [InBatch] and [AfterBatch]. A batch is a
// row of the file, and a Batch is a cheap handle for it. It takes members until it is sealed, and after that from its
// own members until none of them waits or runs. If none is dead, it is then done; the file remembers a done batch for a
// week.
type Batch struct {
	ID int64 // the argument of InBatch and AfterBatch

	db *DB
}

// Batch returns a handle for an existing batch. It does not access the file.
func (db *DB) Batch(id int64) *Batch {
	db.mustExist("Batch")
	return &Batch{ID: id, db: db}
}

// NewBatch adds an open batch without members. nil opts means defaults. It waits for the writer until ctx ends or
// BusyTimeout has passed.
func (db *DB) NewBatch(ctx context.Context, opts *BatchOptions) (*Batch, error) {
	name, headers, err := opts.encode()
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	b := &Batch{db: db}
	err = db.engine.Write(ctx, "NewBatchTx", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		b.ID, err = db.engine.Stores.Batches.Insert(ctx, q, name, headers, now)
		return err
	}))
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	return b, nil
}

// NewBatchTx is like [DB.NewBatch], within tx. Add the first members and the jobs that wait for the batch in the same
// transaction, so that the batch exists with them or not at all.
func (db *DB) NewBatchTx(ctx context.Context, tx Tx, opts *BatchOptions) (*Batch, error) {
	name, headers, err := opts.encode()
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	on, err := db.join(ctx, tx)
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	id, err := db.engine.Stores.Batches.Insert(ctx, on, name, headers, time.Now())
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	return &Batch{ID: id, db: db}, nil
}

// Seal declares that no more members will be added from outside the batch. Once no member waits or runs, the batch is
// done; a batch without members is done at once. Sealing it again has no effect. If there is no such batch, Seal
// returns [ErrNotFound].
func (b *Batch) Seal(ctx context.Context) error {
	err := b.db.engine.Write(ctx, "SealTx", engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		return b.seal(ctx, q)
	}))
	return failID("seal batch", b.ID, err)
}

// SealTx is like [Batch.Seal], within tx.
func (b *Batch) SealTx(ctx context.Context, tx Tx) error {
	on, err := b.db.join(ctx, tx)
	if err == nil {
		err = b.seal(ctx, on)
	}
	return failID("seal batch", b.ID, err)
}

func (b *Batch) seal(ctx context.Context, q engine.Querier) error {
	found, err := b.db.engine.Stores.Batches.Seal(ctx, q, b.ID)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// Cancel seals the batch and removes its members that wait or run. It also removes the jobs that wait for the batch or
// for a member, the jobs that wait for those, and so on. The ctx of a handler that runs a member is cancelled; see
// [Queue.Cancel]. Dead members stay dead. Cancel returns the number of jobs it has removed.
//
// Cancel blocks until all jobs are removed, in transactions of some milliseconds with pauses between them. The jobs
// that wait for the batch are removed first. If ctx ends, Cancel returns the error of ctx and the number of jobs removed
// by then. With an actor it adds an entry to the audit log; see [WithActor].
func (b *Batch) Cancel(ctx context.Context) (cancelled int, err error) {
	cancelled, err = b.cancel(ctx)
	return cancelled, failID("cancel batch", b.ID, err)
}

func (b *Batch) cancel(ctx context.Context) (cancelled int, err error) {
	if err := b.db.engine.RefuseInTx(ctx, ""); err != nil {
		return 0, err
	}
	audit := b.db.engine.AuditActor(ctx, "cancel batch", "batch", strconv.FormatInt(b.ID, 10))
	for p := b.db.engine.NewPace(); ; {
		var gone []row.Change
		var more bool
		var noted func()
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			found := false
			if gone, more, found, err = b.db.engine.Stores.Batches.Cancel(ctx, q, b.ID, p.Size, now); err == nil && !found {
				err = ErrNotFound
			}
			if err != nil {
				return err
			}
			noted, err = audit.Note(ctx, q, now, int64(len(gone)))
			return err
		})
		if err != nil || !more {
			return cancelled, err
		}
		noted()
		cancelled += len(gone)
		b.told(ctx, gone)
		if err := p.Rest(ctx); err != nil {
			return cancelled, err
		}
	}
}

// told cancels the handlers of removed jobs in this process, wakes their waiters and informs the observer.
func (b *Batch) told(ctx context.Context, gone []row.Change) {
	byQueue := make(map[string][]int64)
	for _, c := range gone {
		byQueue[c.Queue] = append(byQueue[c.Queue], c.ID)
		b.db.running.Cancel(c.Queue, c.ID)
		b.db.engine.Notifier.Wake(wake.Job(c.ID))
	}
	for queue, ids := range byQueue {
		b.db.opts.Observer.Cancelled(observe.Cancelled{Queue: queue, IDs: ids, Actor: engine.Actor(ctx)})
	}
}

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

// InBatch makes the job a member of a batch. It is [ErrBatchDone] if the batch is sealed and none of its members waits or
// runs; until then a member's handler may add members. An id that was never assigned to a batch is [ErrInvalid], and
// so is a second InBatch.
func InBatch(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.err = errors.Join(o.err, checkIDs("InBatch", []int64{batch}))
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
