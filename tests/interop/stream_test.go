package interop_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// Listeners receive messages sent by the other language.
func TestInterop_Listen(t *testing.T) {
	path, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, later)
	caller := readyPeer(t, path, "answer")

	l := testkit.Listen(t, db, "news")
	var ids []int64
	for i := range 20 {
		ids = append(ids, caller.id("notify", "news", i))
	}
	testkit.Receive(t, l, ids...)

	listener := readyPeer(t, path, "listen", "news")
	for i := range 20 {
		_, err := db.Notify(ctx, "news", i)
		require.NoError(t, err)
	}
	require.Equal(t, upTo(20), listener.numbers(20))
	require.Empty(t, listener.End())
}

// A consumer can move between the languages. Python saves an event's offset when it asks for the
// next event, so the last event is delivered again; this library saves the offset at the end of the
// loop body.
func TestInterop_Stream_ConsumerChangesHands(t *testing.T) {
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	caller := readyPeer(t, path, "answer")
	for i := range 10 {
		caller.call("publish", "orders", i, nil)
	}
	events := testkit.Take(t, s, "mail", nil, 10)
	require.Equal(t, upTo(10), testkit.EventData(events))

	python := readyPeer(t, path, "subscribe", "orders", "mail")
	for i := 10; i < 20; i++ {
		testkit.Publish(t, s, i)
	}
	require.Equal(t, upTo(20)[10:], python.numbers(10))
	python.Kill()

	caller.call("publish", "orders", 20, "key")
	events = testkit.Take(t, s, "mail", nil, 2)
	require.Equal(t, []int{19, 20}, testkit.EventData(events))
	require.Equal(t, "key", events[1].Key)
	require.Equal(t, testkit.SavedOffset(t, s, "mail"), caller.id("offset", "orders", "mail"))
}

// With LegacyMessages, a Python listener on the channels of a queue and a topic hears the writes of
// Go as well as those of Python.
func TestInterop_Listen_LegacyMessages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	ctx := testkit.Context(t, later)
	db, err := honker.Open(ctx, path, &honker.Options{LegacyMessages: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	caller := readyPeer(t, path, "answer")
	for channel, add := range map[string]func(){
		"honker:jobs":          func() { testkit.Enqueue(t, q, 1); caller.call("enqueue", "jobs", 2) },
		"honker:stream:orders": func() { testkit.Publish(t, s, 1); caller.call("publish", "orders", 2, nil) },
	} {
		listener := readyPeer(t, path, "listen", channel)
		add()
		require.Equal(t, `"new"`, listener.Line(soon), channel)
		require.Equal(t, `"new"`, listener.Line(soon), channel)
		require.Empty(t, listener.End())
	}
}
