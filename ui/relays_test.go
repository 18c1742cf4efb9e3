package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/ui"
)

// relayDead runs the handlers of q's relay until q has n dead letters, and returns their ids.
func relayDead(t *testing.T, db *honker.DB, r *relay.Relay, family, queue string, n int) (ids []string) {
	t.Helper()
	stop := testkit.Background(t, r.Run)
	testkit.Eventually(t, testkit.Timeout, "dead letters", func() bool {
		all, err := admin.Relays(context.Background(), db)
		return err == nil && len(all) > 0 && relayNamed(all, family, queue).Dead == int64(n)
	})
	require.NoError(t, stop())
	for d, err := range admin.EachRelayDead(context.Background(), db, admin.RelayDeadFilter{Family: family, Queue: queue}) {
		require.NoError(t, err)
		ids = append(ids, strconv.FormatInt(d.ID, 10))
	}
	return ids
}

func relayNamed(all []admin.RelayInfo, family, queue string) admin.RelayInfo {
	for _, r := range all {
		if r.Family == family && r.Queue == queue {
			return r
		}
	}
	return admin.RelayInfo{}
}

// presence adds an actor of the type osis that lives until a time in milliseconds, and returns its key.
func presence(t *testing.T, db *honker.DB, instance string, until int64) string {
	t.Helper()
	_, err := dispatch.New(db, nil).Send(t.Context(), dispatch.Target{Type: "osis"}, 1) // creates the tables
	require.NoError(t, err)
	key := dispatch.Keys{}.Presence(dispatch.Identity{Type: "osis", Instance: instance})
	testkit.Exec(t, db, testkit.Either(`INSERT INTO _honkerx_dispatch_presence VALUES ($1, 'gone', $2, $3)`,
		`INSERT INTO actor (key, owner, value, expires_at) VALUES ($1, 'gone', $2, to_timestamp($3::bigint / 1000.0))`),
		key, `{"pid": 7, "hostname": "web-1", "version": "v7", "in_flight": 1, "busy": true}`, until)
	return key
}

// fillRelays adds a relay queue with dead letters and with a partition that backs off, and another in a family.
func fillRelays(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	r := relay.New(db, nil)
	hooks := r.Queue("hooks", 32)
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		if m.Partition == 2 {
			return errors.New("post: 503")
		}
		return relay.Reject(errors.New("no such hook"))
	})
	_, err := hooks.Send(ctx, relay.Outgoing{Partition: 1, Payload: []byte(`{"to":"acme"}`)}, relay.Outgoing{Partition: 2}, relay.Outgoing{Partition: 2},
		relay.Outgoing{Partition: 31, Key: "", Type: "text/plain", Payload: []byte("plain")})
	require.NoError(t, err)
	_, err = relay.New(db, &relay.Options{Family: "billing"}).Queue("feeds", 1).Send(ctx, relay.Outgoing{})
	require.NoError(t, err)
	relayDead(t, db, r, "", "hooks", 2)
	until := time.Now().Add(time.Minute).Truncate(time.Minute).UnixMilli() // the backoff is random
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_relay_partitions SET retry_at_ms = $1 WHERE retry_at_ms > 0`,
		`UPDATE relay_partition SET retry_at = to_timestamp($1::bigint / 1000.0) WHERE retry_at IS NOT NULL`), until)
}

// The pages of relays and actors match their golden files.
func TestRelays_Golden(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		h := dashboard(t, db, nil)
		require.Contains(t, get(h, "/relays").Body.String(), "no relay queues")
		require.Contains(t, get(h, "/actors").Body.String(), "no actors")
		fillRelays(t, db)
		presence(t, db, "2", time.Now().Add(2*time.Minute).Truncate(time.Minute).UnixMilli())
		golden(t, h, "relays", "relays")
		golden(t, h, "relay", "relay?name=hooks")
		golden(t, h, "actors", "actors")
		require.Contains(t, get(h, "/relay?name=feeds&family=billing").Body.String(), "billing/feeds")
		require.Contains(t, get(h, "/actors?type=osis").Body.String(), "Live actors of <bdi>osis</bdi>")
		require.NotContains(t, get(h, "/actors?type=none").Body.String(), "web-1")
		for _, missing := range []string{"/relay?name=feeds", "/relay?name=hooks&family=billing", "/relay?name=x%27%20OR%201=1"} {
			require.Equal(t, http.StatusNotFound, get(h, missing).Code, missing)
		}
		for _, bad := range []string{"/relay", "/relay?name=hooks&state=gone", "/relay?name=hooks&after=x", "/relay?name=%ff"} {
			require.Equal(t, http.StatusBadRequest, get(h, bad).Code, bad)
		}
	})
}

// Dead letters are requeued and discarded one by one or all of a page, after a question.
func TestRelays_Verbs(t *testing.T) {
	db := honkertest.Open(t, nil)
	h := dashboard(t, db, nil)
	r := relay.New(db, &relay.Options{Family: "billing"})
	q := r.Queue("feeds", 1)
	q.Handle(func(context.Context, *relay.Message) error { return relay.Reject(testkit.ErrCause) })
	_, err := q.Send(t.Context(), make([]relay.Outgoing, 60)...)
	require.NoError(t, err)
	ids := relayDead(t, db, r, "billing", "feeds", 60)
	of := func() admin.RelayInfo {
		all, err := admin.Relays(t.Context(), db)
		require.NoError(t, err)
		return relayNamed(all, "billing", "feeds")
	}
	page := get(h, "/relay?family=billing&name=feeds").Body.String()
	require.Contains(t, page, "Requeue these 50 …")
	require.Contains(t, page, fmt.Sprintf("after=%s&", ids[49]))
	require.NotContains(t, get(h, "/relay?family=billing&name=feeds&after="+ids[49]).Body.String(), "Next page")

	back := "relay?family=billing&name=feeds"
	w := post(h, "/requeue-relay", "family", "billing", "relay", "feeds", "letter", ids[0], "back", back)
	require.Equal(t, back+"&did=requeue-relay&n=1", strings.ReplaceAll(w.Header().Get("Location"), "did=requeue-relay&family=billing&n=1&name=feeds", "family=billing&name=feeds&did=requeue-relay&n=1"))
	require.Contains(t, get(h, "/"+w.Header().Get("Location")).Body.String(), "1 dead letter requeued.")
	require.EqualValues(t, 1, of().Waiting)
	for verb, title := range map[string]string{"requeue-relay": "Requeue 2 dead letters?", "discard-relay": "Discard 2 dead letters?"} {
		w = post(h, "/"+verb, "family", "billing", "relay", "feeds", "letter", ids[1], "letter", ids[2], "back", back)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), title)
		require.EqualValues(t, 59, of().Dead, "it only asks")
	}
	w = post(h, "/discard-relay", "family", "billing", "relay", "feeds", "letter", ids[1], "letter", ids[2], "confirm", "1", "back", back)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.EqualValues(t, 57, of().Dead)
	require.Contains(t, get(h, "/"+back+"&state=discarded").Body.String(), `id="d`+ids[2])
	for _, forged := range [][]string{{"letter", "1"}, {"relay", "feeds"}, {"relay", "feeds", "letter", "x"}, {"relay", "feeds", "letter", "0"}, {"relay", "\xff", "letter", "1"}} {
		require.Equal(t, http.StatusBadRequest, post(h, "/discard-relay", forged...).Code, forged)
	}
	require.Equal(t, http.StatusNotFound, post(h, "/discard-relay", "relay", "feeds", "letter", ids[5]).Code, "another family")
	w = post(h, "/discard-relay", "family", "billing", "relay", "feeds", "letter", "99999", "back", back)
	require.Contains(t, w.Header().Get("Location"), "did=nothing")
	require.EqualValues(t, 57, of().Dead)
}

// Pages without rights offer no verbs on relays and actors.
func TestRelays_ReadOnly(t *testing.T) {
	db := honkertest.Open(t, nil)
	fillRelays(t, db)
	presence(t, db, "2", time.Now().Add(time.Hour).UnixMilli())
	h := dashboard(t, db, &ui.Options{Authorize: ui.ReadOnly})
	all := dashboard(t, db, nil)
	for _, target := range []string{"/relays", "/relay?name=hooks", "/actors"} {
		require.NotContains(t, get(h, target).Body.String(), `method="post"`, target)
	}
	require.Contains(t, get(all, "/relay?name=hooks").Body.String(), `action="requeue-relay"`)
	require.Contains(t, get(all, "/actors").Body.String(), `action="stop-actor"`)
}

// Names, keys, payloads and errors of other programs are escaped, and a payload that is to be hidden does not appear.
func TestRelays_Hostile(t *testing.T) {
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	for _, s := range evil {
		q := r.Queue(s, 1)
		q.Handle(func(context.Context, *relay.Message) error { return relay.Reject(errors.New(s)) })
		if _, err := q.Send(t.Context(), relay.Outgoing{Key: s, Payload: []byte(s)}); err != nil {
			require.ErrorIs(t, err, honker.ErrInvalid)
			continue
		}
		relayDead(t, db, r, "", s, 1)
	}
	for i, s := range evil {
		if strings.ContainsAny(s, ":*\x00") || len(s) > 255 {
			continue
		}
		presence(t, db, fmt.Sprint(i, s), time.Now().Add(time.Hour).UnixMilli())
	}
	h := dashboard(t, db, nil)
	pages := crawl(t, h)
	relays := 0
	for target, body := range pages {
		if strings.HasPrefix(target, "relay?") {
			relays++
		}
		require.NotContains(t, body, "<img", target)
		require.NotContains(t, body, "' onmouseover='", target)
		require.NotContains(t, body, `href="javascript:`, target)
	}
	require.Greater(t, relays, 20)

	hides := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Redact: func(string, json.RawMessage) json.RawMessage { return nil }})
	require.Contains(t, get(h, "/relay?name=a%2Bb+c").Body.String(), "<code>a&#43;b c</code>")
	require.NotContains(t, get(hides, "/relay?name=a%2Bb+c").Body.String(), "<code>a&#43;b c</code>")
}

// The menu counts stuck queues and young dead letters, and the overview links to the queue.
func TestRelays_Problems(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		fillRelays(t, db)
		presence(t, db, "2", time.Now().Add(time.Minute).UnixMilli())
		h := dashboard(t, db, nil)
		page := get(h, "/").Body.String()
		require.Contains(t, page, `Actors <b>1</b>`)
		require.Contains(t, page, `Relays <b class="warn">2</b>`)
		require.Contains(t, page, `href="relay?name=hooks"`)
	})
}
