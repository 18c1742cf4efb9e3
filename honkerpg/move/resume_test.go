//go:build unix

package move_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/moves"
	"github.com/honker-go/honker/honkerpg/move"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// halted does the first steps of a mover that is then gone: it takes a parcel out of the file and, if arrived is set, puts
// it into the target.
func halted(t *testing.T, from, to *honker.DB, arrived bool) {
	t.Helper()
	e, target := engine.Of(from), engine.Of(to)
	source := e.Stores.Moves
	store := moves.Moves{Schema: target.Backend.(*pgbackend.Backend).SchemaName()}
	h := moves.Holder{Token: "gone"}
	var p row.Parcel
	require.NoError(t, e.Write(t.Context(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		id, _, err := source.Origin(ctx, q)
		require.NoError(t, err)
		h.Source = id.ID
		_, err = source.Begin(ctx, q, row.Mover{Token: h.Token})
		require.NoError(t, err)
		p, _, err = source.Take(ctx, q, h.Token, row.MoveWalk{Limit: 10, Deferred: map[int64]row.MoveDefer{}}, now)
		return err
	})))
	require.NotZero(t, p.N)
	if !arrived {
		return
	}
	require.NoError(t, target.Write(t.Context(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		state, err := store.Begin(ctx, q, h, row.MoveSource{Parcel: p.N}, false, now)
		require.NoError(t, err)
		require.Empty(t, state)
		_, err = store.TakeIn(ctx, q, h, p, now)
		return err
	})))
}

// A parcel that a killed mover has left arrives with the next move, and once.
func TestRun_Resumed(t *testing.T) {
	t.Parallel()
	for name, arrived := range map[string]bool{"taken": false, "arrived": true} {
		t.Run(name, func(t *testing.T) {
			from, to := openFile(t), openServer(t)
			run(t, from, to, nil)
			first := enqueue(t, queue(from), 1)
			enqueue(t, queue(from), 2, honker.After(first))
			halted(t, from, to, arrived)
			if arrived {
				require.NoError(t, claim(t, queue(to)).Ack(t.Context())) // so that only the number tells that it has arrived
			}
			r := run(t, from, to, nil)
			empty(t, r)
			if !arrived {
				require.EqualValues(t, 2, r.Jobs)
				require.NoError(t, claim(t, queue(to)).Ack(t.Context()))
			} else {
				require.Zero(t, r.Jobs)
			}
			require.Equal(t, 2, claim(t, queue(to)).Args)
			none, err := queue(to).Claim(t.Context(), "w", 1)
			require.NoError(t, err)
			require.Empty(t, none)
		})
	}
}

// A mover that has stood still while another began moves nothing more.
func TestRun_Replaced(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	enqueue(t, queue(from), 1)
	held := claim(t, queue(from))
	replaced := false
	_, err := move.Run(t.Context(), from, to, &move.Options{Progress: func(move.Report) {
		if !replaced {
			replaced = true
			require.NoError(t, held.Retry(t.Context(), 0, nil))
			halted(t, from, to, false)
			enqueue(t, queue(from), 2)
		}
	}})
	require.ErrorIs(t, err, honker.ErrBusy)
	require.ErrorContains(t, err, "another process has begun to move this file")
	run(t, from, to, nil)
	require.NoError(t, claim(t, queue(to)).Ack(t.Context()))
	require.NoError(t, claim(t, queue(to)).Ack(t.Context()))
}
