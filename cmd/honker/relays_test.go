package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// fillRelays adds relay queues with dead letters 1 to 3, with a message that fails, and with messages that nobody
// handles.
func fillRelays(t *testing.T, db *honker.DB) {
	t.Helper()
	r := relay.New(db, nil)
	hooks := r.Queue("webhooks", 4)
	send := func(q *relay.Queue, m relay.Outgoing) {
		_, err := q.Send(t.Context(), m)
		require.NoError(t, err)
	}
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		if m.Key == "down" {
			return fmt.Errorf("post: 503")
		}
		return relay.Reject(fmt.Errorf("no such hook: %s", m.Key))
	})
	for _, key := range []string{"acme", "globex"} {
		send(hooks, relay.Outgoing{Key: key, Payload: []byte(`{"to": "` + key + `"}`)})
	}
	send(hooks, relay.Outgoing{Partition: 3, Type: "text/plain", Payload: []byte("hi \x1b[2J\xff")})
	send(hooks, relay.Outgoing{Key: "down", Payload: []byte(`1`)})
	send(relay.New(db, &relay.Options{Family: "billing"}).Queue("feeds", 2), relay.Outgoing{Key: "acme", Payload: []byte("{}")})
	stop := testkit.Background(t, r.Run)
	testkit.Eventually(t, testkit.Timeout, "dead letters and an attempt", func() bool {
		info, err := hooks.Info(t.Context())
		return err == nil && info.Dead == 3 && info.Partitions[hooks.Partition("down")].LastError != ""
	})
	require.NoError(t, stop())
}

// Relay queues, their partitions and dead letters can be listed, and dead letters can be requeued and discarded.
func TestGolden_Relays(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("relays", "-o", "table")
		s.do("relay", "dead", "webhooks")
		s.do("relay", "requeue", "webhooks", "--all")
		db := open(t, "app.db")
		fillRelays(t, db)
		time.Sleep(time.Minute)
		s.each("relays")
		s.each("relay", "show", "webhooks")
		s.do("relay", "show", "feeds")
		s.do("relay", "show", "feeds", "--family", "billing", "-o", "table")
		s.each("relay", "dead", "webhooks")
		s.do("relay", "dead", "webhooks", "--partition", "3")
		s.do("relay", "dead", "webhooks", "--type", "text/plain", "-o", "name")
		s.do("relay", "dead", "webhooks", "--key", "globex", "--died-since", "1h", "-o", "name")
		s.do("relay", "dead", "webhooks", "--died-since", "10s")
		s.do("relay", "dead", "webhooks", "--state", "discarded")
		s.do("relay", "dead", "webhooks", "--state", "gone")
		s.do("relay", "dead", "webhooks", "--limit", "2", "--columns", "id")
		s.do("relay", "dead", "webhooks", "--limit", "2", "--columns", "id", "--after", "2")
		s.do("relay", "dead", "webhooks", "--limit", "1", "--after", "2", "-o", "json")
		s.do("relay", "requeue", "webhooks")
		s.do("relay", "requeue", "webhooks", "x")
		s.do("relay", "requeue", "webhooks", "99")
		s.do("relay", "requeue", "feeds", "1")
		s.do("relay", "requeue", "webhooks", "--all")
		s.do("relay", "requeue", "webhooks", "--all", "--dry-run", "-o", "table")
		s.do("relay", "discard", "webhooks", "--key", "globex", "-o", "table")
		s.do("relay", "discard", "webhooks", "2")
		s.do("relay", "requeue", "webhooks", "1", "2", "--yes", "-o", "json")
		s.do("relay", "requeue", "webhooks", "--all", "--yes", "-o", "table")
		s.do("relay", "dead", "webhooks", "--state", "any", "--columns", "id,state")
		s.do("relays")
		s.do("__complete", "relay", "show", "")
		s.do("__complete", "relay", "show", "--family", "")
		s.do("__complete", "relay", "dead", "--family", "billing", "")
		s.do("__complete", "relay", "dead", "webhooks", "--state", "")
		s.do("__complete", "relay", "requeue", "webhooks", "")
		require.NoError(t, db.Close())
		s.matches("relays")
	})
}

// runActors runs two actors of type osis until the test ends. The first has a task that never ends.
func runActors(t *testing.T, db *honker.DB) {
	t.Helper()
	d := dispatch.New(db, nil)
	began := make(chan struct{})
	for _, instance := range []string{"1", "2"} {
		a := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: instance, Version: "v7"}, func(ctx context.Context, _ *dispatch.Task[int]) (any, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		}, &dispatch.ActorOptions{DrainTimeout: time.Millisecond})
		stop := testkit.Background(t, a.Run)
		t.Cleanup(func() { _ = stop() })
	}
	testkit.Eventually(t, testkit.Timeout, "alive", func() bool {
		all, err := d.Actors(t.Context(), dispatch.Target{})
		return err == nil && len(all) == 2
	})
	for _, to := range []dispatch.Target{{Type: "osis", Instance: "1"}, {Type: "osis", Instance: "1"}, {Type: "lone"}} {
		_, err := d.Send(t.Context(), to, 1)
		require.NoError(t, err)
	}
	<-began
}

// Actors can be listed by type and with their jobs, and paused, resumed and stopped.
func TestGolden_Actors(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("actors", "-o", "table")
		s.do("actor", "show", "osis")
		s.do("actor", "stop", "osis", "--yes")
		db := open(t, "app.db")
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		runActors(t, db)
		time.Sleep(10 * time.Second)
		s.each("actors")
		s.do("actor", "show", "osis", "-o", "name")
		whole := s.run("actor", "show", "osis", "-o", "json")
		require.Regexp(t, `(?s)"instance": "1".*"busy": true,\s*"in_flight": 1,\s*"jobs": \[\s*9\s*\],\s*"hostname": "[^"]+",\s*"pid": \d+,\s*"version": "v7"`, whole.out)
		require.Regexp(t, `(?s)"instance": "2".*"busy": false,\s*"in_flight": 0,\s*"jobs": \[\]`, whole.out)
		s.do("actor", "show", "osis", "other")
		s.do("actor", "show", "osis", "default", "1", "--columns", "instance,in_flight,busy,jobs")
		s.do("actor", "show", "osis", "--prefix", "acme:")
		s.do("actor", "show", "a:b")
		s.do("actor", "pause", "osis")
		s.do("actor", "pause", "osis", "--dry-run", "-o", "table")
		s.do("actor", "pause", "osis", "default", "2", "-o", "table")
		synctest.Wait()
		time.Sleep(10 * time.Second)
		s.do("actors")
		s.do("actor", "show", "osis", "--columns", "instance,paused")
		s.do("actor", "resume", "osis", "--yes", "-o", "json")
		time.Sleep(10 * time.Second)
		s.do("actor", "show", "osis", "--columns", "instance,paused")
		s.do("actor", "stop", "osis", "default", "2", "--yes", "-o", "table")
		time.Sleep(10 * time.Second)
		s.do("actors")
		s.do("__complete", "actor", "show", "")
		s.do("__complete", "actor", "stop", "osis", "")
		s.do("__complete", "actor", "stop", "osis", "default", "")
		s.do("__complete", "actor", "stop", "osis", "default", "1", "")
		s.matches("actors")
	})
}
