//go:build unix

package honkerpg_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/observe"
)

var faultsFlag = flag.Duration("faults", 0, "run each test of failures for so long, and restart the server ten times")

// faultsFor returns the duration of a test of failures.
func faultsFor(short time.Duration) time.Duration {
	switch {
	case *faultsFlag > 0:
		return *faultsFlag
	case testing.Short():
		return short / 4
	}
	return short
}

// The outcome of a call as its caller saw it.
type outcome int

const (
	failed outcome = iota
	uncertain
	acknowledged
)

// ledger holds the outcomes of a kind of calls, by the number that each call stored.
type ledger struct {
	mu   sync.Mutex
	all  map[int]outcome
	when map[int]time.Time // of the answers
}

func (l *ledger) note(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.when[n] = time.Now()
	switch {
	case err == nil:
		l.all[n] = acknowledged
	case errors.Is(err, honker.ErrUncertain):
		l.all[n] = uncertain
	default:
		l.all[n] = failed
	}
}

// kinds are the ways in which load stores a number. Each has a ledger.
const (
	plainEnqueue   = iota // of a job that WorkTx handles
	uniqueEnqueue         // the same, repeated under its unique key until it is acknowledged
	enqueueInTx           // the same, with a row of the application
	workedEnqueue         // of a job that Work handles, at least once
	claimedEnqueue        // of a job that Claim returns and AckTx acks
	published             // in a stream
	kinds
)

var kindNames = [kinds]string{"Enqueue", "Enqueue, Unique", "EnqueueTx", "Enqueue, Work", "Enqueue, AckTx", "Publish"}

// load uses a DB while its server fails, and then compares the database with what the calls returned.
type load struct {
	admin  string // connection string of the server itself
	db     *honker.DB
	queues map[string]*honker.Queue[int]
	stream *honker.Stream[int]

	ledgers  [kinds]ledger
	next     atomic.Int64
	repeated atomic.Int64 // unique enqueues

	mayLose func(acknowledged time.Time) bool // calls that may be lost; nil for none
	lost    int                               // calls that were
}

// newDatabase creates a database on the server of the tests and returns its connection string.
func newDatabase(t *testing.T) (dsn string) {
	t.Helper()
	name := strings.ToLower(pgtest.Schema(t))
	admin(t, `CREATE DATABASE `+name)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pgtest.DSN(t))
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`)
		require.NoError(t, err)
	})
	return pgtest.DSN(t) + " dbname=" + name
}

// newLoad opens a DB at dsn and creates the application's tables at admin.
func newLoad(t *testing.T, admin, dsn string, o honkerpg.Options) *load {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &load{admin: admin, queues: map[string]*honker.Queue[int]{}}
	for i := range l.ledgers {
		l.ledgers[i].all, l.ledgers[i].when = map[int]outcome{}, map[int]time.Time{}
	}
	l.exec(t, `CREATE TABLE orders (n int); CREATE TABLE effects (n int)`)
	db, err := honkerpg.Open(t.Context(), dsn, &o)
	require.NoError(t, err)
	l.db = db
	for _, name := range []string{"effects", "worked", "claimed"} {
		l.queues[name] = honker.NewQueue[int](db, name, &honker.QueueOptions{
			MaxAttempts: 1000, Lease: time.Second, Backoff: honker.Constant(10 * time.Millisecond)})
	}
	l.stream = honker.NewStream[int](db, "numbers", nil)
	return l
}

func (l *load) exec(t *testing.T, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), l.admin)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), statements)
	require.NoError(t, err)
}

// produce stores numbers until ctx ends. A call is not interrupted.
func (l *load) produce(ctx context.Context) {
	whole := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		n := int(l.next.Add(1))
		kind := n % kinds
		l.ledgers[kind].note(n, l.store(whole, kind, n))
		time.Sleep(rand.N(2 * time.Millisecond)) // so that the workers keep up
	}
}

// store stores n.
func (l *load) store(ctx context.Context, kind, n int) (err error) {
	switch kind {
	case plainEnqueue:
		_, err = l.queues["effects"].Enqueue(ctx, n)
	case uniqueEnqueue:
		for try := 0; try == 0 || err != nil; try++ {
			if try > 0 {
				l.repeated.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
			_, err = l.queues["effects"].Enqueue(ctx, n, honker.Unique(fmt.Sprint(n), &honker.Uniqueness{For: time.Hour}))
		}
	case enqueueInTx:
		err = l.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1)`, n); err != nil {
				return err
			}
			_, err := l.queues["effects"].EnqueueTx(ctx, tx, n)
			return err
		})
	case workedEnqueue:
		_, err = l.queues["worked"].Enqueue(ctx, n)
	case claimedEnqueue:
		_, err = l.queues["claimed"].Enqueue(ctx, n)
	case published:
		_, err = l.stream.Publish(ctx, n)
	}
	return err
}

// effect is what a job does to the application's table.
func effect(ctx context.Context, tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, n int) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, n)
	return err
}

// work runs the workers until ctx ends.
func (l *load) work(ctx context.Context, t *testing.T) (wait func()) {
	var all sync.WaitGroup
	o := &honker.WorkOptions{Workers: 4, Lease: time.Second}
	all.Go(func() {
		err := l.queues["effects"].WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, j *honker.Job[int]) error {
			return effect(ctx, tx, j.Args)
		}, o)
		if err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		err := l.queues["worked"].Work(ctx, func(ctx context.Context, j *honker.Job[int]) error {
			return effect(ctx, l.db.SQL(), j.Args)
		}, o)
		if err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			jobs, _ := l.queues["claimed"].Claim(context.WithoutCancel(ctx), "claimer", 10)
			for _, j := range jobs {
				_ = l.db.Tx(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
					if err := effect(ctx, tx, j.Args); err != nil {
						return err
					}
					return j.AckTx(ctx, tx)
				})
			}
			if len(jobs) == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	return all.Wait
}

// run stores and works while fail makes the server fail, and then waits until every job is done.
func (l *load) run(t *testing.T, fail func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wait := l.work(ctx, t)
	producing, enough := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for range 4 {
		producers.Go(func() { l.produce(producing) })
	}
	fail()
	enough()
	producers.Wait()
	require.Eventually(t, func() bool { return len(l.numbers(t, `SELECT id FROM honker.job`)) == 0 }, 2*time.Minute, 50*time.Millisecond)
	stop()
	wait()
}

// numbers returns how often each number is in a column.
func (l *load) numbers(t *testing.T, query string) map[int]int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), l.admin)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), query)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	count := map[int]int{}
	for _, n := range found {
		count[n]++
	}
	return count
}

// check compares the database with the ledgers, logs the figures, and returns the number of uncertain calls that took
// effect and of those that did not.
func (l *load) check(t *testing.T) (done, undone int) {
	t.Helper()
	effects, orders := l.numbers(t, `SELECT n FROM effects`), l.numbers(t, `SELECT n FROM orders`)
	events := l.numbers(t, `SELECT payload::int FROM honker.event`)
	require.Empty(t, l.numbers(t, `SELECT payload::int FROM honker.dead`), "dead letters")
	for kind := range l.ledgers {
		var sums [acknowledged + 1]int
		again, uncertainDone := 0, 0
		for n, o := range l.ledgers[kind].all {
			times := effects[n]
			if kind == published {
				times = events[n]
			}
			if kind == workedEnqueue && times > 1 {
				again, times = again+times-1, 1 // Work may run a job again
			}
			sums[o]++
			switch {
			case times > 1:
				t.Errorf("%s %d: %d effects", kindNames[kind], n, times)
			case o == acknowledged && times == 0 && l.mayLose != nil && l.mayLose(l.ledgers[kind].when[n]):
				l.lost++
			case o == acknowledged && times == 0:
				t.Errorf("%s %d was acknowledged, and is lost", kindNames[kind], n)
			case o == failed && times != 0:
				t.Errorf("%s %d has failed, and has an effect", kindNames[kind], n)
			case kind == enqueueInTx && orders[n] != times:
				t.Errorf("%s %d: %d orders, %d jobs", kindNames[kind], n, orders[n], times)
			}
			if o == uncertain {
				uncertainDone += times
			}
		}
		done, undone = done+uncertainDone, undone+sums[uncertain]-uncertainDone
		t.Logf("%-16s %6d acknowledged, %4d failed, %4d uncertain of which %d took effect, %d run again",
			kindNames[kind], sums[acknowledged], sums[failed], sums[uncertain], uncertainDone, again)
	}
	t.Logf("%d repeated unique enqueues", l.repeated.Load())
	require.NoError(t, l.db.Check(t.Context()))
	require.NoError(t, l.db.Close())
	return done, undone
}

// Connections that the server ends at random lose nothing that was acknowledged, and no effect happens twice. Most calls
// succeed on another connection, because the server says that it ends a connection before it commits.
func TestFaults_Terminated(t *testing.T) {
	dsn := newDatabase(t)
	l := newLoad(t, dsn, dsn+" application_name=faulty", honkerpg.Options{})
	kills := 0
	l.run(t, func() {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		for end := time.Now().Add(faultsFor(2 * time.Second)); time.Now().Before(end); time.Sleep(rand.N(20 * time.Millisecond)) {
			done, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'faulty' ORDER BY random() LIMIT 1`)
			require.NoError(t, err)
			kills += int(done.RowsAffected())
		}
	})
	t.Logf("%d connections ended", kills)
	l.check(t)
}

// A server that restarts under load, with a shutdown or without, loses nothing that was acknowledged, and no effect
// happens twice, with a pooler before the server and without.
func TestFaults_Restarted(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		t.Run(fmt.Sprintf("pooler=%t", pooled), func(t *testing.T) {
			if pooled && testing.Short() {
				t.Skip("starts a server and a pooler")
			}
			server := pgtest.Cluster(t)
			dsn, o := server.DSN(), honkerpg.Options{}
			if pooled {
				dsn, o.Pooler = bounced(t, server), true
			}
			l := newLoad(t, server.DSN(), dsn, o)
			restarts := 2
			if *faultsFlag > 0 {
				restarts = 10
			} else if testing.Short() {
				restarts = 1
			}
			l.run(t, func() {
				pause := faultsFor(time.Second) / time.Duration(restarts+1)
				for i := range restarts {
					time.Sleep(pause)
					require.NoError(t, server.Restart([]string{"immediate", "fast"}[i%2]))
				}
				time.Sleep(pause)
			})
			l.check(t)
		})
	}
}

// bounced returns the connection string of a PgBouncer in transaction mode before server, with further settings.
func bounced(t *testing.T, server *pgcluster.Cluster, settings ...string) string {
	t.Helper()
	config, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	settings = append([]string{"pool_mode = transaction", "server_login_retry = 0.1"}, settings...)
	b, err := pgcluster.StartBouncer("host="+config.Host, strings.Join(settings, "\n"), config.User)
	if errors.Is(err, pgcluster.ErrNoBouncer) {
		pgtest.Bouncer(t) // skips or fails the test
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	return b.DSN() + " user=" + config.User + " dbname=" + config.Database
}

// A commit whose answer is lost is reported as uncertain. Some took effect and some did not, so neither a repetition nor
// none is right, unless a unique key makes the repetition harmless.
func TestFaults_CommitCut(t *testing.T) {
	admin := newDatabase(t)
	proxy, dsn := newCutProxy(t, admin, 30)
	l := newLoad(t, admin, dsn, honkerpg.Options{})
	l.run(t, func() {
		proxy.enabled.Store(true)
		time.Sleep(faultsFor(2 * time.Second))
		enough := func() bool { return proxy.cuts[cutAnswered].Load() >= 20 && proxy.cuts[cutUnsent].Load() >= 20 }
		require.Eventually(t, enough, time.Minute, 10*time.Millisecond)
		proxy.enabled.Store(false)
	})
	t.Logf("%d cuts after the answer, %d before the commit was sent, %d in between",
		proxy.cuts[cutAnswered].Load(), proxy.cuts[cutUnsent].Load(), proxy.cuts[cutUnderWay].Load())
	done, undone := l.check(t)
	require.NotZero(t, done)
	require.NotZero(t, undone)
}

// The pool of a Work settles a job again if the answer to its settle is lost. The job runs once, is reported as settled
// once, and its claim is not reported as lost, whether the first settle took effect or not.
func TestFaults_SettleCut(t *testing.T) {
	proxy, dsn := newCutProxy(t, pgtest.DSN(t), 1)
	settled := make(chan observe.Settled, 10)
	o := honkerpg.Options{Schema: pgtest.Schema(t), Pooler: true} // without prepared statements, their text is seen
	o.Logger = slog.New(slog.DiscardHandler)
	o.Observer = &observe.Observer{Settled: func(s observe.Settled) { settled <- s }}
	db, err := honkerpg.Open(t.Context(), dsn, &o)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[observe.Outcome](db, "q", nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var how, runs, errs atomic.Int32
	var working sync.WaitGroup
	working.Go(func() {
		err := q.Work(ctx, func(_ context.Context, j *honker.Job[observe.Outcome]) error {
			runs.Add(1)
			proxy.once.Store(&plannedCut{".step(", int(how.Load())})
			if j.Args == observe.OutcomeDied {
				return honker.Reject(errors.New("bad"))
			}
			return nil
		}, &honker.WorkOptions{Workers: 1, OnError: func(context.Context, *honker.JobInfo, error) { errs.Add(1) }})
		if err != nil {
			t.Error(err)
		}
	})
	jobs := 0
	for _, moment := range []int32{cutAnswered, cutUnsent, cutUnderWay} {
		how.Store(moment)
		for _, want := range []observe.Outcome{observe.OutcomeAcked, observe.OutcomeDied} {
			jobs++
			id, err := q.Enqueue(t.Context(), want)
			require.NoError(t, err)
			s := <-settled
			require.Equal(t, want, s.Outcome)
			require.Equal(t, id, s.ID)
			if _, err := q.Get(t.Context(), id); want == observe.OutcomeAcked {
				require.ErrorIs(t, err, honker.ErrNotFound)
			} else {
				require.NoError(t, err)
			}
		}
	}
	stop()
	working.Wait()
	require.Empty(t, settled)
	require.EqualValues(t, jobs, runs.Load())
	require.EqualValues(t, jobs/2, errs.Load(), "the handler's own errors")
	require.EqualValues(t, 2, proxy.cuts[cutAnswered].Load())
}

// The functions of the guide store each order and each receipt once, although answers to commits are lost.
func TestFaults_Repeat(t *testing.T) {
	admin := newDatabase(t)
	proxy, dsn := newCutProxy(t, admin, 4)
	o := honkerpg.Options{}
	o.Logger = slog.New(slog.DiscardHandler)
	db, err := honkerpg.Open(t.Context(), dsn, &o)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.SQL().ExecContext(t.Context(), `CREATE TABLE orders (id bigint PRIMARY KEY)`)
	require.NoError(t, err)
	receipts := honker.NewQueue[Receipt](db, "receipts", nil)
	proxy.enabled.Store(true)
	orders := int64(0)
	for ; orders < 16 || proxy.cuts[cutAnswered].Load() == 0; orders++ {
		if orders%2 == 0 {
			require.NoError(t, receipt(t.Context(), receipts, orders))
			continue
		}
		// A statement before the commit may fail, if the answer to an earlier transaction's end is cut.
		require.Eventually(t, func() bool { return place(t.Context(), db, receipts, orders) == nil }, time.Minute, time.Millisecond)
	}
	proxy.enabled.Store(false)
	count := (&load{admin: admin}).numbers(t, `SELECT (payload::jsonb ->> 'Order')::int FROM honker.job`)
	for order := range int(orders) {
		require.Equal(t, 1, count[order], "receipts of order %d", order)
	}
	require.Len(t, (&load{admin: admin}).numbers(t, `SELECT id::int FROM orders`), int(orders)/2)
}
