package store_test

import (
	"database/sql"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

var someQueues = []string{"b", "unused", "a"}

func statesAt(t *testing.T, q row.Querier, now int64, queues ...string) []row.QueueState {
	t.Helper()
	states, err := states(q, queues, now)
	require.NoError(t, err)
	require.Len(t, states, len(queues))
	for i, s := range states {
		require.Equal(t, queues[i], s.Queue, "in the order asked for")
		ready, err := ready(q, s.Queue, now)
		require.NoError(t, err)
		require.Equal(t, s.Ready, ready)
	}
	return states
}

// eachTable runs check on random tables, both in our own file and in a file shared with honker.
func eachTable(t *testing.T, n int, check func(t *testing.T, tx *sql.Tx, g table)) {
	t.Helper()
	dbs := []*sql.DB{openFresh(t), openShared(t)}
	s := seed(t)
	for i := range n {
		tx := begin(t, dbs[i%2])
		g := newTable(s, i)
		g.size = 1 + i%12 // small tables are idle more often
		writeRows(t, tx, g.rows())
		check(t, tx, g)
		require.NoError(t, tx.Rollback())
	}
}

// A queue is ready if and only if a claim changes something.
func TestState_Ready(t *testing.T) {
	ready := 0
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		for _, s := range statesAt(t, tx, g.now, someQueues...) {
			require.Equal(t, claimChanges(t, tx, s.Queue, g.now), s.Ready, "%s of %v", s.Queue, liveRows(t, tx))
			if s.Ready {
				ready++
			}
		}
	})
	requireMet(t, ready, "ready queues")
	requireMet(t, 2*randomTables-ready, "queues with nothing to do")
}

func claimChanges(t *testing.T, tx *sql.Tx, queue string, now int64) bool {
	t.Helper()
	before := dump(t, tx)
	exec(t, tx, `SAVEPOINT attempt`)
	_, _, err := claim(tx, queue, "w", 1, now, now+60)
	require.NoError(t, err)
	after := dump(t, tx)
	exec(t, tx, `ROLLBACK TO attempt`)
	exec(t, tx, `RELEASE attempt`)
	return !slices.Equal(before, after)
}

// Next is never later than the second in which the queue becomes ready. A worker that sleeps until Next may wake too
// early, but never too late.
func TestState_Next_NeverLate(t *testing.T) {
	exact := 0
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		for _, s := range statesAt(t, tx, g.now, someQueues...) {
			if !s.Next.IsZero() {
				require.Greater(t, s.Next.Unix(), g.now, "it must lie ahead, or the worker spins")
			}
			first := firstReady(t, tx, s.Queue, g.now)
			if s.Ready || first == 0 {
				continue
			}
			require.NotZero(t, s.Next, "%s of %v", s.Queue, liveRows(t, tx))
			require.LessOrEqual(t, s.Next.Unix(), first, "%s of %v", s.Queue, liveRows(t, tx))
			if s.Next.Equal(row.Instant(first)) {
				exact++
			}
		}
	})
	requireMet(t, exact, "exact moments")
}

// firstReady tries each second after now in which the passage of time can make a difference. It returns the first
// second in which the queue is ready, or 0.
func firstReady(t *testing.T, tx *sql.Tx, queue string, now int64) int64 {
	t.Helper()
	var moments []int64
	for _, r := range liveRows(t, tx) {
		moments = append(moments, r.RunAt, r.ClaimExpires.Int64+1)
	}
	slices.Sort(moments)
	for _, at := range slices.Compact(moments) {
		if at > now && statesAt(t, tx, at, queue)[0].Ready {
			return at
		}
	}
	return 0
}

// Next also covers a job on its last attempt.
func TestState_Next_LastAttempt(t *testing.T) {
	tx := begin(t, openFresh(t))
	writeRows(t, tx, []fixture{claimedRow(1, 15, 1)}) // honker would ignore it
	require.Equal(t, row.QueueState{Queue: "a", Next: row.Instant(16)}, statesAt(t, tx, 10, "a")[0])
	require.Equal(t, row.QueueState{Queue: "a", Next: row.Instant(16)}, statesAt(t, tx, 15, "a")[0])
	require.True(t, statesAt(t, tx, 16, "a")[0].Ready)
}

// States returns nothing if there are no queues.
func TestState_NoQueue(t *testing.T) {
	tx := begin(t, openFresh(t))
	for _, none := range [][]string{nil, {}} {
		states, err := states(tx, none, 10)
		require.NoError(t, err)
		require.Empty(t, states)
	}
}

// Queue names are opaque. Characters that JSON, LIKE or SQL might interpret are part of the name.
func TestState_AnyName(t *testing.T) {
	tx := begin(t, openFresh(t))
	for i, name := range []string{`"`, `\`, `'; --`, "<&>", "%_", "новая", "\u2028", "a\nb", " ", "null", "1"} {
		r := fixture{ID: int64(i + 1), Queue: name, Payload: "1", State: "pending", MaxAttempts: 3}
		writeRows(t, tx, []fixture{r})
		require.True(t, statesAt(t, tx, 10, name)[0].Ready, "%q", name)
		require.False(t, statesAt(t, tx, 10, name+"x")[0].Ready, "%q", name)
	}
}

// NextClaimAt returns the same time as honker's function.
func TestState_NextClaimAt(t *testing.T) {
	found := 0
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		for _, queue := range someQueues {
			got, err := nextClaim(tx, queue, g.now)
			require.NoError(t, err)
			want := value(t, tx, honkerNextClaimAt, queue, g.now)
			require.Equal(t, want, strconv.FormatInt(got, 10), "%s of %v", queue, liveRows(t, tx))
			if got != 0 {
				found++
			}
		}
	})
	requireMet(t, found, "moments")
}
