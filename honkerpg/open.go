package honkerpg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
)

// Options configures a DB on PostgreSQL. The zero value of a field means its default.
type Options struct {
	// Options are those of package honker. The fields about files have no effect: Durability, WALLimit, NoFileNotices,
	// PosixLocks and AnyFilesystem. The server's synchronous_commit determines which commits survive a crash. Readers
	// and IdleConns have no effect either: see [Open] for the number of connections. PollInterval is the longest time
	// between two looks at the database while there is no LISTEN connection; the default is 500ms. ReadOnly also opens a
	// standby, and polls. OnConnect and LegacyMessages return [honker.ErrUnsupported].
	honker.Options

	// Schema is the PostgreSQL schema of honker's tables; the default is "honker". Several schemas in a database are
	// independent of each other.
	Schema string

	// ListenDSN is the connection string for the LISTEN connection, if it must differ from the others'. Set it if the
	// others go through a pooler in transaction mode, which cannot pass on notifications.
	ListenDSN string

	// NoListen polls the database instead of waiting for notifications. Without it, honker finds out by itself that
	// notifications do not arrive, logs a warning, and polls.
	NoListen bool

	// Pooler avoids everything that a pooler in transaction mode cannot keep, such as prepared statements. Set it for
	// PgBouncer and for the poolers of hosted databases.
	Pooler bool

	// NoMigrate requires that the schema exists and is up to date. Open then needs no right to create tables: see
	// [Schema].
	NoMigrate bool
}

// conns is the maximum number of connections of each pool, unless the DSN sets pool_max_conns. Few suffice, because
// concurrent verbs share statements.
const conns = 16

// Open connects to a PostgreSQL database, creates honker's schema or brings it up to date, and returns a DB. Processes
// that open a database at the same time wait for each other's migration. ctx applies only to the call to Open. A nil
// opts means defaults.
//
// dsn is a connection string as pgx accepts it, a URL or key=value pairs. honker's verbs use a pool of up to 16
// connections, or pool_max_conns if the DSN sets it. [honker.DB.SQL] and [honker.DB.Tx] use a second pool of the same
// size, which opens with the first use. So long transactions of the application cannot keep a lease from being renewed.
// A connection outside of the pools waits for notifications while something waits in the process.
//
// Open returns [honker.ErrUnsupported] for a server that honker cannot run on: older than version 14, CockroachDB or
// YugabyteDB, with an encoding other than UTF8, with a default isolation level other than read committed, or behind a
// pooler that needs Options.Pooler. It returns [honker.ErrSchemaTooNew] for a schema that needs a newer program,
// [honker.OldSchemaError] for a schema that is missing or old and that Options keep Open from changing,
// [honker.ErrInvalid] for a schema with tables of another program, [io/fs.ErrPermission] for a role whose rights do not
// suffice, and [honker.ErrReadOnly] for a standby unless Options.ReadOnly is set. It has then changed nothing.
func Open(ctx context.Context, dsn string, opts *Options) (*honker.DB, error) {
	db, err := open(ctx, dsn, opts)
	return db, engine.Wrap("open", "", err)
}

func open(ctx context.Context, dsn string, opts *Options) (*honker.DB, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, unreadable("DSN", err)
	}
	most := int(config.MaxConns)
	if !strings.Contains(dsn, "pool_max_conns") {
		most = conns
	}
	return newDB(ctx, opts, config.ConnConfig, nil, func(config *pgx.ConnConfig, patience time.Duration) *pools {
		patient := stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			err := pgstore.LimitLocks(ctx, conn, patience)
			if err != nil && conn.IsClosed() {
				err = fmt.Errorf("%w: %w", driver.ErrBadConn, err) // the server is away, and the call runs again
			}
			if err != nil {
				return errors.Join(err, conn.Close(ctx))
			}
			return nil
		})
		return &pools{own: poolOf(config, most, patient), open: func() *sql.DB { return poolOf(config, most) }}
	})
}

// unreadable returns the error for a connection string that cannot be parsed. It leaves out the string, because pgx masks only
// the passwords that it recognizes.
func unreadable(name string, err error) error {
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		bare := *parse
		bare.ConnString = ""
		err = errors.New(strings.TrimPrefix(bare.Error(), "cannot parse ``: "))
	}
	return fmt.Errorf("%w: %s: %w", engine.ErrInvalid, name, err)
}

// poolOf returns a pool of up to most connections, which stay open.
func poolOf(config *pgx.ConnConfig, most int, options ...stdlib.OptionOpenDB) *sql.DB {
	pool := stdlib.OpenDB(*config, options...)
	pool.SetMaxOpenConns(most)
	pool.SetMaxIdleConns(most)
	return pool
}

// Attach returns a DB that uses the application's pool. The caller still owns the pool: Close of the DB does not close
// it. honker's verbs and the application's transactions share its connections. If all of them are in use, a verb waits
// for a connection until its ctx ends, and leases are not renewed. In all other respects Attach is like [Open]. With
// Options.Pooler, the pool itself must be configured for the pooler: DefaultQueryExecMode must be
// pgx.QueryExecModeExec.
func Attach(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*honker.DB, error) {
	if pool == nil {
		return nil, engine.Wrap("attach", "", fmt.Errorf("%w: nil pool", engine.ErrInvalid))
	}
	config := pool.Config().ConnConfig
	if opts != nil && opts.Pooler && config.DefaultQueryExecMode != pgx.QueryExecModeExec {
		return nil, engine.Wrap("attach", "", fmt.Errorf("%w: with Pooler, DefaultQueryExecMode of the pool's ConnConfig must be "+
			"pgx.QueryExecModeExec", engine.ErrInvalid))
	}
	db, err := newDB(ctx, opts, config, pool.Config().BeforeConnect, func(*pgx.ConnConfig, time.Duration) *pools {
		shared := stdlib.OpenDBFromPool(pool)
		return &pools{own: shared, app: shared}
	})
	return db, engine.Wrap("attach", "", err)
}

// WithTx returns tx as the Tx forms of the verbs accept it. The verbs become part of tx.
func WithTx(tx pgx.Tx) honker.Tx {
	if tx == nil {
		return nil
	}
	return pgbackend.Native(tx)
}

// Schema returns the statements that create honker's tables in the given schema, "" for "honker". They are for an
// administrator: programs then set Options.NoMigrate, and need the rights to use the schema and to read and write its
// tables only.
func Schema(schema string) (string, error) {
	text, err := pgstore.Text(schemaOf(schema))
	return text, engine.Wrap("schema", schema, err)
}

func schemaOf(name string) pgsql.Schema {
	if name == "" {
		return pgsql.DefaultSchema
	}
	return pgsql.Schema(name)
}
