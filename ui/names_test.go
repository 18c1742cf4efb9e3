package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/ui"
)

const hidden = "hush-hush"

var served = regexp.MustCompile(` data-now="[^"]*"`)

// A request that may see only the queue ok never receives the name of another queue. This holds for pages, verbs and
// errors, with any parameters.
func TestNames_OneQueueOnly(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ids := twoQueues(t, db)
		onlyOK := func(_ *http.Request, a ui.Access) error {
			if a.Queue != "ok" {
				return errors.New("only the queue ok")
			}
			return nil
		}
		h := dashboard(t, db, &ui.Options{Authorize: onlyOK, Enqueue: true})
		// Each page and verb uses some of these parameters to name the queue ok. Others refer to hidden.
		queries := []string{
			"", "name=ok", "queue=ok", "name=" + hidden[:4], "queue=ok&name=ok", "queue=ok&limit=200&order=died&phase=dead", "queue=ok&phase=held", "queue=ok&selection=1&pick=1",
			"queue=ok&error=boom&more=1", "queue=ok&n=x", "queue=ok&all=1&confirm=1&n=2&typed=2", "queue=ok&after=x", "name=ok&span=7d", "name=ok&span=no",
			"queue=ok&schedule=both", "schedule=fed", "schedule=other", "queue=ok&db=nope", "db=nope", "queue=ok&back=jobs", "queue=ok&batch=1", "queue=ok&topic=a&group=b&consumer=c&lock=l&owner=o&offset=1",
			"queue=ok&payload=1", "queue=ok&running=1", "queue=ok&worker=w&key=k&unique=u&fingerprint=f&attempts=1&where=a%3D1&header=a%3D1&created_since=2h&contains=1",
		}
		for _, id := range ids {
			queries = append(queries, fmt.Sprintf("id=%d", id), fmt.Sprintf("queue=ok&id=%d", id), fmt.Sprintf("id=%d&whole=1&confirm=1&n=1", id))
		}
		shown := 0
		for _, rt := range ui.Routes() {
			if rt.Path == "events" {
				continue
			}
			for _, query := range queries {
				form, err := url.ParseQuery(query)
				require.NoError(t, err)
				for _, fragment := range []string{"", "1"} {
					w := get(h, "/"+rt.Path+"?"+query, "Honker-Fragment", fragment)
					if rt.Post {
						w = ask(h, http.MethodPost, "/"+rt.Path, form, "Honker-Fragment", fragment)
					}
					if w.Code == http.StatusOK {
						shown++
					}
					require.False(t, strings.Contains(w.Body.String(), hidden), "%s?%s: %d", rt.Path, query, w.Code)
					require.NotContains(t, fmt.Sprint(w.Header()), hidden, "%s?%s", rt.Path, query)
				}
			}
		}
		require.Greater(t, shown, 50)
		all := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll})
		require.Contains(t, get(all, "/jobs").Body.String(), `<option value="`+hidden, "they are offered to those that may see them")
	})
}

// twoQueues fills the queues ok and hidden with jobs in all phases and with dependencies between the queues. It
// returns the jobs' IDs.
func twoQueues(t *testing.T, db *honker.DB) (ids []int64) {
	t.Helper()
	ctx := context.Background()
	batch, err := db.NewBatch(ctx, nil)
	require.NoError(t, err)
	enqueue := func(name string, opts ...honker.EnqueueOption) int64 {
		id, err := queue(db, name).Enqueue(ctx, json.RawMessage(`1`), opts...)
		require.NoError(t, err)
		ids = append(ids, id)
		return id
	}
	for _, name := range []string{"ok", hidden} {
		ids = append(ids, bury(t, db, name, `1`, "boom"))
		enqueue(name, honker.Delay(time.Hour))
		enqueue(name, honker.InBatch(batch.ID))
	}
	for _, before := range append([]int64{}, ids...) {
		enqueue("ok", honker.After(before))
	}
	enqueue("ok", honker.AfterBatch(batch.ID))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "fed", Queue: "ok", Spec: "@hourly", Payload: 1}))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "other", Queue: hidden, Spec: "@hourly", Payload: 1}))
	for _, name := range []string{"ok", hidden} {
		enqueue(name)
		_, err := queue(db, name).Claim(ctx, "w", 1)
		require.NoError(t, err)
	}
	return ids
}

// Without a password, every request gets the same response, which doesn't reveal which files or parameters exist.
// With the password, an unknown file is reported as not found and an invalid parameter is named.
func TestNames_PasswordFirst(t *testing.T) {
	db, _ := open(t, nil)
	h := dashboard(t, db, &ui.Options{Authorize: ui.Basic("ops", "secret"), DB: map[string]*honker.DB{"tenant": db, "broken": nil}})
	const signedIn = "Basic b3BzOnNlY3JldA=="
	for _, rt := range ui.Routes() {
		if rt.Path == "events" {
			continue
		}
		alike := ""
		for _, query := range []string{"", "db=tenant", "db=nope", "db=broken", "db=%ff", "id=x", "id=1&id=2", "queue=%00", "limit=0&span=no&from=x", "name=a", "%zz"} {
			send := func(headers ...string) (int, string) {
				if !rt.Post {
					w := get(h, "/"+rt.Path+"?"+query, headers...)
					return w.Code, w.Body.String()
				}
				form, err := url.ParseQuery(query)
				if err != nil {
					form = url.Values{"id": {"x"}}
				}
				w := ask(h, http.MethodPost, "/"+rt.Path, form, headers...)
				return w.Code, w.Body.String()
			}
			status, page := send()
			require.Equal(t, http.StatusUnauthorized, status, "%s?%s", rt.Path, query)
			require.NotContains(t, page, "tenant", "%s?%s", rt.Path, query)
			page = served.ReplaceAllString(page, "")
			if alike == "" {
				alike = page
			}
			require.Equal(t, alike, page, "%s?%s", rt.Path, query)
			status, _ = send("Authorization", signedIn)
			switch {
			case query == "db=nope":
				require.Equal(t, http.StatusNotFound, status, rt.Path)
			case query == "db=broken":
				require.Equal(t, http.StatusInternalServerError, status, rt.Path)
			case query == "db=%ff":
				require.Equal(t, http.StatusBadRequest, status, rt.Path)
			}
		}
	}
}
