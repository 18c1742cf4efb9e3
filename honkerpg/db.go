package honkerpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// pools are the connections of a DB.
type pools struct {
	own  *sql.DB        // for honker's verbs
	open func() *sql.DB // opens app; nil if app is set

	mu  sync.Mutex
	app *sql.DB // for the application's transactions; nil until it is used
}

// application returns the application's pool.
func (p *pools) application() *sql.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.app == nil {
		p.app = p.open()
	}
	return p.app
}

// Close closes the pools. It does nothing to a pgxpool.Pool below them.
func (p *pools) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.own.Close()
	if p.app != nil && p.app != p.own {
		err = errors.Join(err, p.app.Close())
	}
	return err
}

// beforeConnect changes the configuration of a connection that is about to be made, for example its password.
type beforeConnect func(context.Context, *pgx.ConnConfig) error

// newDB returns a DB for the server that config names. before may be nil; it is for the LISTEN connection.
func newDB(ctx context.Context, opts *Options, config *pgx.ConnConfig, before beforeConnect, connect func(*pgx.ConnConfig, time.Duration) *pools) (*honker.DB, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	listen, err := o.listen(config)
	if err != nil {
		return nil, err
	}
	if o.ListenDSN != "" {
		before = nil // it belongs to the other connections
	}
	if o.Pooler {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	db, err := engine.NewDB(o.Options, func(s engine.Settings) (engine.Database, error) {
		p := connect(config, s.BusyTimeout)
		schema := schemaOf(o.Schema)
		b, err := pgbackend.Open(ctx, config, pgbackend.Options{
			Schema:      schema,
			BusyTimeout: s.BusyTimeout,
			Logger:      s.Logger,
			Pool:        p.own,
			App:         p.application,
			Close:       p.Close,
			NoMake:      o.NoMigrate || s.ReadOnly,
			Listen:      listen,

			OldSchema:    func(version, current int) error { return &honker.OldSchemaError{Version: version, Current: current} },
			BeforeListen: before,
			Poll:         o.PollInterval,
			Reads:        s.ReadOnly,
			LocalClock:   wake.InBubble(),
		})
		if err != nil {
			return engine.Database{}, err
		}
		return engine.Database{Backend: b, Stores: pgstore.Stores(schema), Pool: p.application, Looks: p.own}, nil
	})
	if err != nil {
		return nil, err
	}
	return db.(*honker.DB), nil
}

// check refuses options that have no meaning on a server.
func (o *Options) check() error {
	switch {
	case wake.InBubble() && !inBubbles:
		return fmt.Errorf("%w: the clock of a testing/synctest bubble stands still while a server is asked: "+
			"use a file with package honkertest in bubbles, and test against PostgreSQL outside of them", engine.ErrUnsupported)
	case o.OnConnect != nil:
		return fmt.Errorf("%w: OnConnect is for files; set AfterConnect of a pgxpool.Config and use Attach", engine.ErrUnsupported)
	case o.LegacyMessages:
		return fmt.Errorf("%w: LegacyMessages is for files that other bindings share; do not set it", engine.ErrUnsupported)
	case o.NoListen && o.ListenDSN != "":
		return fmt.Errorf("%w: NoListen and ListenDSN exclude each other", engine.ErrInvalid)
	}
	return schemaOf(o.Schema).Check()
}

// listen returns the configuration of the LISTEN connection, or nil for none.
func (o *Options) listen(config *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	switch {
	case o.NoListen:
		return nil, nil
	case o.ListenDSN == "":
		return config.Copy(), nil
	}
	listen, err := pgx.ParseConfig(o.ListenDSN)
	if err != nil {
		return nil, unreadable("ListenDSN", err)
	}
	return listen, nil
}
