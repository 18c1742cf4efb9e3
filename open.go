package honker

import (
	"context"
	"database/sql/driver"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite/backend"
)

// Open opens the file at path and brings its schema up to date. If the file does not exist, Open creates it,
// readable only by its owner. Opening an existing application database keeps its contents but sets its journal
// mode to WAL.
//
// path is a plain file name in which ?, # and % have no special meaning. ctx applies only to the call to Open. A nil
// opts means defaults. Open returns [ErrUnsupported] for a file that cannot be used safely, and [ErrSchemaTooNew] for
// a file with the schema of a newer version.
func Open(ctx context.Context, path string, opts *Options) (*DB, error) {
	db, err := open(ctx, path, opts)
	return db, fail("open", path, err)
}

func open(ctx context.Context, path string, opts *Options) (*DB, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.refuseBubble(); err != nil {
		return nil, err
	}
	if engine.Elsewhere != nil {
		if db, err := engine.Elsewhere(ctx, path, o); db != nil || err != nil {
			return db.(*DB), err
		}
	}
	b, err := backend.Open(ctx, path, o.sqlite())
	if err != nil {
		return nil, err
	}
	return newDB(o, b, backend.Stores(), b.SQL, b.Looks()), nil
}

// Connector returns a connector to the file at path for a pool that the caller creates, such as the pool of an
// ORM. Its connections are set up, wait for the writer and wake waiting goroutines like those of [DB.SQL], and
// provide honker's SQL functions. The first connection brings the schema up to date. A nil opts means defaults.
func Connector(path string, opts *Options) (driver.Connector, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fail("new connector", path, err)
	}
	c, err := backend.Connector(path, o.sqlite(), func(err error) error { return fail("connect", path, err) })
	if err != nil {
		return nil, fail("new connector", path, err)
	}
	return c, nil
}

// sqlite returns the options of the SQLite backends.
func (o Options) sqlite() backend.Options {
	return backend.Options{
		Logger:         o.Logger,
		ReadOnly:       o.ReadOnly,
		Full:           o.Durability == Full,
		BusyTimeout:    o.BusyTimeout,
		Readers:        o.Readers,
		IdleConns:      o.IdleConns,
		PollInterval:   o.PollInterval,
		NoFileNotices:  o.NoFileNotices,
		PosixLocks:     o.PosixLocks,
		AnyFilesystem:  o.AnyFilesystem,
		LegacyMessages: o.LegacyMessages,
		OnConnect:      o.OnConnect,
		Ended:          txEnded(o.Observer),
		OldSchema: func(version, current int) error {
			return &OldSchemaError{Version: version, Current: current}
		},
	}
}
