package honker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
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

// Batch is a set of jobs, of any queues, that other jobs can wait for together: see [In] and [AfterBatch]. A batch is a
// row of the file, and a Batch is a cheap handle for it. It takes members until it is sealed, and after that from its
// own members until none of them waits or runs. If none is dead, it is then done; the file remembers a done batch for a
// week.
type Batch struct {
	ID int64 // the argument of In and AfterBatch

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
		b.db.engine.Notifier.Wake(decided(c.ID))
	}
	for queue, ids := range byQueue {
		b.db.opts.Observer.Cancelled(Cancelled{Queue: queue, IDs: ids, Actor: engine.Actor(ctx)})
	}
}
