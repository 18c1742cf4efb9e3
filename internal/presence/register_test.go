package presence_test

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/presence"
	"github.com/honker-go/honker/internal/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file simulates the file that a register writes to.
type file struct {
	mu     sync.Mutex
	all    map[string]row.Worker
	byself int
	writes int
	ends   engine.PiggybackResult // outcome of further writes
}

// carry makes a write that carries the register's changes, or the register's own write if alone is
// set.
func (f *file) carry(r *presence.Register, alone bool) bool {
	if !r.Take(alone) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends == engine.PiggybackWritten {
		f.writes++
		for _, w := range presence.Put(r) {
			f.all[w.ID+" "+w.Queue] = w
		}
		for _, w := range presence.Drop(r) {
			delete(f.all, w.ID+" "+w.Queue)
		}
		if alone {
			f.byself++
		}
	}
	r.Done(f.ends)
	return true
}

func (f *file) fail(with engine.PiggybackResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = with
}

func (f *file) rows() map[string]row.Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.all)
}

// counts returns the number of all writes, and of the register's own writes.
func (f *file) counts() (writes, byself int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes, f.byself
}

// bubble runs fn with fake time.
func bubble(t *testing.T, fn func(t *testing.T, r *presence.Register, f *file)) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{all: make(map[string]row.Worker)}
		var r *presence.Register
		r = presence.NewRegister(nil, time.Now, func() { f.carry(r, true) })
		fn(t, r, f)
		r.Close()
	})
}

// pass lets d pass and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var queues = []string{"a", "b"}

// Loops that start together share a write, and when a loop ends its rows are deleted immediately. In between nothing
// is written, no matter how long the loops wait.
func TestRegister_Quiet(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		leave, leaveOther := r.Enter("w", queues, 4), r.Enter("v", queues, 4)
		require.Empty(t, f.rows())
		pass(time.Second)
		require.Len(t, f.rows(), 4)
		require.EqualValues(t, 4, f.rows()["w a"].Slots)
		pass(24 * time.Hour)
		_, byself := f.counts()
		require.Equal(t, 1, byself)
		leave()
		require.Len(t, f.rows(), 2)
		leaveOther()
		require.Empty(t, f.rows())
		pass(24 * time.Hour)
		writes, _ := f.counts()
		require.Equal(t, 3, writes)
	})
}

// A loop that ends right away is never written.
func TestRegister_Short(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		leave := r.Enter("w", queues, 4)
		f.carry(r, false)
		leave()
		pass(time.Hour)
		writes, _ := f.counts()
		require.Zero(t, writes)
	})
}

// The first commit after 20 ms carries the rows. After that, one commit a minute updates their last-seen time.
func TestRegister_Carried(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		since := time.Now().UnixMilli()
		leave := r.Enter("w", queues, 4)
		require.False(t, f.carry(r, false), "it may end at once")
		pass(30 * time.Millisecond)
		require.True(t, f.carry(r, false))
		for range 50 {
			f.carry(r, false)
			pass(7 * time.Second)
		}
		writes, byself := f.counts()
		require.Equal(t, 6, writes)
		require.Zero(t, byself)
		require.Equal(t, since, f.rows()["w a"].Since.UnixMilli())
		require.Equal(t, since+30+315_000, f.rows()["w b"].Seen.UnixMilli())
		leave()
		_, byself = f.counts()
		require.Equal(t, 1, byself)
	})
}

// Two loops with the same name share a row until both have ended.
func TestRegister_Twins(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		leave, leaveOther := r.Enter("w", queues, 4), r.Enter("w", queues[:1], 4)
		pass(time.Second)
		require.Len(t, f.rows(), 2)
		leave()
		require.Len(t, f.rows(), 1)
		leaveOther()
		require.Empty(t, f.rows())
	})
}

// A failed write is tried again: soon if another part of the write failed, and with a commit after
// a minute if the rows themselves failed.
func TestRegister_Failed(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		f.fail(engine.PiggybackSkipped)
		leave := r.Enter("w", queues, 4)
		pass(time.Second)
		f.fail(engine.PiggybackWritten)
		pass(time.Second)
		require.Len(t, f.rows(), 2)
		f.fail(engine.PiggybackFailed)
		leave()
		f.fail(engine.PiggybackWritten)
		require.False(t, f.carry(r, false))
		pass(time.Minute + time.Second)
		require.Len(t, f.rows(), 2)
		require.True(t, f.carry(r, false))
		require.Empty(t, f.rows())
	})
}

// When a DB closes, its last write contains the remaining changes.
func TestRegister_Close(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		leave := r.Enter("w", queues, 4)
		pass(time.Second)
		f.fail(engine.PiggybackSkipped)
		leave()
		r.Close()
		f.fail(engine.PiggybackWritten)
		require.True(t, f.carry(r, true))
		require.Empty(t, f.rows())
	})
}

// A loop that starts or ends during a write is handled by the next write.
func TestRegister_Meanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		leave := r.Enter("w", queues, 4)
		pass(30 * time.Millisecond)
		require.True(t, r.Take(false))
		leaveOther := r.Enter("v", queues, 4)
		leave()
		r.Done(engine.PiggybackWritten)
		pass(time.Second)
		require.Len(t, f.rows(), 2)
		require.Contains(t, f.rows(), "v a")
		leaveOther()
		require.Empty(t, f.rows())
	})
}

// A loop that ends while its row is being written still deletes the row before it returns.
func TestRegister_EndsMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *presence.Register, f *file) {
		leave := r.Enter("w", queues, 4)
		require.True(t, r.Take(true))
		for _, w := range presence.Put(r) {
			f.all[w.ID+" "+w.Queue] = w
		}
		ended := make(chan struct{})
		go func() { leave(); close(ended) }()
		pass(10 * time.Millisecond)
		r.Done(engine.PiggybackWritten)
		<-ended
		require.Empty(t, f.rows())

		// The wait is short.
		leave = r.Enter("w", queues, 4)
		require.True(t, r.Take(true))
		began := time.Now()
		leave()
		require.LessOrEqual(t, time.Since(began), time.Second)
		r.Done(engine.PiggybackSkipped)
	})
}
