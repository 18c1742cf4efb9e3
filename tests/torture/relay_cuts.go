//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/honker-go/honker"
)

// relayCuts cuts the power while a relay is working. Each image must contain a prefix of the sent
// messages. In each partition, a prefix of them is finished, with their effects, and the others are
// waiting.
func relayCuts(ctx context.Context, r *Round) error {
	c := newCutter(r)
	var running atomic.Pointer[diskRelay] // read by any connection
	c.acked = func() []int64 { return running.Load().known() }
	err := c.shoot(func(path string) error {
		db, end, err := c.open(context.WithoutCancel(ctx), path)
		if err != nil {
			return err
		}
		defer end()
		d, err := newDiskRelay(context.WithoutCancel(ctx), db)
		if err != nil {
			return err
		}
		running.Store(d)
		return d.work(context.WithoutCancel(ctx), r.Rand)
	})
	if err != nil {
		return err
	}
	r.Add("redelivered", running.Load().again)
	return c.developAll(ctx, c.compareRelay)
}

// work sends some messages and waits until they are handled.
func (d *diskRelay) work(ctx context.Context, luck *rand.Rand) error {
	stop, ended := d.start()
	for range 40 {
		if err := d.send(ctx, diskQueues[luck.IntN(2)], luck.IntN(diskPartitions), 1+luck.IntN(4), luck.IntN(3) == 0); err != nil {
			return errors.Join(err, stop())
		}
	}
	if err := d.drained(ended); err != nil {
		return err
	}
	return errors.Join(stop(), d.result(ctx))
}

// known returns the current numbers of acknowledged, handled and saved messages of each partition.
func (d *diskRelay) known() (all []int64) {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.each(func(name string) {
		p := d.parts[name]
		all = append(all, int64(len(p.acked)), int64(len(p.given)), p.saved)
	})
	return all
}

func (d *diskRelay) each(f func(name string)) {
	for _, queue := range diskQueues {
		for p := range diskPartitions {
			f(partName(queue, p))
		}
	}
}

// compareRelay checks a picture and runs the library on it.
func (c *cutter) compareRelay(ctx context.Context, path string, p picture) error {
	s, err := stateOfFile(ctx, path)
	if err != nil {
		c.Add("corrupt", 1)
		return err
	}
	if s == "" || len(p.acked) == 0 { // the power was cut before the relay had written anything
		return c.account(sum(p.acked))
	}
	pool, err := plain(path)
	if err != nil {
		return err
	}
	there, err := one[bool](ctx, pool, `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_honkerx_relay_dead')`)
	if err := errors.Join(err, pool.Close()); err != nil {
		return err
	}
	if !there {
		return c.account(sum(p.acked))
	}
	db, end, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	defer end()
	return c.resume(ctx, db, p.acked)
}

func sum(all []int64) (n int64) {
	for _, x := range all {
		n += x
	}
	return n
}

// resume compares the file with the known numbers and handles the remaining messages.
func (c *cutter) resume(ctx context.Context, db *honker.DB, known []int64) error {
	d, err := newDiskRelay(ctx, db)
	if err != nil {
		return err
	}
	var faults []error
	d.each(func(name string) {
		faults = append(faults, c.comparePart(ctx, d, name, known[0], known[1], known[2]))
		known = known[3:]
	})
	if err := errors.Join(append(faults, db.Check(ctx))...); err != nil {
		return err
	}
	stop, ended := d.start()
	if err := d.drained(ended); err != nil {
		return err
	}
	return errors.Join(stop(), d.result(ctx))
}

// comparePart compares a partition, and sets its finished and waiting messages in d.
func (c *cutter) comparePart(ctx context.Context, d *diskRelay, name string, acked, given, saved int64) error {
	processed, err := one[int64](ctx, d.db.SQL(), `SELECT ifnull(max(processed), 0) FROM _honkerx_relay_partitions
WHERE queue || '/' || partition = ?`, name)
	if err != nil {
		return err
	}
	waiting, err := column[int64](ctx, d.db.SQL(), `SELECT CAST(payload AS INTEGER) FROM _honkerx_relay_messages
WHERE queue || '/' || partition = ? ORDER BY id`, name)
	if err != nil {
		return err
	}
	if processed > given {
		c.Add("phantoms", 1)
		return fmt.Errorf("%s: %d messages are finished, but %d were handled", name, processed, given)
	}
	p := d.parts[name]
	for n := range processed {
		p.given = append(p.given, n+1)
	}
	if err := d.compareEffects(ctx, name, p); err != nil {
		c.Add("duplicates", 1)
		return err
	}
	p.saved = processed
	p.sent = processed + int64(len(waiting))
	p.acked = waiting
	var next []int64
	for n := processed + 1; n <= p.sent; n++ {
		next = append(next, n)
	}
	if !slices.Equal(next, waiting) {
		c.Add("gaps", 1)
		return fmt.Errorf("%s: %d are finished, and %v wait", name, processed, waiting)
	}
	return c.account(max(acked-p.sent, saved-processed))
}
