package engine

import (
	"context"
	"errors"
	"time"
)

// Rider is a small write that is not urgent and is added to the commits of other writes. It must
// never make them fail.
type Rider interface {
	Op
	// Take reports whether the rider is to be written with the write that now begins. If so, Run is
	// called in its transaction, and Done after it. alone is true for a transaction of the rider's
	// own.
	Take(alone bool) bool
	Done(Ride)
	// Close is called once, before the last write of the engine.
	Close()
	// What returns the name of the written data for log messages.
	What() string
}

// Ride is the outcome of a Rider after Take returned true.
type Ride int

// The outcomes of a Rider.
const (
	RideDone   Ride = iota
	RideLeft        // the write failed before the rider was run
	RideFailed      // the rider or the commit failed
)

// carrying is an op together with the riders of its transaction.
type carrying struct {
	Op
	riders    []Rider
	errs      []error // errors of the riders that were run
	savepoint func(ctx context.Context, q Querier) (end func(ctx context.Context, keep bool) error, err error)
}

// Single implements Op.
func (c *carrying) Single() bool { return false }

// Run implements Op. Each rider has its own savepoint, so that a failed rider is undone without the
// rest.
func (c *carrying) Run(ctx context.Context, q Querier, now time.Time) error {
	c.errs = nil
	if err := c.Op.Run(ctx, q, now); err != nil {
		return err
	}
	for _, r := range c.riders {
		end, err := c.savepoint(ctx, q)
		if err != nil {
			c.errs = append(c.errs, err)
			return err
		}
		err = r.Run(ctx, q, now)
		c.errs = append(c.errs, err)
		if err := end(ctx, err == nil); err != nil {
			return err
		}
	}
	return nil
}

// write commits op together with the riders that are due.
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
	c := &carrying{Op: op, riders: due, savepoint: e.Backend.Savepoint}
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

// RideAlone writes the data of r, if any, in a transaction of its own. ctx limits the wait for the
// writer.
func (e *Engine) RideAlone(ctx context.Context, r Rider) {
	ctx, leave, err := e.Enter(ctx)
	if err != nil {
		return // Close writes it
	}
	defer leave()
	e.rideAlone(ctx, r)
}

// RideLast is RideAlone with a short time limit. Data that could not be written is left for a later
// commit.
func (e *Engine) RideLast(r Rider) {
	ctx, cancel := context.WithTimeout(context.Background(), lastRide)
	defer cancel()
	e.RideAlone(ctx, r)
}

// rideAlone is RideAlone without Enter. Close uses it, because Enter fails by then.
func (e *Engine) rideAlone(ctx context.Context, r Rider) {
	if r.Take(true) {
		err := e.Backend.Write(ctx, r)
		e.endRide(r, ctx.Err() == nil, err) // an ended ctx only withdraws the write, which is no failure
	}
}

// endRide reports the outcome to r and logs failures. tried is false if the rider was not run.
func (e *Engine) endRide(r Rider, tried bool, err error) {
	switch {
	case err == nil:
		r.Done(RideDone)
	case !tried:
		r.Done(RideLeft)
	default:
		r.Done(RideFailed)
		if !e.Closing() && !Final(err) {
			e.Logger.Warn("honker: "+r.What()+" could not be written to the file; retrying in a minute", "error", err)
		}
	}
}

// lastRide is the maximum time for which Close, or the end of a loop, waits for the writer to write
// riders.
const lastRide = 250 * time.Millisecond

// endRides closes all riders and writes their remaining data. It is called by Close.
func (e *Engine) endRides() {
	ctx, cancel := context.WithTimeout(context.Background(), lastRide)
	defer cancel()
	for _, r := range e.Riders {
		r.Close()
		e.rideAlone(ctx, r)
	}
}
