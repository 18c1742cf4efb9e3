package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Actors are counted by type, and so are the jobs in the queues of types, groups and instances.
func TestActors_ByType(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
		none, err := admin.Actors(ctx, db)
		require.NoError(t, err)
		require.Empty(t, none)

		d := dispatch.New(db, &dispatch.Options{Prefix: "acme:"})
		send := func(to dispatch.Target) {
			_, err := d.Send(ctx, to, 1)
			require.NoError(t, err)
		}
		handled, hang := make(chan struct{}), make(chan struct{})
		actor := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: "1"}, func(context.Context, *dispatch.Task[int]) (any, error) {
			close(handled)
			<-hang
			return nil, nil
		}, nil)
		stop := testkit.Background(t, actor.Run)
		send(dispatch.Target{Type: "osis"})
		<-handled
		began := time.Now().Truncate(time.Second)
		send(dispatch.Target{Type: "osis", Group: "default", Instance: "1"})
		send(dispatch.Target{Type: "osis", Group: "default"})
		send(dispatch.Target{Type: "lone"})
		all, err := admin.Actors(ctx, db)
		require.NoError(t, err)
		require.Len(t, all, 2)
		for i := range all {
			require.True(t, all[i].Oldest.Equal(began), all[i])
			all[i].Oldest = time.Time{}
		}
		require.Equal(t, []admin.ActorInfo{
			{Type: "lone", Waiting: honker.Count{N: 1}},
			{Type: "osis", Alive: 1, Waiting: honker.Count{N: 2}, Running: honker.Count{N: 1}},
		}, all)
		go close(hang)
		_ = stop()
	})
}

func TestActors_NilDB(t *testing.T) {
	_, err := admin.Actors(t.Context(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
