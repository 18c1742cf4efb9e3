package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/honker-go/honker"
)

// Consumer names. The database stores an offset under each.
const (
	counterName   = "counter"
	alarmName     = "alarm"
	condenserName = "condenser"
	resolversName = "resolvers"
)

// everybody lists the consumers that must have read all events. The group comes last.
var everybody = []string{counterName, alarmName, condenserName, resolversName}

const sqlCount = `INSERT INTO traffic (path, requests, bytes) VALUES (?1, 1, ?2)
ON CONFLICT (path) DO UPDATE SET requests = requests + 1, bytes = bytes + excluded.bytes`

// inTxOnly turns off automatic saving. The offset is saved only by AckTx, together with the effect
// of the event.
var inTxOnly = &honker.SubscribeOptions{SaveEvery: -1, SaveInterval: -1}

// count adds each request to the sums for its path. The sums and the offset are committed together,
// so each request is counted exactly once.
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

// condense publishes a short text for each failed request, under the same key. The texts remain
// when the requests themselves are compacted.
func (f *feed) condense(ctx context.Context) error {
	return honker.Pipe(ctx, f.failed, condenserName, f.trouble, func(_ context.Context, e *honker.Event[Request]) (string, error) {
		return fmt.Sprintf("%d %s %s", e.Data.Status, e.Data.Method, e.Data.Path), nil
	})
}
