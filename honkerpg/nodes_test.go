//go:build unix

package honkerpg_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// node is a process with workers.
type node struct {
	DSN, ListenDSN string
	Workers        int
	Lease, Hold    time.Duration // of a job
	Tx             bool          // effects share a transaction with their acks

	command *exec.Cmd
	alive   io.Closer // the process ends when this is closed
}

// nodeKey is the environment variable that holds the node of a process.
const nodeKey = "HONKER_TEST_NODE"

// start starts the process. It runs until the test ends, at the latest.
func (n *node) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(n)
	require.NoError(t, err)
	n.command = exec.Command(os.Args[0], "-test.run", "^TestNode$")
	n.command.Env = append(os.Environ(), nodeKey+"="+string(text))
	n.command.Stderr = os.Stderr
	n.alive, err = n.command.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, n.command.Start())
	t.Cleanup(func() { _ = n.alive.Close() })
}

// stop lets the process end.
func (n *node) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, n.alive.Close())
	require.NoError(t, n.command.Wait())
}

// kill ends the process at once.
func (n *node) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, n.command.Process.Kill())
	require.Error(t, n.command.Wait())
}

// TestNode is the process of a node. It is no test by itself.
func TestNode(t *testing.T) {
	text := os.Getenv(nodeKey)
	if text == "" {
		t.Skip("runs in a process of its own")
	}
	var n node
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	db, err := honkerpg.Open(t.Context(), n.DSN, &honkerpg.Options{Pooler: n.ListenDSN != "", ListenDSN: n.ListenDSN})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	q := honker.NewQueue[int](db, "q", &honker.QueueOptions{MaxAttempts: 1000})
	o := &honker.WorkOptions{Workers: n.Workers, Lease: n.Lease}
	if n.Tx {
		err = q.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, j *honker.Job[int]) error { return effect(ctx, tx, j.Args) }, o)
	} else {
		err = q.Work(ctx, func(ctx context.Context, j *honker.Job[int]) error { return n.hold(ctx, db, j) }, o)
	}
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// hold does the job's work for a while, and records the times of its begin and its end by the server's clock.
func (n *node) hold(ctx context.Context, db *honker.DB, j *honker.Job[int]) error {
	if n.Hold == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var run int64
	err := db.SQL().QueryRowContext(ctx, `INSERT INTO runs (n, key, pid, began) VALUES ($1, $2, $3, clock_timestamp()) RETURNING run`,
		j.Args, j.Key, os.Getpid()).Scan(&run)
	if err != nil {
		return err
	}
	time.Sleep(n.Hold)
	_, err = db.SQL().ExecContext(ctx, `UPDATE runs SET ended = clock_timestamp() WHERE run = $1`, run)
	return err
}

// Many workers in many processes share the few server connections of a pooler. With -faults, the figures of the guide are
// logged, also those without a pooler.
func TestNodes_Connections(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	type shape struct {
		nodes, workers, pool int
		tx                   bool
	}
	shapes, jobs := []shape{{3, 10, 5, true}}, 1000
	if *faultsFlag > 0 {
		shapes, jobs = []shape{{1, 1, 0, false}, {1, 10, 0, false}, {1, 25, 0, false}, {1, 100, 0, false}, {8, 25, 0, false}, {8, 25, 20, false},
			{1, 25, 0, true}, {8, 25, 0, true}, {8, 25, 20, true}}, 20000
	}
	server := pgtest.Cluster(t)
	pgtest.Exec(t, server.DSN(), `CREATE TABLE effects (n int)`)
	db, err := honkerpg.Open(t.Context(), server.DSN()+" application_name=test", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q := honker.NewQueue[int](db, "q", nil)
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%d nodes, %d workers, pooler of %d, tx=%t", s.nodes, s.workers, s.pool, s.tx), func(t *testing.T) {
			dsn, listen := server.DSN()+" application_name=node", ""
			if s.pool > 0 {
				dsn, listen = bounced(t, server, "max_client_conn = 1000", fmt.Sprint("default_pool_size = ", s.pool))+" application_name=node", server.DSN()+" application_name=listen"
			}
			nodes := make([]*node, s.nodes)
			for i := range nodes {
				nodes[i] = &node{DSN: dsn, ListenDSN: listen, Workers: s.workers, Tx: s.tx, Lease: 30 * time.Second}
				nodes[i].start(t)
			}
			listening := `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND application_name <> 'test'`
			require.Eventually(t, func() bool { return scalar[int](t, server.DSN(), listening) == s.nodes }, time.Minute, 20*time.Millisecond)
			began, most := time.Now(), 0
			for range jobs / 1000 {
				_, err := q.EnqueueMany(t.Context(), make([]int, 1000))
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool {
				most = max(most, scalar[int](t, server.DSN(), `SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('node', 'listen')`))
				return scalar[int](t, server.DSN(), `SELECT count(*) FROM honker.job`) == 0
			}, 2*time.Minute, 20*time.Millisecond)
			t.Logf("%.0f jobs/s, %d server connections", float64(jobs)/time.Since(began).Seconds(), most)
			limit := s.nodes * (16 + 16 + 1)
			if s.pool > 0 {
				limit = s.pool + s.nodes
			}
			require.LessOrEqual(t, most, limit)
			for _, n := range nodes {
				n.stop(t)
			}
		})
	}
}

// span is a run of a job's handler.
type span struct {
	N            int
	Key          string
	PID          int
	Began, Ended time.Time
}

// overlap returns the largest number of spans at the same moment, for all keys and for the same key.
func overlap(spans []span) (all, key int) {
	for _, a := range spans {
		n, k := 0, 0
		for _, b := range spans {
			if b.Began.After(a.Began) || b.Ended.Before(a.Began) {
				continue
			}
			if n++; b.Key == a.Key {
				k++
			}
		}
		all, key = max(all, n), max(key, k)
	}
	return all, key
}

// Limits hold across processes, some of which are killed, and every job runs. The same jobs without limits exceed them.
func TestNodes_Limits(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	limits := honker.Limits{Running: 6, PerKey: 1, Rate: honker.Rate{N: 100, Per: time.Second, Burst: 10}}
	for _, limited := range []bool{false, true} {
		dsn := newDatabase(t)
		pgtest.Exec(t, dsn, `CREATE TABLE runs (run bigserial, n int, key text, pid int, began timestamptz, ended timestamptz)`)
		db, err := honkerpg.Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		q := honker.NewQueue[int](db, "q", nil)
		jobs, kills := 150, 0
		if limited {
			require.NoError(t, q.SetLimits(t.Context(), limits))
			if kills = 1; *faultsFlag > 0 {
				kills, jobs = int(*faultsFlag/(5*time.Second)), int(*faultsFlag/time.Second)*20
			}
		}
		for n := range jobs {
			_, err := q.Enqueue(t.Context(), n, honker.Key(fmt.Sprint(n%7)))
			require.NoError(t, err)
		}
		began := scalar[time.Time](t, dsn, `SELECT clock_timestamp()`)
		nodes := make([]*node, 3)
		for i := range nodes {
			nodes[i] = &node{DSN: dsn, Workers: 8, Hold: 20 * time.Millisecond, Lease: 5 * time.Second}
			nodes[i].start(t)
		}
		killed := map[int]time.Time{}
		running := func(more int) func() bool {
			return func() bool { return scalar[int](t, dsn, `SELECT count(*) FROM runs`) >= more }
		}
		for i := range kills {
			require.Eventually(t, running((i+1)*jobs/(kills+2)), time.Minute, time.Millisecond)
			n := nodes[i%len(nodes)]
			n.kill(t)
			killed[n.command.Process.Pid] = scalar[time.Time](t, dsn, `SELECT clock_timestamp()`)
			n.start(t)
		}
		require.Eventually(t, func() bool { return scalar[int](t, dsn, `SELECT count(*) FROM honker.job`) == 0 }, 5*time.Minute, 20*time.Millisecond)
		for _, n := range nodes {
			n.stop(t)
		}
		require.NoError(t, db.Close())
		spans, cut := spansOf(t, dsn, killed)
		ran := map[int]bool{}
		for _, s := range spans {
			ran[s.N] = true
		}
		require.Len(t, ran, jobs)
		all, key := overlap(spans)
		t.Logf("limited %t: %d runs, %d cut off by %d kills; at most %d at once, %d of a key", limited, len(spans), cut, kills, all, key)
		if !limited {
			require.Greater(t, all, limits.Running)
			require.Greater(t, key, limits.PerKey)
			continue
		}
		require.LessOrEqual(t, all, limits.Running)
		require.LessOrEqual(t, key, limits.PerKey)
		for i, s := range spans { // a start is not earlier than its claim
			allowed := float64(limits.Rate.Burst) + s.Began.Sub(began).Seconds()*float64(limits.Rate.N)
			require.LessOrEqual(t, float64(i+1), allowed+1, "starts after %v", s.Began.Sub(began))
		}
	}
}

// spansOf returns the runs in the order of their begins, and how many of them ended with their process.
func spansOf(t *testing.T, dsn string, killed map[int]time.Time) (spans []span, cut int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `SELECT n, key, pid, began, coalesce(ended, 'epoch') FROM runs ORDER BY began`)
	require.NoError(t, err)
	spans, err = pgx.CollectRows(rows, pgx.RowToStructByPos[span])
	require.NoError(t, err)
	for i := range spans {
		if spans[i].Ended.Unix() == 0 {
			at, ok := killed[spans[i].PID]
			require.True(t, ok, "run without an end: %+v", spans[i])
			spans[i].Ended, cut = at, cut+1
		}
	}
	return spans, cut
}
