package admin

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Enqueue adds a job to queue on behalf of an operator and records it in the [Audit]. Jobs that an
// application enqueues are not recorded, and neither is a call that [honker.Unique] kept from adding a job.
// payload is encoded like the argument of [honker.Queue.Enqueue]; a json.RawMessage is stored unchanged.
// The options and errors are the same.
//
// Enqueue waits for the writer until ctx ends or BusyTimeout has passed. It returns [honker.ErrInTx] under
// the ctx of a DB.Tx, and [honker.ErrInvalid] if db is nil.
func Enqueue(ctx context.Context, db *honker.DB, queue string, payload any, opts ...honker.EnqueueOption) (id int64, err error) {
	e, err := engineOf(db)
	if err != nil {
		return 0, engine.Wrap("enqueue", queue, err)
	}
	q := honker.NewQueue[any](db, queue, nil)
	var place honker.Placement
	opts = append([]honker.EnqueueOption{honker.Placed(&place)}, opts...) // a Placed option of the caller comes later and replaces place
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
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
		return audit.NoteOne(ctx, joined, time.Now())
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}
