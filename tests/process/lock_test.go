//go:build unix

package process_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["lock holder"] = holdOnDemand
	children["caller"] = callAndReport
	children["waiting caller"] = waitAndReport
}

// holdOnDemand takes the lock "report" when it reads "lock", and releases it when it reads any
// other line. It reports when the lock was lost.
func holdOnDemand() {
	a, db := testkit.OpenChild(nil)
	var l *honker.Lock
	var told sync.WaitGroup
	for word, ok := testkit.ReadLine(); ok; word, ok = testkit.ReadLine() {
		if word != "lock" {
			err := l.Unlock(context.Background())
			testkit.Say("unlocked", errors.Is(err, honker.ErrLockLost), time.Now().UnixNano())
			continue
		}
		// The end of the parent cancels the wait only, and not the context of the lock.
		ctx, cancel := context.WithCancel(context.Background())
		stop := context.AfterFunc(testkit.ChildContext(), cancel)
		var err error
		l, err = db.Lock(ctx, "report", &honker.LockOptions{TTL: a.Span, Owner: a.Owner})
		testkit.Must(err)
		stop()
		testkit.Say("held", l.Token(), time.Now().UnixNano())
		hold := l.Context()
		told.Go(func() {
			<-hold.Done()
			testkit.Say("ended", errors.Is(context.Cause(hold), honker.ErrLockLost))
		})
	}
	testkit.Must(db.Close())
	told.Wait()
}

// holding makes a child take the lock, and returns its token.
func holding(t testing.TB, p *testkit.Child) (token int64) {
	t.Helper()
	p.Tell("lock")
	var at int64
	line := p.Line(testkit.Timeout)
	_, err := fmt.Sscanf(line, "held %d %d", &token, &at)
	require.NoError(t, err, line)
	return token
}

// A lock passes from process to process.
func TestLock_Process_PassesOn(t *testing.T) {
	path, db := openShared(t)
	a, b := testkit.StartChild(t, "lock holder", testkit.Task{Path: path}), testkit.StartChild(t, "lock holder", testkit.Task{Path: path})
	last := holding(t, a)
	for range 10 {
		testkit.RequireHeld(t, db, "report")
		b.Tell("lock")
		a.Tell("unlock")
		said := a.Line(testkit.Timeout) + ", " + a.Line(testkit.Timeout) // in any order
		require.Contains(t, said, "ended true")
		require.Contains(t, said, "unlocked false")
		var token, at int64
		line := b.Line(testkit.Timeout)
		_, err := fmt.Sscanf(line, "held %d %d", &token, &at)
		require.NoError(t, err, line)
		require.Greater(t, token, last)
		last, a, b = token, b, a
	}
}

// When its owner is killed, a lock can be taken after it has expired.
func TestLock_Process_Killed(t *testing.T) {
	const ttl = 2 * time.Second
	path, db := openShared(t)
	victim := testkit.StartChild(t, "lock holder", testkit.Task{Path: path, Span: ttl})
	token := holding(t, victim)
	victim.Kill()
	killed := time.Now()
	end := time.Unix(testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report"), 0)
	require.LessOrEqual(t, end.Sub(killed), ttl+time.Second)

	l, err := db.Lock(testkit.Context(t, testkit.Timeout), "report", nil)
	got := time.Now()
	require.NoError(t, err)
	require.False(t, got.Before(end), "%v too early", end.Sub(got))
	require.Greater(t, l.Token(), token)
	t.Logf("%v after the kill, %v after the lock had expired", got.Sub(killed), got.Sub(end))
	testkit.Unlock(t, l)
}

// A process that is suspended beyond the TTL finds its lock lost, even if the next owner has the
// same name.
func TestLock_Process_Stopped(t *testing.T) {
	path, db := openShared(t)
	stale := testkit.StartChild(t, "lock holder", testkit.Task{Path: path, Span: time.Second, Owner: "me"})
	token := holding(t, stale)
	stopBesideWrites(t, path, stale)
	l, err := db.Lock(testkit.Context(t, testkit.Timeout), "report", &honker.LockOptions{Owner: "me"})
	require.NoError(t, err)
	require.Greater(t, l.Token(), token)
	stale.Cont()
	require.Equal(t, "ended true", stale.Line(testkit.Timeout))
	stale.Tell("unlock")
	require.Contains(t, stale.Line(testkit.Timeout), "unlocked true")
	require.NoError(t, l.Context().Err())
	testkit.RequireHeld(t, db, "report")
	testkit.Unlock(t, l)
}

// A process that is suspended beyond the TTL loses its lock even if no other process has taken it.
func TestLock_Process_StoppedUntaken(t *testing.T) {
	path, db := openShared(t)
	stale := testkit.StartChild(t, "lock holder", testkit.Task{Path: path, Span: time.Second})
	holding(t, stale)
	stopBesideWrites(t, path, stale)
	testkit.Eventually(t, testkit.Timeout, "expired", func() bool {
		return testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report") < time.Now().Unix()
	})
	stale.Cont()
	require.Equal(t, "ended true", stale.Line(testkit.Timeout))
}

// A child that closes its DB releases its lock.
func TestLock_Process_Close(t *testing.T) {
	path, db := openShared(t)
	p := testkit.StartChild(t, "lock holder", testkit.Task{Path: path, Span: time.Hour})
	holding(t, p)
	require.Contains(t, p.End(), "ended true")
	testkit.Unlock(t, testkit.TakeLock(t, db, "report", nil))
}

// A lock passes to another binding, which uses honker's own lock statements, and back.
func TestLock_Process_Foreign(t *testing.T) {
	testkit.FileOnly(t) // a server has no other bindings
	t.Parallel()
	db, b := testkit.OpenWithBinding(t)
	acquire := func(owner string) bool {
		b.Change(`DELETE FROM _honker_locks WHERE name = 'report' AND expires_at <= unixepoch()`)
		b.Change(`INSERT OR IGNORE INTO _honker_locks VALUES ('report', ?, unixepoch() + 60)`, owner)
		return testkit.QueryInt(t, b.Pool, `SELECT owner = ? FROM _honker_locks WHERE name = 'report'`, owner) == 1
	}
	require.True(t, acquire("python"))
	_, err := db.TryLock(context.Background(), "report", nil)
	require.ErrorContains(t, err, `by "python"`)
	got := make(chan *honker.Lock, 1)
	go func() {
		l, err := db.Lock(testkit.Context(t, testkit.Timeout), "report", nil)
		if err == nil {
			got <- l
		}
		close(got)
	}()
	require.EqualValues(t, 1, b.Change(`DELETE FROM _honker_locks WHERE name = 'report' AND owner = 'python'`))
	l := <-got
	require.NotNil(t, l, "it was not heard that the lock is free")
	require.False(t, acquire("python"))
	testkit.Unlock(t, l)
	require.True(t, acquire("python"))
}

// callAndReport calls Allow repeatedly and prints the number of allowed calls.
func callAndReport() {
	a, db := testkit.OpenChild(nil)
	r, yes := db.RateLimit("calls", 3, 10000*time.Hour), 0
	for range a.Jobs {
		ok, err := r.Allow(testkit.ChildContext())
		testkit.Must(err)
		if ok {
			yes++
		}
	}
	testkit.Say(yes)
	testkit.Must(db.Close())
}

// The limit applies to all processes together.
func TestRateLimit_Process_Limit(t *testing.T) {
	path, db := openShared(t)
	var callers []*testkit.Child
	for range 6 {
		callers = append(callers, testkit.StartChild(t, "caller", testkit.Task{Path: path, Jobs: 20}))
	}
	total := 0
	for _, p := range callers {
		yes, err := strconv.Atoi(p.Line(testkit.Timeout))
		require.NoError(t, err)
		total += yes
		p.End()
	}
	require.Equal(t, 3, total)
	require.EqualValues(t, 3, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
}

// waitAndReport calls Wait repeatedly and prints the second in which each call returned.
func waitAndReport() {
	a, db := testkit.OpenChild(nil)
	r := db.RateLimit("calls", 5, time.Second)
	for range a.Jobs {
		testkit.Must(r.Wait(testkit.ChildContext()))
		testkit.Say(time.Now().Unix())
	}
	testkit.Must(db.Close())
}

// Waiting processes share the windows of a limit.
func TestRateLimit_Process_Wait(t *testing.T) {
	passes := 12
	if testing.Short() {
		passes = 6
	}
	path, db := openShared(t)
	a := testkit.StartChild(t, "waiting caller", testkit.Task{Path: path, Jobs: passes})
	b := testkit.StartChild(t, "waiting caller", testkit.Task{Path: path, Jobs: passes})
	var ended []int64
	for _, p := range []*testkit.Child{a, b} {
		for line := range p.Lines() {
			second, err := strconv.ParseInt(line, 10, 64)
			require.NoError(t, err)
			ended = append(ended, second)
		}
		p.End()
	}
	require.Len(t, ended, 2*passes)
	slices.Sort(ended)
	first := testkit.QueryInt(t, db.SQL(), testkit.Either(`SELECT min(window_start) FROM _honker_rate_limits`, `SELECT extract(epoch FROM min(window_start))::bigint FROM rate`))
	for i, second := range ended {
		require.GreaterOrEqual(t, second, first+int64(i/5), "pass %d of %v", i, ended)
	}
	require.EqualValues(t, 2*passes, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed), "each pass was counted, and nothing else")
	require.EqualValues(t, 5, testkit.QueryInt(t, db.SQL(), testkit.Either(`SELECT max(count) FROM _honker_rate_limits`, `SELECT max(count) FROM rate`)))
}
