//go:build unix

package pgbackend

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// ahead is a server whose clock is an hour ahead.
type ahead struct{ *sql.DB }

func (a ahead) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return a.DB.QueryContext(ctx, strings.Replace(query, "clock_timestamp()", "clock_timestamp() + interval '1 hour'", 1), args...)
}

// The clock shows the time of the server and not of this machine, and is not more wrong than a reading takes.
func TestClock_IsTheServers(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	defer db.Close()
	server := func() time.Time {
		at, err := pgstore.ServerTime(t.Context(), ahead{db})
		require.NoError(t, err)
		return at
	}
	var c clock
	require.True(t, c.old(), "it has not been read")
	before, began := server(), time.Now()
	require.NoError(t, c.set(t.Context(), ahead{db}))
	took := time.Since(began)
	shown, after := c.now(), server()
	require.False(t, c.old())
	require.False(t, shown.Before(before.Add(-took)), "%v, and the server had %v", shown, before)
	require.False(t, shown.After(after.Add(took)), "%v, and the server has %v", shown, after)
}
