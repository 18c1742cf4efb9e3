//go:build unix

package pgbackend_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// plainInsert is an op that can be merged with others.
type plainInsert struct {
	jobs jobs.Jobs
	in   row.Insert
	ids  []int64
	ran  bool // alone
}

func (p *plainInsert) Single() bool  { return true }
func (p *plainInsert) MergeKey() any { return "insert" }

func (p *plainInsert) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	out, err := p.jobs.Insert(ctx, q, &p.in, now)
	p.ids, p.ran = out.IDs, true
	return err
}

func (p *plainInsert) RunMerged(ctx context.Context, q engine.Querier, ops []engine.Op, now time.Time) error {
	var all []*row.Insert
	for _, op := range ops {
		all = append(all, &op.(*plainInsert).in)
	}
	ids, err := p.jobs.InsertAll(ctx, q, all, now)
	for i := range ids {
		ops[i].(*plainInsert).ids = ids[i]
	}
	return err
}

// insertAtOnce writes ops from as many goroutines.
func insertAtOnce(t *testing.T, b *pgbackend.Backend, ops []*plainInsert) []error {
	t.Helper()
	errs := make([]error, len(ops))
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() { errs[i] = b.Write(t.Context(), op) })
	}
	all.Wait()
	return errs
}

// Concurrent inserts share statements, and each gets the ids of its own jobs.
func TestBackend_Write_Merges(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	var ops []*plainInsert
	for i := range 200 {
		in := row.Insert{Queue: fmt.Sprint("q", i%3), MaxAttempts: 3}
		for k := range 1 + i%4 {
			in.Payloads = append(in.Payloads, fmt.Sprintf("[%d, %d]", i, k))
		}
		ops = append(ops, &plainInsert{jobs: jobs.Jobs{Schema: schema}, in: in})
	}
	for _, err := range insertAtOnce(t, b, ops) {
		require.NoError(t, err)
	}
	merged := 0
	for _, op := range ops {
		require.IsIncreasing(t, op.ids)
		require.Len(t, op.ids, len(op.in.Payloads))
		if !op.ran {
			merged++
		}
		for k, id := range op.ids {
			var queue, payload string
			require.NoError(t, b.Read(t.Context(), false, func(ctx context.Context, q engine.Querier) error {
				_, err := pgsql.One(ctx, q, schema.SQL(`SELECT queue, payload FROM honker.job WHERE id = $1`), []any{id}, &queue, &payload)
				return err
			}))
			require.Equal(t, op.in.Queue, queue)
			require.Equal(t, op.in.Payloads[k], payload)
		}
	}
	require.NotZero(t, merged)
}

// The statements of merged ops work without prepared statements, as behind a pooler.
func TestBackend_Merged_Unprepared(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec })
	require.NoError(t, b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		ids, err := jobs.Jobs{Schema: schema}.InsertAll(ctx, q, []*row.Insert{
			{Queue: "a", Payloads: []string{"1", "2"}, MaxAttempts: 3}, {Queue: "b", Payloads: []string{"3"}, MaxAttempts: 3}}, now)
		require.Len(t, ids, 2)
		return err
	})))
	require.NoError(t, b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		offsets, err := streams.Streams{Schema: schema}.PublishAll(ctx, q, []row.Publication{
			{Topic: "a", Payloads: []string{"1", "2"}}, {Topic: "b", Payloads: []string{"3"}}}, now)
		require.Equal(t, [][2]int64{{1, 2}, {3, 3}}, offsets)
		return err
	})))
}

// An insert that the database refuses fails alone, and those merged with it succeed.
func TestBackend_Write_MergedFailsAlone(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	require.NoError(t, b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		_, err := q.ExecContext(ctx, schema.SQL(`ALTER TABLE honker.job ADD CHECK (payload <> 'bad')`))
		return err
	})))
	var ops []*plainInsert
	for i := range 60 {
		in := row.Insert{Queue: "q", MaxAttempts: 3, Payloads: []string{"good"}}
		if i%7 == 0 {
			in.Payloads = []string{"good", "bad"}
		}
		ops = append(ops, &plainInsert{jobs: jobs.Jobs{Schema: schema}, in: in})
	}
	for i, err := range insertAtOnce(t, b, ops) {
		require.Equal(t, i%7 == 0, pgsql.Refused(err), "%v", err)
		require.Equal(t, i%7 != 0, err == nil)
	}
	require.Equal(t, 60-9, count(t, b, schema, "job"))
}

// An insert whose ctx ends while it waits for a lane is withdrawn, and the others still get a lane.
func TestBackend_Write_MergedIsWithdrawn(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			op := &plainInsert{jobs: jobs.Jobs{Schema: schema}, in: row.Insert{Queue: "q", MaxAttempts: 3, Payloads: []string{"1"}}}
			if i%2 == 0 {
				if err := b.Write(ended, op); err == nil && op.ids == nil {
					t.Error("no ids, and no error")
				}
			} else if err := b.Write(t.Context(), op); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, count(t, b, schema, "job"), 50)
}

// count returns the number of rows of a table.
func count(t *testing.T, b *pgbackend.Backend, schema pgsql.Schema, table string) (n int) {
	t.Helper()
	require.NoError(t, b.Read(t.Context(), false, func(ctx context.Context, q engine.Querier) error {
		_, err := pgsql.One(ctx, q, schema.SQL(`SELECT count(*) FROM honker.`+table), nil, &n)
		return err
	}))
	return n
}
