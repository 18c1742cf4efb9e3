//go:build unix

package honkerpg_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// tracer records the statements of a pool, each of which is a round trip.
type tracer struct {
	mu   sync.Mutex
	sent []string

	steps, mostSteps int // calls of step under way, and their largest number
}

func isStep(query string) int {
	if strings.Contains(query, ".step(") {
		return 1
	}
	return 0
}

type traced struct{}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, q.SQL)
	r.steps += isStep(q.SQL)
	r.mostSteps = max(r.mostSteps, r.steps)
	return context.WithValue(ctx, traced{}, q.SQL)
}

func (r *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps -= isStep(ctx.Value(traced{}).(string))
}

// during returns the statements that are sent while f runs, but for notices, which another goroutine sends.
func (r *tracer) during(f func()) []string {
	r.mu.Lock()
	r.sent = nil
	r.mu.Unlock()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(r.sent, func(query string) bool { return strings.Contains(query, ".wake(") })
}

// openTraced opens a DB on a pool whose statements are recorded.
func openTraced(t *testing.T, schema string) (*honker.DB, *tracer) {
	t.Helper()
	r := &tracer{}
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.ConnConfig.Tracer = r
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db, err := honkerpg.Attach(t.Context(), pool, &honkerpg.Options{Schema: schema, NoListen: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, r
}

// Each of the frequent verbs is a single statement, which commits by itself. In a transaction of DB.Tx, a verb adds a
// statement to those of the application.
func TestRoundTrips(t *testing.T) {
	db, r := openTraced(t, pgtest.Schema(t))
	q := honker.NewQueue[int](db, "a", nil)
	var jobs []*honker.Job[int]
	notify := func() error { _, err := db.Notify(t.Context(), "c", "hi"); return err }
	verbs := []struct {
		name string
		run  func() error
		want int
	}{
		{"Enqueue", func() error { _, err := q.Enqueue(t.Context(), 1); return err }, 1},
		{"EnqueueMany", func() error { _, err := q.EnqueueMany(t.Context(), make([]int, 1000)); return err }, 1},
		{"Claim", func() (err error) { jobs, err = q.Claim(t.Context(), "w", 30); return err }, 1},
		{"Ack", func() error { return jobs[0].Ack(t.Context()) }, 1},
		{"Retry", func() error { return jobs[1].Retry(t.Context(), 0, errors.New("why")) }, 1},
		{"a notification", func() error { return notify() }, 1},
		{"a publication", func() error {
			_, err := honker.NewStream[int](db, "s", nil).Publish(t.Context(), 1)
			return err
		}, 1},
	}
	for _, v := range verbs {
		require.NoError(t, v.run(), v.name) // prepares the statements
	}
	for _, v := range verbs {
		sent := r.during(func() { require.NoError(t, v.run(), v.name) })
		require.Len(t, sent, v.want, "%s: %q", v.name, sent)
	}
}
