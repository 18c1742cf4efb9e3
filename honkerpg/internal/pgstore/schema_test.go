//go:build unix

package pgstore_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func pool(t *testing.T) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Several processes that open a new schema at the same time all succeed, and a later start changes nothing.
func TestBootstrap_AtOnce(t *testing.T) {
	schema, db := pgsql.Schema(pgtest.Schema(t)+`" odd`), pool(t)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), `DROP SCHEMA `+pgx.Identifier{string(schema)}.Sanitize()+` CASCADE`)
		require.NoError(t, err)
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := pgstore.Bootstrap(t.Context(), db, schema); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	broken, err := pgstore.Violations(t.Context(), db, schema)
	require.NoError(t, err)
	require.Empty(t, broken)
}

// A schema that needs a newer program is refused and left as it is. A newer schema that this program can use is accepted.
func TestBootstrap_OfANewerSchema(t *testing.T) {
	name, db := pgtest.Schema(t), pool(t)
	schema := pgsql.Schema(name)
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	set := func(key, value string) {
		_, err := db.ExecContext(t.Context(), `UPDATE `+pgx.Identifier{name, "meta"}.Sanitize()+` SET value = $2 WHERE key = $1`, key, value)
		require.NoError(t, err)
	}
	set("schema_version", "1000")
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	set("compatible_from", "1000")
	require.ErrorIs(t, pgstore.Bootstrap(t.Context(), db, schema), engine.ErrSchemaTooNew)
}

// Statements do not depend on the search path, nor do they meet tables of the same names in it.
func TestBootstrap_IgnoresTheSearchPath(t *testing.T) {
	schema, db := pgsql.Schema(pgtest.Schema(t)), pool(t)
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(t.Context(), `SET search_path = pg_temp; CREATE TEMPORARY TABLE meta (x int); CREATE TEMPORARY TABLE job (x int)`)
	require.NoError(t, err)
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	broken, err := pgstore.Violations(t.Context(), db, schema)
	require.NoError(t, err)
	require.Empty(t, broken)
}

// A role whose transactions are not READ COMMITTED is refused, and so are names that the server would change.
func TestBootstrap_Refuses(t *testing.T) {
	db := pool(t)
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(t.Context(), `SET default_transaction_isolation = 'serializable'`)
	require.NoError(t, err)
	err = pgstore.Bootstrap(t.Context(), db, pgsql.DefaultSchema)
	require.ErrorIs(t, err, engine.ErrUnsupported)
	require.ErrorContains(t, err, "ALTER ROLE")
	for _, bad := range []pgsql.Schema{"", "pg_honker", "a\x00b", pgsql.Schema(make([]byte, 64))} {
		require.ErrorIs(t, pgstore.Bootstrap(t.Context(), db, bad), engine.ErrInvalid)
	}
}

// A function that avoids sequential scans has plans that are not compiled, which takes a tenth of a second. The cost of a
// scan that it cannot avoid is above every threshold, and connections of other programs have the server's settings.
func TestBootstrap_FunctionsAreNotCompiled(t *testing.T) {
	schema, db := pgsql.Schema(pgtest.Schema(t)), pool(t)
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	compiled := func() []string {
		names, err := pgsql.Texts(t.Context(), db, `SELECT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = '`+string(schema)+`' AND 'enable_seqscan=off' = ANY (p.proconfig) AND NOT 'jit=off' = ANY (p.proconfig) ORDER BY 1`)
		require.NoError(t, err)
		return names
	}
	require.Empty(t, compiled())
	_, err := db.ExecContext(t.Context(), schema.SQL(`ALTER FUNCTION honker.live_queues() RESET jit`))
	require.NoError(t, err)
	require.Equal(t, []string{"live_queues"}, compiled(), "a function without the setting is found")
}
