package admin_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Actors can be paused, resumed and stopped, by instance and by type. Each command is audited.
func TestActors_Commands(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := honker.WithActor(t.Context(), "anna")
		d := dispatch.New(db, &dispatch.Options{Prefix: "acme:"})
		var mu sync.Mutex // guards counts
		counts := map[string]int{}
		handled := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(counts)
		}
		ended := make(chan string, 2)
		for _, instance := range []string{"1", "2"} {
			a := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: instance, Version: "v7", Capabilities: []string{"gpu"}},
				func(context.Context, *dispatch.Task[int]) (any, error) {
					mu.Lock()
					defer mu.Unlock()
					counts[instance]++
					return nil, nil
				}, nil)
			go func() {
				if a.Run(ctx) == nil {
					ended <- instance
				}
			}()
		}
		send := func() {
			for _, instance := range []string{"1", "2"} {
				_, err := d.Send(ctx, dispatch.Target{Type: "osis", Instance: instance}, 1)
				require.NoError(t, err)
			}
			time.Sleep(10 * time.Second)
		}
		send()
		require.Equal(t, map[string]int{"1": 1, "2": 1}, handled())

		one := admin.ActorTarget{Prefix: "acme:", Type: "osis", Instance: "1"}
		told, err := admin.PauseActors(ctx, db, one)
		require.NoError(t, err)
		require.Equal(t, 1, told)
		synctest.Wait() // until the actor has received the command
		send()
		require.Equal(t, map[string]int{"1": 1, "2": 2}, handled())
		all, err := admin.Presences(ctx, db)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.True(t, all[0].Paused && !all[1].Paused)
		require.Equal(t, "acme: osis default 1 v7", all[0].Prefix+" "+all[0].Type+" "+all[0].Group+" "+all[0].Instance+" "+all[0].Version)
		require.Equal(t, []string{"gpu"}, all[0].Capabilities)
		require.False(t, all[0].StartedAt.IsZero())
		types, err := admin.Actors(ctx, db)
		require.NoError(t, err)
		require.Equal(t, 2, types[0].Alive)
		require.Equal(t, 1, types[0].Paused)
		workers, err := admin.Workers(ctx, db)
		require.NoError(t, err)
		for _, w := range workers {
			require.False(t, all[0].Runs(w), "a paused actor has no worker")
			require.True(t, all[1].Runs(w), w.ID)
		}

		told, err = admin.ResumeActors(ctx, db, one)
		require.NoError(t, err)
		require.Equal(t, 1, told)
		time.Sleep(10 * time.Second)
		require.Equal(t, map[string]int{"1": 2, "2": 2}, handled())

		for _, nobody := range []admin.ActorTarget{{Type: "osis"}, {Prefix: "acme:", Type: "osi"}, {Prefix: "acme:", Type: "osis", Group: "g"}} {
			told, err = admin.StopActors(ctx, db, nobody)
			require.NoError(t, err)
			require.Zero(t, told)
		}
		told, err = admin.StopActors(ctx, db, admin.ActorTarget{Prefix: "acme:", Type: "osis"})
		require.NoError(t, err)
		require.Equal(t, 2, told)
		require.ElementsMatch(t, []string{"1", "2"}, []string{<-ended, <-ended})
		require.Equal(t, []string{
			`stop actors "anna" "" {"actors":"osis","prefix":"acme:"} 2`,
			`resume actors "anna" "" {"actors":"osis/default/1","prefix":"acme:"} 1`,
			`pause actors "anna" "" {"actors":"osis/default/1","prefix":"acme:"} 1`,
		}, audit(t, db))
		r, err := honker.NewStream[int](db, dispatch.Keys{Prefix: "acme:"}.Control(dispatch.Target{Type: "osis", Instance: "1"}), nil).Retention(ctx)
		require.NoError(t, err)
		require.Equal(t, time.Hour, r.MaxAge)
	})
}

// Invalid targets are errors, and change nothing.
func TestActors_CommandErrors(t *testing.T) {
	db := honkertest.Open(t, nil)
	before := testkit.Dump(t, db.SQL())
	for _, command := range []func(context.Context, *honker.DB, admin.ActorTarget) (int, error){admin.StopActors, admin.PauseActors, admin.ResumeActors} {
		for _, bad := range []admin.ActorTarget{{}, {Instance: "1"}, {Type: "a:b"}, {Type: "a", Group: "*"}, {Type: "a", Instance: "\x00"}, {Type: "\xff"}, {Type: "a", Prefix: "*"}} {
			_, err := command(t.Context(), db, bad)
			require.ErrorIs(t, err, honker.ErrInvalid, "%+v", bad)
		}
		_, err := command(t.Context(), nil, admin.ActorTarget{Type: "a"})
		require.ErrorIs(t, err, honker.ErrInvalid)
		told, err := command(t.Context(), db, admin.ActorTarget{Type: "a"})
		require.NoError(t, err)
		require.Zero(t, told)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}
