//go:build unix

package honker_test

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
	"github.com/honker-go/honker/internal/proc"
)

func init() {
	children["scheduler"] = runScheduler
	children["ticker"] = tickOn
}

// runScheduler is a child in Run. It notes when each fire was due, and says what fired
// when, and how Run has ended.
func runScheduler() {
	note := proc.Ledger(proc.Args[task]().Ledger)
	_, db := openChild(&honker.Observer{Fired: func(f honker.Fired) {
		note(f.Schedule, f.FireAt.Unix())
		proc.Say("fired", f.Schedule, f.FireAt.Unix(), time.Now().UnixMilli())
	}})
	err := db.Scheduler().Run(proc.Context())
	proc.Say("ended", errors.Is(err, honker.ErrLeadershipLost))
	if !errors.Is(err, honker.ErrLeadershipLost) {
		proc.Must(err)
	}
	proc.Must(db.Close())
}

// nextFired waits until a child says that a schedule has fired.
func nextFired(t testing.TB, p *proc.Process, name string) (dueAt, told time.Time) {
	t.Helper()
	for {
		line := p.Line(patient)
		if !strings.HasPrefix(line, "fired "+name+" ") {
			continue
		}
		var unix, milli int64
		_, err := fmt.Sscanf(line, "fired "+name+" %d %d", &unix, &milli)
		require.NoError(t, err, line)
		return time.Unix(unix, 0), time.UnixMilli(milli)
	}
}

// forget shortens the lock of a leader that is dead, or stands still: nobody wants to wait
// for a minute here.
func forget(t testing.TB, db *honker.DB) {
	t.Helper()
	alter(t, db, `UPDATE _honker_locks SET expires_at = unixepoch() WHERE name = 'honker-scheduler'`)
}

// oncePerSecond asserts that a schedule that is due each second has become one job for
// each of them since first.
func oncePerSecond(t testing.TB, db *honker.DB, name string, first int64) {
	t.Helper()
	row := rowOf(t, db, name)
	require.Equal(t, row.Next-first, number(t, db.SQL(), jobsOf, row.Queue), "%s: a gap, or fired twice", name)
}

func TestProcessesTogetherFireEverySecondOnceAlsoWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	ledgers := filepath.Join(filepath.Dir(path), "ledger*")
	ledger := func(i int) task { return task{Path: path, Ledger: strings.Replace(ledgers, "*", fmt.Sprint(i), 1)} }
	names, first := []string{"a", "b", "cron"}, make(map[string]int64)
	for _, name := range names {
		sch := honker.Schedule{Name: name, Queue: name, Spec: "@every 1s"}
		if name == "cron" {
			sch.Spec = "* * * * * *"
		}
		register(t, db, sch)
		first[name] = rowOf(t, db, name).Next
	}
	leader := proc.Start(t, "scheduler", ledger(0))
	nextFired(t, leader, "a")
	standby := proc.Start(t, "scheduler", ledger(1))
	for range 2 {
		nextFired(t, leader, "a")
	}
	_, before := proc.Noted(t, ledger(1).Ledger, "a")
	require.Zero(t, before, "both have fired")
	leader.Kill()
	killed := time.Now()
	forget(t, db)
	_, told := nextFired(t, standby, "a")
	t.Logf("fired again %v after the kill", told.Sub(killed))
	require.Less(t, told.Sub(killed), 5*time.Second)
	nextFired(t, standby, "a")
	last := proc.Start(t, "scheduler", ledger(2))
	nextFired(t, standby, "a")
	require.Contains(t, standby.End(), "ended false")
	ended := time.Now()
	_, told = nextFired(t, last, "a")
	require.Less(t, told.Sub(ended), 5*time.Second, "a leader that ends is replaced at once")
	nextFired(t, last, "a")
	last.End()
	for _, name := range names {
		oncePerSecond(t, db, name, first[name])
		noted, by := proc.Noted(t, ledgers, name)
		require.Equal(t, 3, by)
		require.Len(t, slices.Compact(slices.Clone(noted)), len(noted), "noted twice: %v", noted)
		// what was committed in the moment of the kill may not have been told
		require.InDelta(t, rowOf(t, db, name).Next-first[name], len(noted), 1)
	}
}

func TestSchedulerThatStoodStillBeyondItsLockFiresNothingWhenItGoesOn(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	register(t, db, every("tea", "@every 1s"))
	first := rowOf(t, db, "tea").Next
	stale := proc.Start(t, "scheduler", task{Path: path})
	nextFired(t, stale, "tea")
	stale.Stop()
	forget(t, db)
	next := proc.Start(t, "scheduler", task{Path: path})
	nextFired(t, next, "tea")
	nextFired(t, next, "tea")
	owner, _ := leader(t, db)
	stale.Cont()
	for line := range stale.Lines() { // what it said before it was stopped, and then the end
		if strings.HasPrefix(line, "ended") {
			require.Equal(t, "ended true", line)
		}
	}
	now, _ := leader(t, db)
	require.Equal(t, owner, now)
	nextFired(t, next, "tea")
	next.End()
	oncePerSecond(t, db, "tea", first)
}

func TestSchedulesOfOtherProcessesAreNoticed(t *testing.T) {
	path, db := shared(t)
	register(t, db, every("far", "@every 24h"))
	p := proc.Start(t, "scheduler", task{Path: path})
	eventually(t, patient, "it leads", func() bool { owner, _ := leader(t, db); return owner != "" })
	began := time.Now()
	register(t, db, every("near", "@every 2s"))
	due, told := nextFired(t, p, "near")
	require.Equal(t, began.Unix()+2, due.Unix())
	require.Less(t, told.Sub(due), time.Second)
	t.Logf("%v after it was due", told.Sub(due))

	changed(t, true)(db.Scheduler().Pause(t.Context(), "near"))
	nextAt(t, db, "far", time.Now()) // another binding may do so
	began = time.Now()
	_, told = nextFired(t, p, "far")
	require.Less(t, told.Sub(began), time.Second)
	t.Logf("%v after it was made due", told.Sub(began))
	p.End()
}

// A binding leads by the same lock.
func TestSchedulerStandsByWhileAnotherBindingLeads(t *testing.T) {
	t.Parallel()
	db, b := both(t)
	register(t, db, every("tea", "@every 1h"))
	nextAt(t, db, "tea", time.Now())
	b.change(`INSERT INTO _honker_locks VALUES ('honker-scheduler', 'python', unixepoch() + 60)`)
	stop := background(t, db.Scheduler().Run)
	hear(t, listenTo(t, db, "other"), tell(t, db, "other", 1)) // the watcher has looked
	require.Zero(t, number(t, db.SQL(), jobsOf, "jobs"))
	b.change(`DELETE FROM _honker_locks WHERE name = 'honker-scheduler' AND owner = 'python'`)
	eventually(t, 2*time.Second, "it leads", func() bool { return number(t, db.SQL(), jobsOf, "jobs") == 1 })
	require.EqualValues(t, 0, b.change(`INSERT OR IGNORE INTO _honker_locks VALUES ('honker-scheduler', 'python', unixepoch() + 60)`))
	require.NoError(t, stop())
	require.EqualValues(t, 1, b.change(`INSERT OR IGNORE INTO _honker_locks VALUES ('honker-scheduler', 'python', unixepoch() + 60)`))
}

// tickOn ticks through time as fast as it can, until there are so many jobs.
func tickOn() {
	a, db := openChild(nil)
	s := db.Scheduler()
	ctx := context.Background()
	for proc.Context().Err() == nil {
		at, err := s.Soonest(ctx)
		proc.Must(err)
		if at.Unix() > ticksFrom+int64(a.Jobs) {
			break
		}
		_, err = s.Tick(ctx, at.Add(2*time.Second))
		proc.Must(err)
	}
	proc.Must(db.Close())
}

// ticksFrom is when the schedules of tickOn begin.
const ticksFrom = 1_700_000_000

func TestKilledTicksFireNothingTwiceAndMissNothing(t *testing.T) {
	const each = 5
	seconds := 4000
	if testing.Short() {
		seconds = 500
	}
	path, db := shared(t)
	for i := range each {
		name := fmt.Sprint("schedule ", i)
		register(t, db, honker.Schedule{Name: name, Queue: name, Spec: "@every 1s"})
		nextAt(t, db, name, time.Unix(ticksFrom, 0))
	}
	killings(t, "ticker", seconds,
		func(int) task { return task{Path: path, Jobs: seconds} },
		func() int { return min(seconds, int(rowOf(t, db, "schedule 0").Next-ticksFrom)) })
	for i := range each {
		oncePerSecond(t, db, fmt.Sprint("schedule ", i), ticksFrom)
	}
}
