package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

func wakes(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("LogOfEvents", func(t *testing.T) {
		d := open(t)
		wakeLog(t, d, d.Stores.Wake.Events, row.Added{"a": {"": true, "k": true}, "b": {"k": true}}, func() {
			d.publish(t, "a", nil, `1`)
			d.publish(t, "b", []string{"k"}, `1`)
			d.publish(t, "a", []string{"k"}, `1`)
		})
	})
	t.Run("LogOfMessages", func(t *testing.T) {
		d := open(t)
		wakeLog(t, d, d.Stores.Wake.Messages, row.Added{"a": {"": true}, "b": {"": true}}, func() {
			d.notify(t, "a", `1`)
			d.notify(t, "b", `1`)
			d.notify(t, "a", `1`)
		})
	})
	t.Run("CommitIsNoticed", func(t *testing.T) { commitNoticed(t, open(t)) })
}

// A log reports each row that was committed after a head, once and in order, and detects if its head has decreased.
// write adds three rows, whose names and keys are want.
func wakeLog(t *testing.T, d *Fixture, log wake.Log, want row.Added, write func()) {
	head := func() (head int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			head, err = log.Head(ctx, q)
			return err
		})
		return head
	}
	since := func(after int64, limit int) (added row.Added, n int, last int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			added, n, last, err = log.Since(ctx, q, after, limit)
			return err
		})
		return added, n, last
	}
	write()
	before := head()
	added, n, last := since(before, 10)
	require.Equal(t, row.Added{}, added)
	require.Zero(t, n)
	require.Equal(t, before, last)
	write()
	added, n, last = since(before, 10)
	require.Equal(t, want, added)
	require.Equal(t, 3, n)
	require.LessOrEqual(t, last, head())

	// In pages, each row is read once.
	all, rows := row.Added{}, 0
	for after := before; ; {
		added, n, last := since(after, 2)
		if n == 0 {
			break
		}
		for name, keys := range added {
			for key := range keys {
				all.Add(name, key)
			}
		}
		rows, after = rows+n, last
	}
	require.Equal(t, want, all)
	require.Equal(t, 3, rows)

	_, n, last = since(head()+100, 10)
	require.Zero(t, n)
	require.Less(t, last, head()+100, "a backup was restored")
}

// A backend's watcher notices a commit while it has a waiter.
func commitNoticed(t *testing.T, d *Fixture) {
	changed := make(chan wake.Signals, 1000)
	w := d.Backend.Watch(wake.Events{
		Changed: func(_ wake.Reason, s wake.Signals) int {
			select {
			case changed <- s:
			default:
			}
			return 1
		},
		Lost: func(err error) { t.Errorf("the database is lost: %v", err) },
	})
	defer func() { require.NoError(t, w.Close()) }()
	w.AddWaiter(wake.AllSignals)
	defer w.RemoveWaiter(wake.AllSignals)
	for range 3 {
		for len(changed) > 0 {
			<-changed
		}
		d.publish(t, "a", nil, `1`)
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("the commit was not noticed")
		}
	}
}
