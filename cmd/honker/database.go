package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/observe"
)

// database names the database that a command uses.
type database struct {
	path string // of a file; "" for a server
	dsn  string // connection string of a PostgreSQL server
}

// The environment variables that name the database.
const (
	fileVariable   = "HONKER_FILE"
	dsnVariable    = "HONKER_DSN"
	schemaVariable = "HONKER_SCHEMA"
)

// database returns the database that the flags or the environment name, or the only honker file in the current directory.
func (a *app) database(ctx context.Context) (database, error) {
	named := database{a.file, a.dsn}
	if named == (database{}) {
		named = database{a.getenv(fileVariable), a.getenv(dsnVariable)}
	}
	switch {
	case named.path != "" && named.dsn != "":
		return database{}, usage(chooseFile, "both a file and a server are named: use one of -f and -d, or unset one of $%s and $%s", fileVariable, dsnVariable)
	case named != (database{}):
		return named, nil
	case a.empty != "":
		return database{}, usage(chooseFile, "$%s is set but empty: set it, or unset it", a.empty)
	}
	path, err := a.theFile(ctx)
	return database{path: path}, err
}

// onServer reports whether the command uses a server.
func (a *app) onServer() bool {
	return a.dsn != "" || a.file == "" && a.getenv(fileVariable) == "" && a.getenv(dsnVariable) != ""
}

// schemaName returns the name of honker's schema on a server; "" for the default.
func (a *app) schemaName() string { return cmp.Or(a.pgSchema, a.getenv(schemaVariable)) }

// environment returns the variables that name the database d for a command that honker starts.
func (a *app) environment(d database) []string {
	if d.dsn == "" {
		return []string{fileVariable + "=" + absolute(d.path)}
	}
	return []string{dsnVariable + "=" + d.dsn, schemaVariable + "=" + a.schemaName()}
}

// nonEmpty implements pflag.Value. It rejects "", for example from an unset shell variable. Falling back to a different
// database would be dangerous.
type nonEmpty struct {
	value *string
	kind  string
}

// String implements pflag.Value.
func (f nonEmpty) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

// Type implements pflag.Value.
func (f nonEmpty) Type() string { return f.kind }

// Set implements pflag.Value.
func (f nonEmpty) Set(value string) error {
	if value == "" {
		return fmt.Errorf("the %s is empty", f.kind)
	}
	*f.value = value
	return nil
}

// look opens the database read-only, calls f and closes the database.
func (a *app) look(ctx context.Context, f func(db *honker.DB) error) error {
	d, err := a.database(ctx)
	if err != nil {
		return err
	}
	return a.with(ctx, d, access{readOnly: true}, f)
}

// watch calls f, which only reads the database but may wait for commits. If no other process is using a file, a read-only
// connection ignores the WAL, and is no longer valid once another process starts using the file. On a server, a read-only
// DB gets no notices. For these reasons, watch opens the database for writing if it has permission.
func (a *app) watch(ctx context.Context, f func(db *honker.DB) error) error {
	d, err := a.database(ctx)
	if err != nil {
		return err
	}
	if err := a.try(ctx, d, access{readOnly: true}); err != nil {
		return err
	}
	how := access{readOnly: true, waits: true}
	if _, err := os.Stat(d.path + "-wal"); d.dsn != "" || errors.Is(err, fs.ErrNotExist) {
		how.readOnly = a.try(ctx, d, access{}) != nil
	}
	return a.with(ctx, d, how, f)
}

// change calls f, which may change the database. A file is first opened read-only as a check, because opening it for
// writing would turn it into a honker file or upgrade its schema.
func (a *app) change(ctx context.Context, f func(db *honker.DB) error) error {
	return a.changeBy(ctx, access{}, f)
}

// serve is like change, but for an f that waits for commits by other processes. observer may be nil.
func (a *app) serve(ctx context.Context, observer *observe.Observer, f func(db *honker.DB) error) error {
	return a.changeBy(ctx, access{waits: true, observer: observer}, f)
}

func (a *app) changeBy(ctx context.Context, how access, f func(db *honker.DB) error) error {
	d, err := a.database(ctx)
	if err != nil {
		return err
	}
	if d.dsn == "" {
		if err := a.try(ctx, d, access{readOnly: true}); err != nil {
			return err
		}
	}
	return a.with(ctx, d, how, f)
}

// try opens and closes the database to check that this kind of access works.
func (a *app) try(ctx context.Context, d database, how access) error {
	return a.with(ctx, d, how, func(*honker.DB) error { return nil })
}

// access describes how a command uses the database.
type access struct {
	readOnly bool
	waits    bool // needs to be notified by the system of other processes' commits
	upgrades bool // makes the schema of a server, or brings it up to date
	observer *observe.Observer
}

func (a *app) with(ctx context.Context, d database, how access, f func(db *honker.DB) error) (err error) {
	db, err := a.open(ctx, d, how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

func (a *app) open(ctx context.Context, d database, how access) (*honker.DB, error) {
	opts := honker.Options{
		ReadOnly: how.readOnly, Logger: a.logger(), BusyTimeout: a.timeout, MaxPayload: maxPayload,
		NoFileNotices: !how.waits || a.noNotices, Observer: how.observer,
	}
	if d.dsn == "" {
		if err := regular(d.path); err != nil {
			return nil, err
		}
		return honker.Open(ctx, d.path, &opts)
	}
	return a.openServer(ctx, d.dsn, how, opts)
}

// openServer opens a schema of a server, which must answer within the timeout. A change of the schema may take longer: for this
// reason, it begins only after the server has answered to a DB that is opened for reading.
func (a *app) openServer(ctx context.Context, dsn string, how access, opts honker.Options) (*honker.DB, error) {
	opening := ctx
	if how.upgrades {
		var old *honker.OldSchemaError
		if err := a.try(ctx, database{dsn: dsn}, access{readOnly: true}); err != nil && !errors.As(err, &old) {
			return nil, err
		}
	} else {
		var stop func()
		opening, stop = context.WithTimeout(ctx, a.timeout)
		defer stop()
	}
	db, err := honkerpg.Open(opening, dsn, &honkerpg.Options{
		Options: opts, Schema: a.schemaName(), Pooler: a.pooler, NoListen: !how.waits, NoMigrate: !how.upgrades,
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, &coded{code: codeRefused, err: fmt.Errorf("the server has not answered within %v: %w", a.timeout, err), try: "the same with --timeout 1m"}
	}
	return db, err
}

// maxPayload is large, because the application may have raised its own limit.
const maxPayload = 64 << 20

// logger returns a logger for warnings from the library, without timestamps.
func (a *app) logger() *slog.Logger {
	if a.quiet {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return attr
		},
	}))
}
