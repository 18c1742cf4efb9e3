package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// processes is the number of processes that share a database.
const processes = 4

// fourDrainCase measures processes that work off a backlog together, each with 64 workers. A job must run once.
func fourDrainCase() Case {
	return Case{Name: "work, 4 processes with 64 workers each", Durability: Synchronous, Metrics: rate("jobs/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		m, err := t.meet(ctx)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		n := t.scaled(postgresBacklog)
		if err := addNumbers(ctx, m.Queue, n); err != nil {
			return nil, err
		}
		all, open, err := m.startFour(ctx, "drain", 64)
		if err != nil {
			return nil, err
		}
		perSecond, unfinished, err := m.untilDone(ctx, n, open)
		ledger := jobLedger{}
		err = errors.Join(err, endFour(all, ledger.readJobs))
		if err == nil {
			err = ledger.verify(n, unfinished)
		}
		return []float64{perSecond}, err
	}}
}

// addNumbers adds jobs with the numbers from 1 to n.
func addNumbers(ctx context.Context, q Queue, n int) error {
	b, err := as[Numberer](q, "no batches")
	if err != nil {
		return err
	}
	for at := 0; at < n; at += 1000 {
		if err := b.EnqueueNumbers(ctx, int64(at+1), min(1000, n-at)); err != nil {
			return err
		}
	}
	_, err = q.SQL().ExecContext(ctx, "VACUUM (ANALYZE)")
	return err
}

// startFour starts the processes, which wait until open is called.
func (m *meeting) startFour(ctx context.Context, do string, goroutines int) (all []*child, open func() error, err error) {
	gate, err := m.SQL().Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := gate.ExecContext(ctx, "SELECT pg_advisory_lock(1)"); err != nil {
		return nil, nil, err
	}
	open = sync.OnceValue(func() error {
		_, err := gate.ExecContext(ctx, "SELECT pg_advisory_unlock(1)")
		return errors.Join(err, gate.Close())
	})
	for range processes {
		c, err := startChild(ctx, task{Do: do, Contestant: m.Name, Path: m.path, Durability: m.Durability, Goroutines: goroutines, Gate: true})
		if err != nil {
			return nil, nil, errors.Join(err, open(), endFour(all, func(string) error { return nil }))
		}
		all = append(all, c)
	}
	return all, open, nil
}

// passGate waits until the parent has opened the gate.
func passGate(db *sql.DB) error {
	return inTx(context.Background(), db, func(tx *sql.Tx) error {
		_, err := tx.Exec("SELECT pg_advisory_xact_lock_shared(1)")
		return err
	})
}

// endFour lets each process end and passes its report to read.
func endFour(all []*child, read func(line string) error) (err error) {
	for _, c := range all {
		_ = c.stdin.Close()
	}
	for _, c := range all {
		line, lineErr := c.line()
		if lineErr == nil {
			lineErr = read(line)
		}
		err = errors.Join(err, lineErr, c.end())
	}
	return err
}

// untilDone opens the gate and returns the rate at which n jobs are finished, and the number of those left at the end.
func (m *meeting) untilDone(ctx context.Context, n int, open func() error) (perSecond float64, unfinished int, err error) {
	began := time.Now()
	if err := open(); err != nil {
		return 0, n, err
	}
	for {
		unfinished, err = m.Unfinished(ctx)
		took := time.Since(began)
		if err != nil || unfinished == 0 || took > max(m.Length, m.Bound) {
			return float64(n-unfinished) / took.Seconds(), unfinished, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// drain works until ctx is done and reports the jobs that have run.
func (t task) drain(ctx context.Context, c Contestant) error {
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	fmt.Println("READY")
	if err := passGate(q.SQL()); err != nil {
		return err
	}
	var mu sync.Mutex
	ran := []int64{}
	err = q.Work(ctx, t.Goroutines, func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, n)
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(ran)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

// fourEnqueueCase measures processes that enqueue at the same time, each by 16 goroutines.
func fourEnqueueCase() Case {
	return Case{Name: "enqueue, 4 processes with 16 goroutines each", Durability: Synchronous, Shortest: 2 * time.Second, Metrics: rate("jobs/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		m, err := t.meet(ctx)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		all, open, err := m.startFour(ctx, "enqueue", 16)
		if err != nil {
			return nil, err
		}
		if err := open(); err != nil {
			return nil, err
		}
		time.Sleep(t.Length)
		sum := 0.0
		err = endFour(all, func(line string) error {
			var r report
			if json.Unmarshal([]byte(line), &r) != nil {
				return errors.New(line)
			}
			sum += r.PerSecond
			return nil
		})
		return []float64{sum}, err
	}}
}
