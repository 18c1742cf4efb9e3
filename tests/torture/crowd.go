//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/honker-go/honker"
)

const crowd = 4

// crowdCuts cuts the power while several callers share commits. All acknowledged jobs of each
// caller must survive, and its surviving jobs must have no gaps.
func crowdCuts(ctx context.Context, r *Round) error {
	c := newCutter(r)
	var acked [crowd]atomic.Int64
	c.acked = func() (out []int64) {
		for i := range acked {
			out = append(out, acked[i].Load())
		}
		return out
	}
	err := c.shoot(func(path string) error {
		db, end, err := c.open(context.WithoutCancel(ctx), path)
		if err != nil {
			return err
		}
		defer end()
		return enqueueAtOnce(context.WithoutCancel(ctx), db, &acked)
	})
	if err != nil {
		return err
	}
	return c.developAll(ctx, c.compareQueues)
}

func queueOf(member int) string { return fmt.Sprint("of", member) }

// enqueueAtOnce enqueues the numbers from 1 to 40 in a separate queue per goroutine, and counts the
// acknowledged jobs of each.
func enqueueAtOnce(ctx context.Context, db *honker.DB, acked *[crowd]atomic.Int64) error {
	var all sync.WaitGroup
	var errs [crowd]error
	for i := range crowd {
		all.Go(func() {
			q := honker.NewQueue[int](db, queueOf(i), nil)
			for n := 1; n <= 40; n++ {
				if _, errs[i] = q.Enqueue(ctx, n); errs[i] != nil {
					return
				}
				acked[i].Add(1)
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// compareQueues checks that each queue contains a prefix of its numbers.
func (c *cutter) compareQueues(ctx context.Context, path string, p picture) error {
	if s, err := stateOfFile(ctx, path); err != nil || s == "" {
		if err == nil {
			err = c.account(slices.Max(p.acked))
		}
		return err
	}
	pool, err := plain(path)
	if err != nil {
		return err
	}
	defer pool.Close()
	for i, acked := range p.acked {
		got, err := column[int64](ctx, pool, `SELECT CAST(payload AS INTEGER) FROM _honker_live WHERE queue = ? ORDER BY id`, queueOf(i))
		if err != nil {
			return err
		}
		for n := range got {
			if got[n] != int64(n)+1 {
				c.Add("gaps", 1)
				return fmt.Errorf("queue %d has %v", i, got)
			}
		}
		if err := c.account(acked - int64(len(got))); err != nil {
			return err
		}
	}
	return nil
}
