package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/honker-go/honker"
)

// The names under which the file knows how far each consumer is.
const (
	counterName   = "counter"
	alarmName     = "alarm"
	condenserName = "condenser"
	resolversName = "resolvers"
)

// All of these must have seen all before it is done; the group is the last.
var everybody = []string{counterName, alarmName, condenserName, resolversName}

const sqlCount = `INSERT INTO traffic (path, requests, bytes) VALUES (?1, 1, ?2)
ON CONFLICT (path) DO UPDATE SET requests = requests + 1, bytes = bytes + excluded.bytes`

// ended takes the end of ctx for no error.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// inTxOnly leaves saving to AckTx: what is saved in between would be ahead of the effect,
// or behind it.
var inTxOnly = &honker.SubscribeOptions{SaveEvery: -1, SaveInterval: -1}

// count adds each request to its path. The sum and the offset are one commit: each
// request is counted exactly once.
func (f *feed) count(ctx context.Context) error {
	for e, err := range f.access.Subscribe(ctx, counterName, inTxOnly) {
		if err == nil {
			err = f.countOne(context.WithoutCancel(ctx), e)
		}
		if err != nil {
			return err
		}
	}
	return nil // the loop ends with ctx
}

func (f *feed) countOne(ctx context.Context, e *honker.Event[Request]) error {
	return f.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlCount, e.Data.Path, e.Data.Bytes); err != nil {
			return err
		}
		return e.AckTx(ctx, tx)
	})
}

// condense makes one short text of each failed request, under the same key, for programs
// that do not need the rest. It stays when the events themselves are compacted.
func (f *feed) condense(ctx context.Context) error {
	err := honker.Pipe(ctx, f.failed, condenserName, f.trouble, func(_ context.Context, e *honker.Event[Request]) (string, error) {
		return fmt.Sprintf("%d %s %s", e.Data.Status, e.Data.Method, e.Data.Path), nil
	})
	return ended(ctx, err) // when ctx had ended before it began
}
