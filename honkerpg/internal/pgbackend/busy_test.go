//go:build unix

package pgbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/wake"
)

// flood sends more notices at once than a process takes in a second before it is busy.
func (p *process) flood(t *testing.T, schema pgsql.Schema, signals wake.Signals) {
	t.Helper()
	_, err := p.pool.ExecContext(t.Context(), schema.SQL(`SELECT pg_notify(honker.channel(), to_hex($1::bigint) || ' flood' || i) FROM generate_series(1, 500) i`), int64(signals))
	require.NoError(t, err)
}

// registered returns how many processes are registered for signals, and how many for none.
func (p *process) registered(t *testing.T, schema pgsql.Schema, signals wake.Signals) (some, none int) {
	t.Helper()
	require.NoError(t, p.pool.QueryRow(schema.SQL(`SELECT count(*) FILTER (WHERE p.waits & $1 <> 0), count(*) FILTER (WHERE p.waits = 0)
FROM honker.process p WHERE p.waits_until > clock_timestamp()`), int64(signals)).Scan(&some, &none))
	return some, none
}

// becomesBusy floods p until it is busy.
func (p *process) becomesBusy(t *testing.T, schema pgsql.Schema, by *process) {
	t.Helper()
	eventually(t, func() bool {
		by.flood(t, schema, queueSignals)
		_, none := p.registered(t, schema, queueSignals)
		return none == 1
	})
}

// A process that gets many notices lets its registration go, so that commits send it none, and looks often instead. After
// half a second in which it has found nothing, it is registered again, and notices reach it.
func TestWatch_Busy(t *testing.T) {
	pgbackend.OnlyNotices(t)
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	for range 2 {
		a.listens(t, schema, queueSignals)
		a.becomesBusy(t, schema, b)
		a.listens(t, schema, queueSignals)
		b.Raise(queueSignals)
		a.gets(t, queueSignals)
	}
}

// A busy process finds commits that nobody tells it about, within the pauses between its looks.
func TestWatch_BusyLooks(t *testing.T) {
	pgbackend.OnlyNotices(t)
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	a.found.Store(true) // it stays busy as long as its looks wake somebody
	a.AddWaiter(queueSignals)
	a.listens(t, schema, queueSignals)
	a.becomesBusy(t, schema, b)
	for range 20 {
		for len(a.changed) > 0 {
			<-a.changed
		}
		a.gets(t, wake.AllSignals)
	}
	_, none := a.registered(t, schema, queueSignals)
	require.Equal(t, 1, none)
	a.found.Store(false)
	a.listens(t, schema, queueSignals)
}

// A transaction that has found nobody registered commits after a busy process has registered again and looked. The process
// looks again a little later. Without that it would not hear of the commit.
func TestWatch_BusyEndsBesideACommit(t *testing.T) {
	for name, c := range map[string]struct {
		again   []time.Duration
		noticed bool
	}{"Again": {[]time.Duration{2 * time.Second}, true}, "Control": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && !c.noticed {
				t.SkipNow()
			}
			pgbackend.OnlyNotices(t, c.again...)
			schema := pgsql.Schema(pgtest.Schema(t))
			a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
			a.AddWaiter(queueSignals)
			a.listens(t, schema, queueSignals)
			a.becomesBusy(t, schema, b)
			tx, err := b.pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = b.CheckTx(t.Context(), tx, map[any]func(){wake.Queue("mail"): func() {}})
			require.NoError(t, err)
			a.listens(t, schema, queueSignals)
			a.marked(t, b)
			require.NoError(t, tx.Commit())
			limit := time.After(3 * time.Second)
			looked := false
			for over := false; !over && !looked; {
				select {
				case got := <-a.changed:
					looked = got == wake.AllSignals
				case <-limit:
					over = true
				}
			}
			require.Equal(t, c.noticed, looked)
		})
	}
}

// marked returns once the looks of p that have begun are over. A notice that comes during such a look is reported with it, so
// marked sends notices until one has a look of its own.
func (p *process) marked(t *testing.T, by *process) {
	t.Helper()
	mark := queueSignals | otherSignals
	eventually(t, func() bool {
		by.Raise(mark)
		for after := time.After(time.Second); ; {
			select {
			case got := <-p.changed:
				if got == mark {
					return true
				}
			case <-after:
				return false
			}
		}
	})
	for len(p.changed) > 0 {
		<-p.changed
	}
}

// Processes become busy and calm again and again, while jobs are enqueued one at a time, many of them on these edges. Each
// job starts, although no process looks by itself between two registrations.
func TestWatch_BusyEdges(t *testing.T) {
	pgbackend.OnlyNotices(t, 10*time.Millisecond, 50*time.Millisecond, 250*time.Millisecond, time.Second)
	const processes = 3
	during := 6 * time.Second
	if testing.Short() {
		during = 2 * time.Second
	}
	schema := pgsql.Schema(pgtest.Schema(t))
	by := startProcess(t, pgtest.DSN(t), schema, true)
	opened := func() *honker.DB {
		db, err := honkerpg.Open(t.Context(), pgtest.DSN(t), &honkerpg.Options{Schema: string(schema)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	from := opened()
	l, err := from.TryLock(t.Context(), "x", &honker.LockOptions{TTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Unlock(context.Background()) })
	end := time.Now().Add(during)
	var all sync.WaitGroup
	var mu sync.Mutex
	var waits []time.Duration
	for i := range processes {
		name := fmt.Sprint("q", i)
		db := opened()
		started := startsOf(t, db, name)
		waitsForLock(t, db, "x")
		q := honker.NewQueue[int](from, name, nil)
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				began := time.Now()
				if _, err := q.Enqueue(t.Context(), n); err != nil {
					t.Error(err)
					return
				}
				select {
				case got := <-started:
					if got != n {
						t.Errorf("job %d started instead of %d", got, n)
					}
				case <-time.After(30 * time.Second):
					t.Errorf("job %d of %s has not started", n, name)
					return
				}
				mu.Lock()
				waits = append(waits, time.Since(began))
				mu.Unlock()
				gap := rand.N(20 * time.Millisecond)
				if n%3 == 0 {
					gap = 450*time.Millisecond + rand.N(150*time.Millisecond) // about as long as a process stays busy
				}
				time.Sleep(gap)
			}
		})
	}
	edges, busy := 0, false
	for time.Now().Before(end) {
		some, none := by.registered(t, schema, otherSignals)
		if now := none > some; now != busy {
			busy = now
			edges++
		}
		if !busy {
			by.flood(t, schema, otherSignals)
		}
		time.Sleep(10 * time.Millisecond)
	}
	all.Wait()
	require.Greater(t, edges, 2, "the processes have become busy, calm, and busy")
	slices.Sort(waits)
	t.Logf("%d jobs, %d edges, from the enqueue to the start: median %v, longest %v", len(waits), edges, waits[len(waits)/2], waits[len(waits)-1])
}

// startsOf runs a worker of db that sends the arguments of each job.
func startsOf(t *testing.T, db *honker.DB, queue string) <-chan int {
	t.Helper()
	started := make(chan int, 10)
	background(t, func(ctx context.Context) {
		_ = honker.NewQueue[int](db, queue, nil).Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			started <- job.Args
			return nil
		}, nil)
	})
	return started
}

// waitsForLock waits for a lock until the end of the test.
func waitsForLock(t *testing.T, db *honker.DB, name string) {
	t.Helper()
	background(t, func(ctx context.Context) {
		if l, err := db.Lock(ctx, name, nil); err == nil {
			_ = l.Unlock(context.WithoutCancel(ctx))
		}
	})
}

// background runs f until the end of the test.
func background(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}
