//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
)

// diskDispatch sends jobs and runs them in this process, on a faulty disk. It uses an actor and a
// worker of the old queue. The jobs have the arguments 1, 2, 3, … in the order in which they are
// sent.
type diskDispatch struct {
	db *honker.DB
	d  *dispatch.Dispatcher
	id dispatch.Identity

	mu    sync.Mutex
	sent  int64 // the last number sent, whether or not the send succeeded
	acked []int64
	begun map[int64]int
	ended int64 // number of jobs with an effect that are known to have ended
}

const dispatchTable = `CREATE TABLE IF NOT EXISTS dispatch_effects (number INTEGER)`

func newDiskDispatch(ctx context.Context, db *honker.DB, instance string) (*diskDispatch, error) {
	d := &diskDispatch{
		db: db, d: dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush, Log: true, TTL: dispatchTTL}),
		id: dispatch.Identity{Type: "osis", Instance: instance}, begun: map[int64]int{},
	}
	_, err := db.SQL().ExecContext(ctx, dispatchTable)
	return d, err
}

// send sends a job to the type, or to the given group, optionally in a transaction.
func (d *diskDispatch) send(ctx context.Context, group string, inTx bool) (err error) {
	d.mu.Lock()
	d.sent++
	n := d.sent
	d.mu.Unlock()
	to, attempts := dispatch.Target{Type: d.id.Type, Group: group}, dispatch.With(honker.MaxAttempts(1<<20))
	if inTx {
		err = d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := d.d.SendTx(ctx, tx, to, n, attempts)
			return err
		})
	} else {
		_, err = d.d.Send(ctx, to, n, attempts)
	}
	if err == nil {
		d.mu.Lock()
		d.acked = append(d.acked, n)
		d.mu.Unlock()
	}
	return err
}

// begin records the start of a task. It rejects or fails a few tasks.
func (d *diskDispatch) begin(n int64, attempt int) error {
	d.mu.Lock()
	d.begun[n]++
	d.mu.Unlock()
	switch {
	case isRefused(n):
		return honker.Reject(errOnPurpose)
	case failsAtFirst(n) && attempt == 1:
		return errOnPurpose
	}
	return nil
}

// finish ends a job in the transaction of its effect.
func (d *diskDispatch) finish(ctx context.Context, n int64, end func(context.Context, *sql.Tx) error) error {
	err := d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO dispatch_effects VALUES (?)`, n)
		return errors.Join(err, end(ctx, tx))
	})
	if err == nil {
		d.mu.Lock()
		d.ended++
		d.mu.Unlock()
	}
	return err
}

func (d *diskDispatch) runTask(ctx context.Context, t *dispatch.Task[int64]) (any, error) {
	n := t.Args
	if err := d.begin(n, t.Attempt); err != nil || !hasEffect(n) {
		return n, err
	}
	return nil, d.finish(ctx, n, func(ctx context.Context, tx *sql.Tx) error { return t.FinishTx(ctx, tx, n) })
}

func (d *diskDispatch) runOld(ctx context.Context, job *honker.Job[int64]) error {
	n := job.Args
	if err := errors.Join(d.begin(n, job.Attempts), job.SetResult(n)); err != nil || !hasEffect(n) {
		return err
	}
	return d.finish(ctx, n, func(ctx context.Context, tx *sql.Tx) error { return job.AckTx(ctx, tx) })
}

// start runs the actor and the old worker. stop ends them and returns their errors.
func (d *diskDispatch) start() (stop func() error, ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	o := &dispatch.ActorOptions{Workers: 2, Lease: dispatchLease, Backoff: honker.Constant(0)}
	old := honker.NewQueue[int64](d.db, oldQueue, &honker.QueueOptions{Backoff: honker.Constant(0)})
	done := make(chan error, 2)
	go func() { done <- dispatch.NewActor(d.d, d.id, d.runTask, o).Run(ctx) }()
	go func() { done <- old.Work(ctx, d.runOld, &honker.WorkOptions{Workers: 1, Lease: dispatchLease}) }()
	return func() error { cancel(); return errors.Join(<-done, <-done) }, done
}

// drained waits until no job is left.
func (d *diskDispatch) drained(ended <-chan error) error {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(hangs); ; <-look.C {
		left, err := one[int](context.Background(), d.db.SQL(), `SELECT count(*) FROM _honker_live`)
		if err != nil || left == 0 {
			return err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("an actor or worker has ended with %d jobs left: %w", left, err)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %d jobs are left", errHung, left)
		}
	}
}

// ends returns the jobs that have a result and the jobs that are dead.
func (d *diskDispatch) ends(ctx context.Context) (finished, dead []int64, err error) {
	finished, err = column[int64](ctx, d.db.SQL(), `SELECT CAST(value AS INTEGER) FROM _honker_results ORDER BY 1`)
	if err != nil {
		return nil, nil, err
	}
	dead, err = column[int64](ctx, d.db.SQL(), `SELECT CAST(payload AS INTEGER) FROM _honker_dead ORDER BY 1`)
	return finished, dead, err
}

// result checks that the jobs have ended correctly, and that the file is intact.
func (d *diskDispatch) result(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	finished, dead, err := d.ends(ctx)
	if err != nil {
		return err
	}
	for _, n := range d.acked {
		if !slices.Contains(finished, n) && !slices.Contains(dead, n) {
			err = errors.Join(err, fmt.Errorf("job %d was acknowledged but has not ended", n))
		}
	}
	return errors.Join(err, d.compareEnds(ctx, finished, dead), d.db.Check(ctx))
}

// compareEnds checks that no job has ended twice, that rejected jobs are dead, and that effects
// belong to finished jobs.
func (d *diskDispatch) compareEnds(ctx context.Context, finished, dead []int64) (err error) {
	times := map[int64]int{}
	var want []int64
	for _, n := range finished {
		times[n]++
		if hasEffect(n) {
			want = append(want, n)
		}
		if isRefused(n) {
			err = errors.Join(err, fmt.Errorf("job %d was rejected but has finished", n))
		}
	}
	for _, n := range dead {
		times[n]++
		if !isRefused(n) {
			err = errors.Join(err, fmt.Errorf("job %d is dead", n))
		}
	}
	for n := range maps.Keys(times) {
		if times[n] > 1 || n > d.sent {
			err = errors.Join(err, fmt.Errorf("job %d has ended %d times, of %d that were sent", n, times[n], d.sent))
		}
	}
	effects, failed := column[int64](ctx, d.db.SQL(), `SELECT number FROM dispatch_effects ORDER BY 1`)
	if failed == nil && !slices.Equal(effects, want) {
		failed = fmt.Errorf("the effects belong to %v rather than %v", effects, want)
	}
	return errors.Join(err, failed)
}
