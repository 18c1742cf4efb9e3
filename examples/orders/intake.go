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

// intake reads orders and stores them, each with the job for its receipt.
type intake struct {
	db    *honker.DB
	queue *honker.Queue[Order]
	meter *meter
	rate  int
	tally tally
}

// tally counts what became of the lines that this process has read.
type tally struct {
	stored  int
	known   int // by an earlier run
	refused map[refusal]int
}

// read takes in all lines of input. It ends early, without an error, when ctx ends:
// the next run begins again and knows what is there.
func (in *intake) read(ctx context.Context, input string) error {
	in.tally.refused = make(map[refusal]int)
	pace := newPace(in.rate)
	number := 0
	for line := range strings.Lines(input) {
		if ctx.Err() != nil {
			return nil
		}
		number++
		err := in.accept(context.WithoutCancel(ctx), number, line) // what has begun is finished
		if err == nil {
			pace.wait(ctx)
		}
		if err := in.count(err); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil
}

// accept stores an order and enqueues its receipt, or neither: the job is enqueued
// first, and what the tables then refuse takes it back with the transaction.
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
		return insertOrder(ctx, tx, o, number, job)
	})
	if err == nil {
		in.meter.committed(o.ID)
	}
	return err
}

// count notes what became of a line. It returns what is no answer to an order but a
// failure of the service.
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

// pace lets orders come in bursts: in between the queue runs empty, and the workers are
// asleep when the next burst comes.
type pace struct {
	size, left int
	pause      time.Duration
	next       time.Time
}

const burstsPerSecond = 50

// newPace is for rate orders a second; 0 sets no pace.
func newPace(rate int) *pace {
	if rate == 0 {
		return nil
	}
	size := max(1, rate/burstsPerSecond)
	pause := time.Second * time.Duration(size) / time.Duration(rate)
	return &pace{size: size, left: size, pause: pause, next: time.Now().Add(pause)}
}

// wait is called after each order, and waits after the last of a burst.
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
