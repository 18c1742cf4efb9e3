// Package backend opens SQLite for the engine: either a file, with honker's own connections, or the
// application's pool. It also brings the file to the current schema.
package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/sqlfunc"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
	"github.com/honker-go/honker/internal/sqlite/watch"
	"github.com/honker-go/honker/internal/wake"
)

// Options holds those of the root package's options that affect SQLite, with defaults applied.
type Options struct {
	Logger         *slog.Logger
	ReadOnly       bool
	Full           bool // synchronous=FULL
	BusyTimeout    time.Duration
	Readers        int
	IdleConns      int // number of the process's connections above which quiet files close theirs
	PollInterval   time.Duration
	NoFileNotices  bool
	PosixLocks     bool
	AnyFilesystem  bool
	LegacyMessages bool // create triggers for messages from honker 0.1 on honker's own connections
	OnConnect      func(ctx context.Context, conn driver.Conn) error

	// Ended is called after each transaction that held the write lock. It may be nil.
	Ended func(wait, ran time.Duration, committed bool)
	// OldSchema returns the error for a file that is opened read-only and has an older schema.
	// version is 0 if the file does not have honker's own tables.
	OldSchema func(version, current int) error
}

// functions contains honker's SQL functions. They are registered on all of the process's connections
// except attached connections and the watcher's connection. All files share a single table, because the
// driver never releases a registered function.
var functions = sqlite.NewFunctions(sqlfunc.Functions(schema.Schema))

// prepare brings the schema of the file up to date. If the file is opened read-only, it only checks the schema.
func prepare(ctx context.Context, pool *sql.DB, path string, o Options, journal func(context.Context, row.Querier) error) error {
	if !o.ReadOnly {
		return bootstrap(ctx, pool, path, o.BusyTimeout, journal)
	}
	if err := sqlite.CheckVersion(ctx, pool); err != nil {
		return err
	}
	version, ours, err := schema.Made(ctx, pool)
	var lacks error
	switch {
	case err != nil:
		return sqlite.Explain(err, path)
	case !ours:
		lacks = errors.New("it has no honker tables")
	case version < schema.Version:
		lacks = o.OldSchema(version, schema.Version)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s cannot be opened read-only: %w", engine.ErrUnsupported, path, lacks)
}

// bootstrap brings the schema of the file up to date. It writes nothing if the schema is current. A file that can't
// be opened is rejected before anything is changed, including its journal mode.
func bootstrap(ctx context.Context, pool *sql.DB, path string, limit time.Duration, journal func(context.Context, row.Querier) error) error {
	if err := sqlite.CheckVersion(ctx, pool); err != nil {
		return err
	}
	current, err := schema.Current(ctx, pool)
	if err != nil {
		return sqlite.Explain(err, path)
	}
	if err := journal(ctx, pool); err != nil || current {
		return sqlite.Explain(err, path)
	}
	writer := sqlite.NewCommitter(sqlite.ForeignPool(pool), limit)
	defer writer.Close()
	err = writer.Do(ctx, engine.OpFunc(func(ctx context.Context, q row.Querier, _ time.Time) error {
		return schema.Bootstrap(ctx, q, schema.Schema)
	}))
	if err == nil {
		_, err = pool.ExecContext(ctx, sqlite.ShrinkMemory)
	}
	return sqlite.Explain(err, path)
}

// warn logs possible problems with a file that can still be opened.
func warn(o Options, identity *sqlite.Identity) {
	for _, warning := range sqlite.Warnings(identity.Path(), identity.Info()) {
		o.Logger.Warn("honker: "+warning, "path", identity.Path())
	}
}

// afterwards returns the connection setup statements that need the schema.
func afterwards(o Options) []string {
	if !o.LegacyMessages || o.ReadOnly {
		return nil
	}
	return notify.LegacyMessages
}

// late returns a function that logs a transaction that held up all other writers. Writers that gave up report only
// that the file was busy, not why.
func late(path string, log *slog.Logger) sqlite.Late {
	return func(held time.Duration, where string) {
		log.Warn("honker: a long transaction has kept other writers waiting", "path", path, "held", held, "where", where)
	}
}

// newWatcher returns a watcher for c, to which it adds the settings that both backends share.
func newWatcher(o Options, events wake.Events, c watch.Config) *watch.Watcher {
	c.Poll, c.Notices, c.Logger = o.PollInterval, !o.NoFileNotices, o.Logger
	c.NoSignals = o.ReadOnly
	c.Untrusted = o.AnyFilesystem || sqlite.MayBeRemote(c.Path)
	c.Changed, c.Lost = events.Changed, events.Lost
	check := c.Identity
	c.Identity = func() error {
		if err := check(); engine.Final(err) {
			return err
		}
		return nil // a later check may find the replacement
	}
	return watch.New(c)
}

// onDisk implements the methods that both backends share.
type onDisk struct {
	identity *sqlite.Identity
	lend     func(ctx context.Context, f func(conn *sql.Conn) error) error // runs f on one of the backend's connections
}

// Name implements engine.Backend.
func (d onDisk) Name() string { return d.identity.Path() }

// Now implements engine.Backend. All processes with access to the file have the same clock.
func (onDisk) Now() time.Time { return time.Now() }

// Path implements engine.File.
func (d onDisk) Path() string { return d.identity.Path() }

// LogSize implements engine.File.
func (d onDisk) LogSize() int64 {
	info, err := os.Stat(d.Path() + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// Savepoint implements engine.Backend.
func (onDisk) Savepoint(ctx context.Context, q row.Querier) (end func(ctx context.Context, keep bool) error, err error) {
	if err := rows.Savepoint(ctx, q); err != nil {
		return nil, err
	}
	return func(ctx context.Context, keep bool) error { return rows.EndSavepoint(ctx, q, keep) }, nil
}

// Check implements engine.Backend.
func (d onDisk) Check(ctx context.Context) (broken []string, err error) {
	err = d.lend(ctx, func(conn *sql.Conn) (err error) {
		broken, err = schema.Check(ctx, conn)
		return err
	})
	return broken, err
}

// Shrink implements engine.File.
func (d onDisk) Shrink(ctx context.Context, limit int64) (done bool, err error) {
	if limit < 0 || d.LogSize() <= limit {
		return true, nil
	}
	err = d.lend(ctx, func(conn *sql.Conn) (err error) {
		done, err = sqlite.TruncateWAL(ctx, conn)
		return err
	})
	return done, err
}
