package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// attend registers the process and does the work that commits of others have left. did means that there was some. If the
// last look was on another connection, and so perhaps on another server, attend checks the place.
func (w *watcher) attend(register *wake.Signals, check bool) (did bool, moment string, err error) {
	b := w.backend
	conn, err := b.connect(w.ctx, b.pool)
	if err != nil {
		return false, "", err
	}
	defer conn.Close()
	ctx := context.WithoutCancel(w.ctx)
	if check {
		where, err := pgstore.Where(ctx, conn, b.opts.Schema)
		if err == nil && where != b.where {
			err = fmt.Errorf("%w: %s is not the schema that was opened", engine.ErrDatabaseReplaced, b.name)
		}
		if err != nil {
			return false, "", err
		}
	}
	if err := b.refresh(ctx, conn); err != nil {
		return false, "", err
	}
	left, moment, err := pgstore.Attend(ctx, conn, b.opts.Schema, w.process, register)
	if err != nil || left == 0 || b.opts.Reads {
		return false, moment, err
	}
	if left&pgsql.Resolve != 0 {
		defer w.Raise(pgsql.Released)
	}
	return true, moment, pgstore.CatchUp(ctx, conn, b.opts.Schema, left, b.Now())
}

// leave ends the registration.
func (w *watcher) leave() {
	if !w.until.After(time.Now()) || w.registered == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), lastNotice)
	defer cancel()
	if err := pgstore.EndAttend(ctx, w.backend.pool, w.backend.opts.Schema, w.process); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		w.backend.opts.Logger.DebugContext(ctx, "honker: a registration was not removed and will run out", "db", w.backend.name, "err", err)
	}
}
