//go:build unix

package honker_test

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
	"github.com/honker-go/honker/internal/proc"
)

func init() {
	children["lock holder"] = holdOnDemand
	children["caller"] = callAndReport
	children["waiting caller"] = waitAndReport
}

// holdOnDemand takes the lock "report" when it hears "lock", and releases it at any other
// word. It says when the lock was lost.
func holdOnDemand() {
	a, db := openChild(nil)
	var l *honker.Lock
	var told sync.WaitGroup
	for word, ok := proc.Hear(); ok; word, ok = proc.Hear() {
		if word != "lock" {
			err := l.Unlock(context.Background())
			proc.Say("unlocked", errors.Is(err, honker.ErrLockLost), time.Now().UnixNano())
			continue
		}
		var err error
		l, err = db.Lock(proc.Context(), "report", &honker.LockOptions{TTL: a.Span, Owner: a.Owner})
		proc.Must(err)
		proc.Say("held", l.Token(), time.Now().UnixNano())
		hold := l.Context()
		told.Go(func() {
			<-hold.Done()
			proc.Say("ended", errors.Is(context.Cause(hold), honker.ErrLockLost))
		})
	}
	proc.Must(db.Close())
	told.Wait()
}

// holding lets a child take the lock, and returns its token.
func holding(t testing.TB, p *proc.Process) (token int64) {
	t.Helper()
	p.Tell("lock")
	var at int64
	line := p.Line(patient)
	_, err := fmt.Sscanf(line, "held %d %d", &token, &at)
	require.NoError(t, err, line)
	return token
}

func TestLockGoesFromProcessToProcess(t *testing.T) {
	path, db := shared(t)
	a, b := proc.Start(t, "lock holder", task{Path: path}), proc.Start(t, "lock holder", task{Path: path})
	last := holding(t, a)
	for range 10 {
		held(t, db, "report")
		b.Tell("lock")
		a.Tell("unlock")
		said := a.Line(patient) + ", " + a.Line(patient) // in any order
		require.Contains(t, said, "ended true")
		require.Contains(t, said, "unlocked false")
		var token, at int64
		line := b.Line(patient)
		_, err := fmt.Sscanf(line, "held %d %d", &token, &at)
		require.NoError(t, err, line)
		require.Greater(t, token, last)
		last, a, b = token, b, a
	}
}

func TestLockOfAKilledProcessIsTakenOverWhenItExpires(t *testing.T) {
	const ttl = 2 * time.Second
	path, db := shared(t)
	victim := proc.Start(t, "lock holder", task{Path: path, Span: ttl})
	token := holding(t, victim)
	victim.Kill()
	killed := time.Now()
	end := time.Unix(number(t, db.SQL(), expiresAt, "report"), 0)
	require.LessOrEqual(t, end.Sub(killed), ttl+time.Second)

	l, err := db.Lock(bounded(t, patient), "report", nil)
	got := time.Now()
	require.NoError(t, err)
	require.False(t, got.Before(end), "%v too early", end.Sub(got))
	require.Less(t, got.Sub(end), time.Second)
	require.Greater(t, l.Token(), token)
	t.Logf("%v after the kill, %v after the lock had expired", got.Sub(killed), got.Sub(end))
	unlock(t, l)
}

// Also where the next holder calls himself the same.
func TestProcessStoppedBeyondItsTTLFindsItsLockLost(t *testing.T) {
	path, db := shared(t)
	stale := proc.Start(t, "lock holder", task{Path: path, Span: time.Second, Owner: "me"})
	token := holding(t, stale)
	stale.Stop()
	l, err := db.Lock(bounded(t, patient), "report", &honker.LockOptions{Owner: "me"})
	require.NoError(t, err)
	require.Greater(t, l.Token(), token)
	stale.Cont()
	require.Equal(t, "ended true", stale.Line(patient))
	stale.Tell("unlock")
	require.Contains(t, stale.Line(patient), "unlocked true")
	require.NoError(t, l.Context().Err())
	held(t, db, "report")
	unlock(t, l)
}

func TestProcessStoppedBeyondItsTTLLosesItsLockEvenIfNobodyTookIt(t *testing.T) {
	path, db := shared(t)
	stale := proc.Start(t, "lock holder", task{Path: path, Span: time.Second})
	holding(t, stale)
	stale.Stop()
	eventually(t, patient, "expired", func() bool {
		return number(t, db.SQL(), `SELECT count(*) FROM _honker_locks WHERE expires_at > unixepoch()`) == 0
	})
	stale.Cont()
	require.Equal(t, "ended true", stale.Line(patient))
}

func TestChildThatClosesItsDBReleasesItsLock(t *testing.T) {
	path, db := shared(t)
	p := proc.Start(t, "lock holder", task{Path: path, Span: time.Hour})
	holding(t, p)
	require.Contains(t, p.End(), "ended true")
	unlock(t, takeLock(t, db, "report", nil))
}

// honker's own lock functions, as a binding in another language runs them.
func TestLockGoesToAnotherBindingAndBack(t *testing.T) {
	t.Parallel()
	db, b := both(t)
	acquire := func(owner string) bool {
		b.change(`DELETE FROM _honker_locks WHERE name = 'report' AND expires_at <= unixepoch()`)
		b.change(`INSERT OR IGNORE INTO _honker_locks VALUES ('report', ?, unixepoch() + 60)`, owner)
		return number(t, b.pool, `SELECT owner = ? FROM _honker_locks WHERE name = 'report'`, owner) == 1
	}
	require.True(t, acquire("python"))
	_, err := db.TryLock(context.Background(), "report", nil)
	require.ErrorContains(t, err, `by "python"`)
	got := make(chan *honker.Lock, 1)
	go func() {
		l, err := db.Lock(bounded(t, patient), "report", nil)
		if err == nil {
			got <- l
		}
		close(got)
	}()
	require.EqualValues(t, 1, b.change(`DELETE FROM _honker_locks WHERE name = 'report' AND owner = 'python'`))
	l := <-got
	require.NotNil(t, l, "it was not heard that the lock is free")
	require.False(t, acquire("python"))
	unlock(t, l)
	require.True(t, acquire("python"))
}

// callAndReport asks a limit that it is one of many to ask.
func callAndReport() {
	a, db := openChild(nil)
	r, yes := db.RateLimit("calls", 3, 10000*time.Hour), 0
	for range a.Jobs {
		ok, err := r.Allow(proc.Context())
		proc.Must(err)
		if ok {
			yes++
		}
	}
	proc.Say(yes)
	proc.Must(db.Close())
}

func TestProcessesTogetherAreAllowedTheLimitAndNoMore(t *testing.T) {
	path, db := shared(t)
	var callers []*proc.Process
	for range 6 {
		callers = append(callers, proc.Start(t, "caller", task{Path: path, Jobs: 20}))
	}
	total := 0
	for _, p := range callers {
		yes, err := strconv.Atoi(p.Line(patient))
		require.NoError(t, err)
		total += yes
		p.End()
	}
	require.Equal(t, 3, total)
	require.EqualValues(t, 3, number(t, db.SQL(), counted))
}

// waitAndReport passes a limit again and again, and says in which second each pass ended.
func waitAndReport() {
	a, db := openChild(nil)
	r := db.RateLimit("calls", 5, time.Second)
	for range a.Jobs {
		proc.Must(r.Wait(proc.Context()))
		proc.Say(time.Now().Unix())
	}
	proc.Must(db.Close())
}

func TestProcessesThatWaitShareTheWindows(t *testing.T) {
	passes := 12
	if testing.Short() {
		passes = 6
	}
	path, db := shared(t)
	a := proc.Start(t, "waiting caller", task{Path: path, Jobs: passes})
	b := proc.Start(t, "waiting caller", task{Path: path, Jobs: passes})
	var ended []int64
	for _, p := range []*proc.Process{a, b} {
		for line := range p.Lines() {
			second, err := strconv.ParseInt(line, 10, 64)
			require.NoError(t, err)
			ended = append(ended, second)
		}
		p.End()
	}
	require.Len(t, ended, 2*passes)
	slices.Sort(ended)
	first := number(t, db.SQL(), `SELECT min(window_start) FROM _honker_rate_limits`)
	for i, second := range ended {
		require.GreaterOrEqual(t, second, first+int64(i/5), "pass %d of %v", i, ended)
	}
	require.EqualValues(t, 2*passes, number(t, db.SQL(), counted), "each pass was counted, and nothing else")
	require.EqualValues(t, 5, number(t, db.SQL(), `SELECT max(count) FROM _honker_rate_limits`))
}
