package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

//go:embed testdata/orders.ndjson
var testdata string

// intake reads orders and stores each of them together with the job that prints its receipt.
type intake struct {
	db    *honker.DB
	kind  database
	queue *honker.Queue[Order]
	meter *meter
	rate  int
	tally tally
}

// tally counts the lines that this process has read, by result.
type tally struct {
	stored  int
	known   int // stored by an earlier run
	refused map[refusal]int
}

// read stores all orders of input. It returns early, without an error, when ctx is done. The next
// run starts from the beginning and skips the orders that are already stored.
func (in *intake) read(ctx context.Context, input string) error {
	in.tally.refused = make(map[refusal]int)
	pace := newPace(in.rate)
	number := 0
	for line := range strings.Lines(input) {
		if ctx.Err() != nil {
			return nil
		}
		number++
		err := in.accept(context.WithoutCancel(ctx), number, line) // finish the line even if ctx is done
		if err == nil {
			pace.wait(ctx)
		}
		if err := in.count(err); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

// accept stores an order and enqueues its job, or does neither. The job is enqueued first, because
// the order refers to it. If a constraint rejects the order, the rollback removes the job as well.
func (in *intake) accept(ctx context.Context, number int, line string) error {
	o, err := parseOrder(line)
	if err != nil {
		return err
	}
	err = in.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		job, err := in.queue.EnqueueTx(ctx, tx, o)
		if err != nil {
			return err
		}
		return in.kind.insertOrder(ctx, tx, o, number, job)
	})
	if err == nil {
		in.meter.committed(o.ID)
	}
	return err
}

// count records the result for a line. It returns err, unless err only means that the order was
// refused or already known.
func (in *intake) count(err error) error {
	reason, refused := errors.AsType[refusal](err)
	switch {
	case err == nil:
		in.tally.stored++
	case refused:
		in.tally.refused[reason]++
	case errors.Is(err, errKnown):
		in.tally.known++
	default:
		return err
	}
	return nil
}

// pace delivers orders in bursts. The queue runs empty between bursts, so that each burst finds the
// workers asleep.
type pace struct {
	size, left int
	pause      time.Duration
	next       time.Time
}

const burstsPerSecond = 50

// newPace returns a pace for rate orders per second. If rate is 0, it returns nil, and a nil pace
// never waits.
func newPace(rate int) *pace {
	if rate == 0 {
		return nil
	}
	size := max(1, rate/burstsPerSecond)
	pause := time.Second * time.Duration(size) / time.Duration(rate)
	return &pace{size: size, left: size, pause: pause, next: time.Now().Add(pause)}
}

// wait must be called after each order. It blocks at the end of a burst.
func (p *pace) wait(ctx context.Context) {
	if p == nil {
		return
	}
	if p.left--; p.left > 0 {
		return
	}
	select {
	case <-time.After(time.Until(p.next)):
	case <-ctx.Done():
	}
	p.left, p.next = p.size, p.next.Add(p.pause)
}
