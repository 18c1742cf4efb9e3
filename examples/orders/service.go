package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// config holds the values of the flags.
type config struct {
	file, dsn   string // the place of the database; one of them is set
	out         string
	workers     int
	rate        int // orders per second; 0 for no limit
	lease       time.Duration
	workersOnly bool
	ui          string // address of the dashboard; "" for none
	input       string
}

// service stores orders and prints their receipts.
type service struct {
	config
	kind     database
	db       *honker.DB
	queue    *honker.Queue[Order]
	receipts *receipts
	meter    *meter
	intake   intake
	read     atomic.Bool // all of the input has been read
	w        io.Writer
}

func open(ctx context.Context, c config, w io.Writer) (*service, error) {
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return nil, err
	}
	m, kind := newMeter(), c.database()
	db, err := kind.open(ctx, c, honker.Options{Observer: &observe.Observer{Settled: m.settled}})
	if err != nil {
		return nil, err
	}
	if _, err := db.SQL().ExecContext(ctx, kind.schema); err != nil {
		return nil, errors.Join(fmt.Errorf("create tables: %w", err), db.Close())
	}
	queue := honker.NewQueue[Order](db, receiptQueue, receiptOptions)
	return &service{
		config:   c,
		kind:     kind,
		db:       db,
		queue:    queue,
		receipts: &receipts{dir: c.out, meter: m},
		meter:    m,
		intake:   intake{db: db, kind: kind, queue: queue, meter: m, rate: c.rate},
		w:        w,
	}, nil
}

func (s *service) close() error { return s.db.Close() }

// serve runs until all orders are read and the queue is empty, or until ctx is done and the workers
// have finished their current jobs. It then prints the report.
func (s *service) serve(ctx context.Context) error {
	began := time.Now()
	if err := s.work(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if s.workersOnly {
		reportWorkers(s.w, s.meter.read(), took)
		return nil
	}
	return s.settle(context.WithoutCancel(ctx), took)
}

// work runs the intake and the workers, and shows the progress, until all jobs are done.
func (s *service) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return honker.Run(ctx,
		s.takeIn,
		func(ctx context.Context) error {
			return s.queue.Work(ctx, s.receipts.handle, &honker.WorkOptions{Workers: s.workers, Lease: s.lease})
		},
		func(ctx context.Context) error {
			defer stop()
			return s.watch(ctx)
		},
	)
}

func (s *service) takeIn(ctx context.Context) error {
	if s.workersOnly {
		return nil
	}
	err := s.intake.read(ctx, s.input)
	s.read.Store(err == nil && ctx.Err() == nil)
	return err
}

// watch shows the progress until all jobs are done or ctx is done.
func (s *service) watch(ctx context.Context) error {
	line := newProgress(s.w)
	defer line.end()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		read := s.read.Load() // must be read first: the books then include the whole input
		b, err := readBooks(context.WithoutCancel(ctx), s.db.SQL(), s.kind)
		if err != nil {
			return err
		}
		line.show(b, s.meter.retried())
		if read && b.idle() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// settle checks the books and prints the report.
func (s *service) settle(ctx context.Context, took time.Duration) error {
	a, err := newAudit(ctx, s.db.SQL(), s.kind, s.receipts)
	if err != nil {
		return err
	}
	if a.open == 0 {
		err = s.receipts.sweep()
	}
	report(s.w, s.intake.tally, s.meter.read(), a, took)
	return errors.Join(err, a.err())
}
