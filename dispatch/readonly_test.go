package dispatch_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/testkit"
)

// On a read-only DB, the status of jobs and actors can be read, but sending and running fail.
func TestReadOnly(t *testing.T) {
	path, writer := testkit.OpenShared(t)
	to := dispatch.Target{Type: "osis"}
	id, err := dispatch.New(writer, nil).Send(t.Context(), to, 1)
	require.NoError(t, err)
	db, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx := testkit.Context(t, testkit.Timeout)
	tx, err := db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer tx.Rollback()
	d := dispatch.New(db, nil)
	before := testkit.Dump(t, writer.SQL())
	for verb, call := range map[string]func() error{
		"Send":    func() error { _, err := d.Send(ctx, to, 1); return err },
		"SendTx":  func() error { _, err := d.SendTx(ctx, tx, to, 1); return err },
		"Call":    func() error { _, err := dispatch.Call[int](ctx, d, to, 1); return err },
		"Stop":    func() error { _, err := d.Stop(ctx, to); return err },
		"Pause":   func() error { _, err := d.Pause(ctx, to); return err },
		"Resume":  func() error { _, err := d.Resume(ctx, to); return err },
		"Ping":    func() error { _, err := d.Ping(ctx, to); return err },
		"StopJob": func() error { _, err := d.StopJob(ctx, id); return err },
		"Run": func() error {
			return dispatch.NewActor(d, osis("1"), func(context.Context, *dispatch.Task[int]) (any, error) { return nil, nil }, nil).Run(ctx)
		},
	} {
		require.ErrorIs(t, call(), honker.ErrReadOnly, verb)
	}
	status, err := d.Status(ctx, id)
	require.NoError(t, err)
	require.NotZero(t, status)
	_, err = d.Actors(ctx, to)
	require.NoError(t, err)
	_, err = d.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, before, testkit.Dump(t, writer.SQL()))
}
