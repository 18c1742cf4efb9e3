package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	runflow "github.com/honker-go/honker/flow"
)

type honkerFlows struct {
	*honkerQueue
	lease            time.Duration
	steps, effects   *runflow.Flow[int, int]
	waiting, holding *runflow.Flow[int, int]
}

// flowWorkers is the number of runs that honker has under way at the same time. DBOS has no limit.
const flowWorkers = 64

func openHonkerFlows(ctx context.Context, t task, on flowEvents) (Flows, error) {
	q, err := openHonker(ctx, t.Path, t.Durability)
	if err != nil {
		return nil, err
	}
	return &honkerFlows{
		honkerQueue: q, lease: t.Lease,
		steps:   runflow.New(q.db, "steps", stepsOf(honkerStep), nil),
		effects: runflow.New(q.db, "effects", stepsOf(honkerEffect), nil),
		waiting: runflow.New(q.db, "waiting", func(ctx context.Context, _ int) (int, error) {
			on.began(runflow.ID(ctx))
			v, err := runflow.Wait[int](ctx, "go", 0)
			if err == nil {
				on.resumed(runflow.ID(ctx))
			}
			return v, err
		}, nil),
		holding: runflow.New(q.db, "holding", func(ctx context.Context, _ int) (int, error) {
			on.began(runflow.ID(ctx))
			<-ctx.Done()
			return 0, ctx.Err()
		}, nil),
	}, nil
}

// stepsOf returns a function that takes n steps.
func stepsOf(step func(ctx context.Context, name string, i int) error) func(ctx context.Context, n int) (int, error) {
	return func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if err := step(ctx, fmt.Sprint("step", i), i); err != nil {
				return 0, err
			}
		}
		return n, nil
	}
}

func honkerStep(ctx context.Context, name string, i int) error {
	_, err := runflow.Step(ctx, name, func(context.Context) (int, error) { return i, nil })
	return err
}

func honkerEffect(ctx context.Context, name string, i int) error {
	_, err := runflow.StepTx(ctx, name, func(ctx context.Context, tx *sql.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, insertReceipt, i)
		return i, err
	})
	return err
}

func (f *honkerFlows) Serve(ctx context.Context) error {
	w := honker.NewWorkers(f.db, nil)
	for _, one := range []*runflow.Flow[int, int]{f.steps, f.effects, f.waiting, f.holding} {
		runflow.Handle(w, one)
	}
	return w.Work(ctx, &honker.WorkOptions{Workers: flowWorkers, Lease: f.lease})
}

func (f *honkerFlows) Run(ctx context.Context, id string, steps int, tx bool) error {
	of := f.steps
	if tx {
		of = f.effects
	}
	if err := begin(ctx, of, id, steps); err != nil {
		return err
	}
	_, err := of.Result(ctx, id)
	return err
}

func begin(ctx context.Context, f *runflow.Flow[int, int], id string, in int) error {
	started, err := f.Start(ctx, id, in)
	if err == nil && !started {
		err = fmt.Errorf("run %q exists already", id)
	}
	return err
}

func (f *honkerFlows) Begin(ctx context.Context, id string) error {
	return begin(ctx, f.waiting, id, 0)
}

func (f *honkerFlows) Signal(ctx context.Context, id string) error {
	return runflow.Signal(ctx, f.db, "waiting", id, "go", 1)
}

func (f *honkerFlows) Hold(ctx context.Context, id string) error { return begin(ctx, f.holding, id, 0) }
