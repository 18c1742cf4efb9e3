//go:build unix

package torture

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// links holds the dependencies of each step. steps holds the done steps, inserted in the
// transactions of their acks. early holds steps that ran before a dependency was done.
var linkTables = []string{
	`CREATE TABLE links (job BIGINT NOT NULL, before BIGINT NOT NULL, PRIMARY KEY (job, before))`,
	`CREATE TABLE steps (job BIGINT PRIMARY KEY)`,
	`CREATE TABLE early (job BIGINT NOT NULL, before BIGINT NOT NULL)`,
}

func (a *actor) steps() *honker.Queue[int64] {
	return honker.NewQueue[int64](a.db, "steps", &honker.QueueOptions{MaxAttempts: 1 << 20, Backoff: honker.Constant(0)})
}

// link enqueues two steps, and a third that depends on them or on their batch, in a transaction
// that may be rolled back.
func (a *actor) link(ctx context.Context) error {
	n := a.number()
	return ignore(a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var opts []honker.EnqueueOption
		var batch *honker.Batch
		var err error
		if n%3 == 0 {
			if batch, err = a.db.NewBatchTx(ctx, tx, nil); err != nil {
				return err
			}
			opts = append(opts, honker.InBatch(batch.ID))
		}
		ids, err := a.steps().EnqueueManyTx(ctx, tx, []int64{n, n}, opts...)
		if err != nil {
			return err
		}
		last := honker.After(ids...)
		if batch != nil {
			last = honker.AfterBatch(batch.ID)
			if err := batch.SealTx(ctx, tx); err != nil {
				return err
			}
		}
		next, err := a.steps().EnqueueTx(ctx, tx, n, last)
		for _, id := range ids {
			if err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO links VALUES ($1, $2)`, next, id)
			}
		}
		if err == nil && n%5 == 0 {
			return errOnPurpose
		}
		return err
	}), errOnPurpose)
}

// step runs steps in the transactions of their acks, and records those that are early.
func (a *actor) step(ctx context.Context) error {
	return a.steps().WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int64]) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO early SELECT job, before FROM links WHERE job = $1 AND before NOT IN (SELECT job FROM steps)`, job.ID)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO steps VALUES ($1)`, job.ID)
		}
		if err != nil {
			return err
		}
		return fate(job.ID, job.Attempts)
	}, &honker.WorkOptions{Workers: 2, Lease: time.Second})
}

// linked checks that no step was early, that all were done, and that no edges or batches are left.
func (r *reckoning) linked(ctx context.Context) error {
	total, err := one[int64](ctx, r.db.SQL(), `SELECT count(*) FROM steps`)
	if err != nil {
		return err
	}
	r.Add("steps", total)
	return r.none(ctx, "edge_violations", map[string]string{
		`SELECT count(*) FROM early`: "steps began before their dependencies were done",
		`SELECT count(*) FROM links WHERE job NOT IN (SELECT job FROM steps) OR before NOT IN (SELECT job FROM steps)`: "steps were not done",
		testkit.CountEdges:   "edges are left behind",
		testkit.CountBatches: "batches are not done",
	})
}
