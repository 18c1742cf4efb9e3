//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// watching is a process whose statements are counted and whose connection of notices can be cut.
type watching struct {
	*pgbackend.Backend
	wake.Watcher
	statements atomic.Int64
	cut        atomic.Bool
	looks      chan wake.Reason
	lost       chan error
}

// TraceQueryStart implements pgx.QueryTracer.
func (p *watching) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	p.statements.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*watching) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// watch starts a process. Waiters for any commit are woken by looks for commits, as the notifier wakes them.
func watch(t *testing.T, schema pgsql.Schema, polls bool) *watching {
	t.Helper()
	p := &watching{looks: make(chan wake.Reason, 1<<16), lost: make(chan error, 1)}
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.Tracer = p
	pool := stdlib.OpenDB(*config)
	o := pgbackend.Options{Schema: schema, BusyTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Pool: pool, App: func() *sql.DB { return pool }, Close: pool.Close}
	if !polls {
		o.Listen = config.Copy()
		o.Listen.RuntimeParams["application_name"] = string(schema[len(schema)-20:])
		o.BeforeListen = func(context.Context, *pgx.ConnConfig) error {
			if p.cut.Load() {
				return errors.New("the network is cut")
			}
			return nil
		}
	}
	p.Backend, err = pgbackend.Open(t.Context(), config, o)
	require.NoError(t, err)
	p.Watcher = p.Watch(wake.Events{
		Changed: func(r wake.Reason, _ wake.Signals) int {
			p.looks <- r
			if r == wake.Deadline {
				return 0
			}
			return 1
		},
		Lost: func(err error) { p.lost <- err },
	})
	t.Cleanup(func() {
		require.NoError(t, p.Watcher.Close())
		require.NoError(t, p.Watcher.Close(), "a second Close does nothing")
		require.NoError(t, p.Backend.Close())
	})
	return p
}

// is waits until the connection of notices has a state.
func (p *watching) is(t *testing.T, s pgbackend.ListenerState) {
	t.Helper()
	eventually(t, func() bool { return p.Listener().State == s })
}

// run runs a statement.
func (p *watching) run(t *testing.T, statement string, args ...any) {
	t.Helper()
	require.NoError(t, p.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		_, err := q.ExecContext(ctx, statement, args...)
		return err
	})))
}

// A connection of notices that was lost is made again as soon as it can be. The state says so meanwhile, and why. A look
// follows, because commits may have been missed.
func TestListener_IsCut(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	p := watch(t, schema, false)
	require.Equal(t, pgbackend.Unused, p.Listener().State)
	p.AddWaiter(queueSignals)
	p.is(t, pgbackend.Listening)
	require.NoError(t, p.Listener().Err)
	p.cut.Store(true)
	p.run(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, string(schema[len(schema)-20:]))
	eventually(t, func() bool { l := p.Listener(); return l.State == pgbackend.Lost && l.Err != nil })
	for len(p.looks) > 0 {
		<-p.looks
	}
	p.cut.Store(false)
	p.is(t, pgbackend.Listening)
	for <-p.looks != wake.Restart {
	}
}

// A process at rest looks each few seconds with a single statement, which also renews its registration. Such a look wakes
// no waiter for any commit.
func TestWatch_Rest(t *testing.T) {
	p := watch(t, pgsql.Schema(pgtest.Schema(t)), false)
	p.AddWaiter(0)
	p.is(t, pgbackend.Listening)
	for resting := false; !resting; { // the looks after the registration are over
		select {
		case <-p.looks:
		case <-time.After(1500 * time.Millisecond):
			resting = true
		}
	}
	before := p.statements.Load()
	require.Equal(t, wake.Deadline, <-p.looks)
	require.Equal(t, wake.Deadline, <-p.looks)
	require.LessOrEqual(t, p.statements.Load()-before, int64(2))
}

// A process that polls looks less and less often while nothing is committed, although it has a waiter for any commit.
func TestWatch_PollsLessOften(t *testing.T) {
	p := watch(t, pgsql.Schema(pgtest.Schema(t)), true)
	p.AddWaiter(0)
	// A look for a commit would wake the waiter and count as a find.
	slow, end := 0, time.Now().Add(30*time.Second)
	for last := time.Now(); slow < 4; last = time.Now() {
		<-p.looks
		if time.Since(last) > 300*time.Millisecond {
			slow++
		}
		require.True(t, last.Before(end), "the pauses do not grow")
	}
}

// A process without the right to register tries again at growing pauses.
func TestWatch_FailsAtPauses(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	p := watch(t, schema, false)
	p.run(t, schema.SQL(`ALTER TABLE honker.process ADD CHECK (waits = 0)`))
	p.AddWaiter(queueSignals)
	p.is(t, pgbackend.Listening)
	began, before := time.Now(), p.statements.Load()
	for range 5 {
		<-p.looks
	}
	for time.Since(began) < time.Second {
		<-p.looks
	}
	require.Less(t, p.statements.Load()-before, int64(100))
	p.run(t, schema.SQL(`ALTER TABLE honker.process DROP CONSTRAINT process_waits_check`))
	for end := time.After(time.Minute); ; {
		select {
		case <-p.looks:
		case <-end:
			t.Fatal("it does not recover")
		}
		n := 0
		require.NoError(t, p.Read(t.Context(), false, func(ctx context.Context, q engine.Querier) error {
			_, err := pgsql.One(ctx, q, schema.SQL(`SELECT count(*) FROM honker.process`), nil, &n)
			return err
		}))
		if n == 1 {
			return
		}
	}
}

// A schema that was dropped and made again is another schema.
func TestWatch_SchemaIsAnother(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	p := watch(t, schema, false)
	p.AddWaiter(queueSignals)
	p.is(t, pgbackend.Listening)
	p.cut.Store(true)
	p.run(t, `DROP SCHEMA `+pgx.Identifier{string(schema)}.Sanitize()+` CASCADE`)
	require.NoError(t, open(t, schema, nil).Close())
	p.run(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, string(schema[len(schema)-20:]))
	p.cut.Store(false)
	select {
	case err := <-p.lost:
		require.ErrorIs(t, err, engine.ErrDatabaseReplaced)
	case <-time.After(time.Minute):
		t.Fatal("the loss was not noticed")
	}
}
