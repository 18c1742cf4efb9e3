package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/seal"
	"github.com/honker-go/honker/ui"
)

// startRun starts a run and fails the test if it exists already.
func startRun[In, Out any](t *testing.T, f *flow.Flow[In, Out], id string, in In) {
	t.Helper()
	started, err := f.Start(context.Background(), id, in)
	require.NoError(t, err)
	require.True(t, started)
}

// untilRun waits until a run is in a state and has a number of steps.
func untilRun(t *testing.T, db *honker.DB, name, id string, state flow.State, steps int) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "the run "+id, func() bool {
		r, err := flow.Get(context.Background(), db, name, id)
		return err == nil && r.State == state && len(r.Timeline) == steps
	})
}

// waitingRun adds a run of the flow order that waits for the signal approved after the step price, and returns its ID.
func waitingRun(t *testing.T, db *honker.DB) (id string) {
	t.Helper()
	f := flow.New(db, "order", func(ctx context.Context, in int) (string, error) {
		if _, err := flow.Step(ctx, "price", func(context.Context) (int, error) { return in * 10, nil }); err != nil {
			return "", err
		}
		return flow.Wait[string](ctx, "approved", 0)
	}, nil)
	startRun(t, f, "order-17", 7)
	stop := testkit.Background(t, func(ctx context.Context) error { return f.Work(ctx, nil) })
	untilRun(t, db, "order", "order-17", flow.StateWaiting, 2)
	require.NoError(t, stop())
	return "order-17"
}

// fillFlows adds a run with a step of each kind that waits for a run that it has called, a failed run, and a run that
// is done. It must be called in a bubble.
func fillFlows(t *testing.T, db *honker.DB) {
	t.Helper()
	ship := flow.New(db, "ship", func(ctx context.Context, _ int) (string, error) { return flow.Wait[string](ctx, "shipped", 0) }, nil)
	buy := flow.New(db, "buy", func(ctx context.Context, in int) (string, error) {
		if _, err := flow.Version(ctx, "pricing", 2); err != nil {
			return "", err
		}
		_, err := flow.Step(ctx, "price", func(context.Context) (map[string]int, error) {
			time.Sleep(20 * time.Second)
			return map[string]int{"cents": in}, nil
		})
		if err != nil {
			return "", err
		}
		if err := flow.Sleep(ctx, "rest", time.Minute); err != nil {
			return "", err
		}
		if _, err := flow.Wait[string](ctx, "late", time.Minute); !errors.Is(err, flow.ErrTimeout) {
			return "", err
		}
		return flow.Call(ctx, "ship", ship, in)
	}, nil)
	bill := flow.New(db, "bill", func(ctx context.Context, in int) (int, error) {
		charged, err := flow.Step(ctx, "charge", func(context.Context) (int, error) { return in, nil })
		if err == nil && in < 0 {
			err = honker.Reject(errors.New("the amount is negative"))
		}
		return charged, err
	}, nil)
	startRun(t, buy, "buy-1", 4711)
	startRun(t, bill, "bill-1", 5)
	startRun(t, bill, "bill-2", -5)
	w := honker.NewWorkers(db, nil)
	flow.Handle(w, ship)
	flow.Handle(w, buy)
	flow.Handle(w, bill)
	stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, nil) })
	time.Sleep(3 * time.Minute) // of the bubble
	untilRun(t, db, "buy", "buy-1", flow.StateWaiting, 5)
	untilRun(t, db, "ship", "buy-1/ship", flow.StateWaiting, 1)
	untilRun(t, db, "bill", "bill-1", flow.StateDone, 1)
	untilRun(t, db, "bill", "bill-2", flow.StateFailed, 1)
	require.NoError(t, stop())
}

// The pages of runs match their golden files.
func TestFlows_Golden(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		h := dashboard(t, db, nil)
		require.Contains(t, get(h, "/flows").Body.String(), "There are no such runs.")
		fillFlows(t, db)
		time.Sleep(time.Minute)
		golden(t, h, "flows", "flows")
		golden(t, h, "run", "run?flow=buy&id=buy-1")
		golden(t, h, "run-failed", "run?flow=bill&id=bill-2")
		require.Contains(t, get(h, "/").Body.String(), `Flows <b class="bad">1</b>`)
	})
}

// A run's page links to the runs that it has called and that called it, and its job's page links to it.
func TestRun_Links(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		fillFlows(t, db)
		h := dashboard(t, db, nil)
		require.Contains(t, get(h, "/run?flow=buy&id=buy-1").Body.String(), `href="run?flow=ship&amp;id=buy-1%2Fship"`)
		child := get(h, "/run?flow=ship&id=buy-1/ship").Body.String()
		require.Contains(t, child, `href="run?flow=buy&amp;id=buy-1"`)
		require.Contains(t, child, "It waits for the signal “shipped”")
		require.Contains(t, child, `name="signal" value="shipped"`)
		r, err := flow.Get(t.Context(), db, "bill", "bill-2")
		require.NoError(t, err)
		require.Contains(t, get(h, fmt.Sprint("/job?id=", r.Job)).Body.String(), `href="run?flow=bill&amp;id=bill-2"`)
		require.Contains(t, get(h, "/run?flow=bill&id=bill-2").Body.String(), fmt.Sprintf(`href="job?id=%d"`, r.Job))

		foreign, err := queue(db, "flow:bill").Enqueue(t.Context(), json.RawMessage("1"))
		require.NoError(t, err)
		require.NotContains(t, get(h, fmt.Sprint("/job?id=", foreign)).Body.String(), `href="run?`, "no run yet")
		crawl(t, h)
	})
}

// The list has filters by flow and state, and pages.
func TestFlows_Filter(t *testing.T) {
	db, h := open(t, nil)
	f := flow.New(db, "bulk", func(context.Context, int) (int, error) { return 0, nil }, nil)
	for i := range 60 {
		startRun(t, f, fmt.Sprint(i), i)
	}
	waitingRun(t, db)
	page := get(h, "/flows?flow=bulk&state=waiting").Body.String()
	require.Equal(t, 50, strings.Count(page, "data-row"))
	require.NotContains(t, page, "order-17")
	runs, err := flow.List(t.Context(), db, &flow.ListOptions{Flow: "bulk"})
	require.NoError(t, err)
	next := fmt.Sprintf("flows?before=%d&flow=bulk&state=waiting", runs[49].Job)
	require.Contains(t, page, strings.ReplaceAll(next, "&", "&amp;"))
	page = get(h, "/"+next).Body.String()
	require.Equal(t, 10, strings.Count(page, "data-row"))
	require.NotContains(t, page, "Next page")
	require.Contains(t, page, `href="run?flow=bulk&amp;id=0"`)
	require.NotContains(t, get(h, "/flows?state=done").Body.String(), "data-row")
	for _, bad := range []string{"/flows?state=gone", "/flows?before=x", "/flows?flow=%ff", "/run", "/run?flow=order", "/run?id=order-17", "/run?flow=order&id=order-17&from=x"} {
		require.Equal(t, http.StatusBadRequest, get(h, bad).Code, bad)
	}
	for _, missing := range []string{"/run?flow=order&id=no", "/run?flow=no&id=order-17", "/run?flow=order&id=x%27%20OR%201=1"} {
		require.Equal(t, http.StatusNotFound, get(h, missing).Code, missing)
	}
}

// A run with many steps shows the newest steps and links to earlier steps.
func TestRun_Steps(t *testing.T) {
	db, h := open(t, nil)
	f := flow.New(db, "loop", func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if _, err := flow.Step(ctx, fmt.Sprintf("step %03d", i+1), func(context.Context) (int, error) { return i, nil }); err != nil {
				return 0, err
			}
		}
		return n, nil
	}, nil)
	startRun(t, f, "a", 250)
	stop := testkit.Background(t, func(ctx context.Context) error { return f.Work(ctx, nil) })
	untilRun(t, db, "loop", "a", flow.StateDone, 250)
	require.NoError(t, stop())
	for target, want := range map[string][]string{
		"/run?flow=loop&id=a":          {"step 151", "step 250", "from=51&"},
		"/run?flow=loop&id=a&from=51":  {"step 051", "step 150", "from=1&", "from=151&"},
		"/run?flow=loop&id=a&from=1":   {"step 001", "step 100", "from=101&"},
		"/run?flow=loop&id=a&from=999": {"No steps yet."},
	} {
		page := get(h, target).Body.String()
		for _, text := range want {
			require.Contains(t, page, text, target)
		}
	}
}

// The verbs on runs ask before they restart or cancel, refuse forged parameters, and report a conflict.
func TestRun_Verbs(t *testing.T) {
	db, h := open(t, nil)
	id := waitingRun(t, db)
	of := func() flow.Detail {
		d, err := flow.Get(t.Context(), db, "order", id)
		require.NoError(t, err)
		return d
	}
	back := "run?flow=order&id=" + id
	for verb, title := range map[string]string{"restart-run": "Restart the run “order-17” from “price”?", "cancel-run": "Cancel the run “order-17”?"} {
		before := of()
		w := post(h, "/"+verb, "flow", "order", "run", id, "step", "price", "back", back)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), title)
		require.Equal(t, before, of(), "it only asks")
	}
	for _, forged := range [][]string{
		{"signal-run", "flow", "order", "signal", "approved", "value", "1"}, {"signal-run", "run", id, "signal", "approved", "value", "1"},
		{"signal-run", "flow", "order", "run", id, "value", "1"}, {"signal-run", "flow", "order", "run", id, "signal", "approved"},
		{"signal-run", "flow", "order", "run", id, "signal", "approved", "value", "{"}, {"signal-run", "flow", "order", "run", id, "signal", "\xff", "value", "1"},
		{"signal-run", "flow", "order", "run", id, "signal", strings.Repeat("x", 256), "value", "1"},
		{"cancel-run", "flow", "order", "confirm", "1"}, {"cancel-run", "flow", "order", "run", "a\x00", "confirm", "1"}, {"restart-run", "run", id, "confirm", "1"},
	} {
		require.Equal(t, http.StatusBadRequest, post(h, "/"+forged[0], forged[1:]...).Code, forged)
	}
	for _, missing := range [][]string{
		{"signal-run", "flow", "order", "run", "no", "signal", "approved", "value", "1"}, {"restart-run", "flow", "order", "run", "no", "confirm", "1"},
		{"restart-run", "flow", "order", "run", id, "step", "no", "confirm", "1"},
	} {
		require.Equal(t, http.StatusNotFound, post(h, "/"+missing[0], missing[1:]...).Code, missing)
	}
	w := post(h, "/cancel-run", "flow", "order", "run", "no", "confirm", "1", "back", back)
	require.Contains(t, w.Header().Get("Location"), "did=nothing")
	require.Empty(t, of().Signals)
	require.Len(t, of().Timeline, 2)

	send := func() int {
		return post(h, "/signal-run", "flow", "order", "run", id, "signal", "approved", "value", `"by ann"`, "back", back).Code
	}
	require.Equal(t, http.StatusSeeOther, send())
	require.JSONEq(t, `"by ann"`, string(of().Signals["approved"]))
	require.Equal(t, http.StatusConflict, send())
	page := get(h, "/"+back).Body.String()
	require.Contains(t, page, "by ann")
	require.Contains(t, page, "It waits for a worker")
	require.Equal(t, http.StatusSeeOther, post(h, "/restart-run", "flow", "order", "run", id, "confirm", "1", "back", back).Code)
	require.Empty(t, of().Timeline)
	require.Equal(t, http.StatusSeeOther, post(h, "/cancel-run", "flow", "order", "run", id, "confirm", "1", "back", back).Code)
	require.True(t, of().Cancelled)
	require.Contains(t, get(h, "/"+back).Body.String(), "A cancellation was requested.")
	entries, err := admin.Audit(t.Context(), db, nil)
	require.NoError(t, err)
	require.Len(t, entries, 3)
}

// An operator who may see only one flow sees its runs and changes them, and does not learn the names of other flows.
func TestRun_Access(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		fillFlows(t, db)
		only := func(name string, write bool) http.Handler {
			return dashboard(t, db, &ui.Options{Authorize: func(_ *http.Request, a ui.Access) error {
				if a.Queue != "flow:"+name || a.Write && !write {
					return errors.New("no")
				}
				return nil
			}})
		}
		for _, h := range []http.Handler{only("buy", false), dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, ReadOnly: true})} {
			require.NotContains(t, get(h, "/run?flow=buy&id=buy-1").Body.String(), `method="post"`)
			require.Equal(t, http.StatusForbidden, post(h, "/cancel-run", "flow", "buy", "run", "buy-1", "confirm", "1").Code)
		}
		buys, ships := only("buy", true), only("ship", true)
		require.Contains(t, get(buys, "/run?flow=buy&id=buy-1").Body.String(), `action="cancel-run"`)
		require.NotContains(t, get(buys, "/run?flow=buy&id=buy-1").Body.String(), "flow=ship")
		require.NotContains(t, get(ships, "/run?flow=ship&id=buy-1/ship").Body.String(), "flow=buy")
		require.Equal(t, http.StatusOK, get(buys, "/flows?flow=buy").Code)
		for _, target := range []string{"/flows", "/flows?flow=ship", "/run?flow=ship&id=buy-1/ship"} {
			require.Equal(t, http.StatusForbidden, get(buys, target).Code, target)
		}
		require.Equal(t, http.StatusForbidden, post(buys, "/signal-run", "flow", "ship", "run", "buy-1/ship", "signal", "shipped", "value", "1").Code)
		require.Equal(t, http.StatusSeeOther, post(buys, "/cancel-run", "flow", "buy", "run", "buy-1", "confirm", "1").Code)
	})
}

// Names, values and errors are escaped, and values that are to be hidden do not appear.
func TestRun_Hostile(t *testing.T) {
	db := honkertest.Open(t, nil)
	made := 0
	for _, s := range evil {
		f := flow.New(db, s, func(ctx context.Context, in string) (string, error) {
			if _, err := flow.Step(ctx, s, func(context.Context) (string, error) { return in, nil }); err != nil {
				return "", err
			}
			_, _ = flow.Wait[string](ctx, s+"!", 0)
			return "", honker.Reject(errors.New(s))
		}, nil)
		if _, err := f.Start(t.Context(), s, s); err != nil {
			require.ErrorIs(t, err, honker.ErrInvalid)
			continue
		}
		made++
		require.NoError(t, flow.Signal(t.Context(), db, s, s, s+"!", s))
		stop := testkit.Background(t, func(ctx context.Context) error { return f.Work(ctx, nil) })
		untilRun(t, db, s, s, flow.StateFailed, 2)
		require.NoError(t, stop())
	}
	require.Greater(t, made, 8)
	runs := 0
	for target, body := range crawl(t, dashboard(t, db, nil)) {
		if strings.HasPrefix(target, "run?") {
			runs++
		}
		require.NotContains(t, body, "<img", target)
		require.NotContains(t, body, "' onmouseover='", target)
		require.NotContains(t, body, `href="javascript:`, target)
		require.NotContains(t, body, "ZgotmplZ", target)
	}
	require.GreaterOrEqual(t, runs, made)

	target := "/run?" + url.Values{"flow": {"a+b c"}, "id": {"a+b c"}}.Encode()
	require.Contains(t, get(dashboard(t, db, nil), target).Body.String(), "<pre>&#34;a&#43;b c&#34;</pre>")
	hides := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Redact: func(string, json.RawMessage) json.RawMessage { return nil }})
	require.NotContains(t, get(hides, target).Body.String(), "&#34;a&#43;b c&#34;")
}

// Values that are encrypted in the database are shown only if Authorize allows the verb "unseal".
func TestRun_Sealed(t *testing.T) {
	codec, err := seal.New(seal.Keys{Current: "2026-11", Ring: map[string][]byte{"2026-11": make([]byte, 32)}}, nil)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "app.db")
	db := honkertest.OpenFile(t, path, &honker.Options{Codec: codec})
	id := waitingRun(t, db)
	require.NoError(t, flow.Signal(t.Context(), db, "order", id, "approved", "DE4711"))
	const target = "/run?flow=order&id=order-17"
	page := get(dashboard(t, db, nil), target).Body.String()
	require.Contains(t, page, "DE4711")
	require.Contains(t, page, "<code>70</code>")
	for name, h := range map[string]http.Handler{
		"looks only": dashboard(t, db, &ui.Options{Authorize: ui.ReadOnly}),
		"has no key": dashboard(t, honkertest.OpenFile(t, path, nil), nil),
	} {
		page := get(h, target).Body.String()
		require.Contains(t, page, "approved", name)
		require.NotContains(t, page, "DE4711", name)
		require.NotContains(t, page, "<code>70</code>", name)
		require.NotContains(t, page, "$seal", name)
	}
}

// A database that is open read-only shows its runs and refuses changes.
func TestRun_ReadOnlyDatabase(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "app.db")
	waitingRun(t, honkertest.OpenFile(t, path, nil))
	h := dashboard(t, honkertest.OpenFile(t, path, &honker.Options{ReadOnly: true}), nil)
	require.Contains(t, get(h, "/flows").Body.String(), "order-17")
	require.Contains(t, get(h, "/run?flow=order&id=order-17").Body.String(), "approved")
	require.Equal(t, http.StatusForbidden, post(h, "/cancel-run", "flow", "order", "run", "order-17", "confirm", "1").Code)
}
