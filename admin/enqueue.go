package admin

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Enqueue adds a job by hand, and leaves an entry in the [Audit], which the enqueue of an application does not. One that
// [honker.Unique] has kept from adding a job leaves none. payload is encoded as an argument of [honker.Queue.Enqueue]
// is, with the same options and errors; a json.RawMessage is stored as it is. It waits for the writer, until ctx ends or
// BusyTimeout has passed, and under the ctx of a DB.Tx it is [honker.ErrInTx]. nil as the DB is [honker.ErrInvalid].
func Enqueue(ctx context.Context, db *honker.DB, queue string, payload any, opts ...honker.EnqueueOption) (id int64, err error) {
	e, err := engineOf(db)
	if err != nil {
		return 0, engine.Wrap("enqueue", queue, err)
	}
	q := honker.NewQueue[any](db, queue, nil)
	var place honker.Placement
	opts = append([]honker.EnqueueOption{honker.Placed(&place)}, opts...) // before a Placed of the caller, which it then is
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
		audit := engine.NewAudit(ctx, "enqueue", engine.AuditTarget("queue", queue, "job", strconv.FormatInt(id, 10)))
		return audit.NoteOne(ctx, joined, time.Now())
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}
