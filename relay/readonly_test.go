package relay_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// On a read-only DB, a relay can be read, but sends and changes are refused.
func TestReadOnly(t *testing.T) {
	path, writer := testkit.OpenShared(t)
	_, err := relay.New(writer, nil).Queue("hooks", 1).Send(t.Context(), relay.Outgoing{Payload: []byte("1")})
	require.NoError(t, err)
	db, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx := testkit.Context(t, testkit.Timeout)
	tx, err := db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer tx.Rollback()
	before := testkit.Dump(t, writer.SQL())
	for _, name := range []string{"hooks", "others"} {
		r := relay.New(db, nil)
		q := r.Queue(name, 1)
		q.Handle(func(context.Context, *relay.Message) error { return nil })
		for verb, call := range map[string]func() error{
			"Run":         func() error { return r.Run(ctx) },
			"Send":        func() error { _, err := q.Send(ctx, relay.Outgoing{Payload: []byte("1")}); return err },
			"SendTx":      func() error { _, err := q.SendTx(ctx, tx, relay.Outgoing{Payload: []byte("1")}); return err },
			"Replay":      func() error { _, err := q.Replay(ctx, 1, time.Minute, nil); return err },
			"Requeue":     func() error { _, err := q.Requeue(ctx, 1); return err },
			"Discard":     func() error { _, err := q.Discard(ctx, 1); return err },
			"CleanupDead": func() error { _, err := q.CleanupDead(ctx, time.Hour); return err },
			"From": func() error {
				return relay.From(ctx, honker.NewStream[int](db, "orders", nil), "relay", q, func(context.Context, *honker.Event[int]) ([]relay.Outgoing, error) {
					return nil, nil
				})
			},
		} {
			require.ErrorIs(t, call(), honker.ErrReadOnly, verb)
		}
		_, err := q.CountDead(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, testkit.LastError(q.Dead(ctx, nil)))
	}
	info, err := relay.New(db, nil).Queue("hooks", 1).Info(ctx)
	require.NoError(t, err)
	require.NotZero(t, info)
	require.Equal(t, before, testkit.Dump(t, writer.SQL()))
}
