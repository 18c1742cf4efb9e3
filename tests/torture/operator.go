//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Notes of an operator in its ledger.
const (
	paused   = "paused"
	started  = "started" // a job of a paused queue has started
	requeued = "requeued"
)

// operated lists the queues that the operator pauses. Their jobs may die.
var operated = []string{"work", "counts", "steps", "shared"}

// operate pauses queues and requeues dead jobs while other processes enqueue and work. There is at
// most a single operator at a time. The previous operator may have been killed at any point.
func (a *actor) operate(ctx context.Context) error {
	luck := rand.New(rand.NewPCG(uint64(a.Number), 9))
	if err := resumeAll(ctx, a.db); err != nil {
		return err
	}
	for ctx.Err() == nil {
		opts := new(honker.PauseOptions)
		if luck.IntN(2) == 0 {
			opts.Until = time.Now().Add(time.Minute)
		}
		err := a.holdStill(ctx, operated[luck.IntN(len(operated))], time.Duration(luck.IntN(60))*time.Millisecond, opts)
		if err := errors.Join(err, a.requeueDead(ctx)); err != nil {
			return err
		}
		time.Sleep(time.Duration(luck.IntN(100)) * time.Millisecond)
	}
	return nil
}

// holdStill pauses a queue for a while, and notes the jobs that were claimed during that time.
func (a *actor) holdStill(ctx context.Context, queue string, span time.Duration, opts *honker.PauseOptions) error {
	q := honker.NewQueue[json.RawMessage](a.db, queue, nil)
	if _, err := q.Pause(ctx, opts); err != nil {
		return err
	}
	if err := a.waitForOlder(ctx); err != nil {
		return err
	}
	before, err := a.claims(ctx, queue)
	if err != nil {
		return err
	}
	time.Sleep(span)
	after, err := a.claims(ctx, queue)
	if err != nil {
		return err
	}
	for c := range after {
		if !before[c] {
			a.note(started, c.id)
		}
	}
	a.note(paused, 1)
	_, err = q.Resume(ctx)
	return err
}

// waitForOlder waits until the transactions have ended that were under way when it was called. On a server, claims among
// them have not seen a pause that was committed meanwhile. A file has no such transactions.
func (a *actor) waitForOlder(ctx context.Context) error {
	if testkit.OnFile() {
		return nil
	}
	now, err := one[string](ctx, a.db.SQL(), `SELECT clock_timestamp()::text`)
	for older := 1; err == nil && older > 0; {
		older, err = one[int](ctx, a.db.SQL(), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start < $1::timestamptz`, now)
	}
	return err
}

// claim identifies an attempt in progress. Each attempt at a job has a different number.
type claim struct{ id, attempt int64 }

func (a *actor) claims(ctx context.Context, queue string) (map[claim]bool, error) {
	all := map[claim]bool{}
	err := eachRow(ctx, a.db.SQL(), `SELECT id, attempts FROM _honker_live WHERE queue = '`+queue+`' AND state = `+testkit.Either(`'processing'`, `1`),
		func(row []any) { all[claim{row[0].(int64), row[1].(int64)}] = true })
	return all, err
}

func (a *actor) requeueDead(ctx context.Context) error {
	n, err := requeueDead(ctx, a.db)
	if n > 0 {
		a.note(requeued, n)
	}
	return err
}

func requeueDead(ctx context.Context, db *honker.DB) (int64, error) {
	r, err := admin.Requeue(ctx, db, admin.JobFilter{Queues: operated}, nil)
	return r.Changed, err
}

// resumeAll ends the pauses of an operator that was killed.
func resumeAll(ctx context.Context, db *honker.DB) error {
	for _, queue := range operated {
		if _, err := honker.NewQueue[json.RawMessage](db, queue, nil).Resume(ctx); err != nil {
			return err
		}
	}
	return nil
}

// operated checks that no job was claimed while its queue was paused.
func (r *reckoning) operated(context.Context) error {
	for n, times := range r.noted[requeued] {
		r.Add("requeued", n*int64(times))
	}
	r.Add("pauses", int64(r.noted[paused][1]))
	if n := len(r.noted[started]); n > 0 {
		r.Add("pause_violations", int64(n))
		return fmt.Errorf("%d jobs of paused queues were claimed", n)
	}
	return nil
}
