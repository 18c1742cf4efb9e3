//go:build unix

package lists_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// start is the time of all statements.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// base is a database with honker's schema.
type base struct {
	*sql.DB
	pgsql.Schema
}

func open(t *testing.T) base {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	b := base{stdlib.OpenDB(*config), pgsql.Schema(pgtest.Schema(t))}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, pgstore.Bootstrap(t.Context(), b.DB, b.Schema))
	return b
}

func (b base) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := b.ExecContext(t.Context(), b.SQL(query), args...)
	require.NoError(t, err)
}
