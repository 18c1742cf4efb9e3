//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Readers of a topic pattern see every committed event once, in the order of each writer's commits, even if
// applications' transactions stay open or roll back. A reader of plain sequence numbers, the control, misses events.
func TestReadersMissNoEvent(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	stores := pgstore.Stores(schema)
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	app := stdlib.OpenDB(*config)
	defer app.Close()
	naive := schema.SQL(`honker.naive`)
	_, err = app.Exec(`CREATE TABLE ` + naive + ` (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)`)
	require.NoError(t, err)

	publish := func(q row.Querier, name string) error {
		_, _, err := stores.Streams.Publish(t.Context(), q, row.Publication{Topic: "t:" + name[:1], Payloads: []string{name}}, b.Now())
		return err
	}
	var read, control sync.Map
	var after, last atomic.Int64
	var sequence []string
	look := func() (n int) {
		require.NoError(t, pgstore.CatchUp(t.Context(), app, schema, pgsql.Number, b.Now()))
		page, err := stores.Streams.Read(t.Context(), app, row.EventRead{Selection: row.Selection{Topic: "t:*"}, After: after.Load(), Through: row.Unbounded, Limit: 50}, nil)
		require.NoError(t, err)
		for _, e := range page.Events {
			_, twice := read.LoadOrStore(string(e.Payload), true)
			require.False(t, twice, "%s came twice", e.Payload)
			sequence = append(sequence, string(e.Payload))
		}
		after.Store(page.Next)
		require.NoError(t, pgsql.Each(t.Context(), app, `SELECT id, name FROM `+naive+` WHERE id > $1 ORDER BY id`, func(r *sql.Rows) error {
			var id int64
			var name string
			err := r.Scan(&id, &name)
			control.Store(name, true)
			last.Store(id)
			return err
		}, last.Load()))
		return len(page.Events)
	}

	var mu sync.Mutex
	committed := map[string]bool{}
	inApp := func(name string, rollback bool, between func()) {
		tx, err := app.BeginTx(t.Context(), nil)
		if !assert.NoError(t, err) {
			return
		}
		defer func() { _ = tx.Rollback() }()
		assert.NoError(t, publish(tx, name))
		_, err = tx.ExecContext(t.Context(), `INSERT INTO `+naive+` (name) VALUES ($1)`, name)
		assert.NoError(t, err)
		between()
		if rollback {
			return
		}
		if assert.NoError(t, tx.Commit()) {
			mu.Lock()
			committed[name] = true
			mu.Unlock()
		}
	}
	inOp := func(name string) {
		assert.NoError(t, b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error { return publish(q, name) })))
		_, err := app.ExecContext(t.Context(), `INSERT INTO `+naive+` (name) VALUES ($1)`, name)
		assert.NoError(t, err)
		mu.Lock()
		committed[name] = true
		mu.Unlock()
	}
	// The control fails at least here: a later event is read before the transaction commits.
	inApp("0 0000", false, func() { inOp("0 0001"); look() })

	var writers sync.WaitGroup
	for w := 1; w <= 8; w++ {
		writers.Go(func() {
			for i := range 60 {
				name := fmt.Sprintf("%d %04d", w, i)
				if w%2 == 0 {
					inOp(name)
				} else {
					inApp(name, i%5 == 0, func() {
						for range i % 7 { // a slow transaction
							_, err := app.ExecContext(t.Context(), `SELECT 1`)
							assert.NoError(t, err)
						}
					})
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		look()
	}
	for look() > 0 {
	}
	missed, controlMissed := 0, 0
	for name := range committed {
		if _, ok := read.Load(name); !ok {
			missed++
		}
		if _, ok := control.Load(name); !ok {
			controlMissed++
		}
	}
	require.Zero(t, missed)
	require.Len(t, sequence, len(committed), "an event that was never committed was read")
	require.Positive(t, controlMissed, "the control must miss events")
	latest := map[byte]string{}
	for _, name := range sequence {
		if name[0] != '0' {
			require.Greater(t, name, latest[name[0]], "the order of the writer's commits")
		}
		latest[name[0]] = name
	}
}
