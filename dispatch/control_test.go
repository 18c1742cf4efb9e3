package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Stop stops all actors of the type. They finish their tasks and Run returns nil.
func TestStop_Type_All(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	began, release := make(chan int, 100), make(chan struct{})
	ended := make(chan error, 3)
	for i := range 3 {
		send(t, d, typeOsis, i)
		go func() {
			ended <- dispatch.NewActor(d, osis(fmt.Sprint(i)), blocked(began, release), nil).Run(context.Background())
		}()
	}
	var r ran
	start(t, d, dispatch.Identity{Type: "sal", Instance: "1"}, r.handler("sal"), nil)
	for range 3 {
		<-began
	}
	n, err := d.Stop(context.Background(), typeOsis)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	close(release)
	for range 3 {
		require.NoError(t, testkit.Within(context.Background(), ended, testkit.Timeout))
	}
	require.Empty(t, actors(t, d, typeOsis))
	require.Len(t, actors(t, d, dispatch.Target{}), 1, "the other type")
	later := send(t, d, typeOsis, 4)
	// An actor ignores commands that were sent before it started.
	start(t, d, osis("9"), blocked(began, release), nil)
	waitState(t, d, later, dispatch.Finished)
	n, err = d.Stop(context.Background(), dispatch.Target{Type: "none"})
	require.NoError(t, err)
	require.Zero(t, n)
}

// A paused actor claims no jobs until Resume, but its running tasks continue.
func TestPause_Resume(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	ctx := context.Background()
	began, release := make(chan int, 100), make(chan struct{})
	running := send(t, d, typeOsis, 1)
	start(t, d, osis("1"), blocked(began, release), &dispatch.ActorOptions{Workers: 2, DrainTimeout: time.Millisecond})
	<-began
	n, err := d.Pause(ctx, typeOsis)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	testkit.Eventually(t, testkit.Timeout, "paused", func() bool { return actors(t, d, typeOsis)[0].Paused })
	_, err = d.Ping(testkit.Context(t, testkit.Timeout), typeOsis) // the pong shows that the pause was processed
	require.NoError(t, err)
	waiting := send(t, d, typeOsis, 2)
	close(release)
	waitState(t, d, running, dispatch.Finished)
	require.Equal(t, dispatch.Dispatched, waitState(t, d, waiting, dispatch.Dispatched).State)
	_, err = d.Resume(ctx, typeOsis)
	require.NoError(t, err)
	waitState(t, d, waiting, dispatch.Finished)
	require.False(t, actors(t, d, typeOsis)[0].Paused)
}

// Every live actor answers a ping.
func TestPing_All(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	ctx := testkit.Context(t, testkit.Timeout)
	var r ran
	pongs, err := d.Ping(ctx, typeOsis)
	require.NoError(t, err)
	require.Empty(t, pongs)
	for _, i := range []string{"1", "2", "3"} {
		start(t, d, osis(i), r.handler(i), nil)
	}
	pongs, err = d.Ping(ctx, typeOsis)
	require.NoError(t, err)
	got := make(map[string]bool)
	for _, p := range pongs {
		got[p.Type+p.Group+p.Instance] = true
	}
	require.Equal(t, map[string]bool{"osisdefault1": true, "osisdefault2": true, "osisdefault3": true}, got)
	pongs, err = d.Ping(ctx, dispatch.Target{Type: "osis", Instance: "2"})
	require.NoError(t, err)
	require.Len(t, pongs, 1)
}

// An actor doesn't answer if only its presence row is left. Ping returns after the TTL or when ctx
// ends.
func TestPing_Silent(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{TTL: 4 * time.Second})
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	testkit.Exec(t, db, testkit.AddActor, "hero:meta:actor:inst:osis:default:2",
		time.Now().Add(time.Hour).UnixMilli())
	pongs, err := d.Ping(context.Background(), typeOsis)
	require.NoError(t, err)
	require.Len(t, pongs, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = d.Ping(ctx, typeOsis)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A waiting job that is stopped does not run.
func TestStopJob_Waiting(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := context.Background()
	id := send(t, d, typeOsis, 1)
	stopped, err := d.StopJob(ctx, id)
	require.NoError(t, err)
	require.True(t, stopped)
	s := waitState(t, d, id, dispatch.Stopped)
	require.False(t, s.EndedAt.IsZero())
	stopped, err = d.StopJob(ctx, id)
	require.NoError(t, err)
	require.False(t, stopped, "it is over")
	require.Zero(t, live(t, db), "nor its copy")
	require.NoError(t, db.Check(ctx))
}

// Stopping a running job cancels its handler. The job ends as stopped and is not retried.
func TestStopJob_Running(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	ctx := context.Background()
	began, leave := make(chan struct{}, 10), make(chan struct{})
	cause := make(chan error, 1)
	id := send(t, d, typeOsis, 1)
	start(t, d, osis("1"), func(ctx context.Context, _ *dispatch.Task[args]) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-leave
		return nil, ctx.Err()
	}, nil)
	<-began
	stopped, err := d.StopJob(ctx, id)
	require.NoError(t, err)
	require.True(t, stopped)
	require.ErrorIs(t, <-cause, honker.ErrCancelled)
	require.Equal(t, dispatch.Stopping, waitState(t, d, id, dispatch.Stopping).State)
	close(leave)
	waitState(t, d, id, dispatch.Stopped)
	_, err = dispatch.Await[int](ctx, d, id)
	require.ErrorIs(t, err, honker.ErrCancelled)
	require.Empty(t, began)
	require.NoError(t, db.Check(ctx))
}

// StopJob does not change a job that has ended.
func TestStopJob_Over(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	id := send(t, d, typeOsis, 1)
	waitState(t, d, id, dispatch.Finished)
	stopped, err := d.StopJob(context.Background(), id)
	require.NoError(t, err)
	require.False(t, stopped)
	waitState(t, d, id, dispatch.Finished)
}

// Control topics have a retention of one hour.
func TestStop_Retention(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	var r ran
	start(t, d, osis("1"), r.handler("1"), nil)
	_, err := d.Pause(context.Background(), typeOsis)
	require.NoError(t, err)
	kept, err := honker.NewStream[any](db, d.Keys().Control(typeOsis), nil).Retention(context.Background())
	require.NoError(t, err)
	require.Equal(t, honker.Retention{MaxAge: time.Hour}, kept)
}
