package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// fillBlocked stores times from a clock that is wrong in app.db, for partitions 1 and 3 of a relay queue and for an
// actor's name.
func fillBlocked(t *testing.T) *honker.DB {
	t.Helper()
	db := open(t, "app.db")
	for _, q := range []*relay.Queue{relay.New(db, nil).Queue("webhooks", 4), relay.New(db, &relay.Options{Family: "billing"}).Queue("feeds", 2)} {
		_, err := q.Send(t.Context(), relay.Outgoing{Key: "acme", Payload: []byte("{}")})
		require.NoError(t, err)
	}
	const ahead = 978307200000 // a year ahead of these tests' clock
	testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET owner = 'web-1', epoch = 7, attempts = 1, lease_until_ms = ? WHERE partition = 1`, ahead)
	testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET epoch = 9, attempts = 3, last_error = 'post: 503', retry_at_ms = ? WHERE partition = 3`, ahead)
	testkit.Exec(t, db, `UPDATE _honkerx_relay_billing_partitions SET epoch = 2, retry_at_ms = ? WHERE partition = 0`, ahead)

	_, err := dispatch.New(db, nil).Send(t.Context(), dispatch.Target{Type: "osis"}, 1) // creates the tables
	require.NoError(t, err)
	key := dispatch.Keys{}.Presence(dispatch.Identity{Type: "osis", Instance: "2"})
	testkit.Exec(t, db, `INSERT INTO _honkerx_dispatch_presence VALUES (?, 'web-1-7', '{"pid": 7, "hostname": "web-1"}', ?)`, key, ahead)
	return db
}

// Held and paused partitions of relays can be listed and freed.
func TestGolden_RelayBreak(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("relay", "partitions", "-o", "table")
		s.do("relay", "break", "webhooks", "1")
		db := fillBlocked(t)
		s.each("relay", "partitions")
		s.do("__complete", "relay", "break", "")
		s.do("__complete", "relay", "break", "webhooks", "")
		s.do("relay", "break", "webhooks", "x")
		s.do("relay", "break", "webhooks", "2")
		s.do("relay", "break", "feeds")
		s.do("relay", "break", "webhooks")
		s.do("relay", "break", "webhooks", "--dry-run", "--columns", "queue,partition")
		s.do("relay", "break", "webhooks", "3", "-o", "table")
		s.do("relay", "break", "webhooks", "--yes", "-o", "name")
		s.do("relay", "break", "webhooks", "--yes")
		s.do("relay", "break", "feeds", "0", "--family", "billing")
		s.do("relay", "partitions")
		require.NoError(t, db.Close())
		s.matches("relaybreak")
	})
}

// The names of live actors can be listed and freed.
func TestGolden_PresenceBreak(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("presences", "-o", "table")
		s.do("presence", "break", "hero:meta:actor:inst:osis:default:2")
		db := fillBlocked(t)
		s.each("presences")
		s.do("__complete", "presence", "break", "")
		s.do("presence", "break", "hero:meta:actor:inst:osis:default:2", "--owner", "web-2")
		s.do("presence", "break", "hero:meta:actor:inst:osis:default:2")
		s.do("presence", "break", "hero:meta:actor:inst:osis:default:2")
		require.NoError(t, db.Close())
		s.matches("presencebreak")
	})
}
