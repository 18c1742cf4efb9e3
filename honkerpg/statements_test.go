//go:build unix

package honkerpg_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
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
	return attachTraced(t, honkerpg.Options{Schema: schema, NoListen: true})
}

// attachTraced is openTraced with options.
func attachTraced(t *testing.T, o honkerpg.Options) (*honker.DB, *tracer) {
	t.Helper()
	pool, r := tracedPool(t)
	db, err := honkerpg.Attach(t.Context(), pool, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, r
}

// tracedPool returns a pool whose statements are recorded.
func tracedPool(t *testing.T) (*pgxpool.Pool, *tracer) {
	t.Helper()
	r := &tracer{}
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.ConnConfig.Tracer = r
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, r
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

// A worker that is told of another process's enqueue claims at once. It asks nothing before.
func TestRoundTrips_OfAWake(t *testing.T) {
	o := honkerpg.Options{Schema: pgtest.Schema(t)}
	db, r := attachTraced(t, o)
	other := open(t, o)
	started := starts(t, db)
	q := honker.NewQueue[int](other, "a", nil)
	told := 0
	for range 100 {
		sent := r.during(func() {
			_, err := q.Enqueue(t.Context(), 1)
			require.NoError(t, err)
			<-started
		})
		if len(sent) == 1 && isStep(sent[0]) == 1 {
			told++
		}
		time.Sleep(20 * time.Millisecond) // the worker settles the job and waits again
	}
	require.Greater(t, told, 50, "a look by timer may come first, now and then")
}

// A verb in a transaction of the application takes two statements: the check with the notice, and its own. A pgx.Tx that was
// ended by a statement is refused.
func TestRoundTrips_InATransaction(t *testing.T) {
	pool, r := tracedPool(t)
	standard := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, standard.Close()) })
	q := honker.NewQueue[int](open(t, honkerpg.Options{NoListen: true}), "a", nil)
	native, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer native.Rollback(context.WithoutCancel(t.Context()))
	other, err := standard.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer other.Rollback()
	enqueue := func(tx honker.Tx) error { _, err := q.EnqueueTx(t.Context(), tx, 1); return err }
	for name, tx := range map[string]honker.Tx{"pgx.Tx": honkerpg.WithTx(native), "sql.Tx": other} {
		require.NoError(t, enqueue(tx), name) // prepares the statements
		sent := r.during(func() { require.NoError(t, enqueue(tx), name) })
		require.Len(t, sent, 1, "%s: %q", name, sent) // without the check, which has the notice
	}
	_, err = native.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)
	require.ErrorIs(t, enqueue(honkerpg.WithTx(native)), honker.ErrInvalid)
	require.NoError(t, native.Rollback(t.Context()))
	require.ErrorIs(t, enqueue(honkerpg.WithTx(native)), honker.ErrInvalid)
}
