package ui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// reader reads a stream's events.
type reader struct {
	t       *testing.T
	lines   *bufio.Scanner
	answer  *http.Response
	stopped context.CancelFunc
}

func follow(t *testing.T, target string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &reader{t, bufio.NewScanner(answer.Body), answer, cancel}
}

// next returns the next event, or "" at the end of the stream.
func (r *reader) next() string {
	for r.lines.Scan() {
		if event, ok := strings.CutPrefix(r.lines.Text(), "event: "); ok {
			return event
		}
	}
	return ""
}

func serve(t *testing.T, h http.Handler, timeout time.Duration) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.WriteTimeout = timeout
	server.Start()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	return server.URL
}

func enqueue(t *testing.T, db *honker.DB) {
	t.Helper()
	_, err := queue(db, "mails").Enqueue(context.Background(), json.RawMessage("1"))
	require.NoError(t, err)
}

// A commit sends a tick to every page. The stream contains only numbers.
func TestLive_Ticks(t *testing.T) {
	db, h := open(t, nil)
	url := serve(t, h, 0)
	a, b := follow(t, url+"/events"), follow(t, url+"/events")
	for _, r := range []*reader{a, b} {
		require.Equal(t, "hello", r.next())
		require.Equal(t, "no-store, no-transform", r.answer.Header.Get("Cache-Control"))
		require.Equal(t, "no", r.answer.Header.Get("X-Accel-Buffering"))
		require.Equal(t, "tick", r.next(), "the first look")
	}
	enqueue(t, db)
	require.Equal(t, "tick", a.next())
	require.Equal(t, "tick", b.next())
}

// The server's WriteTimeout doesn't end a stream.
func TestLive_WriteTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	db, h := open(t, nil)
	r := follow(t, serve(t, h, timeout)+"/events")
	require.Equal(t, "hello", r.next())
	for range 5 {
		enqueue(t, db)
		require.Equal(t, "tick", r.next())
		time.Sleep(timeout / 4) // connection deadlines need real time
	}
	enqueue(t, db)
	require.Equal(t, "tick", r.next())
}

// Close ends all streams, so the server's Shutdown returns. No stream starts after Close.
func TestLive_Close(t *testing.T) {
	_, h := open(t, nil)
	url := serve(t, h, 0)
	r := follow(t, url+"/events")
	require.Equal(t, "hello", r.next())
	h.Close()
	for event := r.next(); event != ""; event = r.next() {
		require.Equal(t, "tick", event)
	}
	require.Equal(t, http.StatusServiceUnavailable, get(h, "/events").Code)
	require.Equal(t, http.StatusOK, get(h, "/").Code, "pages go on")
	h.Close()
}

// Closing the DB ends its streams.
func TestLive_DBClosed(t *testing.T) {
	db, h := open(t, nil)
	r := follow(t, serve(t, h, 0)+"/events")
	require.Equal(t, "hello", r.next())
	require.NoError(t, db.Close())
	for event := r.next(); event != ""; event = r.next() {
		require.Equal(t, "tick", event)
	}
	require.Equal(t, http.StatusServiceUnavailable, get(h, "/").Code)
}

// A single goroutine follows the file on behalf of all pages. It doesn't run while no page is open.
func TestLive_OnlyWhileOpen(t *testing.T) {
	_, h := open(t, nil)
	url := serve(t, h, 0)
	loops := func() int {
		buffer := make([]byte, 4<<20)
		return strings.Count(string(buffer[:runtime.Stack(buffer, true)]), "ui.(*viewers).follow(")
	}
	require.Zero(t, loops())
	var pages []*reader
	for range 3 {
		r := follow(t, url+"/events")
		require.Equal(t, "hello", r.next())
		pages = append(pages, r)
	}
	require.Eventually(t, func() bool { return loops() == 1 }, testkit.Timeout, 10*time.Millisecond)
	for _, r := range pages {
		r.stopped()
	}
	require.Eventually(t, func() bool { return loops() == 0 }, testkit.Timeout, 10*time.Millisecond)
}

// A file has at most 100 streams. Additional pages get an error and poll instead.
func TestLive_Bound(t *testing.T) {
	_, h := open(t, nil)
	url := serve(t, h, 0)
	var first *reader
	for i := range 100 {
		r := follow(t, url+"/events")
		require.Equal(t, http.StatusOK, r.answer.StatusCode)
		require.Equal(t, "hello", r.next())
		if i == 0 {
			first = r
		}
	}
	require.Equal(t, http.StatusServiceUnavailable, follow(t, url+"/events").answer.StatusCode)
	first.stopped() // closing a stream makes room for another
	require.Eventually(t, func() bool { return follow(t, url+"/events").answer.StatusCode == http.StatusOK }, testkit.Timeout, 10*time.Millisecond)
}

// noFlush is a ResponseWriter without Flush, as some middleware uses.
type noFlush struct{ w http.ResponseWriter }

func (n noFlush) Header() http.Header         { return n.w.Header() }
func (n noFlush) Write(b []byte) (int, error) { return n.w.Write(b) }
func (n noFlush) WriteHeader(status int)      { n.w.WriteHeader(status) }

// A stream whose ResponseWriter can't flush fails immediately. Otherwise it would never send an
// event.
func TestLive_NoFlush(t *testing.T) {
	_, h := open(t, nil)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(noFlush{w}, r) }), 0)
	r := follow(t, url+"/events")
	require.Equal(t, http.StatusNotImplemented, r.answer.StatusCode)
}

// A page fragment has an ETag and is sent again only if it has changed.
func TestLive_Fragment(t *testing.T) {
	db, h := open(t, nil)
	enqueue(t, db)
	first := get(h, "/jobs", "Honker-Fragment", "1")
	require.Equal(t, http.StatusOK, first.Code)
	require.NotContains(t, first.Body.String(), "<html")
	tag := first.Header().Get("ETag")
	require.NotEmpty(t, tag)
	require.Equal(t, http.StatusNotModified, get(h, "/jobs", "Honker-Fragment", "1", "If-None-Match", tag).Code)
	enqueue(t, db)
	second := get(h, "/jobs", "Honker-Fragment", "1", "If-None-Match", tag)
	require.Equal(t, http.StatusOK, second.Code)
	require.NotEqual(t, tag, second.Header().Get("ETag"))

	denied := dashboard(t, db, &ui.Options{})
	require.Equal(t, http.StatusForbidden, get(denied, "/jobs", "Honker-Fragment", "1", "If-None-Match", tag).Code)
}

// tickCounter is a ResponseWriter that counts the ticks of a stream.
type tickCounter struct {
	mu     sync.Mutex
	header http.Header
	n      int
}

func (c *tickCounter) Header() http.Header { return c.header }
func (c *tickCounter) WriteHeader(int)     {}
func (c *tickCounter) Flush()              {}
func (c *tickCounter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += strings.Count(string(b), "event: tick")
	return len(b), nil
}

func (c *tickCounter) ticks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// Open pages take at most a fiftieth of the time, however often the file changes: the more it takes to serve them after a
// tick, the later is the next tick. At least every ten seconds there is a tick.
func TestLive_Share(t *testing.T) {
	testkit.FileOnly(t)
	for _, test := range []struct {
		pages    int
		between  time.Duration // of two ticks
		describe string
	}{{0, 250 * time.Millisecond, "pages that cost nothing"}, {2, 2 * time.Second, "two pages"}, {20, 10 * time.Second, "pages that are too expensive"}} {
		synctest.Test(t, func(t *testing.T) {
			const cost = 20 * time.Millisecond // to serve a page
			db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
			h := ui.New(db, &ui.Options{Authorize: func(r *http.Request, _ ui.Access) error {
				if r.Header.Get("Honker-Fragment") != "" {
					time.Sleep(cost)
				}
				return nil
			}})
			defer h.Close()
			seen := &tickCounter{header: http.Header{}}
			go h.ServeHTTP(seen, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
			const span = 40 * time.Second
			loads, last := 0, 0
			for began := time.Now(); time.Since(began) < span; time.Sleep(125 * time.Millisecond) {
				enqueue(t, db)
				if n := seen.ticks(); n > last {
					last = n
					for range test.pages {
						require.Equal(t, http.StatusOK, get(h, "/batches", "Honker-Fragment", "1").Code)
						loads++
					}
				}
			}
			require.InDelta(t, span/test.between, last, float64(span/test.between)/4+1, test.describe)
			if test.between < 10*time.Second {
				require.LessOrEqual(t, time.Duration(loads)*cost, span/40, test.describe)
			}
		})
	}
}
