//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// process is a backend with a watcher, as a process has them.
type process struct {
	*pgbackend.Backend
	wake.Watcher
	pool    *sql.DB
	name    string // application_name of its connections
	changed chan wake.Signals
	lost    chan error
	found   atomic.Bool // looks wake somebody
	log     *lines
}

// lines collects the messages of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// startProcess opens a schema as another process would. o.Listen is set unless polls is set.
func startProcess(t *testing.T, dsn string, schema pgsql.Schema, polls bool) *process {
	t.Helper()
	p := &process{name: fmt.Sprint("p", time.Now().UnixNano()), changed: make(chan wake.Signals, 10_000), lost: make(chan error, 1), log: &lines{}}
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config.RuntimeParams["application_name"] = p.name
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // for poolers
	p.pool = stdlib.OpenDB(*config)
	p.pool.SetMaxOpenConns(4)
	o := pgbackend.Options{Schema: schema, BusyTimeout: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(p.log, nil)),
		Pool: p.pool, App: func() *sql.DB { return p.pool }, Close: p.pool.Close}
	if !polls {
		o.Listen = config.Copy()
		o.Listen.RuntimeParams["application_name"] = p.name + " listen"
	}
	p.Backend, err = pgbackend.Open(t.Context(), config, o)
	require.NoError(t, err)
	p.Watcher = p.Watch(wake.Events{
		Changed: func(_ wake.Reason, s wake.Signals) int {
			select {
			case p.changed <- s:
			default:
			}
			if p.found.Load() {
				return 1
			}
			return 0
		},
		Lost: func(err error) { p.lost <- err },
	})
	t.Cleanup(func() { require.NoError(t, p.Watcher.Close()); require.NoError(t, p.Backend.Close()) })
	return p
}

// listens waits until p is registered for signals and its connection listens.
func (p *process) listens(t *testing.T, schema pgsql.Schema, signals wake.Signals) {
	t.Helper()
	eventually(t, func() bool {
		n := 0
		require.NoError(t, p.pool.QueryRow(schema.SQL(`SELECT count(*) FROM honker.process p WHERE p.waits & $1 <> 0 AND p.waits_until > clock_timestamp()`),
			int64(signals)).Scan(&n))
		return n > 0
	})
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "it has not happened within a minute")
	}
}

// gets waits for a call of Changed with exactly these signals. A look that no notice has caused is for all signals.
func (p *process) gets(t *testing.T, signals wake.Signals) {
	t.Helper()
	for after := time.After(time.Minute); ; {
		select {
		case got := <-p.changed:
			if got == signals {
				return
			}
		case <-after:
			t.Fatal("no notice has come")
		}
	}
}

var queueSignals, otherSignals = wake.SignalsOf(wake.Queue("mail")), wake.SignalsOf(wake.Lock("x"))

// The database computes the signals of names as package wake does.
func TestSignals_OfTheDatabase(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	p := startProcess(t, pgtest.DSN(t), schema, true)
	for _, name := range []string{"a", "mail", "größe", "orders.created", strings.Repeat("x", 255)} {
		var queue, topic int64
		require.NoError(t, p.pool.QueryRow(schema.SQL(`SELECT honker.queue_signal($1), honker.topic_signals($1)`), name).Scan(&queue, &topic))
		require.Equal(t, wake.SignalsOf(wake.Queue(name)), wake.Signals(queue), name)
		require.Equal(t, wake.SignalsOf(wake.Event(name, "")), wake.Signals(topic), name)
	}
}

// A process that waits is told of the commits of others that raise its signals, and of no others. It is not told of its
// own.
func TestWatch_Notice(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	a.listens(t, schema, queueSignals)
	b.Raise(otherSignals)
	a.Raise(queueSignals)
	b.Raise(queueSignals | otherSignals)
	for done := false; !done; {
		got := <-a.changed
		require.NotEqual(t, queueSignals, got, "its own notice came back")
		require.NotEqual(t, otherSignals, got, "nobody waits for it")
		done = got == queueSignals|otherSignals
	}
}

// The last commits of a process that ends are told, too.
func TestWatch_NoticeBeforeClose(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	a.listens(t, schema, queueSignals)
	b.Raise(queueSignals)
	require.NoError(t, b.Watcher.Close())
	require.NoError(t, b.Watcher.Close(), "again")
	a.gets(t, queueSignals)
}

// A transaction whose commit honker does not see tells waiting processes itself, and only if it is committed.
func TestWatch_NoticeOfATransaction(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	both := queueSignals | otherSignals
	a.AddWaiter(both)
	a.listens(t, schema, both)
	end := func(commit bool, c wake.Change) {
		tx, err := b.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		for range 3 { // as three verbs would
			seen, err := b.CheckTx(t.Context(), tx, map[any]func(){c: func() {}})
			require.NoError(t, err)
			require.False(t, seen)
		}
		if commit {
			require.NoError(t, tx.Commit())
		}
	}
	end(false, wake.Lock("x"))
	end(true, wake.Queue("mail"))
	for got := wake.Signals(0); got != queueSignals; {
		got = <-a.changed
		require.NotEqual(t, otherSignals, got, "the transaction was rolled back")
	}
}

// Many commits of a process share few notices.
func TestWatch_NoticesAreMerged(t *testing.T) {
	const raised = 20_000
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	a.listens(t, schema, queueSignals)
	listener, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	defer listener.Close(context.WithoutCancel(t.Context()))
	var channel string
	require.NoError(t, listener.QueryRow(t.Context(), schema.SQL(`SELECT honker.channel()`)).Scan(&channel))
	_, err = listener.Exec(t.Context(), `LISTEN `+pgx.Identifier{channel}.Sanitize())
	require.NoError(t, err)
	for range raised {
		b.Raise(queueSignals)
	}
	b.Raise(queueSignals | otherSignals)
	require.NoError(t, b.Watcher.Close())
	_, err = b.pool.Exec(`SELECT pg_notify($1, 'end')`, channel)
	require.NoError(t, err)
	n := 0
	for {
		got, err := listener.WaitForNotification(t.Context())
		require.NoError(t, err)
		if got.Payload == "end" {
			break
		}
		n++
	}
	require.Positive(t, n)
	require.Less(t, n, raised/10)
}

// A process whose LISTEN connection is lost hears of commits, says so, and listens again.
func TestWatch_ListenConnectionIsLost(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	a, b := startProcess(t, pgtest.DSN(t), schema, false), startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	for range 2 {
		a.listens(t, schema, queueSignals)
		b.Raise(queueSignals)
		a.gets(t, queueSignals)
		eventually(t, func() bool {
			n := 0
			require.NoError(t, b.pool.QueryRow(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, a.name+" listen").Scan(&n))
			return n > 0
		})
		a.gets(t, wake.AllSignals)
		eventually(t, func() bool { return a.log.has("LISTEN connection is back") })
	}
	b.Raise(queueSignals)
	a.gets(t, queueSignals)
	require.True(t, a.log.has("LISTEN connection is lost"))
}

// A process without LISTEN finds commits by polling, and so does a process whose LISTEN connection goes through a pooler
// in transaction mode, which says so.
func TestWatch_Polls(t *testing.T) {
	for name, c := range map[string]struct {
		dsn   func(testing.TB) string
		polls bool
	}{"NoListen": {pgtest.DSN, true}, "Pooler": {pgtest.Bouncer, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := pgsql.Schema(pgtest.Schema(t))
			dsn := c.dsn(t)
			a := startProcess(t, dsn, schema, c.polls)
			a.AddWaiter(queueSignals)
			if !c.polls {
				eventually(t, func() bool { return a.log.has("notifications do not arrive") })
			}
			since, why := a.DeafSince()
			require.Equal(t, c.polls, since.IsZero(), "a process that polls by choice misses nothing")
			require.Equal(t, c.polls, why == nil)
			for range 3 {
				for len(a.changed) > 0 {
					<-a.changed
				}
				a.gets(t, wake.AllSignals)
			}
			n := 0
			require.NoError(t, a.pool.QueryRow(schema.SQL(`SELECT count(*) FROM honker.process`)).Scan(&n))
			require.Zero(t, n, "nobody needs to send notices to it")
		})
	}
}

// A time that a waiter asks for is kept, although nothing is committed.
func TestWatch_Deadline(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	a := startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	a.listens(t, schema, queueSignals)
	at := time.Now().Add(300 * time.Millisecond)
	a.WakeAt(at.Add(time.Hour))
	a.WakeAt(at)
	for time.Now().Before(at) {
		a.gets(t, wake.AllSignals)
	}
}

// A watcher whose schema was dropped reports it and ends.
func TestWatch_SchemaIsDropped(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	a := startProcess(t, pgtest.DSN(t), schema, false)
	a.AddWaiter(queueSignals)
	a.listens(t, schema, queueSignals)
	_, err := a.pool.Exec(`DROP SCHEMA ` + pgx.Identifier{string(schema)}.Sanitize() + ` CASCADE`)
	require.NoError(t, err)
	a.Committed()
	require.ErrorIs(t, <-a.lost, engine.ErrDatabaseReplaced)
}
