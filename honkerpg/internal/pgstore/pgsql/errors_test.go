package pgsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
)

// A failed commit is decided if the server has answered, or was not sent. A pooler's answer decides nothing.
func TestDecided(t *testing.T) {
	server := func(severity, code string) error { return &pgconn.PgError{SeverityUnlocalized: severity, Code: code} }
	for _, err := range []error{
		server("ERROR", "23505"),
		server("ERROR", "40001"),
		server("FATAL", "57P01"), // the connection was ended
		server("FATAL", "25P03"), // the transaction was idle for too long
		pgx.ErrTxCommitRollback,
		sql.ErrTxDone,
		&net.OpError{Op: "write", Err: errors.New("broken pipe")},
	} {
		require.True(t, pgsql.Decided(fmt.Errorf("wrapped: %w", err)), "%v", err)
	}
	for _, err := range []error{
		server("FATAL", "08P01"), // PgBouncer: the server connection crashed
		server("ERROR", "08006"),
		server("FATAL", "XX000"),
		server("PANIC", "XX000"),
		io.ErrUnexpectedEOF,
		&net.OpError{Op: "read", Err: errors.New("connection reset")},
	} {
		require.False(t, pgsql.Decided(err), "%v", err)
	}
}

// A server that starts, stops or is full may accept a connection later. A wrong password stays wrong.
func TestAway(t *testing.T) {
	for code, away := range map[string]bool{"57P03": true, "57P01": true, "53300": true, "08P01": true, "28P01": false, "3D000": false} {
		require.Equal(t, away, pgsql.Away(&pgconn.PgError{Code: code}), code)
	}
	require.False(t, pgsql.Away(nil))
	require.False(t, pgsql.Away(sql.ErrNoRows))
}
