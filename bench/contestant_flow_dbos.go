package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"
)

// dbosFlows runs workflows of DBOS in the process that starts them. Starting them by its queue takes half a second, because
// its workers poll each second.
type dbosFlows struct {
	pool *sql.DB
	ctx  dbos.Context
	data *dbos.DataSource
	on   flowEvents
}

const (
	dbosPoll  = time.Second // of a workflow that waits for a message
	dbosConns = 8           // of a file that DBOS opens itself
)

// openDBOS passes the pool to DBOS, because a transaction on a second pool of the same file waits for itself. Each process
// is an executor of its own: processes with the same ID run the same workflows twice.
func openDBOS(ctx context.Context, t task, on flowEvents) (Flows, error) {
	pool, err := openPool(t.Path, t.Durability)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(dbosConns)
	if _, err := pool.ExecContext(ctx, businessSchema); err != nil {
		return nil, err
	}
	f := &dbosFlows{pool: pool, on: on}
	f.ctx, err = dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SQLiteSystemDB: pool, Logger: slog.New(slog.DiscardHandler), ApplicationVersion: "1", ExecutorID: fmt.Sprint(os.Getpid()),
	})
	if err != nil {
		return nil, err
	}
	if f.data, err = dbos.NewDataSource(f.ctx, pool); err != nil {
		return nil, err
	}
	dbos.RegisterWorkflow(f.ctx, f.steps, dbos.WithWorkflowName("steps"))
	dbos.RegisterWorkflow(f.ctx, f.effects, dbos.WithWorkflowName("effects"))
	dbos.RegisterWorkflow(f.ctx, f.waiting, dbos.WithWorkflowName("waiting"))
	dbos.RegisterWorkflow(f.ctx, f.holding, dbos.WithWorkflowName("holding"))
	return f, dbos.Launch(f.ctx)
}

func (f *dbosFlows) steps(ctx dbos.Context, n int) (int, error) {
	for i := range n {
		_, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) { return i, nil }, dbos.WithStepName(fmt.Sprint("step", i)))
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (f *dbosFlows) effects(ctx dbos.Context, n int) (int, error) {
	for i := range n {
		_, err := dbos.RunAsTransaction(ctx, f.data, func(ctx context.Context, tx dbos.Tx) (int, error) {
			_, err := tx.Exec(ctx, insertReceipt, i)
			return i, err
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (f *dbosFlows) waiting(ctx dbos.Context, _ int) (int, error) {
	id, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return 0, err
	}
	f.on.began(id)
	v, err := dbos.Recv[int](ctx, "go", 24*time.Hour)
	if err == nil {
		f.on.resumed(id)
	}
	return v, err
}

func (f *dbosFlows) holding(ctx dbos.Context, _ int) (int, error) {
	id, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return 0, err
	}
	f.on.began(id)
	<-ctx.Done()
	return 0, ctx.Err()
}

func (f *dbosFlows) Serve(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (f *dbosFlows) Run(_ context.Context, id string, steps int, tx bool) error {
	of := f.steps
	if tx {
		of = f.effects
	}
	h, err := dbos.RunWorkflow(f.ctx, of, steps, dbos.WithWorkflowID(id))
	if err != nil {
		return err
	}
	_, err = h.GetResult()
	return err
}

func (f *dbosFlows) Begin(_ context.Context, id string) error {
	_, err := dbos.RunWorkflow(f.ctx, f.waiting, 0, dbos.WithWorkflowID(id))
	return err
}

func (f *dbosFlows) Signal(_ context.Context, id string) error { return dbos.Send(f.ctx, id, 1, "go") }

func (f *dbosFlows) Hold(_ context.Context, id string) error {
	_, err := dbos.RunWorkflow(f.ctx, f.holding, 0, dbos.WithWorkflowID(id))
	return err
}

// Close gives the workflows that wait a moment to end.
func (f *dbosFlows) Close() error {
	dbos.Shutdown(f.ctx, time.Second)
	return f.pool.Close()
}
