package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/ui"
)

// something fills a file with data that every verb can change and returns the form for each verb.
func something(t *testing.T, db *honker.DB) map[string]url.Values {
	t.Helper()
	ctx := context.Background()
	dead := bury(t, db, "mails", `{"to":"ann"}`, "no route to host")
	waits, err := queue(db, "mails").Enqueue(ctx, json.RawMessage(`{"to":"bob"}`), honker.Delay(time.Hour))
	require.NoError(t, err)
	_, err = queue(db, "paused").Pause(ctx, &honker.PauseOptions{Reason: "deploy"})
	require.NoError(t, err)
	events := honker.NewStream[int](db, "orders", nil)
	for i := range 3 {
		_, err = events.Publish(ctx, i)
		require.NoError(t, err)
	}
	_, err = events.SaveOffset(ctx, "mail", 1)
	require.NoError(t, err)
	group := events.Group("ship", &honker.GroupOptions{MaxAttempts: 1})
	member, err := group.Join(ctx, "a")
	require.NoError(t, err)
	deliveries, err := member.Claim(ctx, 2)
	require.NoError(t, err)
	for _, d := range deliveries {
		require.NoError(t, d.Nack(ctx, errors.New("out of stock")))
	}
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "nightly", Queue: "mails", Spec: "0 3 * * *", Payload: 1}))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "still", Queue: "mails", Spec: "0 3 * * *"}))
	_, err = db.Scheduler().Pause(ctx, "still")
	require.NoError(t, err)
	_, err = db.TryLock(ctx, "report", &honker.LockOptions{Owner: "worker-1"})
	require.NoError(t, err)

	batch, err := db.NewBatch(ctx, &honker.BatchOptions{Name: "import"})
	require.NoError(t, err)
	_, err = queue(db, "mails").Enqueue(ctx, json.RawMessage(`{"to":"cleo"}`), honker.Delay(time.Hour), honker.InBatch(batch.ID), honker.After(waits), honker.Headers(map[string]string{"trace": "t1"}))
	require.NoError(t, err)

	run := waitingRun(t, db)

	const ahead = 32503680000000 // in the year 3000
	r := relay.New(db, nil)
	hooks := r.Queue("hooks", 4)
	hooks.Handle(func(context.Context, *relay.Message) error { return relay.Reject(errors.New("no such hook")) })
	_, err = hooks.Send(ctx, relay.Outgoing{Partition: 1}, relay.Outgoing{Partition: 1}, relay.Outgoing{Partition: 3, Payload: []byte(`{"to":"acme"}`)})
	require.NoError(t, err)
	letters := relayDead(t, db, r, "", "hooks", 3)
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_relay_partitions SET owner = 'gone', epoch = 7, lease_until_ms = $1 WHERE partition = 3`,
		`UPDATE relay_partition SET owner = 'gone', epoch = 7, lease_until = to_timestamp($1::bigint / 1000.0) WHERE partition = 3`), ahead)
	actor := presence(t, db, "2", ahead)

	form := func(pairs ...string) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v
	}
	deadID, waitsID := strconv.FormatInt(dead, 10), strconv.FormatInt(waits, 10)
	return map[string]url.Values{
		"requeue": form("id", deadID), "discard": form("id", deadID), "cancel": form("id", waitsID), "run-now": form("id", waitsID), "bury": form("id", waitsID),
		"enqueue": form("queue", "mails", "payload", "1"), "pause": form("queue", "mails"), "resume": form("queue", "paused"),
		"limits": form("queue", "mails", "running", "3"), "retention": form("queue", "mails", "dead_count", "5"),
		"seek":            form("topic", "orders", "consumer", "mail", "to", "end", "confirm", "1"),
		"delete-consumer": form("topic", "orders", "consumer", "mail", "confirm", "1"),
		"delete-group":    form("topic", "orders", "group", "ship", "confirm", "1"),
		"redeliver":       form("topic", "orders", "group", "ship", "offset", "1"),
		"discard-event":   form("topic", "orders", "group", "ship", "offset", "2"),
		"trigger":         form("schedule", "nightly"), "pause-schedule": form("schedule", "nightly"), "resume-schedule": form("schedule", "still"),
		"cancel-batch":   form("id", strconv.FormatInt(batch.ID, 10), "confirm", "1"),
		"maintain":       form(),
		"vacuum":         form("confirm", "1"),
		"requeue-relay":  form("relay", "hooks", "letter", letters[0]),
		"discard-relay":  form("relay", "hooks", "letter", letters[1]),
		"break-relay":    form("relay", "hooks", "partition", "3", "epoch", "7", "confirm", "1"),
		"signal-run":     form("flow", "order", "run", run, "signal", "approved", "value", `{"by":"ann"}`),
		"cancel-run":     form("flow", "order", "run", run, "confirm", "1"),
		"restart-run":    form("flow", "order", "run", run, "step", "price", "confirm", "1"),
		"pause-actor":    form("type", "osis", "group", "default", "instance", "2"),
		"resume-actor":   form("type", "osis", "group", "default", "instance", "2"),
		"stop-actor":     form("type", "osis", "group", "default", "instance", "2", "confirm", "1"),
		"break-presence": form("key", actor, "owner", "gone", "confirm", "1"),
		"break-lock":     form("lock", "report", "owner", "worker-1", "confirm", "1"),
	}
}

// contents returns the parts of the file that verbs can change.
func contents(t *testing.T, db *honker.DB) string {
	t.Helper()
	ctx := context.Background()
	var all []any
	add := func(v any, err error) {
		require.NoError(t, err)
		all = append(all, v)
	}
	page, err := admin.ListJobs(ctx, db, admin.JobFilter{}, nil)
	require.NoError(t, err)
	for i := range page.Jobs {
		page.Jobs[i].Phase = ""
	}
	all = append(all, page.Jobs)
	for _, name := range []string{"mails", "paused"} {
		stats, err := queue(db, name).Stats(ctx)
		add([]any{stats.Pause, stats.Limits}, err)
		add(queue(db, name).Retention(ctx))
	}
	add(honker.NewStream[int](db, "orders", nil).Consumers(ctx))
	add(honker.NewStream[int](db, "orders", nil).Groups(ctx))
	add(db.Scheduler().List(ctx))
	add(admin.Locks(ctx, db))
	add(admin.Relays(ctx, db))
	add(admin.Presences(ctx, db))
	add(flow.Get(ctx, db, "order", "order-17"))
	add(admin.Topics(ctx, db))
	text, err := json.Marshal(all)
	require.NoError(t, err)
	return string(text)
}

// Every page and verb is refused in every possible way, and a refused request changes nothing. The test covers
// every entry in the route table, so new routes are tested automatically.
func TestRoutes_Refusals(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		forms := something(t, db)
		before := contents(t, db)
		deny := func(*http.Request, ui.Access) error { return errors.New("no") }
		looksOnly := func(r *http.Request, a ui.Access) error { return ui.ReadOnly(r, a) }
		for _, refusal := range []struct {
			name    string
			opts    ui.Options
			headers []string
			method  string
			writes  bool // whether only verbs are refused
			status  int
		}{
			{name: "closed", status: http.StatusForbidden},
			{name: "denied", opts: ui.Options{Authorize: deny}, status: http.StatusForbidden},
			{name: "login", opts: ui.Options{Authorize: ui.Basic("a", "b")}, status: http.StatusUnauthorized},
			{name: "no password", opts: ui.Options{Authorize: ui.Basic("", "")}, status: http.StatusForbidden},
			{name: "read only", opts: ui.Options{Authorize: ui.AllowAll, ReadOnly: true, Enqueue: true}, writes: true, status: http.StatusForbidden},
			{name: "looks only", opts: ui.Options{Authorize: looksOnly, Enqueue: true}, writes: true, status: http.StatusForbidden},
			{name: "another site", opts: ui.Options{Authorize: ui.AllowAll, Enqueue: true}, headers: []string{"Sec-Fetch-Site", "cross-site"}, writes: true, status: http.StatusForbidden},
			{name: "another origin", opts: ui.Options{Authorize: ui.AllowAll, Enqueue: true}, headers: []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, writes: true, status: http.StatusForbidden},
			{name: "method", opts: ui.Options{Authorize: ui.AllowAll, Enqueue: true}, method: http.MethodPut, status: http.StatusMethodNotAllowed},
		} {
			h := ui.New(db, &refusal.opts)
			for _, rt := range ui.Routes() {
				if refusal.writes && !rt.Write {
					continue
				}
				form := forms[rt.Path]
				require.False(t, rt.Write && form == nil, "%s has no form in this test", rt.Path)
				method, target := http.MethodGet, "/"+rt.Path+"?name=mails&id=1&topic=orders"
				if rt.Post {
					method, target = http.MethodPost, "/"+rt.Path
				}
				if refusal.method != "" {
					method = refusal.method
				}
				w := ask(h, method, target, form, refusal.headers...)
				require.Equal(t, refusal.status, w.Code, "%s: %s: %s", refusal.name, rt.Path, w.Body)
			}
			h.Close()
		}
		require.Equal(t, before, contents(t, db))
	})
}

// Every allowed verb changes the file, passes its Access to Authorize, is recorded in the audit log, and redirects
// to the previous page.
func TestRoutes_Verbs(t *testing.T) {
	for _, rt := range ui.Routes() {
		if !rt.Write || rt.Path == "vacuum" { // which outlasts the request, see TestVacuum_Page
			continue
		}
		t.Run(rt.Path, func(t *testing.T) {
			honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
				form := something(t, db)[rt.Path]
				_, err := queue(db, "old").Enqueue(context.Background(), json.RawMessage("1"), honker.ExpiresIn(time.Second))
				require.NoError(t, err)
				time.Sleep(2 * time.Second) // so there is something to maintain
				before := contents(t, db)
				var asked ui.Access
				h := dashboard(t, db, &ui.Options{Enqueue: true, By: func(*http.Request) string { return "anna" }, Authorize: func(_ *http.Request, a ui.Access) error {
					asked = a
					return nil
				}})
				form.Set("back", "jobs?queue=mails")
				w := ask(h, http.MethodPost, "/"+rt.Path, form)
				require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
				require.Regexp(t, `^jobs\?did=`+rt.Verb+`(&in=\w+)?&n=\d+(&of=\d+)?&queue=mails$`, w.Header().Get("Location"))
				require.NotEqual(t, before, contents(t, db))
				require.Equal(t, rt.Verb, asked.Verb)
				require.True(t, asked.Write)
				entries, err := admin.Audit(t.Context(), db, nil)
				require.NoError(t, err)
				require.NotEmpty(t, entries)
				require.Equal(t, "anna", entries[0].Actor)
				if rt.Path != "cancel-batch" && (form.Has("queue") || form.Has("id") || form.Has("run") || form.Has("schedule")) {
					require.NotEmpty(t, asked.Queue)
				}
				page := get(h, "/"+w.Header().Get("Location"))
				require.Contains(t, page.Body.String(), `id="flash"`)
			})
		})
	}
}

// Every route is either a page without side effects or a verb, and every form submits to a verb in the table.
func TestRoutes_Table(t *testing.T) {
	seen := map[string]bool{}
	for _, rt := range ui.Routes() {
		require.False(t, seen[rt.Path], rt.Path)
		seen[rt.Path] = true
		require.NotEmpty(t, rt.Verb)
		require.NotContains(t, rt.Path, "/")
		require.False(t, rt.Write && !rt.Post, "%s changes something by GET", rt.Path)
	}
}
