package honker_test

import (
	"context"
	"database/sql"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// A message of another connection wakes whoever sleeps: who is closed does not, and has
// said so at once.
func TestClosedListenerSleepsNoMore(t *testing.T) {
	const leaving = 20
	var woken atomic.Int64 // by the last wake
	path, _ := shared(t)
	db := honkertest.OpenFile(t, path, &honker.Options{Observer: &honker.Observer{
		Woke: func(w honker.Woke) { woken.Store(int64(w.Waiters)) },
	}})
	other := plain(t, path)
	wakes := func(n int64) func() bool {
		return func() bool {
			perform(t, other, `INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '1')`)
			return woken.Load() == n
		}
	}
	ctx := bounded(t, patient)
	ended := make(chan error, leaving)
	var all []*honker.Listener
	for i := range leaving + 1 {
		l := listenTo(t, db, "news")
		all = append(all, l)
		loop := func(ctx context.Context) error { return lastError(l.All(ctx)) }
		if i == leaving {
			background(t, loop) // and stays
		} else {
			go func() { ended <- loop(ctx) }()
		}
	}
	eventually(t, patient, "all of them sleep", wakes(leaving+1))
	for _, l := range all[:leaving] {
		require.NoError(t, l.Close())
	}
	for range leaving {
		require.ErrorIs(t, within(ctx, ended, 3*time.Second), honker.ErrClosed)
	}
	eventually(t, patient, "one sleeps", wakes(1))
	for range 20 {
		wakes(1)()
		require.LessOrEqual(t, woken.Load(), int64(1))
	}
}

// Each of them costs something until it is closed, and nothing after.
func TestWhatWasClosedTakesNoMemory(t *testing.T) {
	const cycles = 5000 // the thousand objects that the runtime keeps for later are less than half
	_, db := shared(t)
	ctx := bounded(t, patient)
	for name, cycle := range map[string]func(){
		"listener": func() {
			l, err := db.Listen(ctx, "news")
			require.NoError(t, err)
			require.NoError(t, l.Close())
		},
		"lock":        func() { unlock(t, takeLock(t, db, "l", nil)) },
		"transaction": func() { require.NoError(t, db.Tx(ctx, func(context.Context, *sql.Tx) error { return nil })) },
	} {
		cycle() // what is made once
		before := objects()
		for range cycles {
			cycle()
		}
		eventually(t, 3*time.Second, name+"s leave nothing behind", func() bool { return objects() < before+cycles/2 })
	}
}

// objects is how many objects there are in memory.
func objects() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}
