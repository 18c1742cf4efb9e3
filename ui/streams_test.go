package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// publish publishes events to a topic.
func publish(t *testing.T, db *honker.DB, topic string, n int) *honker.Stream[json.RawMessage] {
	t.Helper()
	s := honker.NewStream[json.RawMessage](db, topic, nil)
	for i := range n {
		_, err := s.Publish(t.Context(), json.RawMessage(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	return s
}

// between returns the part of a text from one string to another.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, text, found := strings.Cut(text, from)
	require.True(t, found, from)
	text, _, found = strings.Cut(text, to)
	require.True(t, found, to)
	return text
}

// A topic's page tells which readers are in step, catch up, fall behind or have stopped.
func TestStream_Readers(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		h := dashboard(t, db, nil)
		s := publish(t, db, "orders", 100)
		save := func(consumer string, offset int64) {
			_, err := s.SaveOffset(ctx, consumer, offset)
			require.NoError(t, err)
		}
		save("gone", 10)
		for i := range 13 { // a pass of ten minutes
			save("quick", 100)
			save("slow", int64(1+i))
			time.Sleep(10 * time.Minute)
		}
		page := get(h, "/stream?topic=orders").Body.String()
		require.Contains(t, page, "2 readers behind")
		row := func(name string) string { return between(t, page, "<bdi>"+name+"</bdi>", "</article>") }
		require.Contains(t, row("quick"), "in step")
		require.Contains(t, row("quick"), "100 % of the kept events read")
		require.Contains(t, row("slow"), "never")
		require.Contains(t, row("gone"), "no reader")
		require.Contains(t, row("gone"), `<p class="n bad" data-label="Behind">90</p>`)
		require.Contains(t, row("gone"), `<rect class="bad" width="100" height="8"/>`)
		require.Less(t, strings.Index(page, "<bdi>slow</bdi>"), strings.Index(page, "<bdi>quick</bdi>"))
		require.Contains(t, page, "<bdi>gone</bdi> has read")
	})
}

// A group without a living member is in trouble if it has something to read. Held events are a part of its bar.
func TestStream_Group(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		h := dashboard(t, db, nil)
		s := publish(t, db, "orders", 100)
		member, err := s.Group("ship", nil).Join(ctx, "a")
		require.NoError(t, err)
		_, err = member.Claim(ctx, 20)
		require.NoError(t, err)
		page := get(h, "/stream?topic=orders").Body.String()
		require.Contains(t, page, "1 member, 20 held")
		require.Contains(t, page, `<rect class="good" width="200" height="8"/><rect class="held" x="0" width="200" height="8"/>`)
		time.Sleep(10 * time.Minute)
		page = get(h, "/stream?topic=orders").Body.String()
		require.Contains(t, page, "no member lives")
		require.Contains(t, page, "1 reader behind")
	})
}

// The topics in trouble come first. A pattern with readers has a row although it has no events of its own.
func TestStreams_Order(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		h := dashboard(t, db, nil)
		_, err := publish(t, db, "a", 1).SaveOffset(ctx, "reader", 1)
		require.NoError(t, err)
		_, err = publish(t, db, "z", 5).SaveOffset(ctx, "reader", 2)
		require.NoError(t, err)
		_, err = honker.NewStream[json.RawMessage](db, "p*", nil).SaveOffset(ctx, "all", 0)
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		page := get(h, "/streams").Body.String()
		require.Contains(t, page, "1 topic with a reader behind")
		require.Less(t, strings.Index(page, "<bdi>z</bdi>"), strings.Index(page, "<bdi>a</bdi>"))
		require.Contains(t, page, `<bdi>p*</bdi></a> <span class="badge">pattern</span>`)
	})
}

// A topic that a consumer has left behind is listed before topics that nobody reads.
func TestStreams_TroubleFirst(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		for _, topic := range []string{"a", "orders", "z"} {
			testkit.PublishUpTo(t, honker.NewStream[int](db, topic, nil), 10)
		}
		_, err := honker.NewStream[int](db, "orders", nil).SaveOffset(t.Context(), "slow", 12)
		require.NoError(t, err)
		time.Sleep(5 * time.Hour)
		w := ask(dashboard(t, db, &ui.Options{Authorize: ui.AllowAll}), http.MethodGet, "/streams", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Regexp(t, `(?s)stream\?topic=orders.*stream\?topic=a.*stream\?topic=z`, w.Body.String())
	})
}

// Redeliver all asks with the number of dead events, and then makes all of them available again.
func TestStream_RedeliverAll(t *testing.T) {
	db, h := open(t, nil)
	ctx := t.Context()
	events := honker.NewStream[int](db, "orders", nil)
	for i := range 3 {
		_, err := events.Publish(ctx, i)
		require.NoError(t, err)
	}
	group := events.Group("ship", &honker.GroupOptions{MaxAttempts: 1})
	member, err := group.Join(ctx, "a")
	require.NoError(t, err)
	deliveries, err := member.Claim(ctx, 3)
	require.NoError(t, err)
	for _, d := range deliveries {
		require.NoError(t, d.Nack(ctx, errors.New("out of stock")))
	}
	dead := func() int64 {
		info, err := group.Info(ctx)
		require.NoError(t, err)
		return info.Dead
	}
	require.EqualValues(t, 3, dead())
	require.Contains(t, get(h, "/stream?topic=orders").Body.String(), "Redeliver all …")
	require.NotContains(t, get(dashboard(t, db, &ui.Options{Authorize: ui.ReadOnly}), "/stream?topic=orders").Body.String(), "Redeliver")

	form := []string{"topic", "orders", "group", "ship", "all", "1", "back", "stream?topic=orders"}
	w := post(h, "/redeliver", form...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "Redeliver 3 dead events of")
	require.Contains(t, w.Body.String(), `name="all" value="1"`)
	require.EqualValues(t, 3, dead())
	w = post(h, "/redeliver", append(form, "confirm", "1")...)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Contains(t, get(h, "/"+w.Header().Get("Location")).Body.String(), "3 events will be delivered again.")
	require.Zero(t, dead())
	require.Contains(t, post(h, "/redeliver", append(form, "confirm", "1")...).Header().Get("Location"), "did=nothing")
	require.Equal(t, http.StatusNotFound, post(h, "/redeliver", "topic", "orders", "group", "none", "all", "1").Code)
}

// The form for a topic's retention first shows how many events maintenance will delete, and which reader keeps others.
func TestStream_Retention(t *testing.T) {
	db, h := open(t, nil)
	s := publish(t, db, "orders", 10)
	_, err := s.SaveOffset(t.Context(), "mail", 3)
	require.NoError(t, err)
	retention := func() honker.Retention {
		r, err := s.Retention(t.Context())
		require.NoError(t, err)
		return r
	}
	require.Contains(t, get(h, "/stream?topic=orders&form=retention").Body.String(), `<details class="pop" id="retention" name="form" open>`)
	require.NotContains(t, get(dashboard(t, db, &ui.Options{Authorize: ui.ReadOnly}), "/stream?topic=orders").Body.String(), `id="retention"`)

	form := []string{"topic", "orders", "keep_count", "4", "keep_age", "1h", "back", "stream?topic=orders"}
	w := post(h, "/retention", form...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, unescape(w.Body.String()), `The next maintenance deletes 3 of 10 events. 3 more are kept until consumer "mail" has read them.`)
	require.Zero(t, retention())
	w = post(h, "/retention", append(form, "confirm", "1")...)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Equal(t, honker.Retention{MaxCount: 4, MaxAge: time.Hour}, retention())
	require.Contains(t, get(h, "/"+w.Header().Get("Location")).Body.String(), "Retention changed.")
	require.Equal(t, http.StatusBadRequest, post(h, "/retention", "topic", "orders", "keep_count", "-1").Code)
}
