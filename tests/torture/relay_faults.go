//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/tests/faultvfs"
)

// relayFaults lets disk operations fail while a relay is working. Each acknowledged message must be
// delivered, effects must happen once, and Run must continue.
func relayFaults(ctx context.Context, r *Round) error {
	return onBadDisk(ctx, r, func(f *faulter) error {
		d, err := newDiskRelay(context.WithoutCancel(ctx), f.db)
		if err != nil {
			return err
		}
		return f.relay(ctx, d)
	})
}

// onBadDisk opens a file on a fault disk and runs play. It keeps the file if play returns an error.
func onBadDisk(ctx context.Context, r *Round, play func(*faulter) error) error {
	dir, err := r.sub("run")
	if err != nil {
		return err
	}
	disk, err := faultvfs.New(dir)
	if err != nil {
		return err
	}
	defer disk.Remove()
	f := &faulter{Round: r, disk: disk, path: filepath.Join(dir, "app.db")}
	o := f.options()
	o.Logger = quiet
	if f.db, err = honker.Open(context.WithoutCancel(ctx), f.path, o); err != nil {
		return err
	}
	defer func() { _ = f.db.Close() }()
	err = play(f)
	keep(f.path, &err)
	return err
}

// relay sends messages during temporary faults, and waits until all are handled.
func (f *faulter) relay(ctx context.Context, d *diskRelay) error {
	stop, ended := d.start()
	for i := 0; i < 60 && ctx.Err() == nil; i++ {
		t := f.arm(faultvfs.Write, faultvfs.Sync, faultvfs.Read)
		if err := f.sendSome(d); err != nil {
			return fmt.Errorf("send during %v: %w", t, err)
		}
		time.Sleep(time.Duration(f.Rand.IntN(10)) * time.Millisecond) // gives the handlers time to meet the fault
		f.disarm(t)
		time.Sleep(time.Duration(f.Rand.IntN(10)) * time.Millisecond)
	}
	for _, queue := range diskQueues {
		for p := range diskPartitions {
			if err := d.send(context.Background(), queue, p, 1, false); err != nil {
				return fmt.Errorf("send without a fault: %w", err)
			}
		}
	}
	if err := d.drained(ended); err != nil {
		if errors.Is(err, errHung) {
			f.Add("hung", 1)
		}
		return err
	}
	f.Add("redelivered", d.again)
	return errors.Join(stop(), d.result(context.Background()))
}

// sendSome sends messages a few times. A failed send is not an error.
func (f *faulter) sendSome(d *diskRelay) error {
	for range 1 + f.Rand.IntN(3) {
		f.Add("operations", 1)
		queue, partition, n, inTx := diskQueues[f.Rand.IntN(2)], f.Rand.IntN(diskPartitions), 1+f.Rand.IntN(4), f.oneIn(3)
		err := f.within(func(ctx context.Context) error { return d.send(ctx, queue, partition, n, inTx) })
		if errors.Is(err, errHung) {
			return err
		}
		if err != nil {
			f.Add("surfaced", 1)
		}
	}
	return nil
}
