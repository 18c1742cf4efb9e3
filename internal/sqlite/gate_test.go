package sqlite

import (
	"container/list"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/stretchr/testify/require"
)

// The gate admits a single caller at a time.
func TestGate_OneAtATime(t *testing.T) {
	var g gate
	var all sync.WaitGroup
	inside, entries := 0, 0 // unguarded, so that the race detector checks them too
	for range 32 {
		all.Go(func() {
			for range 200 {
				if err := g.enter(context.Background(), patient); err != nil {
					t.Error(err)
					return
				}
				inside++
				if inside != 1 {
					t.Error("two inside")
				}
				entries++
				inside--
				g.leave()
			}
		})
	}
	all.Wait()
	require.Equal(t, 32*200, entries)
	requireUntouched(t, &g)
}

// requireUntouched checks that the gate is free and has no waiters.
func requireUntouched(t *testing.T, g *gate) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.False(t, g.held)
	require.Zero(t, g.waiting.Len())
}

func TestGate_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		require.True(t, g.tryEnter())
		began := time.Now()
		err := g.enter(context.Background(), 3*time.Second)
		require.ErrorIs(t, err, engine.ErrBusy)
		require.ErrorContains(t, err, "3s")
		require.Equal(t, 3*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.enter(ctx, time.Minute), context.DeadlineExceeded)
		require.Equal(t, 4*time.Second, time.Since(began))
		g.leave()
		requireUntouched(t, &g)
	})
}

// Waiters that give up, no matter when, pass on their grants.
func TestGate_GiveUp_NoneLost(t *testing.T) {
	var g gate
	var all sync.WaitGroup
	s := seed(t)
	for n := range uint64(24) {
		all.Go(func() {
			luck := rand.New(rand.NewPCG(s, n))
			for range 150 {
				ctx, cancel := context.WithTimeout(context.Background(), upTo(luck, 200*time.Microsecond))
				if g.enter(ctx, upTo(luck, 200*time.Microsecond)) == nil {
					if luck.IntN(4) == 0 {
						time.Sleep(upTo(luck, 100*time.Microsecond))
					}
					g.leave()
				}
				cancel()
			}
		})
	}
	// This caller never gives up, and must always get in.
	for range 50 {
		require.NoError(t, g.enter(context.Background(), patient))
		g.leave()
	}
	all.Wait()
	requireUntouched(t, &g)
}

func TestGate_AbandonPassesGrantOn(t *testing.T) {
	for name, since := range map[string]time.Time{
		"called to try":   time.Now().Add(time.Hour), // never overdue
		"handed the gate": time.Now().Add(-time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			var g gate
			require.True(t, g.tryEnter())
			waiters := make([]*waiter, 5)
			places := make([]*list.Element, len(waiters))
			for i := range waiters {
				waiters[i] = &waiter{since: since, grant: make(chan bool, 1)}
				places[i] = g.enqueue(waiters[i])
				require.NotNil(t, places[i])
			}
			in := later(func() error { return g.enter(context.Background(), patient) })
			eventually(t, "the last one waits", func() bool { return waiting(&g) == len(waiters)+1 })
			g.leave() // wakes the first waiter
			for i, w := range waiters {
				require.Len(t, w.grant, 1)
				g.abandon(w, places[i])
			}
			require.NoError(t, ends(t, "enter", in))
			g.leave()
			requireUntouched(t, &g)
		})
	}
}

func waiting(g *gate) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}

// A waiter that is overtaken after being woken keeps its place.
func TestGate_OvertakenIsNext(t *testing.T) {
	var g gate
	require.True(t, g.tryEnter())
	called := &waiter{since: time.Now().Add(time.Hour), grant: make(chan bool, 1)} // never overdue, even on a slow machine
	g.enqueue(called)
	g.leave()
	require.False(t, <-called.grant)
	require.True(t, g.tryEnter(), "a running caller may barge in")
	place := g.compete(called)
	require.NotNil(t, place)
	other := &waiter{since: time.Now().Add(-2 * starvationThreshold), grant: make(chan bool, 1)}
	require.NotNil(t, g.enqueue(other))
	called.since = time.Now().Add(-2 * starvationThreshold)
	g.leave()
	require.True(t, <-called.grant, "by now it is overdue: nothing may overtake it again")
	require.False(t, g.tryEnter())
	require.Empty(t, other.grant)
	g.leave()
	require.True(t, <-other.grant)
	g.leave()
	requireUntouched(t, &g)
}

// Overdue waiters are served in order.
func TestGate_OverdueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		require.True(t, g.tryEnter())
		var mu sync.Mutex
		var order []int
		for i := range 8 {
			go func() {
				if err := g.enter(context.Background(), patient); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				g.leave()
			}()
			synctest.Wait()
		}
		time.Sleep(2 * starvationThreshold)
		g.leave()
		require.False(t, g.tryEnter(), "it was handed over, not opened")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
		requireUntouched(t, &g)
	})
}

// A caller in a tight loop is always faster than a goroutine that must wake up. It may overtake a waiter, but not for
// long.
func TestGate_TightLoop(t *testing.T) {
	var g gate
	stop, looped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := g.enter(context.Background(), patient); err != nil {
				t.Error(err)
				return
			}
			for busy := time.Now(); time.Since(busy) < 50*time.Microsecond; {
			}
			g.leave()
		}
	}()
	waits := make([]time.Duration, 40)
	for i := range waits {
		began := time.Now()
		require.NoError(t, g.enter(context.Background(), patient))
		waits[i] = time.Since(began)
		g.leave()
	}
	close(stop)
	<-looped
	slices.Sort(waits)
	// Normally the wait takes a few milliseconds. If it were only a matter of luck, it would take seconds.
	require.Less(t, waits[len(waits)/2], 250*time.Millisecond)
}

// Eight callers that constantly compete get roughly equal shares.
func TestGate_NoStarvation(t *testing.T) {
	var g gate
	var all sync.WaitGroup
	var got [8]int
	least := func() int { return slices.Min(got[:]) } // guarded by the gate
	for i := range got {
		all.Go(func() {
			for enough := false; !enough; {
				if err := g.enter(context.Background(), patient); err != nil {
					t.Error(err)
					return
				}
				got[i]++
				time.Sleep(100 * time.Microsecond) // let others run, as a commit does
				enough = least() >= 50
				g.leave()
			}
		})
	}
	all.Wait() // a starving caller would fail with ErrBusy
	requireUntouched(t, &g)
}

// A holder that makes others wait for a second is reported once, while it still holds the gate. Brief holders aren't
// reported, no matter how long a waiter waits for all of them combined.
func TestGate_Holding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		g := gate{holding: func() { told.Add(1) }}
		hold := func(d time.Duration) {
			require.NoError(t, g.enter(t.Context(), time.Hour))
			time.Sleep(d)
			g.leave()
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { hold(600 * time.Millisecond) })
		}
		all.Wait()
		require.Zero(t, told.Load())
		hold(time.Minute)
		require.Zero(t, told.Load(), "none waits")
		require.True(t, g.tryEnter())
		for range 3 {
			all.Go(func() { hold(0) })
		}
		time.Sleep(1500 * time.Millisecond)
		require.EqualValues(t, 1, told.Load())
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, told.Load())
		g.leave()
		all.Wait()
		requireUntouched(t, &g)
	})
}
