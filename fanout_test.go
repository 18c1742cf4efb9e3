package honker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/testkit"
)

// countedReads counts the reads of pages of events. If then is not nil, it is called after each read.
type countedReads struct {
	engine.StreamStore
	n    atomic.Int64
	then func(n int64)
}

func (c *countedReads) Read(ctx context.Context, q row.Querier, e row.EventRead, into []row.Event) (row.EventPage, error) {
	page, err := c.StreamStore.Read(ctx, q, e, into)
	if n := c.n.Add(1); c.then != nil {
		c.then(n)
	}
	return page, err
}

// Subscriptions that wait for the same event share its read.
func TestSubscribe_Many_ShareReads(t *testing.T) {
	t.Parallel()
	const subscribers, events = 100, 20
	ctx, db, s := testkit.NewStream[int](t, "orders")
	reads := &countedReads{StreamStore: engine.Of(db).Stores.Streams}
	engine.Of(db).Stores.Streams = reads
	ctx, cancel := context.WithCancel(ctx)
	came := make(chan int, subscribers)
	var all sync.WaitGroup
	for range subscribers {
		all.Go(func() {
			for e, err := range s.Tail(ctx, honker.Beginning, nil) {
				if err != nil {
					t.Error(err)
					return
				}
				came <- e.Data
			}
		})
	}
	round := func(i int) {
		testkit.Publish(t, s, i)
		for range subscribers {
			select {
			case got := <-came:
				require.Equal(t, i, got)
			case <-ctx.Done():
				require.NoError(t, ctx.Err())
			}
		}
	}
	round(-1) // every subscription has begun to wait, or is about to
	before := reads.n.Load()
	for i := range events {
		round(i)
	}
	took := reads.n.Load() - before
	t.Logf("%d subscribers took %d reads for %d events", subscribers, took, events)
	require.Less(t, took, int64(subscribers*events/4), "a subscriber that reads by itself takes at least a read for each event")
	cancel()
	all.Wait()
}

// Each of several subscriptions may change the payload of an event without the others noticing.
func TestSubscribe_Many_OwnPayload(t *testing.T) {
	t.Parallel()
	const subscribers, events = 20, 30
	ctx, db, _ := testkit.NewStream[int](t, "orders")
	s := honker.NewStream[json.RawMessage](db, "orders", nil)
	var all sync.WaitGroup
	for range subscribers {
		all.Go(func() {
			n := 0
			for e, err := range s.Tail(ctx, honker.Beginning, nil) {
				if err != nil || string(e.Payload) != fmt.Sprintf(`"event %d"`, n) {
					t.Errorf("event %d: %q, %v", n, e.Payload, err)
					return
				}
				for i := range e.Payload {
					e.Payload[i] = '!'
				}
				if n++; n == events {
					return
				}
			}
		})
	}
	for i := range events {
		testkit.Publish(t, s, json.RawMessage(fmt.Sprintf(`"event %d"`, i)))
	}
	all.Wait()
}

// Fast, slow, filtered, short-lived and differently batched subscriptions each receive all their events in order, from
// the beginning and from the middle of the stream, while others come and go.
func TestSubscribe_Many_Mixed(t *testing.T) {
	t.Parallel()
	events := 600
	if testing.Short() {
		events = 200
	}
	ctx, db, s := testkit.NewStream[int](t, "orders")
	keys := []string{"", "a", "b"}
	follow := func(s *honker.Stream[int], filter honker.Filter, lag time.Duration, want []int) error {
		var got []int
		for e, err := range s.Tail(ctx, honker.Beginning, filter) {
			if err != nil {
				return err
			}
			if got = append(got, e.Data); len(got) == len(want) {
				break
			}
			if lag > 0 && e.Data%7 == 0 {
				time.Sleep(lag)
			}
		}
		if !slices.Equal(want, got) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	}
	var every, ofA []int
	for i := range events {
		every = append(every, i)
		if keys[i%len(keys)] == "a" {
			ofA = append(ofA, i)
		}
	}
	small := honker.NewStream[int](db, "orders", &honker.StreamOptions{Batch: 3})
	pattern := honker.NewStream[int](db, "ord*", nil)
	var steady, passing sync.WaitGroup
	for i := range 24 {
		steady.Go(func() {
			var err error
			switch i % 6 {
			case 0, 1:
				err = follow(s, nil, 0, every)
			case 2:
				err = follow(s, nil, time.Millisecond, every)
			case 3:
				err = follow(s, honker.KeyIs("a"), 0, ofA)
			case 4:
				err = follow(small, nil, 0, every)
			case 5:
				err = follow(pattern, nil, 0, every)
			}
			if err != nil {
				t.Errorf("subscriber %d: %v", i, err)
			}
		})
	}
	luck, stop := testkit.Rand(testkit.Seed(t), 0), make(chan struct{})
	lives := make([]time.Duration, 64)
	for i := range lives {
		lives[i] = time.Duration(luck.IntN(3000)) * time.Microsecond
	}
	for i := range 4 {
		passing.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				short, cancel := context.WithTimeout(ctx, lives[n%len(lives)])
				next := -1
				for e, err := range s.Tail(short, honker.Beginning, nil) {
					if err != nil || e.Data != next+1 {
						t.Errorf("after %d: %+v, %v", next, e, err)
						break
					}
					next = e.Data
				}
				cancel()
			}
		})
	}
	for i := range events {
		_, err := s.Publish(ctx, i, honker.EventKey(keys[i%len(keys)]))
		require.NoError(t, err)
	}
	steady.Wait()
	close(stop)
	passing.Wait()
}
