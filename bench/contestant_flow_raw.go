package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// rawFlows is the ceiling of a step: an insert and its commit.
type rawFlows struct {
	pool *sql.DB
	mu   sync.Mutex // guards conn from BEGIN to COMMIT
	conn *rawConn
}

const (
	rawSteps    = `CREATE TABLE steps (run TEXT, name TEXT, value TEXT, PRIMARY KEY (run, name)) WITHOUT ROWID`
	rawSaveStep = `INSERT INTO steps (run, name, value) VALUES (?, ?, ?)`
)

func openRawFlows(ctx context.Context, t task) (Flows, error) {
	pool, err := openPool(t.Path, t.Durability)
	if err != nil {
		return nil, err
	}
	f := &rawFlows{pool: pool}
	if f.conn, err = newRawConn(ctx, pool); err != nil {
		return nil, err
	}
	_, err = pool.ExecContext(ctx, businessSchema+";"+rawSteps)
	return f, err
}

func (f *rawFlows) Serve(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (f *rawFlows) Run(_ context.Context, id string, steps int, tx bool) error {
	for i := range steps {
		if err := f.step(id, i, tx); err != nil {
			return err
		}
	}
	return nil
}

func (f *rawFlows) step(id string, i int, tx bool) error {
	save := func() error { return f.conn.exec(rawSaveStep, id, fmt.Sprint("step", i), fmt.Sprint(i)) }
	f.mu.Lock()
	defer f.mu.Unlock()
	if !tx {
		return save()
	}
	return f.conn.tx(func() error {
		if err := f.conn.exec(insertReceipt, i); err != nil {
			return err
		}
		return save()
	})
}

func (f *rawFlows) Begin(context.Context, string) error  { return errOnlySteps }
func (f *rawFlows) Signal(context.Context, string) error { return errOnlySteps }
func (f *rawFlows) Hold(context.Context, string) error   { return errOnlySteps }
func (f *rawFlows) Close() error                         { return f.pool.Close() }
