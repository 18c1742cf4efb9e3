package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const insertRow = `INSERT INTO t (v) VALUES (NULL)`

// commitsOf lists the ways in which our connections commit.
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

// A commit by another process is noticed at our next commit. Our own commits aren't mistaken for such commits.
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

// After writing for a while, our writers leave the lock free, but only if another process wants it.
func TestYield_Due(t *testing.T) {
	now := time.Now()
	var y yield
	due := func(away, free, busy time.Duration) time.Duration {
		y = yield{others: now.Add(-away), released: now.Add(-free), busy: busy}
		return y.due(now)
	}
	require.Equal(t, yieldFor, due(0, 0, yieldAfter))
	require.Zero(t, y.busy)
	require.Equal(t, yieldFor/2, due(0, yieldFor/2, yieldAfter), "it is free already")
	require.Equal(t, 5*time.Millisecond, due(0, 0, 10*time.Millisecond), "a third of the time")
	require.Equal(t, yieldAtMost, due(0, 0, time.Hour))
	require.Zero(t, due(0, 0, yieldAfter-1))
	require.Equal(t, yieldAfter-1, y.busy)

	require.Zero(t, due(0, yieldFor, time.Hour))
	require.Zero(t, y.busy, "it was free long enough")
	require.Zero(t, due(yieldUntil+1, 0, time.Hour))
	require.Zero(t, y.others, "it has not been back")
}

// A process that pauses between its commits gets no extra time during its pause.
func TestYield_Rest(t *testing.T) {
	var y yield
	now := time.Now()
	sees := func(n int, distance time.Duration) {
		for range n {
			now = now.Add(distance)
			y.saw(now)
		}
	}
	pauses := func(away time.Duration) bool {
		y.released, y.busy = now.Add(away), yieldAfter
		return y.due(now.Add(away)) > 0
	}
	sees(1, 0)
	require.True(t, pauses(time.Millisecond), "it may be back at once")
	sees(200, 4*time.Millisecond)
	require.False(t, pauses(2*time.Millisecond), "it is away for four each time")
	require.Greater(t, y.busy, yieldAfter, "the first room is for its next commit")
	require.True(t, pauses(4*time.Millisecond))
	sees(1, time.Microsecond)
	require.True(t, pauses(time.Millisecond), "there are two, or it does not pause any more")
}

// The time during which the lock was left free doesn't count as writing.
func TestYield_Before(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	perform(t, pool, insertRow)
	y := &c.yield
	y.others, y.released, y.busy = time.Now(), time.Now(), time.Hour
	y.before()
	require.GreaterOrEqual(t, y.acquired.Sub(y.released), yieldFor) // yieldAtMost, unless this was so slow that it was free before
	require.Zero(t, y.busy)
}
