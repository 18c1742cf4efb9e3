//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// planned collects the plans of all statements that run on its connections, also of the statements in functions.
type planned struct {
	mu    sync.Mutex
	plans []string
}

func (p *planned) add(_ *pgconn.PgConn, n *pgconn.Notice) {
	if strings.Contains(n.Message, "plan:") {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.plans = append(p.plans, n.Message)
	}
}

// reset forgets the plans so far.
func (p *planned) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plans = nil
}

// faults returns the plans that read a whole table that grows.
func (p *planned) faults() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, plan := range p.plans {
		if wholeTable.MatchString(plan) {
			all = append(all, plan)
		}
	}
	return all
}

// wholeTable matches a plan that reads a whole table that grows with jobs, events or messages.
var wholeTable = regexp.MustCompile(`Seq Scan on (job|side|dead|done|attempt|result|uniq|edge|token|event|message|delivery|place|pending)\b`)

// explained opens a backend whose connections explain each statement.
func explained(t *testing.T, schema pgsql.Schema) (*pgbackend.Backend, *planned) {
	t.Helper()
	p := new(planned)
	b := open(t, schema, func(c *pgx.ConnConfig) {
		c.OnNotice = p.add
		for name, value := range map[string]string{"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
			"auto_explain.log_nested_statements": "on", "auto_explain.log_level": "notice"} {
			c.RuntimeParams[name] = value
		}
	})
	return b, p
}

// busy runs the statements that run for each enqueue, claim, settlement, publication, read and look.
type busy struct {
	*testing.T
	schema  pgsql.Schema
	backend *pgbackend.Backend
	stores  engine.Stores
	member  row.Member
	round   int
}

func (b *busy) write(f func(ctx context.Context, q engine.Querier, now time.Time) error) {
	b.Helper()
	require.NoError(b, b.backend.Write(b.Context(), engine.OpFunc(f)))
}

func (b *busy) read(f func(ctx context.Context, q engine.Querier) error) {
	b.Helper()
	require.NoError(b, b.backend.Read(b.Context(), false, f))
}

// work does a round of everything.
func (b *busy) work() {
	b.Helper()
	b.round++
	b.jobs()
	b.streams()
	b.groups()
	b.looks()
}

func (b *busy) insert(in row.Insert) (ids []int64) {
	b.Helper()
	in.Queue, in.MaxAttempts = "q", 3
	b.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		out, err := b.stores.Jobs.Insert(ctx, q, &in, now)
		ids = out.IDs
		return err
	})
	return ids
}

func (b *busy) jobs() {
	b.Helper()
	first := b.insert(row.Insert{Payloads: []string{`1`, `2`, `3`, `4`, `5`, `6`}, Priority: 9})
	b.insert(row.Insert{Payloads: []string{`1`}, Priority: 9, Unique: &row.Unique{Keys: []string{fmt.Sprint("new", b.round)}, Conflict: row.ReplaceWaiting}})
	b.insert(row.Insert{Payloads: []string{`1`}, Priority: 9, Links: &row.Links{Jobs: first[:1]}})
	b.insert(row.Insert{Payloads: []string{`1`}, Priority: 9, Key: fmt.Sprint("k", b.round)})
	b.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		claim := &row.ClaimRequest{Lanes: row.InOrder("q", "other"), Worker: "w", N: 6, Lease: time.Minute}
		c, err := b.stores.Jobs.Step(ctx, q, row.Step{Claim: claim}, now)
		if err != nil {
			return err
		}
		require.Len(b, c.Jobs, 6)
		claims, all := []int64{}, []*row.Settlement{}
		outcomes := []row.Outcome{row.Acked, row.Acked, row.Retried, row.Snoozed, row.Released, row.Died}
		for i, j := range c.Jobs {
			claims = append(claims, j.ID)
			all = append(all, &row.Settlement{Claim: row.Claim{ID: j.ID, Worker: "w", Attempt: j.Attempts}, Queue: "q", Outcome: outcomes[i], Error: "why", Delay: time.Hour})
		}
		if _, err := b.stores.Jobs.Renew(ctx, q, row.Renewal{Worker: "w", IDs: claims, Lease: time.Minute}, now); err != nil {
			return err
		}
		if _, err := b.stores.Jobs.Checkpoint(ctx, q, all[0].Claim, `{}`, now); err != nil {
			return err
		}
		if _, err := b.stores.Jobs.Gone(ctx, q, claims); err != nil {
			return err
		}
		if _, err := b.stores.Jobs.Step(ctx, q, row.Step{Settle: all, Claim: claim}, now); err != nil {
			return err
		}
		_, err = b.stores.Jobs.Cancel(ctx, q, "q", claims[4], now)
		return err
	})
}

func (b *busy) streams() {
	b.Helper()
	var last int64
	b.write(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		_, last, err = b.stores.Streams.Publish(ctx, q, row.Publication{Topic: "t", Keys: []string{"k"}, Payloads: []string{`1`, `2`}}, now)
		if err != nil {
			return err
		}
		if _, err := b.stores.Notifications.Insert(ctx, q, "c", `1`, now); err != nil {
			return err
		}
		_, err = b.stores.Consumers.SaveOffset(ctx, q, "c", "t", last, now)
		return err
	})
	filter := &row.Filter{Op: row.KeyIs, Key: "k"}
	b.read(func(ctx context.Context, q engine.Querier) error {
		for _, s := range []row.Selection{{Topic: "t"}, {Topic: "t*"}, {Topic: "*"}, {Topic: "t", Filter: filter}} {
			for _, after := range []int64{last - 2, max(0, last-50_000)} {
				page, err := b.stores.Streams.Read(ctx, q, row.EventRead{Selection: s, After: after, Through: row.Unbounded, Limit: 2}, nil)
				if err != nil {
					return err
				}
				require.NotEmpty(b, page.Events, s.Topic)
			}
			if _, err := b.stores.Streams.Last(ctx, q, s); err != nil {
				return err
			}
		}
		_, err := b.stores.Notifications.Since(ctx, q, []string{"c"}, 0, 2)
		return err
	})
}

func (b *busy) groups() {
	b.Helper()
	b.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		until := now.Add(time.Minute)
		claimed, err := b.stores.Groups.Claim(ctx, q, row.GroupClaim{Member: b.member, N: 2, Expires: until}, now)
		if err != nil {
			return err
		}
		for i, d := range claimed.Events {
			h := row.Holding{Group: b.member.Group, Offset: d.Offset, Token: d.Token}
			if _, err := b.stores.Groups.Extend(ctx, q, h, until, now); err != nil {
				return err
			}
			if _, err := b.stores.Groups.Settle(ctx, q, row.GroupSettlement{Holding: h, Back: i == 0, Ready: now}, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// looks runs the statements of waiters.
func (b *busy) looks() {
	b.Helper()
	b.read(func(ctx context.Context, q engine.Querier) error {
		now, w := b.backend.Now(), b.stores.Wake
		if _, err := w.Queues(ctx, q, []string{"q", "other"}, true, now); err != nil {
			return err
		}
		if _, err := w.Results(ctx, q, []int64{1, 2, 3}); err != nil {
			return err
		}
		if _, err := b.stores.Results.Fate(ctx, q, 1, now); err != nil {
			return err
		}
		if _, _, err := b.stores.Jobs.Find(ctx, q, 1, "q"); err != nil {
			return err
		}
		if _, err := w.Groups(ctx, q, []int64{b.member.Group}, now); err != nil {
			return err
		}
		if _, err := b.stores.Groups.Ready(ctx, q, b.member.Group, now); err != nil {
			return err
		}
		if _, err := b.stores.Jobs.AfterOf(ctx, q, 1); err != nil {
			return err
		}
		for _, s := range []engine.Sweep{b.stores.Sweeps.Overdue, b.stores.Sweeps.Expired, b.stores.Sweeps.Dead, b.stores.Sweeps.Results} {
			if _, err := s.Find(ctx, q, row.Part{Name: "q", Through: row.Cutoff{At: now, ID: 1}}, now, 9); err != nil {
				return err
			}
		}
		for _, log := range []wake.Log{w.Events, w.Messages} {
			head, err := log.Head(ctx, q)
			if err != nil {
				return err
			}
			if _, _, _, err := log.Since(ctx, q, max(0, head-2), 9); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill adds many rows to the tables that grow.
const fill = `INSERT INTO honker.job (queue, payload, run_at, created_at, unique_key) SELECT 'q', '{}', now(), now(), 'u' || i FROM generate_series(1, 50000) i;
INSERT INTO honker.uniq (queue, key, job_id, kind, first_at) SELECT queue, unique_key, id, 0, created_at FROM honker.job WHERE unique_key LIKE 'u%';
INSERT INTO honker.side (job_id, progress) SELECT id, '{}' FROM honker.job ON CONFLICT DO NOTHING;
INSERT INTO honker.job (queue, payload, run_at, created_at, state, worker, lease_until, attempts)
  SELECT 'q', '{}', now(), now(), 1, 'v', now() + interval '1 hour', 1 FROM generate_series(1, 20000);
INSERT INTO honker.event (topic, key, payload, created_at) SELECT 't', 'k', '{}', now() FROM generate_series(1, 100000);
INSERT INTO honker.message (channel, payload, created_at) SELECT 'c', '{}', now() FROM generate_series(1, 50000);
INSERT INTO honker.edge (waiter, parent) SELECT -1000000 - i, 2000000 + i FROM generate_series(1, 20000) i;
INSERT INTO honker.result (job_id, value, created_at) SELECT 1000000 + i, '1', now() FROM generate_series(1, 20000) i;
INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, queue, payload)
  SELECT 1000000 + i, now(), now(), now(), 0, 1, 1, 'q', '{}' FROM generate_series(1, 20000) i;
INSERT INTO honker.done (id, run_at, created_at, done_at, priority, attempts, max_attempts, queue, payload)
  SELECT 2000000 + i, now(), now(), now(), 0, 1, 1, 'q', '{}' FROM generate_series(1, 20000) i;
INSERT INTO honker.place (job_id, queue, worker, attempt, until_at) SELECT 3000000 + i, 'z', 'w', 1, now() FROM generate_series(1, 20000) i;
INSERT INTO honker.attempt (job_id, attempt, worker, start_at, ran) SELECT 1000000 + i, 1, 'w', now(), '0' FROM generate_series(1, 20000) i;
INSERT INTO honker.delivery (group_id, "offset", token, deadline, attempts, state, holder)
  SELECT 77, i, 1, now() + interval '1 hour', 1, i % 3, 'x' FROM generate_series(1, 20000) i`

// newBusy prepares tables that nothing analyzes but the test.
func newBusy(t *testing.T) (b *busy, plans *planned, admin func(statements string)) {
	t.Helper()
	schema := pgsql.Schema(pgtest.Schema(t))
	backend, plans := explained(t, schema)
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	pool := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	admin = func(statements string) {
		t.Helper()
		for _, s := range strings.Split(statements, ";\n") {
			_, err := pool.ExecContext(t.Context(), schema.SQL(s))
			require.NoError(t, err, s)
		}
	}
	r, err := pool.QueryContext(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = $1`, string(schema))
	require.NoError(t, err)
	names, err := tables(r)
	require.NoError(t, err)
	for _, name := range names {
		admin(`ALTER TABLE honker.` + name + ` SET (autovacuum_enabled = off);` + "\n" + `ANALYZE honker.` + name)
	}
	b = &busy{T: t, schema: schema, backend: backend, stores: pgstore.Stores(schema)}
	b.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		m := row.Member{Name: "m", Instance: "i"}
		joined, err := b.stores.Groups.Join(ctx, q, row.GroupJoin{Topic: "t", Name: "g", Member: m, Expires: now.Add(time.Hour)}, now)
		m.Group = joined.Group
		b.member = m
		return err
	})
	return b, plans, admin
}

func tables(r *sql.Rows) (names []string, err error) {
	defer r.Close()
	for r.Next() {
		var name string
		if err := r.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, r.Err()
}

// Statements that run for each job, event or look do not read a whole table: neither with plans that were made while the
// tables were empty, nor with new plans for statistics of empty tables or of full ones.
func TestPlans(t *testing.T) {
	b, plans, admin := newBusy(t)
	for range 8 { // the server keeps a plan from the sixth call on
		b.work()
	}
	admin(fill)
	for _, state := range []string{"kept from empty tables", "new, for statistics of empty tables", "for statistics of full tables"} {
		switch state[0] {
		case 'n':
			b.backend, plans = explained(t, b.schema)
		case 'f':
			admin(`ANALYZE`)
		}
		plans.reset()
		for range 7 {
			b.work()
		}
		require.Greater(t, len(plans.plans), 100, "the server explains statements")
		for _, fault := range plans.faults() {
			t.Errorf("%s:\n%s", state, fault)
		}
	}
	b.read(func(ctx context.Context, q engine.Querier) error {
		_, err := q.ExecContext(ctx, b.schema.SQL(`SELECT count(payload) FROM honker.job`))
		return err
	})
	require.Len(t, plans.faults(), 1, "a plan that reads a whole table is found")
}
