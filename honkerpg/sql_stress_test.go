//go:build unix

package honkerpg_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// competition is a queue that workers of SQL and of Go share until its jobs are done.
type competition struct {
	*foreign
	queue *honker.Queue[int]
	jobs  int
	claim string // of a job by the worker $1 for the span $2; returns its id and attempt
	ack   string // of the job $1, claimed by the worker $2 with the attempt $3
	lease time.Duration
	most  time.Duration    // of the work of a job
	start func(key string) // a worker begins a job
	end   func(key string)
}

const (
	sqlClaimOne = `SELECT id, attempts, coalesce(key, '') FROM honker.claim('jobs', $1, 1, $2)`
	sqlAckOne   = `SELECT honker.ack($1, $2, $3)`
)

// newCompetition enqueues n jobs, whose keys are as many as keys.
func newCompetition(t *testing.T, n, keys int) *competition {
	if testing.Short() {
		t.Skip("this takes seconds")
	}
	db, f := newForeign(t)
	f.exec(`CREATE TABLE honker.took (id bigint, attempt bigint); CREATE TABLE honker.did (id bigint, attempt bigint)`)
	for i := range n {
		f.exec(`SELECT honker.enqueue('jobs', to_jsonb($1::int), max_attempts => 10000, key => $2)`, i, fmt.Sprint("k", i%keys))
	}
	none := func(string) {}
	return &competition{foreign: f, queue: honker.NewQueue[int](db, "jobs", nil), jobs: n, claim: sqlClaimOne, ack: sqlAckOne,
		lease: time.Minute, most: 2 * time.Millisecond, start: none, end: none}
}

// run works until no job is left: four workers of SQL with the same name, and two of Go. Each claim and each ack is
// recorded in its own transaction.
func (c *competition) run() {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		err := c.queue.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			c.start(job.Key)
			defer c.end(job.Key)
			c.exec(`INSERT INTO honker.took VALUES ($1, $2)`, job.ID, job.Attempts)
			time.Sleep(time.Millisecond) // the work
			_, err := tx.ExecContext(ctx, c.text(`INSERT INTO honker.did VALUES ($1, $2)`), job.ID, job.Attempts)
			return err
		}, &honker.WorkOptions{Workers: 2})
		if err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
	})
	for range 4 {
		all.Go(func() {
			for ask[int](c.foreign, `SELECT count(*) FROM honker.job`) > 0 && !c.t.Failed() {
				if err := c.one(); err != nil {
					c.t.Error(err)
				}
			}
			cancel()
		})
	}
	all.Wait()
}

// one claims a job, works, and records the ack with it.
func (c *competition) one() error {
	ctx := context.Background()
	var id, attempt int64
	var key string
	err := c.pool.QueryRow(ctx, c.text(`WITH c (id, attempt, key) AS (`+c.claim+`), t AS (INSERT INTO honker.took SELECT id, attempt FROM c)
		SELECT id, attempt, key FROM c`), "sql", c.lease).Scan(&id, &attempt, &key)
	if errors.Is(err, pgx.ErrNoRows) {
		time.Sleep(time.Millisecond) // until the next poll
		return nil
	}
	if err != nil {
		return err
	}
	c.start(key)
	time.Sleep(rand.N(c.most)) // the work
	c.end(key)
	tx, err := c.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var acked bool
	if _, err := tx.Exec(ctx, c.text(`INSERT INTO honker.did VALUES ($1, $2)`), id, attempt); err != nil {
		return err
	}
	err = tx.QueryRow(ctx, c.text(c.ack), id, "sql", attempt).Scan(&acked)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !acked {
		return nil
	}
	return errors.Join(err, tx.Commit(ctx))
}

// stale returns the number of acks by another attempt than the last.
func (c *competition) stale() int {
	require.Equal(c.t, c.jobs, ask[int](c.foreign, `SELECT count(DISTINCT id) FROM honker.did`))
	require.Equal(c.t, c.jobs, ask[int](c.foreign, `SELECT count(*) FROM honker.did`))
	return ask[int](c.foreign, `SELECT count(*) FROM honker.did d WHERE d.attempt < (SELECT max(t.attempt) FROM honker.took t WHERE t.id = d.id)`)
}

// Leases lapse while workers of SQL and Go compete. Each job is done once, by its last attempt: the workers of SQL have
// the same name, so only the attempt tells their claims apart. Without it, an earlier attempt acks the job of a later one.
func TestSQL_Claim_Fenced(t *testing.T) {
	for name, ack := range map[string]string{
		"fenced": sqlAckOne,
		"naive":  `DELETE FROM honker.job WHERE id = $1 AND worker = $2 AND state = 1 AND $3 > 0 RETURNING true`,
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for range 3 {
				c := newCompetition(t, 40, 1000)
				c.ack, c.lease, c.most = ack, 5*time.Millisecond, 10*time.Millisecond // half of the leases lapse
				c.run()
				if n += c.stale(); n > 0 {
					break
				}
			}
			require.Equal(t, name == "naive", n > 0, "%d acks by an earlier attempt", n)
		})
	}
}

// Workers of SQL and Go that compete for a queue with a limit per key never run two of its jobs at once. A claim that
// takes any job that nobody has claimed does.
func TestSQL_Claim_PerKey(t *testing.T) {
	for name, claim := range map[string]string{
		"limited": sqlClaimOne,
		"naive": `UPDATE honker.job SET state = 1, worker = $1, attempts = attempts + 1, lease_until = clock_timestamp() + $2
			WHERE id = (SELECT id FROM honker.job WHERE state <> 1 AND queue = 'jobs' LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, attempts, key`,
	} {
		t.Run(name, func(t *testing.T) {
			var running [3]atomic.Int64
			var over atomic.Int64
			at := func(key string) *atomic.Int64 { return &running[key[1]-'0'] }
			c := newCompetition(t, 90, len(running))
			require.NoError(t, c.queue.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
			c.claim = claim
			c.start = func(key string) {
				if at(key).Add(1) > 1 {
					over.Add(1)
				}
			}
			c.end = func(key string) { at(key).Add(-1) }
			c.run()
			require.Zero(t, c.stale())
			require.Equal(t, name == "naive", over.Load() > 0, "%d jobs beside another of their key", over.Load())
		})
	}
}
