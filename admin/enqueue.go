package admin

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Enqueue adds a job to queue on behalf of an operator and records it in the [Audit]. Jobs enqueued by an
// application are not recorded, nor are calls that add no job because of [honker.Unique]. payload is
// encoded as in [honker.Queue.Enqueue]; a json.RawMessage is stored unchanged. Options and errors are the
// same as those of [honker.Queue.Enqueue].
//
// Enqueue waits for the writer until ctx ends or BusyTimeout has passed. It returns [honker.ErrInTx] if
// ctx belongs to a DB.Tx, and [honker.ErrInvalid] if db is nil.
func Enqueue(ctx context.Context, db *honker.DB, queue string, payload any, opts ...honker.EnqueueOption) (id int64, err error) {
	e, err := engineOf(db)
	if err != nil {
		return 0, engine.Wrap("enqueue", queue, err)
	}
	q := honker.NewQueue[any](db, queue, nil)
	var place honker.Placement
	opts = append([]honker.EnqueueOption{honker.Placed(&place)}, opts...) // a Placed option in opts is applied later and overrides this one
	err = e.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if id, err = q.EnqueueTx(ctx, tx, payload, opts...); err != nil {
			return err
		}
		if place.Result == honker.PlacedExisting {
			return nil
		}
		joined, err := e.Join(ctx, tx)
		if err != nil {
			return err
		}
		audit := e.NewAudit(ctx, "enqueue", engine.AuditTarget("queue", queue, "job", strconv.FormatInt(id, 10)))
		return audit.NoteOne(ctx, joined, e.Now())
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}
