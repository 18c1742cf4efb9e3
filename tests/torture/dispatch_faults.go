//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/tests/faultvfs"
)

// dispatchFaults lets disk operations fail while actors are working. Each acknowledged job must end
// exactly once, and the actors must continue.
func dispatchFaults(ctx context.Context, r *Round) error {
	return onBadDisk(ctx, r, func(f *faulter) error {
		d, err := newDiskDispatch(context.WithoutCancel(ctx), f.db, "first")
		if err != nil {
			return err
		}
		return f.dispatch(ctx, d)
	})
}

// dispatch sends jobs during temporary faults, and waits until all have ended.
func (f *faulter) dispatch(ctx context.Context, d *diskDispatch) error {
	stop, ended := d.start()
	if err := f.registered(d); err != nil {
		return errors.Join(err, stop())
	}
	for i := 0; i < 60 && ctx.Err() == nil; i++ {
		t := f.arm(faultvfs.Write, faultvfs.Sync, faultvfs.Read)
		for range 1 + f.Rand.IntN(3) {
			if err := f.sendJob(d); err != nil {
				return fmt.Errorf("send during %v: %w", t, err)
			}
		}
		time.Sleep(time.Duration(f.Rand.IntN(10)) * time.Millisecond) // gives the actors time to meet the fault
		f.disarm(t)
		time.Sleep(time.Duration(f.Rand.IntN(10)) * time.Millisecond)
	}
	if err := d.send(context.Background(), "", false); err != nil {
		return fmt.Errorf("send without a fault: %w", err)
	}
	if err := d.drained(ended); err != nil {
		if errors.Is(err, errHung) {
			f.Add("hung", 1)
		}
		return err
	}
	return errors.Join(stop(), d.result(context.Background()))
}

// registered waits until the actor is registered, because Run returns the error of its first write.
func (f *faulter) registered(d *diskDispatch) error {
	return f.within(func(ctx context.Context) error {
		for ctx.Err() == nil {
			living, err := d.d.Actors(ctx, dispatch.Target{Type: d.id.Type})
			if err != nil || len(living) > 0 {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	})
}

// sendJob sends a job. A failed send is not an error.
func (f *faulter) sendJob(d *diskDispatch) error {
	f.Add("operations", 1)
	group, inTx := []string{"", "", "default"}[f.Rand.IntN(3)], f.oneIn(3)
	err := f.within(func(ctx context.Context) error { return d.send(ctx, group, inTx) })
	if errors.Is(err, errHung) {
		return err
	}
	if err != nil {
		f.Add("surfaced", 1)
	}
	return nil
}
