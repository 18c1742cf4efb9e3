//go:build unix

package process_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

func init() {
	children["scheduler"] = runScheduler
	children["ticker"] = tickOn
}

// runScheduler runs a scheduler. It notes the due time of each fire, prints each fire, and finally
// reports how Run ended.
func runScheduler() {
	note := testkit.ChildLedger(testkit.ChildArgs[testkit.Task]().Ledger)
	_, db := testkit.OpenChild(&observe.Observer{Fired: func(f honker.Fire) {
		note(f.Name, f.FireAt.Unix())
		testkit.Say("fired", f.Name, f.FireAt.Unix(), time.Now().UnixMilli())
	}})
	err := db.Scheduler().Run(testkit.ChildContext())
	testkit.Say("ended", errors.Is(err, honker.ErrLeadershipLost))
	if !errors.Is(err, honker.ErrLeadershipLost) {
		testkit.Must(err)
	}
	testkit.Must(db.Close())
}

// nextFired waits until a child prints a fire of the schedule.
func nextFired(t testing.TB, p *testkit.Child, name string) (dueAt, told time.Time) {
	t.Helper()
	for {
		line := p.Line(testkit.Timeout)
		if !strings.HasPrefix(line, "fired "+name+" ") {
			continue
		}
		var unix, milli int64
		_, err := fmt.Sscanf(line, "fired "+name+" %d %d", &unix, &milli)
		require.NoError(t, err, line)
		return time.Unix(unix, 0), time.UnixMilli(milli)
	}
}

// forget makes the lock of a dead or suspended leader expire, so that tests do not have to wait for
// a minute.
func forget(t testing.TB, db *honker.DB) {
	t.Helper()
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_locks SET expires_at = unixepoch() WHERE name = 'honker-scheduler'`,
		`UPDATE lock SET expires_at = clock_timestamp() WHERE name = 'honker-scheduler'`))
}

// oncePerSecond asserts that a schedule has fired once for each second since first.
func oncePerSecond(t testing.TB, db *honker.DB, name string, first int64) {
	t.Helper()
	row := testkit.GetSchedule(t, db, name)
	require.Equal(t, row.Next-first, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, row.Queue), "%s: a gap, or fired twice", name)
}

// Several processes fire each schedule exactly once per second, also when the leader is killed.
func TestScheduler_Process_LeaderKilled(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	ledgers := filepath.Join(filepath.Dir(path), "ledger*")
	ledger := func(i int) testkit.Task {
		return testkit.Task{Path: path, Ledger: strings.Replace(ledgers, "*", fmt.Sprint(i), 1)}
	}
	names, first := []string{"a", "b", "cron"}, make(map[string]int64)
	for _, name := range names {
		sch := honker.Schedule{Name: name, Queue: name, Spec: "@every 1s"}
		if name == "cron" {
			sch.Spec = "* * * * * *"
		}
		testkit.Register(t, db, sch)
		first[name] = testkit.GetSchedule(t, db, name).Next
	}
	leader := testkit.StartChild(t, "scheduler", ledger(0))
	nextFired(t, leader, "a")
	standby := testkit.StartChild(t, "scheduler", ledger(1))
	for range 2 {
		nextFired(t, leader, "a")
	}
	_, before := testkit.Noted(t, ledger(1).Ledger, "a")
	require.Zero(t, before, "both have fired")
	leader.Kill()
	killed := time.Now()
	forget(t, db)
	_, told := nextFired(t, standby, "a")
	t.Logf("fired again %v after the kill", told.Sub(killed))
	nextFired(t, standby, "a")
	last := testkit.StartChild(t, "scheduler", ledger(2))
	nextFired(t, standby, "a")
	require.Contains(t, standby.End(), "ended false")
	ended := time.Now()
	_, told = nextFired(t, last, "a")
	require.Less(t, told.Sub(ended), 30*time.Second, "a leader that ends is replaced before its lock would have expired")
	nextFired(t, last, "a")
	last.End()
	for _, name := range names {
		oncePerSecond(t, db, name, first[name])
		noted, by := testkit.Noted(t, ledgers, name)
		require.Equal(t, 3, by)
		require.Len(t, slices.Compact(slices.Clone(noted)), len(noted), "noted twice: %v", noted)
		// a fire committed at the moment of the kill may not have been noted
		require.InDelta(t, testkit.GetSchedule(t, db, name).Next-first[name], len(noted), 1)
	}
}

// A scheduler that is suspended beyond its lock fires nothing when it resumes.
func TestScheduler_Process_Stopped(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	testkit.Register(t, db, testkit.Every("tea", "@every 1s"))
	first := testkit.GetSchedule(t, db, "tea").Next
	stale := testkit.StartChild(t, "scheduler", testkit.Task{Path: path})
	nextFired(t, stale, "tea")
	stopBesideWrites(t, path, stale)
	forget(t, db)
	next := testkit.StartChild(t, "scheduler", testkit.Task{Path: path})
	nextFired(t, next, "tea")
	nextFired(t, next, "tea")
	owner, _ := testkit.Leader(t, db)
	stale.Cont()
	for line := range stale.Lines() { // its last output before it was suspended, followed by the end
		if strings.HasPrefix(line, "ended") {
			require.Equal(t, "ended true", line)
		}
	}
	now, _ := testkit.Leader(t, db)
	require.Equal(t, owner, now)
	nextFired(t, next, "tea")
	next.End()
	oncePerSecond(t, db, "tea", first)
}

// A scheduler notices schedules registered by other processes.
func TestScheduler_Process_Noticed(t *testing.T) {
	path, db := openShared(t)
	testkit.Register(t, db, testkit.Every("far", "@every 24h"))
	p := testkit.StartChild(t, "scheduler", testkit.Task{Path: path})
	testkit.Eventually(t, testkit.Timeout, "it leads", func() bool { owner, _ := testkit.Leader(t, db); return owner != "" })
	began := time.Now()
	testkit.Register(t, db, testkit.Every("near", "@every 2s"))
	registered := time.Now()
	due, told := nextFired(t, p, "near") // earlier than the scheduler would wake for "far"
	require.GreaterOrEqual(t, due.Unix(), began.Unix()+2)
	require.LessOrEqual(t, due.Unix(), registered.Unix()+2)
	t.Logf("%v after it was due", told.Sub(due))

	testkit.RequireChanged(t, true)(db.Scheduler().Pause(t.Context(), "near"))
	testkit.SetNextFire(t, db, "far", time.Now()) // as another binding may do
	began = time.Now()
	_, told = nextFired(t, p, "far")
	t.Logf("%v after it was made due", told.Sub(began))
	p.End()
}

// A scheduler waits while another binding holds the leader's lock.
func TestScheduler_Process_Foreign(t *testing.T) {
	testkit.FileOnly(t) // a server has no other bindings
	t.Parallel()
	db, b := testkit.OpenWithBinding(t)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	testkit.SetNextFire(t, db, "tea", time.Now())
	b.Change(`INSERT INTO _honker_locks VALUES ('honker-scheduler', 'python', unixepoch() + 60)`)
	stop := testkit.Background(t, db.Scheduler().Run)
	testkit.Receive(t, testkit.Listen(t, db, "other"), testkit.Notify(t, db, "other", 1)) // the watcher has seen all earlier commits
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
	b.Change(`DELETE FROM _honker_locks WHERE name = 'honker-scheduler' AND owner = 'python'`)
	testkit.Eventually(t, 30*time.Second, "it leads before the other one's lock would have expired", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs") == 1 })
	require.EqualValues(t, 0, b.Change(`INSERT OR IGNORE INTO _honker_locks VALUES ('honker-scheduler', 'python', unixepoch() + 60)`))
	require.NoError(t, stop())
	require.EqualValues(t, 1, b.Change(`INSERT OR IGNORE INTO _honker_locks VALUES ('honker-scheduler', 'python', unixepoch() + 60)`))
}

// tickOn calls Tick with simulated times as fast as possible, for the number of seconds in its
// task.
func tickOn() {
	a, db := testkit.OpenChild(nil)
	s := db.Scheduler()
	ctx := context.Background()
	for testkit.ChildContext().Err() == nil {
		at, err := s.Soonest(ctx)
		testkit.Must(err)
		if at.Unix() > ticksFrom+int64(a.Jobs) {
			break
		}
		_, err = s.Tick(ctx, at.Add(2*time.Second))
		testkit.Must(err)
	}
	testkit.Must(db.Close())
}

// ticksFrom is the first due time of the schedules of tickOn, in Unix seconds.
const ticksFrom = 1_700_000_000

// When processes are killed during Tick, no schedule fires twice and none misses a time.
func TestScheduler_Process_KilledTicks(t *testing.T) {
	const each = 5
	seconds := 4000
	if testing.Short() {
		seconds = 500
	}
	path, db := openShared(t)
	for i := range each {
		name := fmt.Sprint("schedule ", i)
		testkit.Register(t, db, honker.Schedule{Name: name, Queue: name, Spec: "@every 1s"})
		testkit.SetNextFire(t, db, name, time.Unix(ticksFrom, 0))
	}
	killings(t, "ticker", seconds,
		func(int) testkit.Task { return testkit.Task{Path: path, Jobs: seconds} },
		func() int { return min(seconds, int(testkit.GetSchedule(t, db, "schedule 0").Next-ticksFrom)) })
	for i := range each {
		oncePerSecond(t, db, fmt.Sprint("schedule ", i), ticksFrom)
	}
}
