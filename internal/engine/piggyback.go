package engine

import (
	"context"
	"errors"
	"time"
)

// Piggyback is a small, non-urgent write that is added to the commits of other writes. It must never make them fail.
type Piggyback interface {
	Op
	// Take reports whether the piggyback should join the write that is about to begin. If so, Run is called in that
	// write's transaction, and Done after it. alone is true if the transaction exists only for the piggyback.
	Take(alone bool) bool
	Done(PiggybackResult)
	// Close is called once, before the engine's last write.
	Close()
	// Name returns a name for the data, for use in log messages.
	Name() string
}

// PiggybackResult is the outcome of a Piggyback whose Take returned true.
type PiggybackResult int

// The outcomes of a Piggyback.
const (
	PiggybackWritten PiggybackResult = iota
	PiggybackSkipped                 // the write failed before the piggyback ran
	PiggybackFailed                  // the piggyback or the commit failed
)

// opWithPiggybacks is an op together with the piggybacks in its transaction.
type opWithPiggybacks struct {
	Op
	piggybacks []Piggyback
	errs       []error // errors of the piggybacks that ran
	savepoint  func(ctx context.Context, q Querier) (end func(ctx context.Context, keep bool) error, err error)
}

// Single implements Op.
func (c *opWithPiggybacks) Single() bool { return false }

// Run implements Op. Each piggyback runs in its own savepoint, so that only a failed piggyback is undone.
func (c *opWithPiggybacks) Run(ctx context.Context, q Querier, now time.Time) error {
	c.errs = nil
	if err := c.Op.Run(ctx, q, now); err != nil {
		return err
	}
	for _, r := range c.piggybacks {
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

// fencedWithPiggybacks is a Fenced op together with the piggybacks in its transaction. They may be written twice, which
// adds the counts of a minute twice.
type fencedWithPiggybacks struct {
	*opWithPiggybacks
	op Fenced
}

// Again implements Fenced.
func (c fencedWithPiggybacks) Again() { c.op.Again() }

// write commits op together with the piggybacks that are due.
func (e *Engine) write(ctx context.Context, op Op) error {
	var due []Piggyback
	for _, r := range e.Piggybacks {
		if r.Take(false) {
			due = append(due, r)
		}
	}
	if due == nil {
		return e.Backend.Write(ctx, op)
	}
	c := &opWithPiggybacks{Op: op, piggybacks: due, savepoint: e.Backend.Savepoint}
	var whole Op = c
	if f, ok := op.(Fenced); ok {
		whole = fencedWithPiggybacks{c, f}
	}
	err := e.Backend.Write(ctx, whole)
	for i, r := range due {
		if tried := i < len(c.errs); tried {
			e.finishPiggyback(r, true, errors.Join(err, c.errs[i]))
		} else {
			e.finishPiggyback(r, false, err)
		}
	}
	return err
}

// WritePiggyback writes r's data, if any, in a separate transaction. ctx limits the wait for the write
// lock.
func (e *Engine) WritePiggyback(ctx context.Context, r Piggyback) {
	ctx, leave, err := e.Enter(ctx)
	if err != nil {
		return // Close will write it
	}
	defer leave()
	e.writePiggyback(ctx, r)
}

// FlushPiggyback is WritePiggyback with a short time limit. If it cannot write the data in time, a later
// commit will.
func (e *Engine) FlushPiggyback(r Piggyback) {
	ctx, cancel := context.WithTimeout(context.Background(), piggybackTimeout)
	defer cancel()
	e.WritePiggyback(ctx, r)
}

// writePiggyback is WritePiggyback without Enter. Close uses it, because Enter fails by then.
func (e *Engine) writePiggyback(ctx context.Context, r Piggyback) {
	if r.Take(true) {
		err := e.Backend.Write(ctx, r)
		e.finishPiggyback(r, ctx.Err() == nil, err) // if ctx ended, the write was only withdrawn, which is not a failure
	}
}

// finishPiggyback reports the outcome to r and logs failures. tried is false if the piggyback did
// not run.
func (e *Engine) finishPiggyback(r Piggyback, tried bool, err error) {
	switch {
	case err == nil:
		r.Done(PiggybackWritten)
	case !tried:
		r.Done(PiggybackSkipped)
	default:
		r.Done(PiggybackFailed)
		if !e.Closing() && !Final(err) {
			e.Logger.Warn("honker: "+r.Name()+" could not be written to the file; retrying in a minute", "error", err)
		}
	}
}

// piggybackTimeout is how long Close, or a loop that is ending, waits for the write lock to write piggybacks.
const piggybackTimeout = 250 * time.Millisecond

// closePiggybacks closes all piggybacks and writes their remaining data. Close calls it.
func (e *Engine) closePiggybacks() {
	ctx, cancel := context.WithTimeout(context.Background(), piggybackTimeout)
	defer cancel()
	for _, r := range e.Piggybacks {
		r.Close()
		e.writePiggyback(ctx, r)
	}
}
