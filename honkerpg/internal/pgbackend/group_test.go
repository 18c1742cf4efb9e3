//go:build unix

package pgbackend_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// groupEvents is the number of events that the members of a group share in a test.
const groupEvents = 600

// sharedGroup is a group whose members claim at once while events are published.
type sharedGroup struct {
	schema  pgsql.Schema
	backend *pgbackend.Backend
	stores  engine.Stores
	members []row.Member

	mu       sync.Mutex
	given    map[int64]int // claims of each event
	acked    map[int64]int
	failures []error
	left     atomic.Int64 // events that are not yet acked
}

// newSharedGroup creates a group for the events of pattern "t*".
func newSharedGroup(t *testing.T) *sharedGroup {
	t.Helper()
	schema := pgsql.Schema(pgtest.Schema(t))
	g := &sharedGroup{schema: schema, backend: open(t, schema, nil), stores: pgstore.Stores(schema), given: map[int64]int{}, acked: map[int64]int{}}
	for i := range 4 {
		m := row.Member{Name: fmt.Sprint("m", i), Instance: fmt.Sprint("i", i)}
		j := row.GroupJoin{Topic: "t*", Name: "g", Member: m, Expires: time.Now().Add(time.Hour)}
		require.NoError(t, g.backend.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
			joined, err := g.stores.Groups.Join(ctx, q, j, now)
			m.Group = joined.Group
			return err
		})))
		g.members = append(g.members, m)
	}
	g.left.Store(groupEvents)
	return g
}

func (g *sharedGroup) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures = append(g.failures, err)
}

func (g *sharedGroup) hasFailed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.failures) > 0
}

// publish publishes n events from transactions of the application and of honker.
func (g *sharedGroup) publish(ctx context.Context, topic string, n int) error {
	for i := range n {
		p := row.Publication{Topic: topic, Payloads: []string{`1`}}
		if i%2 == 0 {
			err := g.backend.Write(ctx, engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
				_, _, err := g.stores.Streams.Publish(ctx, q, p, now)
				return err
			}))
			if err != nil {
				return err
			}
			continue
		}
		tx, err := g.backend.Begin(ctx)
		if err != nil {
			return err
		}
		_, _, err = g.stores.Streams.Publish(ctx, tx.SQL(), p, g.backend.Now())
		if err == nil {
			err = tx.Commit()
		}
		tx.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// work claims and acks until all events are acked, something fails, or many claims were made. Every third event is first
// given back.
func (g *sharedGroup) work(ctx context.Context, m row.Member) {
	for tries := 0; g.left.Load() > 0 && !g.hasFailed() && tries < 20*groupEvents; tries++ {
		var got row.GroupClaimed
		err := g.backend.Write(ctx, engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			got, err = g.stores.Groups.Claim(ctx, q, row.GroupClaim{Member: m, N: 7, Expires: now.Add(time.Hour)}, now)
			return err
		}))
		if err != nil {
			g.failed(err)
			return
		}
		for _, e := range got.Events {
			g.settle(ctx, m, e)
		}
	}
}

func (g *sharedGroup) settle(ctx context.Context, m row.Member, e row.Delivery) {
	back := e.Offset%3 == 0 && e.Attempts == 1
	var out row.GroupSettled
	err := g.backend.Write(ctx, engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		s := row.GroupSettlement{Holding: row.Holding{Group: m.Group, Offset: e.Offset, Token: e.Token}, Back: back, Ready: now}
		out, err = g.stores.Groups.Settle(ctx, q, s, now)
		return err
	}))
	if err != nil {
		g.failed(err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.given[e.Offset]++
	switch {
	case !out.Held:
		g.failures = append(g.failures, fmt.Errorf("event %d was not held by its member", e.Offset))
	case !back:
		g.acked[e.Offset]++
		g.left.Add(-1)
	}
}

// run lets the members claim while three publishers run.
func (g *sharedGroup) run(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			if err := g.publish(t.Context(), fmt.Sprint("t", i), groupEvents/3); err != nil {
				g.failed(err)
			}
		})
	}
	for _, m := range g.members {
		all.Go(func() { g.work(t.Context(), m) })
	}
	all.Wait()
}

// Members that claim at once never hold the same event, and each event is acked once, while events are published in the
// application's transactions and in honker's, and while some are given back.
func TestGroups_Claim_AtOnce(t *testing.T) {
	g := newSharedGroup(t)
	g.run(t)
	require.Empty(t, g.failures)
	require.Len(t, g.acked, groupEvents, "an event was lost")
	for offset, n := range g.acked {
		require.Equal(t, 1, n, "acks of event %d", offset)
		want := 1
		if offset%3 == 0 {
			want = 2
		}
		require.Equal(t, want, g.given[offset], "claims of event %d", offset)
	}
}

// The same members get in each other's way without the lock of the group.
func TestGroups_Claim_WithoutLock(t *testing.T) {
	g := newSharedGroup(t)
	require.NoError(t, g.backend.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		_, err := q.ExecContext(ctx, g.schema.SQL(`CREATE OR REPLACE FUNCTION honker.group_lock(g bigint) RETURNS void LANGUAGE sql AS ''`))
		return err
	})))
	g.run(t)
	require.NotEmpty(t, g.failures)
}
