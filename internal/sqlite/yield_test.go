package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const insertRow = `INSERT INTO t (v) VALUES (NULL)`

// Ways in which a connection of ours commits.
var commitsOf = map[string]func(t *testing.T, conn *sql.Conn){
	"a statement": func(t *testing.T, conn *sql.Conn) { perform(t, conn, insertRow) },
	"BEGIN":       func(t *testing.T, conn *sql.Conn) { perform(t, conn, "BEGIN IMMEDIATE", insertRow, "COMMIT") },
	"BeginTx": func(t *testing.T, conn *sql.Conn) {
		tx, err := conn.BeginTx(context.Background(), nil)
		require.NoError(t, err)
		perform(t, tx, insertRow)
		require.NoError(t, tx.Commit())
	},
	"ROLLBACK": func(t *testing.T, conn *sql.Conn) { perform(t, conn, "BEGIN IMMEDIATE", insertRow, "ROLLBACK") },
}

// A commit of another process is seen by the next one of ours, and none of ours is taken for one.
func TestYield_Others(t *testing.T) {
	ctx := context.Background()
	for first, commitFirst := range commitsOf {
		for second, commitSecond := range commitsOf {
			t.Run(first+" then "+second, func(t *testing.T) {
				path := file(t)
				c, pool := newPool(t, path, Config{})
				other := foreign(t, path)
				one, err := pool.Conn(ctx)
				require.NoError(t, err)
				defer one.Close()
				two, err := pool.Conn(ctx)
				require.NoError(t, err)
				defer two.Close()

				commitFirst(t, one)
				commitSecond(t, one)
				commitFirst(t, two)
				commitSecond(t, one)
				perform(t, two, "BEGIN IMMEDIATE", "ROLLBACK")
				commitFirst(t, two)
				require.Zero(t, c.yield.others)

				commitFirst(t, one)
				perform(t, other, insertRow)
				commitSecond(t, one)
				require.NotZero(t, c.yield.others)
			})
		}
	}
}

// While another process wants the writer, those of ours that have written for a while leave it
// free before the next one, and not otherwise.
func TestYield_Pause(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	perform(t, pool, insertRow)
	pause := func(others, released time.Time, busy time.Duration) time.Duration {
		c.yield.others, c.yield.released, c.yield.busy = others, released, busy
		began := time.Now()
		c.yield.before()
		return time.Since(began)
	}
	now := time.Now
	require.GreaterOrEqual(t, pause(now(), now(), yieldAfter), yieldFor/2)
	require.Zero(t, c.yield.busy)
	require.GreaterOrEqual(t, c.yield.acquired.Sub(c.yield.released), yieldFor/2, "the pause is no time of writing")
	require.GreaterOrEqual(t, pause(now(), now(), 10*time.Millisecond), 4*time.Millisecond, "a third of the time")
	require.Less(t, pause(now(), now(), time.Hour), time.Minute)

	pause(now(), now().Add(-yieldFor), time.Hour)
	require.Zero(t, c.yield.busy, "it was free long enough")
	pause(now().Add(-2*yieldUntil), now(), time.Hour)
	require.Zero(t, c.yield.others, "it has not been back")
}
