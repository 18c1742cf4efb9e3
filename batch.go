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
	Name    string            // shown in listings; need not be unique
	Headers map[string]string // stored with the batch and shown in listings; at most 64 headers and 8 KiB in total
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

// Batch is a set of jobs that other jobs can wait for as a whole; see [InBatch] and [AfterBatch]. The jobs can be in
// different queues. Jobs can be added to a batch until it is sealed. After that, only its own members may add more,
// for as long as a member is waiting or running. The batch is done when it is sealed and all its members are done. A
// done batch stays in the file for a week. A Batch is a cheap handle to the batch's row in the file.
type Batch struct {
	ID int64 // the argument of InBatch and AfterBatch

	db *DB
}

// Batch returns a handle for an existing batch. It does not access the file.
func (db *DB) Batch(id int64) *Batch {
	db.mustExist("Batch")
	return &Batch{ID: id, db: db}
}

// NewBatch creates an open batch with no members. A nil opts means defaults. NewBatch waits for the writer until ctx
// ends or BusyTimeout has passed.
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

// NewBatchTx is like [DB.NewBatch] but runs within tx. Add the first members and the jobs that wait for the batch in
// the same transaction, so that either all of it exists or none of it does.
func (db *DB) NewBatchTx(ctx context.Context, tx Tx, opts *BatchOptions) (*Batch, error) {
	name, headers, err := opts.encode()
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	on, err := db.join(ctx, tx)
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	id, err := db.engine.Stores.Batches.Insert(ctx, on, name, headers, db.engine.Now())
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	return &Batch{ID: id, db: db}, nil
}

// Seal declares that no more members will be added from outside the batch. The batch is done once no member is
// waiting or running, which is immediately if it has no members. Sealing a sealed batch has no effect. Seal
// returns [ErrNotFound] if the batch does not exist.
func (b *Batch) Seal(ctx context.Context) error {
	err := b.db.engine.Write(ctx, "SealTx", engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		return b.seal(ctx, q)
	}))
	return failID("seal batch", b.ID, err)
}

// SealTx is like [Batch.Seal] but runs within tx.
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

// Cancel seals the batch and removes its waiting and running members. It also removes the jobs that wait for the
// batch or for a removed member, the jobs that wait for those, and so on. If a handler is running a removed job,
// its ctx is cancelled; see [Queue.Cancel]. Dead members stay dead. Cancel returns the number of removed jobs.
//
// Cancel blocks until all jobs are removed. It works in transactions of a few milliseconds with pauses between
// them, and removes the jobs that wait for the batch first. If ctx ends, Cancel returns ctx's error and the
// number of jobs removed so far. If ctx has an actor, Cancel adds an entry to the audit log; see [WithActor].
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
			_, noted, err = audit.Note(ctx, q, now, int64(len(gone)))
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

// told cancels any handlers that are running the removed jobs in this process, wakes goroutines waiting for those
// jobs, and notifies the observer.
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

// After makes the job wait until the jobs with the given IDs are done. They may belong to any queue. The job then
// behaves as if it had never waited: its Delay or RunAt still counts from the enqueue, and its Key, Priority and
// unique key apply as usual. ExpiresIn keeps running while the job waits. The results of the other jobs are kept for
// as long as the waiting job exists, regardless of their TTL; read them with [Result].
//
// A job is done once its ack, from any binding, is committed. Cancelling a job (see package admin) or discarding
// it counts as done. If a job is dead or dies, the waiting job keeps waiting, in case the dead job is requeued.
// See [EvenIfDead].
//
// The jobs may be enqueued in the same transaction, for example with EnqueueManyTx followed by EnqueueTx. A chain, a
// fan-out or a fan-in is then added as a whole or not at all. Cycles are impossible, because a job has no ID before
// it is enqueued. After returns [ErrInvalid] for an ID that was never assigned to a job. An enqueue whose After
// options list more than 10,000 IDs in total also returns [ErrInvalid]; use a batch instead. After with no IDs has no
// effect.
//
// Other bindings delete a job before they add it to the dead letters. After such a delete, the waiting job becomes
// claimable no sooner than two seconds later, and is held again if the deleted job turns up as a dead letter.
//
// With EnqueueMany, After applies to every job. In a queue with [Limits].InOrder, a waiting job keeps its turn,
// so later jobs with its key wait too.
func After(ids ...int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.link().Jobs = append(o.links.Jobs, ids...)
		o.err = errors.Join(o.err, checkIDs("After", ids))
	}
}

// AfterBatch is like [After] for all members of a batch, including members added later: the job waits until the batch
// is sealed and its members are done. A member of the batch cannot wait for it, nor can a job that a member waits
// for: the enqueue returns [ErrInvalid]. In a queue with [Limits].InOrder, adding a later member with the same [Key]
// also returns [ErrInvalid], because the two jobs would wait for each other. InOrder does not check jobs that were
// enqueued before it was set: two such jobs wait until either is cancelled.
func AfterBatch(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.link().Batches = append(o.links.Batches, batch)
		o.err = errors.Join(o.err, checkIDs("AfterBatch", []int64{batch}))
	}
}

// EvenIfDead, used with [After] or [AfterBatch], lets the job run even if some of the jobs it waits for are dead.
// Without After or AfterBatch, the enqueue returns [ErrInvalid].
func EvenIfDead() EnqueueOption { return func(o *enqueueOptions) { o.link().IfDead = true } }

// InBatch makes the job a member of a batch. The enqueue returns [ErrBatchDone] if the batch is sealed and no member
// is waiting or running; until then, a member's handler may add members. It returns [ErrInvalid] for an ID that was
// never assigned to a batch, and for a second InBatch.
func InBatch(batch int64) EnqueueOption {
	return func(o *enqueueOptions) {
		o.err = errors.Join(o.err, checkIDs("InBatch", []int64{batch}))
		if o.link().In != 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: InBatch is given twice: a job can be a member of a single batch", ErrInvalid))
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

// Limits on a single enqueue, which holds the writer for a few microseconds per edge.
const (
	maxAfter = 10_000
	maxEdges = 100_000 // across all jobs of the enqueue
)

// checkLinks rejects combinations of options that are invalid when enqueuing the given number of jobs.
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
		o.links = nil // After() with no IDs
	}
	return nil
}

// afterTimeout limits how long [Job.After] may take to read the file, since it has no ctx.
const afterTimeout = 10 * time.Second

// After returns, in order, the IDs of the jobs that this job was enqueued to run [After], including the members of
// batches. Their results can be read with [Result] until this job is settled. After returns nil if the job didn't
// wait for any other job, or only for a batch that was done before the enqueue.
//
// After reads the file without waiting for the writer. In WorkTx it reads within the transaction. If the read
// fails, After logs the error and returns nil. On an attached pool with a single connection, call After before
// the handler begins its own transaction.
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
