package pgbackend

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
)

// lineage knows which of several servers in turn the process uses. A standby that was promoted may lack the last commits of
// its primary.
type lineage struct {
	losses atomic.Int64 // lost connections

	mu       sync.Mutex
	timeline string // the last that is known
}

// checked is the key of a connection's custom data, which holds the losses before its server was checked.
const checked = "honker: losses before the check of "

// follow finds out whether conn leads to a server with another history than before. It asks the server for the first
// statement of a connection, and again after a connection was lost: a pooler changes the server behind a connection.
func (b *Backend) follow(ctx context.Context, conn *sql.Conn) error {
	losses, key, known := b.lineage.losses.Load(), checked+string(b.opts.Schema), false
	err := conn.Raw(func(c any) error {
		data := c.(*stdlib.Conn).Conn().PgConn().CustomData()
		known = data[key] == losses
		data[key] = losses
		return nil
	})
	if err != nil || known {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	timeline, err := pgstore.Timeline(ctx, conn, b.opts.Schema, b.opts.Reads)
	switch {
	case err != nil && closed(conn):
		return err
	case err != nil:
		b.opts.Logger.DebugContext(ctx, "honker: the server does not tell its timeline, and a failover will go unnoticed", "db", b.name, "err", err)
		return nil
	case timeline == "":
		return nil
	}
	return b.moveTo(ctx, conn, timeline)
}

// moveTo forgets its knowledge of the server before, if timeline is not its timeline.
func (b *Backend) moveTo(ctx context.Context, conn *sql.Conn, timeline string) error {
	b.lineage.mu.Lock()
	before := b.lineage.timeline
	b.lineage.timeline = timeline
	b.lineage.mu.Unlock()
	if before == "" || before == timeline {
		return nil
	}
	b.opts.Logger.WarnContext(ctx, "honker: a standby has taken over, or a backup was restored; the last commits are missing if they were not replicated",
		"db", b.name, "timeline", timeline, "before", before)
	if w := b.watcher.Load(); w != nil {
		w.forget()
	}
	return b.clock.set(ctx, conn)
}
