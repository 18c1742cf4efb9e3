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

	"github.com/stretchr/testify/require"
)

// The gate admits one at a time.
func TestGate_OneAtATime(t *testing.T) {
	var g gate
	var all sync.WaitGroup
	inside, entries := 0, 0 // unguarded: the race detector looks too
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

// requireUntouched says that nothing is left of what went on.
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
		require.ErrorIs(t, err, ErrBusy)
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

// The gate loses no grant when waiters give up.
// Waiters that give up at any moment must not take a grant with them.
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
	// This one gives up never: it must get in all the time.
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
			g.leave() // calls up the first
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

// A caller that takes the gate while a waiter is on its way must not make the waiter
// lose its place.
func TestGate_OvertakenIsNext(t *testing.T) {
	var g gate
	require.True(t, g.tryEnter())
	called := &waiter{since: time.Now().Add(time.Hour), grant: make(chan bool, 1)} // not overdue, however slow this is
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

// Overdue waiters are served in their order.
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

// A waiter gets in past a tight loop.
// A holder that comes back at once is always faster than a goroutine that has to
// wake up. It may win, but not for long.
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
	// A few milliseconds alone; one that has to be lucky waits for seconds.
	require.Less(t, waits[len(waits)/2], 250*time.Millisecond)
}

// No waiter starves at the gate.
// Eight that want in all the time must share alike, more or less.
func TestGate_NoStarvation(t *testing.T) {
	var g gate
	var all sync.WaitGroup
	var got [8]int
	least := func() int { return slices.Min(got[:]) } // the gate guards it
	for i := range got {
		all.Go(func() {
			for enough := false; !enough; {
				if err := g.enter(context.Background(), patient); err != nil {
					t.Error(err)
					return
				}
				got[i]++
				time.Sleep(100 * time.Microsecond) // as a commit does, let others run
				enough = least() >= 50
				g.leave()
			}
		})
	}
	all.Wait() // one that starved would be busy in the end
	requireUntouched(t, &g)
}

// A holder that has others wait for a second is told of once, while it holds; quick ones are not,
// however long a waiter waits for them all.
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
