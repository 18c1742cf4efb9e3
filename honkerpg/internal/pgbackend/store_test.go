//go:build unix

package pgbackend_test

import (
	"database/sql"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The statements for PostgreSQL keep the rules of the stores.
func TestStores(t *testing.T) {
	if testing.Short() {
		t.Skip("the suites take a minute and find no race: the other tests call the backend at once")
	}
	pgtest.DSN(t) // skips all suites at once
	storetest.Run(t, func(t *testing.T) *storetest.Fixture {
		schema := pgsql.Schema(pgtest.Schema(t))
		return &storetest.Fixture{Backend: open(t, schema, nil), Stores: pgstore.Stores(schema), Resolution: time.Microsecond, Later: true}
	})
}

// poolerName is the environment variable that runs all suites through a pooler.
const poolerName = "HONKER_TEST_POOLER"

// some are the suites that a plain run tries through a pooler. They cover arrays, nulls, transactions and numbers.
var some = regexp.MustCompile(`^(Batches/Life|Jobs|Locks|Streams/|Wakes/)`)

// The statements work through a pooler in transaction mode, which gives each transaction another connection.
func TestStores_Pooler(t *testing.T) {
	dsn := pgtest.Bouncer(t)
	storetest.Run(t, func(t *testing.T) *storetest.Fixture {
		_, suite, _ := strings.Cut(t.Name(), "/")
		if !some.MatchString(suite) && os.Getenv(poolerName) == "" {
			t.Skip("set " + poolerName + " to run this suite")
		}
		schema := pgsql.Schema(pgtest.Schema(t))
		b := openAt(t, dsn, schema, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec })
		return &storetest.Fixture{Backend: b, Stores: pgstore.Stores(schema), Resolution: time.Microsecond, Later: true}
	})
}

// open opens a backend, whose configuration may be changed before.
func open(t *testing.T, schema pgsql.Schema, change func(*pgx.ConnConfig)) *pgbackend.Backend {
	t.Helper()
	return openAt(t, pgtest.DSN(t), schema, change)
}

func openAt(t *testing.T, dsn string, schema pgsql.Schema, change func(*pgx.ConnConfig)) *pgbackend.Backend {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	if change != nil {
		change(config)
	}
	pool := stdlib.OpenDB(*config)
	pool.SetMaxOpenConns(4)
	b, err := pgbackend.Open(t.Context(), config, pgbackend.Options{
		Schema: schema, BusyTimeout: 5 * time.Second, Logger: slog.Default(),
		Pool: pool, App: func() *sql.DB { return pool }, Close: pool.Close, Listen: config.Copy(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
