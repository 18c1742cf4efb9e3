package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// postgresSuite measures the contestants that keep their jobs in PostgreSQL. All databases are on the same server, each
// turn has a new database, and all have the same settings.
func postgresSuite() Suite {
	s := Suite{Name: "postgres", Contestants: postgresContestants}
	for _, d := range []Durability{Synchronous, Asynchronous} {
		for _, n := range []int{1, 8, 64} {
			s.Cases = append(s.Cases, enqueueCase("enqueue, "+goroutines(n), d, n, one))
		}
		s.Cases = append(s.Cases, enqueueCase("enqueue, 1,000 per call", d, 1, batch(1000)))
		for _, workers := range []int{8, 64, 500} {
			s.Cases = append(s.Cases, drainCase(workers, d))
		}
	}
	s.Cases = append(s.Cases,
		startCase(1), startCase(2),
		agedCase(),
		restCase(1), restCase(10),
		fourDrainCase(), fourEnqueueCase(),
		postgresDeliverCase(4, delivery{Kind: byBatch, Batch: 100}), postgresDeliverCase(16, delivery{Kind: byMessage}),
		postgresDispatchCase())
	return s
}

// postgresBacklog is the number of jobs in a backlog.
const postgresBacklog = 50_000

// drainCase measures how fast no-op jobs are worked off.
func drainCase(workers int, d Durability) Case {
	return Case{Name: fmt.Sprintf("work, %d workers", workers), Durability: d, Metrics: rate("jobs/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, err := t.fresh(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		perSecond, err := workOff(ctx, t, q, workers)
		return []float64{perSecond}, err
	}}
}

// workOff adds a backlog and works it off.
func workOff(ctx context.Context, t *Turn, q Queue, workers int) (perSecond float64, err error) {
	n, err := addBacklog(ctx, q, t.scaled(postgresBacklog))
	if err != nil {
		return 0, err
	}
	// Otherwise autovacuum does it in the middle of some turns.
	if _, err := q.SQL().ExecContext(ctx, "VACUUM (ANALYZE)"); err != nil {
		return 0, err
	}
	return burn(ctx, q, n, max(t.Length, t.Bound), func(ctx context.Context, handle func(int64)) error {
		return q.Work(ctx, workers, handle)
	})
}

// startCase measures when an idle worker starts a job, counted from the call of Enqueue and from its return.
func startCase(processes int) Case {
	metrics := []Metric{{"commit to start p50", "ms", false}, {"commit to start p99", "ms", false},
		{"call to start p50", "ms", false}, {"call to start p99", "ms", false}, {"samples", "", true}}
	return Case{Name: "start, " + where[processes], Durability: Synchronous, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		path, err := t.path()
		if err != nil {
			return nil, err
		}
		q, err := t.Open(ctx, path, t.Durability)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		w, err := startWaker(ctx, t, q, path, processes)
		if err != nil {
			return nil, err
		}
		call, commit, err := starts(ctx, t, q, w)
		if err = errors.Join(err, w.stop()); err != nil {
			return nil, err
		}
		return []float64{quantile(commit, 0.5), quantile(commit, 0.99), quantile(call, 0.5), quantile(call, 0.99), float64(len(call))}, nil
	}}
}

// agedCase measures a backlog beside the dead tuples of 500,000 jobs, two of each, which an old snapshot keeps from
// being removed.
func agedCase() Case {
	const finished, workers = 500_000, 64
	metrics := []Metric{{"time, × clean", "", false}, {"rate", "jobs/s", true}, {"rate, clean", "jobs/s", true}}
	return Case{Name: "work beside 1,000,000 dead tuples", Durability: Synchronous, Once: true, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, err := t.fresh(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		clean, err := workOff(ctx, t, q, workers)
		if err != nil {
			return nil, err
		}
		release, err := oldSnapshot(ctx, q)
		if err != nil {
			return nil, err
		}
		defer release()
		a, err := as[Ager](q, "")
		if err == nil {
			err = a.Age(ctx, t.scaled(finished))
		}
		if err != nil {
			return nil, err
		}
		aged, err := workOff(ctx, t, q, workers)
		return []float64{clean / max(aged, 1), aged, clean}, err // less than a job per second is none
	}}
}

// oldSnapshot takes a snapshot, which keeps dead tuples until it is released.
func oldSnapshot(ctx context.Context, q Queue) (release func(), err error) {
	conn, err := q.SQL().Conn(ctx)
	if err != nil {
		return nil, err
	}
	release = func() {
		_, _ = conn.ExecContext(ctx, "ROLLBACK")
		_ = conn.Close()
	}
	for _, query := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pg_class"} {
		if _, err := conn.ExecContext(ctx, query); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// restCase measures a process whose workers wait for jobs that never come.
func restCase(queues int) Case {
	name := fmt.Sprintf("idle, %d queues", queues)
	if queues == 1 {
		name = "idle, 1 queue"
	}
	metrics := []Metric{{"statements", "/s", false}, {"CPU of the process", "% of a core", false}}
	return Case{Name: name, Durability: Synchronous, Shortest: 30 * time.Second, Once: true, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		m, err := t.meet(ctx)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		if _, err := as[Idler](m.Queue, "polls each millisecond"); err != nil {
			return nil, err
		}
		idle, err := startCrowd(ctx, t, t.waits(m.path, queues), 1)
		if err != nil {
			return nil, err
		}
		values, err := idle.statements(ctx, m.Queue, min(idleLongest, t.Length))
		if idle.end() > 0 {
			err = errors.Join(err, errors.New("the workers have failed"))
		}
		return values, err
	}}
}

const (
	countStatements = `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`
	statementsSoFar = `SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND query NOT LIKE '%pg_stat_statements%'`
)

// statements counts the statements of a database while its processes rest, and the CPU of these processes.
func (all crowd) statements(ctx context.Context, q Queue, length time.Duration) ([]float64, error) {
	if _, err := q.SQL().ExecContext(ctx, countStatements); err != nil {
		return nil, fmt.Errorf("%w: %w", errNA, err)
	}
	var before, after float64
	if err := q.SQL().QueryRowContext(ctx, statementsSoFar).Scan(&before); err != nil {
		return nil, err
	}
	began := time.Now()
	cpu, err := all.share(func() error {
		select {
		case <-time.After(length):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	err = q.SQL().QueryRowContext(ctx, statementsSoFar).Scan(&after)
	return []float64{(after - before) / took.Seconds(), cpu}, err
}
