//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
)

// dispatchCuts cuts the power while actors are working. Each image must contain a prefix of the
// sent jobs. Each of these jobs is waiting or has ended, and all of its queues agree.
func dispatchCuts(ctx context.Context, r *Round) error {
	c := newCutter(r)
	var running atomic.Pointer[diskDispatch] // read by any connection
	c.acked = func() []int64 { return running.Load().known() }
	err := c.shoot(func(path string) error {
		db, end, err := c.open(context.WithoutCancel(ctx), path)
		if err != nil {
			return err
		}
		defer end()
		d, err := newDiskDispatch(context.WithoutCancel(ctx), db, "first")
		if err != nil {
			return err
		}
		running.Store(d)
		return d.work(context.WithoutCancel(ctx), r.Rand)
	})
	if err != nil {
		return err
	}
	return c.developAll(ctx, c.compareDispatch)
}

// work sends some jobs and waits until they have ended.
func (d *diskDispatch) work(ctx context.Context, luck *rand.Rand) error {
	stop, ended := d.start()
	for range 40 {
		if err := d.send(ctx, []string{"", "", "default"}[luck.IntN(3)], luck.IntN(3) == 0); err != nil {
			return errors.Join(err, stop())
		}
		time.Sleep(time.Duration(luck.IntN(2000)) * time.Microsecond)
	}
	if err := d.drained(ended); err != nil {
		return err
	}
	return errors.Join(stop(), d.result(ctx))
}

// known returns the current numbers of jobs that were acknowledged, that have begun, and that have
// ended with an effect.
func (d *diskDispatch) known() []int64 {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return []int64{int64(len(d.acked)), int64(len(d.begun)), d.ended}
}

// compareDispatch checks a picture and runs the library on it.
func (c *cutter) compareDispatch(ctx context.Context, path string, p picture) error {
	s, err := stateOfFile(ctx, path)
	if err != nil {
		c.Add("corrupt", 1)
		return err
	}
	if s == "" || len(p.acked) == 0 { // the power was cut before the dispatcher had written anything
		return c.account(sum(p.acked))
	}
	db, end, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	defer end()
	d, err := newDiskDispatch(ctx, db, "second")
	if err != nil {
		return err
	}
	if err := errors.Join(c.compareJobs(ctx, d, p.acked[0], p.acked[1], p.acked[2]), db.Check(ctx)); err != nil {
		return err
	}
	return d.resume(ctx)
}

// compareJobs compares the jobs in the file with the known numbers, and sets the jobs of d to those
// in the file.
func (c *cutter) compareJobs(ctx context.Context, d *diskDispatch, acked, begun, ended int64) error {
	waiting, err := column[int64](ctx, d.db.SQL(), `SELECT DISTINCT CAST(payload AS INTEGER) FROM _honker_live`)
	if err != nil {
		return err
	}
	finished, dead, err := d.ends(ctx)
	if err != nil {
		return err
	}
	there := slices.Concat(waiting, finished, dead)
	slices.Sort(there)
	d.sent, d.acked = int64(len(there)), there
	for i, n := range there {
		if n != int64(i)+1 {
			c.Add("gaps", 1)
			return fmt.Errorf("%v wait, %v have ended and %v died", waiting, finished, dead)
		}
	}
	if n := int64(len(finished) + len(dead)); n > begun {
		c.Add("phantoms", 1)
		return fmt.Errorf("%d jobs have ended, %d were begun", n, begun)
	}
	if err := d.compareEnds(ctx, finished, dead); err != nil {
		c.Add("duplicates", 1)
		return err
	}
	effects := int64(0)
	for _, n := range finished {
		if hasEffect(n) {
			effects++
		}
	}
	return c.account(max(acked-d.sent, ended-effects))
}

// resume lets all claims lapse and completes the remaining jobs.
func (d *diskDispatch) resume(ctx context.Context) error {
	if _, err := d.db.SQL().ExecContext(ctx, `UPDATE _honker_live SET claim_expires_at = unixepoch() - 1 WHERE state = '`+
		string(honker.StateProcessing)+`'`); err != nil {
		return err
	}
	stop, ended := d.start()
	if err := d.drained(ended); err != nil {
		return err
	}
	return errors.Join(stop(), d.result(ctx))
}
