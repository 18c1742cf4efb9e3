//go:build unix

package ops_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/row"
)

// on is open on a server of the test's own.
func on(t *testing.T, dsn string) base {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	b := base{stdlib.OpenDB(*config), pgsql.Schema("honker")}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, pgstore.Bootstrap(t.Context(), b.DB, b.Schema))
	return b
}

// follow connects as a standby that replays nothing after the server's present position.
func follow(t *testing.T, b base, dsn string) {
	t.Helper()
	var lsn string
	var position int64
	require.NoError(t, b.QueryRowContext(t.Context(), `SELECT pg_current_wal_flush_lsn(), (pg_current_wal_flush_lsn() - '0/0')::bigint`).Scan(&lsn, &position))
	config, err := pgconn.ParseConfig(dsn + " replication=true application_name=lame")
	require.NoError(t, err)
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	f := conn.Frontend()
	f.Send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + lsn})
	require.NoError(t, f.Flush())
	for {
		m, err := f.Receive()
		require.NoError(t, err)
		if _, both := m.(*pgproto3.CopyBothResponse); both {
			break
		}
	}
	status := make([]byte, 34) // written, flushed and replayed up to the position, at a time, without a request for a reply
	status[0] = 'r'
	for i := range 3 {
		binary.BigEndian.PutUint64(status[1+8*i:], uint64(position))
	}
	f.Send(&pgproto3.CopyData{Data: status})
	require.NoError(t, f.Flush())
}

// A standby that does not replay the log is a problem, and so is the slot of a standby that is not there.
func TestProblems_Standbys(t *testing.T) {
	c := pgtest.Cluster(t)
	b := on(t, c.DSN())
	b.exec(t, b, `SELECT pg_create_physical_replication_slot('gone', true)`)
	follow(t, b, c.DSN())
	require.Empty(t, b.at(t, time.Now()).Standbys)
	for range 18 { // a file of the log has 16 MiB
		b.exec(t, b, `SELECT pg_switch_wal() FROM pg_logical_emit_message(false, 'test', 'x')`)
	}
	var found []row.Standby
	require.Eventually(t, func() bool { found = b.at(t, time.Now()).Standbys; return len(found) == 2 }, 10*time.Second, 10*time.Millisecond)
	away := map[string]bool{}
	for _, s := range found {
		away[s.Name] = s.Away
		require.Greater(t, s.Behind, int64(256<<20))
	}
	require.Equal(t, map[string]bool{"standby lame": false, "the standby of replication slot gone": true}, away)
}

// A server that is about to refuse connections is a problem.
func TestProblems_Connections(t *testing.T) {
	c := pgtest.Cluster(t)
	b := on(t, c.DSN())
	require.Nil(t, b.at(t, time.Now()).Connections)
	b.exec(t, b, `ALTER SYSTEM SET max_connections = 23`)
	b.exec(t, b, `ALTER SYSTEM SET autovacuum = off`) // its workers count as well
	require.NoError(t, c.Restart("fast"))
	b = on(t, c.DSN())
	require.Nil(t, b.at(t, time.Now()).Connections)
	for range 17 {
		conn, err := b.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Eventually(t, func() bool { return b.at(t, time.Now()).Connections != nil }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, row.Connections{Used: 18, Most: 20}, *b.at(t, time.Now()).Connections)
}

// A role that may not read the statistics of others gets the problems without their details, and is told that they are
// missing.
func TestProblems_Rights(t *testing.T) {
	b := open(t)
	b.exec(t, b, `INSERT INTO honker.job (queue, payload, run_at, created_at) VALUES ('mails', '{}', $1, $1)`, time.Now())
	holder, pid := b.begin(t, nil)
	b.exec(t, holder, `UPDATE honker.job SET priority = 1`)
	ended := make(chan error, 1)
	go func() {
		_, err := b.ExecContext(t.Context(), b.SQL(`UPDATE honker.job SET priority = 2`))
		ended <- err
	}()
	later := time.Now().Add(time.Hour)
	require.Eventually(t, func() bool { return len(b.at(t, later).Blocked) == 1 }, 10*time.Second, time.Millisecond)
	seen := b.at(t, later)
	require.Contains(t, seen.Blocked[0].Query, "SET priority = 1")
	require.Zero(t, seen.Unseen)

	role := "blind_" + fmt.Sprint(pid)
	b.exec(t, b, `CREATE ROLE `+role)
	t.Cleanup(func() { b.exec(t, b, `DROP OWNED BY `+role); b.exec(t, b, `DROP ROLE `+role) })
	b.exec(t, b, `GRANT USAGE ON SCHEMA "`+string(b.Schema)+`" TO `+role)
	b.exec(t, b, `GRANT SELECT ON ALL TABLES IN SCHEMA "`+string(b.Schema)+`" TO `+role)
	blind, _ := b.begin(t, nil)
	b.exec(t, blind, `SET LOCAL ROLE `+role)
	found := troubles(t, b, blind, later)
	require.NoError(t, blind.Rollback())
	require.Equal(t, []row.Blocked{{By: fmt.Sprint("session ", pid), N: 1, Since: seen.Blocked[0].Since}}, found.Blocked)
	require.EqualValues(t, 1, found.Unseen)
	require.NoError(t, holder.Rollback())
	require.NoError(t, <-ended)
}
