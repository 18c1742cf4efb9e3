package honker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// batchStore are the statements about batches.
type batchStore interface {
	Insert(ctx context.Context, q engine.Querier, name, headers string, nowMS int64) (int64, error)
	Seal(ctx context.Context, q engine.Querier, id int64) (bool, error)
	Members(ctx context.Context, q engine.Querier, id int64, limit int) ([]int64, error)
	ForgetEnded(ctx context.Context, q engine.Querier, id int64, limit int) (int, error)
}

// BatchOptions of a new batch. The zero value of a field means its default.
type BatchOptions struct {
	Name    string            // for lists; need not be unique
	Headers map[string]string // kept with the batch, for lists: at most 64, of 8 KiB of names and values
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

// Batch is a set of jobs, of any queues, that others can wait for together: see [In] and [AfterBatch]. It is a row of
// the file, and this is a cheap handle of it. A batch takes members until it is sealed, and by its members until
// none of them waits or runs. Then it is done, if none is dead; the file remembers it for a week.
type Batch struct {
	ID int64 // for In and AfterBatch

	db *DB
}

// Batch returns a handle of a batch that is there. It touches nothing.
func (db *DB) Batch(id int64) *Batch {
	db.mustExist("Batch")
	return &Batch{ID: id, db: db}
}

// NewBatch adds a batch that has no members and is open. nil opts means defaults. It waits for the writer until ctx
// ends or BusyTimeout has passed.
func (db *DB) NewBatch(ctx context.Context, opts *BatchOptions) (*Batch, error) {
	name, headers, err := opts.encode()
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	b := &Batch{db: db}
	err = db.engine.Write(ctx, "NewBatchTx", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		b.ID, err = db.batches.Insert(ctx, q, name, headers, now.UnixMilli())
		return err
	}))
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	return b, nil
}

// NewBatchTx is like [DB.NewBatch], within tx: with the first members in the same transaction, and the job that comes
// after them, the batch is there with them or not at all.
func (db *DB) NewBatchTx(ctx context.Context, tx Tx, opts *BatchOptions) (*Batch, error) {
	name, headers, err := opts.encode()
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	on, err := db.join(ctx, tx)
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	id, err := db.batches.Insert(ctx, on, name, headers, time.Now().UnixMilli())
	if err != nil {
		return nil, fail("new batch", "", err)
	}
	return &Batch{ID: id, db: db}, nil
}

// Seal says that no more members come from outside: once none waits or runs, the batch is done. One without members
// is done at once. Sealing again changes nothing. [ErrNotFound]: there is no such batch.
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
	found, err := b.db.batches.Seal(ctx, q, b.ID)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// Cancel seals the batch, and removes its members that wait or run, and the jobs that wait for it or for one of
// them, and so on: nothing of it runs any more, and nothing that was to come after it. The ctx of a handler that runs
// a member ends, see [Queue.Cancel]. Members that are dead stay dead. It returns how many jobs it has removed.
//
// It blocks until that is done, in transactions of some milliseconds with pauses between them; when ctx ends it
// returns its error, and what was removed until then. Those that wait for the batch go first. With an actor it leaves an
// entry in the audit, see [WithActor].
func (b *Batch) Cancel(ctx context.Context) (cancelled int, err error) {
	cancelled, err = b.cancel(ctx)
	return cancelled, failID("cancel batch", b.ID, err)
}

func (b *Batch) cancel(ctx context.Context) (cancelled int, err error) {
	if err := b.db.engine.RefuseInTx(ctx, ""); err != nil {
		return 0, err
	}
	audit := engine.AuditActor(ctx, "cancel batch", "batch", strconv.FormatInt(b.ID, 10))
	for p := b.db.engine.NewPace(); ; {
		var gone []row.Change
		var more bool
		var noted func()
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			if gone, more, err = b.cancelSome(ctx, q, now, p.Size); err != nil {
				return err
			}
			noted, err = audit.Note(ctx, q, now, int64(len(gone)))
			return err
		})
		if err != nil || len(gone) == 0 && !more {
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

// cancelSome removes what waits for the batch, and up to limit members with what waits for them. Before that it forgets
// up to limit members that have ended, and no more while there may be others: the end of the batch forgets all that are left at
// once.
func (b *Batch) cancelSome(ctx context.Context, q engine.Querier, now time.Time, limit int) (gone []row.Change, more bool, err error) {
	if err := b.seal(ctx, q); err != nil {
		return nil, false, err
	}
	if gone, err = b.db.jobs.DropWaiters(ctx, q, []int64{-b.ID}); err != nil {
		return nil, false, err
	}
	forgotten, err := b.db.batches.ForgetEnded(ctx, q, b.ID, limit)
	if err != nil || forgotten == limit {
		return gone, true, err
	}
	members, err := b.db.batches.Members(ctx, q, b.ID, limit)
	if err != nil {
		return nil, false, err
	}
	for _, drop := range []func() ([]row.Change, error){
		func() ([]row.Change, error) { return b.db.jobs.DropWaiters(ctx, q, members) },
		func() ([]row.Change, error) { return b.db.jobs.CancelMany(ctx, q, members, true, now.Unix()) },
	} {
		dropped, err := drop()
		if err != nil {
			return nil, false, err
		}
		gone = append(gone, dropped...)
	}
	return gone, false, nil
}

// told tells of jobs that were cancelled.
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
