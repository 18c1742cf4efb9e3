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
	// What names what it writes, for the log.
	What() string
}

// Ride is what became of a Rider that was taken.
type Ride int

// The ends of a ride.
const (
	RideDone   Ride = iota
	RideLeft        // the write has failed before, for a reason of its own
	RideFailed      // the rider, or the commit with it, has failed
)

// carrying is an op with riders.
type carrying struct {
	Op
	riders []Rider
	errs   []error // of the riders that were tried
}

// Single implements Op.
func (c *carrying) Single() bool { return false }

// Run implements Op. What the rider does is undone by itself where it fails.
func (c *carrying) Run(ctx context.Context, q Querier, now time.Time) error {
	c.errs = nil
	if err := c.Op.Run(ctx, q, now); err != nil {
		return err
	}
	for _, r := range c.riders {
		err := store.Savepoint(ctx, q)
		if err != nil {
			c.errs = append(c.errs, err)
			return err
		}
		err = r.Run(ctx, q, now)
		c.errs = append(c.errs, err)
		if err := store.EndSavepoint(ctx, q, err == nil); err != nil {
			return err
		}
	}
	return nil
}

// write commits op, with the riders that are due.
func (e *Engine) write(ctx context.Context, op Op) error {
	var due []Rider
	for _, r := range e.Riders {
		if r.Take(false) {
			due = append(due, r)
		}
	}
	if due == nil {
		return e.Backend.Write(ctx, op)
	}
	c := &carrying{Op: op, riders: due}
	err := e.Backend.Write(ctx, c)
	for i, r := range due {
		if tried := i < len(c.errs); tried {
			e.endRide(r, true, errors.Join(err, c.errs[i]))
		} else {
			e.endRide(r, false, err)
		}
	}
	return err
}

// RideAlone writes what a rider has, if anything, in a transaction of its own. ctx bounds the wait for the
// writer.
func (e *Engine) RideAlone(ctx context.Context, r Rider) {
	ctx, leave, err := e.Enter(ctx)
	if err != nil {
		return // Close does it
	}
	defer leave()
	e.rideAlone(ctx, r)
}

// RideLast is RideAlone that does not wait for long: what is not written then is left to a later
// commit.
func (e *Engine) RideLast(r Rider) {
	ctx, cancel := context.WithTimeout(context.Background(), lastRide)
	defer cancel()
	e.RideAlone(ctx, r)
}

func (e *Engine) rideAlone(ctx context.Context, r Rider) {
	if r.Take(true) {
		err := e.Backend.Write(ctx, r)
		e.endRide(r, ctx.Err() == nil, err) // a ctx that ends withdraws it, and nothing is wrong
	}
}

func (e *Engine) endRide(r Rider, tried bool, err error) {
	switch {
	case err == nil:
		r.Done(RideDone)
	case !tried:
		r.Done(RideLeft)
	default:
		r.Done(RideFailed)
		if !e.Closing() && !Final(err) {
			e.Logger.Warn("honker: "+r.What()+" could not be written to the file, retrying in a minute", "error", err)
		}
	}
}

// lastRide bounds how long Close, or the end of a loop, waits for the writer, for the riders.
const lastRide = 250 * time.Millisecond

// endRides is for Close.
func (e *Engine) endRides() {
	ctx, cancel := context.WithTimeout(context.Background(), lastRide)
	defer cancel()
	for _, r := range e.Riders {
		r.Close()
		e.rideAlone(ctx, r)
	}
}
