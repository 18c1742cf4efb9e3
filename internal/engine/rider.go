package engine

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Rider is a small write that can wait, and goes with a commit of others. It must never
// fail them.
type Rider interface {
	Op
	// Take tells whether the rider goes with the write that begins now. Then Run is called in its
	// transaction, and Done after it. alone is for a write of the rider's own.
	Take(alone bool) bool
	Done(Ride)
	// Close is called once, before the last write.
	Close()
}

// Ride is what became of a Rider that was taken.
type Ride int

// The ends of a ride.
const (
	RideDone   Ride = iota
	RideLeft        // the write has failed before, for a reason of its own
	RideFailed      // the rider, or the commit with it, has failed
)

// carrying is an op with a rider.
type carrying struct {
	Op
	rider Rider
	tried bool
	err   error // of the rider
}

// Single implements Op.
func (c *carrying) Single() bool { return false }

// Run implements Op. What the rider does is undone by itself where it fails.
func (c *carrying) Run(ctx context.Context, q Querier, now time.Time) error {
	c.tried = false
	if err := c.Op.Run(ctx, q, now); err != nil {
		return err
	}
	c.tried = true
	if c.err = store.Savepoint(ctx, q); c.err != nil {
		return c.err
	}
	c.err = c.rider.Run(ctx, q, now)
	return store.EndSavepoint(ctx, q, c.err == nil)
}

// write commits op, with the rider if that is due.
func (e *Engine) write(ctx context.Context, op Op) error {
	if e.Rider == nil || !e.Rider.Take(false) {
		return e.Backend.Write(ctx, op)
	}
	c := &carrying{Op: op, rider: e.Rider}
	err := e.Backend.Write(ctx, c)
	e.endRide(c.tried, errors.Join(err, c.err))
	return err
}

// RideAlone writes what the rider has, if anything, in a transaction of its own.
func (e *Engine) RideAlone() {
	ctx, leave, err := e.Enter(context.Background())
	if err != nil {
		return // Close does it
	}
	defer leave()
	e.rideAlone(ctx)
}

func (e *Engine) rideAlone(ctx context.Context) {
	if e.Rider.Take(true) {
		e.endRide(true, e.Backend.Write(ctx, e.Rider))
	}
}

func (e *Engine) endRide(tried bool, err error) {
	switch {
	case err == nil:
		e.Rider.Done(RideDone)
	case !tried:
		e.Rider.Done(RideLeft)
	default:
		e.Rider.Done(RideFailed)
		if !e.Closing() && !Final(err) {
			e.Logger.Warn("honker: what happened to jobs could not be counted in the file, retrying in a minute", "error", err)
		}
	}
}

// lastRide bounds how long Close waits for the writer, for the rider.
const lastRide = 250 * time.Millisecond

// endRides is for Close.
func (e *Engine) endRides() {
	if e.Rider == nil {
		return
	}
	e.Rider.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lastRide)
	defer cancel()
	e.rideAlone(ctx)
}
