package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

// lanesSuite measures Work over several queues relative to Work over a single queue, with many
// waiting jobs in each.
func lanesSuite() Suite {
	s := Suite{Name: "lanes", Contestants: onlyHonker}
	for _, lanes := range []int{3, 9} {
		s.Cases = append(s.Cases, lanesCase(lanes, true), lanesCase(lanes, false))
	}
	return s
}

// onlyHonker returns honker, for features that no other contestant has.
func onlyHonker() []Contestant { return []Contestant{honkers()} }

const (
	laneJobs  = 100_000 // waiting in each lane
	laneTurns = 4       // per way in a turn
)

// lanesCase runs jobs that are claimed either individually, with a commit for each, or ahead of
// time.
func lanesCase(lanes int, single bool) Case {
	name := fmt.Sprintf("%d lanes of %s jobs, claimed ahead", lanes, thousands(laneJobs))
	if single {
		name = fmt.Sprintf("%d lanes of %s jobs, one job per claim", lanes, thousands(laneJobs))
	}
	metrics := []Metric{
		{"by priority", "× one queue", false}, {"in turns", "× one queue", false}, {"strict", "× one queue", false},
		{"strict, all in the last lane", "× one queue", false}, {"Workers with one queue", "× one queue", false}, {"one queue", "µs/job", false},
	}
	return Case{Name: name, Durability: Normal, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		names := laneNames("lane", lanes)
		filled := slices.Concat(names, []string{oneQueue})
		q, err := t.keep(ctx, "lanes", func(q Queue) error { return fillLanes(ctx, q.SQL(), filled, t.scaled(laneJobs)) })
		if err != nil {
			return nil, err
		}
		db := q.(*honkerQueue).db
		last := append(laneNames("empty", lanes-1), oneQueue)
		ways := []laneWork{
			honker.NewQueue[payload](db, oneQueue, nil).Work,
			lanesOf(db, names, honker.ByPriority),
			lanesOf(db, names, honker.InTurns),
			lanesOf(db, names, honker.Strict),
			lanesOf(db, last, honker.Strict),
			lanesOf(db, []string{oneQueue}, honker.ByPriority),
		}
		perJob, err := inTurns(ctx, t, ways, single)
		if err != nil {
			return nil, err
		}
		if err := fillLanes(ctx, q.SQL(), filled, t.scaled(laneJobs)); err != nil { // restore the number of waiting jobs
			return nil, err
		}
		one := float64(perJob[0])
		var all []float64
		for _, d := range perJob[1:] {
			all = append(all, float64(d)/one)
		}
		return append(all, one/1e3), nil
	}}
}

const oneQueue = "one" // not among the lanes

// lanesOf returns the Work of a Workers over queues.
func lanesOf(db *honker.DB, queues []string, order honker.Order) laneWork {
	return func(ctx context.Context, fn func(context.Context, *honker.Job[payload]) error, o *honker.WorkOptions) error {
		w := honker.NewWorkers(db, &honker.WorkersOptions{Order: order})
		for _, name := range queues {
			honker.Handle(w, honker.NewQueue[payload](db, name, nil), fn)
		}
		return w.Work(ctx, o)
	}
}

type laneWork func(context.Context, func(context.Context, *honker.Job[payload]) error, *honker.WorkOptions) error

func laneNames(kind string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(kind, i))
	}
	return names
}

const fillLane = `INSERT INTO _honker_live (queue, payload, run_at, created_at) SELECT ?3, ?2, unixepoch() - 10, unixepoch() FROM n`

// fillLanes fills each queue up to n jobs.
func fillLanes(ctx context.Context, pool *sql.DB, names []string, n int) error {
	for _, name := range names {
		left, err := count(ctx, pool, fmt.Sprintf("_honker_live WHERE queue = '%s'", name))
		if err == nil && left < n {
			_, err = pool.ExecContext(ctx, numbers+fillLane, n-left, payloadText(0), name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inTurns runs each of ways in turn and returns the time per job of each.
func inTurns(ctx context.Context, t *Turn, ways []laneWork, single bool) (perJob []time.Duration, err error) {
	spent, jobs := make([]time.Duration, len(ways)), make([]int, len(ways))
	for range laneTurns {
		for i, work := range ways {
			took, n, err := workFor(ctx, work, t.Length/time.Duration(laneTurns*len(ways)), max(3, t.scaled(laneJobs)/(4*laneTurns)), single)
			if err != nil {
				return nil, err
			}
			spent[i], jobs[i] = spent[i]+took, jobs[i]+n
		}
	}
	for i := range ways {
		perJob = append(perJob, spent[i]/time.Duration(jobs[i]))
	}
	return perJob, nil
}

// workFor runs jobs with a single handler until length has passed or it has run the given number.
func workFor(ctx context.Context, work laneWork, length time.Duration, most int, single bool) (took time.Duration, n int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &honker.WorkOptions{Workers: 1}
	if single {
		o.Pool = honker.NewPool(1)
	}
	var began time.Time
	err = work(ctx, func(context.Context, *honker.Job[payload]) error {
		if began.IsZero() {
			began = time.Now() // excludes the time of starting Work
			return nil
		}
		n++
		if took = time.Since(began); n >= most-1 || took > length {
			cancel()
		}
		return nil
	}, o)
	return took, max(n, 1), err
}
