package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A running actor is listed, and its presence is refreshed every five seconds even if it is busy.
func TestActor_Presence_Refreshed(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		d := dispatch.New(db, nil)
		var r ran
		began := time.Now()
		stop := start(t, d, osis("1"), r.handler("1"), nil)
		testkit.ExecAll(t, db.SQL(), `CREATE TABLE beats (n INTEGER)`,
			`CREATE TRIGGER beat AFTER UPDATE ON _honkerx_dispatch_presence BEGIN INSERT INTO beats VALUES (1); END`)
		for n := range 600 {
			send(t, d, typeOsis, n)
			time.Sleep(time.Second)
			living := actors(t, d, typeOsis)
			require.Len(t, living, 1)
			require.LessOrEqual(t, time.Since(living[0].LastHeartbeat), 5*time.Second)
			require.WithinDuration(t, began, living[0].StartedAt, time.Second)
		}
		require.Equal(t, 600, r.len())
		require.InDelta(t, 120, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM beats`), 1)
		require.NoError(t, stop())
	})
}

// The presence shows the number of running tasks and whether the actor is busy.
func TestActor_Presence_Busy(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), &dispatch.Options{TTL: time.Second})
	began, release := make(chan int, 100), make(chan struct{})
	start(t, d, osis("1"), blocked(began, release), &dispatch.ActorOptions{Workers: 2})
	shows := func(inFlight int, busy bool) {
		t.Helper()
		testkit.Eventually(t, testkit.Timeout, "it shows", func() bool {
			found := actors(t, d, typeOsis) // empty if the presence has expired on a slow machine
			return len(found) == 1 && found[0].InFlight == inFlight && found[0].Busy == busy
		})
	}
	shows(0, false)
	send(t, d, typeOsis, 1)
	<-began
	shows(1, false)
	send(t, d, typeOsis, 2)
	<-began
	shows(2, true)
	close(release)
	shows(0, false)
}

// Actors lists exactly the actors in a type, a group or an instance, in order.
func TestActors_Target(t *testing.T) {
	d := dispatch.New(honkertest.Open(t, nil), nil)
	var r ran
	for _, id := range []dispatch.Identity{
		{Type: "sal", Group: "io", Instance: "1"}, {Type: "osis", Instance: "2"}, {Type: "osis", Instance: "1"},
		{Type: "osis", Group: "io", Instance: "1"}, {Type: "osi", Instance: "1"}, {Type: "osis2", Instance: "1"},
	} {
		start(t, d, id, r.handler(""), nil)
	}
	for _, c := range []struct {
		at   dispatch.Target
		want []string
	}{
		{dispatch.Target{}, []string{"osi/default/1", "osis/default/1", "osis/default/2", "osis/io/1", "osis2/default/1", "sal/io/1"}},
		{typeOsis, []string{"osis/default/1", "osis/default/2", "osis/io/1"}},
		{dispatch.Target{Type: "osis", Group: "default"}, []string{"osis/default/1", "osis/default/2"}},
		{dispatch.Target{Type: "osis", Group: "io", Instance: "1"}, []string{"osis/io/1"}},
		{dispatch.Target{Type: "osis", Instance: "1"}, []string{"osis/default/1"}},
		{dispatch.Target{Type: "os"}, nil},
	} {
		var got []string
		for _, p := range actors(t, d, c.at) {
			got = append(got, dispatch.Target{Type: p.Type, Group: p.Group, Instance: p.Instance}.String())
		}
		require.Equal(t, c.want, got, "%+v", c.at)
	}
	other := dispatch.New(honkertest.Open(t, nil), nil)
	all, err := other.Actors(context.Background(), dispatch.Target{})
	require.NoError(t, err)
	require.Empty(t, all, "of a file without dispatch")
}
