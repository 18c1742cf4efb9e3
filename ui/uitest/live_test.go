package uitest_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

func (s *site) enqueue(t *testing.T, name string) {
	t.Helper()
	_, err := s.queue(name).Enqueue(context.Background(), json.RawMessage("1"))
	require.NoError(t, err)
}

// bury makes n dead jobs with similar errors.
func (s *site) bury(t *testing.T, name, cause string, n int) {
	t.Helper()
	ctx := context.Background()
	for i := range n {
		s.enqueue(t, name)
		jobs, err := s.queue(name).Claim(ctx, "w", 1)
		require.NoError(t, err)
		require.NoError(t, jobs[0].Reject(ctx, fmt.Errorf("%s %d", cause, i)))
	}
}

// A job enqueued by another process appears on the page without a reload. Text typed into a form is kept.
func TestLive_OtherProcess(t *testing.T) {
	s := serve(t, nil, 0, nil)
	b := browse(t, s)
	b.open(s.url)
	b.live()
	b.run(chromedp.Evaluate[chromedp.Void]("window.stays = true"))
	child := testkit.StartChild(t, "enqueue", s.path)
	require.Equal(t, "open", child.Line(patience))
	var took []time.Duration
	for i := range 5 {
		name := fmt.Sprintf("mails-%d", i)
		child.Tell(name)
		began := time.Now()
		require.Equal(t, "enqueued", child.Line(patience))
		b.wait("document.querySelector('main table')?.textContent.includes('" + name + "')")
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("on the page %v after another process was told to enqueue it, as the median of %v", took[2], took)
	require.Less(t, took[0], 3*time.Second, "it came by asking now and then")
	require.Equal(t, "true", b.text("window.stays"), "the page was loaded anew")

	// A form in use is not replaced, and the page says that there are changes.
	b.run(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "ma"))
	child.Tell("others")
	require.Equal(t, "enqueued", child.Line(patience))
	b.wait("document.querySelector('#live .text').textContent.includes('change')")
	require.Equal(t, "ma", b.text("document.querySelector('input[name=q]').value"))
	require.Equal(t, "false", b.text("document.querySelector('main table').textContent.includes('others')"))
	b.run(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"))
	b.wait("document.querySelector('main table').textContent.includes('others')")
	require.Equal(t, "ma", b.text("document.querySelector('input[name=q]').value"))
}

// Updating the page keeps the selection, the expanded sections and the scroll position.
func TestLive_Keeps(t *testing.T) {
	s := serve(t, nil, 0, nil)
	for range 5 {
		s.enqueue(t, "mails")
	}
	b := browse(t, s)
	b.open(s.url + "jobs")
	b.live()
	b.run(chromedp.Click(chromedp.CSS("#j3 input[type=checkbox]")), chromedp.Click(chromedp.CSS("#more summary")))
	s.enqueue(t, "mails")
	b.wait("document.getElementById('j6')")
	require.Equal(t, "true", b.text("document.querySelector('#j3 input').checked"))
	require.Equal(t, "true", b.text("document.getElementById('more').open"))
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	require.Equal(t, "j5", b.text("document.querySelector('.at').id"))
	b.run(chromedp.KeyEvent("x"))
	require.Equal(t, "true", b.text("document.querySelector('#j5 input').checked"))
}

// The server's WriteTimeout does not end a stream.
func TestLive_WriteTimeout(t *testing.T) {
	s := serve(t, nil, 3*time.Second, nil)
	b := browse(t, s)
	b.open(s.url)
	b.live()
	b.run(chromedp.Evaluate[chromedp.Void]("performance.clearResourceTimings()"), chromedp.Sleep(4*time.Second))
	s.enqueue(t, "mails")
	b.wait("document.querySelector('main table')?.textContent.includes('mails')")
	require.Equal(t, "0", b.text("performance.getEntriesByType('resource').filter((r) => r.name.endsWith('/events')).length"), "the stream was opened again")
}

// A browser opens at most six connections to a server. Hidden tabs have no stream, so a seventh tab can still load.
func TestLive_SevenTabs(t *testing.T) {
	s := serve(t, nil, 0, nil)
	b := browse(t, s)
	b.open(s.url)
	b.live()
	tabs := []*browser{b}
	for range 6 {
		hide(tabs[len(tabs)-1])
		other := b.tab()
		other.open(s.url)
		other.live()
		tabs = append(tabs, other)
	}
	s.enqueue(t, "mails")
	tabs[6].wait("document.querySelector('main table')?.textContent.includes('mails')")
	require.Equal(t, "false", tabs[0].text("Boolean(document.querySelector('main table'))"), "a hidden page does not ask")
	show(tabs[0])
	tabs[0].wait("document.querySelector('main table')?.textContent.includes('mails')")
}

// A hidden page closes its stream and opens it again when it's shown.
func TestLive_Hidden(t *testing.T) {
	var streams atomic.Int64
	s := serve(t, nil, 0, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/events" {
				streams.Add(1)
				defer streams.Add(-1)
			}
			h.ServeHTTP(w, r)
		})
	})
	b := browse(t, s)
	b.open(s.url)
	b.live()
	require.Eventually(t, func() bool { return streams.Load() == 1 }, patience, time.Millisecond)
	hide(b)
	require.Eventually(t, func() bool { return streams.Load() == 0 }, patience, time.Millisecond)
	show(b)
	require.Eventually(t, func() bool { return streams.Load() == 1 }, patience, time.Millisecond)
	b.live()
}

// hide and show simulate the events sent when a tab is hidden or shown. A headless browser does not send them.
func hide(b *browser) { visibility(b, "hidden") }
func show(b *browser) { visibility(b, "visible") }

func visibility(b *browser, state string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`Object.defineProperty(document, "visibilityState", {value: %q, configurable: true});
		Object.defineProperty(document, "hidden", {value: %t, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, state, state == "hidden")))
}

type noFlush struct{ w http.ResponseWriter }

func (n noFlush) Header() http.Header         { return n.w.Header() }
func (n noFlush) Write(b []byte) (int, error) { return n.w.Write(b) }
func (n noFlush) WriteHeader(status int)      { n.w.WriteHeader(status) }

// zipped is middleware that compresses responses. It ignores Flush and writes everything at the end.
type zipped struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (z zipped) Write(b []byte) (int, error) { return z.zip.Write(b) }
func (z zipped) Flush()                      { _ = http.NewResponseController(z.ResponseWriter).Flush() }

// Behind middleware that buffers streams, the page polls and shows the reason.
func TestLive_FallsBack(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler, http.ResponseWriter, *http.Request){
		"without Flush": func(h http.Handler, w http.ResponseWriter, r *http.Request) { h.ServeHTTP(noFlush{w}, r) },
		"gzip": func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, ".") { // assets are compressed already
				h.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			h.ServeHTTP(zipped{w, z}, r)
			_ = z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the subtests mostly wait
			s := serve(t, nil, 0, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { wrap(h, w, r) })
			})
			b := browse(t, s)
			b.expected = []string{"501"} // the browser logs the response
			b.open(s.url)
			b.wait("document.querySelector('#live .text').textContent === 'every 5 s'")
			require.Contains(t, b.text("document.getElementById('trouble').textContent"), "buffer streams")
			s.enqueue(t, "mails")
			b.wait("document.querySelector('main table')?.textContent.includes('mails')")
		})
	}
}

// Two clicks requeue a group of dead letters, and the page shows the outcome. Two more undo that.
func TestVerbs_RequeueGroup(t *testing.T) {
	s := serve(t, nil, 0, nil)
	s.bury(t, "mails", "no route to host", 7)
	s.bury(t, "mails", "mailbox unknown", 2)
	b := browse(t, s)
	b.open(s.url + "dead")
	b.live()
	b.run(chromedp.Click(chromedp.CSS("article.kind .pop summary")), chromedp.Click(chromedp.CSS("article.kind form[action=requeue] button")))
	b.wait("document.querySelector('h1')?.textContent === 'Requeue 7 jobs?'")
	b.run(chromedp.Click(chromedp.CSS("main form button.primary")))
	b.wait("document.getElementById('flash')?.textContent === '7 jobs requeued. Those that have not run'")
	require.Equal(t, "2", strings.TrimSpace(b.text("document.querySelector('article.kind .size a').textContent")))
	require.Equal(t, "", b.text("location.search"), "the sentence is not part of what is handed on")

	b.run(chromedp.Click(chromedp.CSS("form[action=bury] button")))
	b.wait("document.querySelector('h1')?.textContent === 'Bury 7 jobs?'")
	b.run(chromedp.Click(chromedp.CSS("main form button.primary")))
	b.wait("document.getElementById('flash')?.textContent === '7 jobs made dead.'")
}

// To delete all matching jobs, the operator must type how many there are. Both the browser and the handler check
// the number.
func TestVerbs_Typed(t *testing.T) {
	s := serve(t, nil, 0, nil)
	s.bury(t, "mails", "no route to host", 4)
	b := browse(t, s)
	b.open(s.url + "dead")
	b.run(chromedp.Click(chromedp.CSS("article.kind form[action=discard] button")))
	b.wait("document.querySelector('input[name=typed]')")
	require.Empty(t, b.violations(), "the page that asks")
	b.run(chromedp.Click(chromedp.CSS("main form button.primary"))) // the browser requires the field
	b.run(chromedp.SendKeys(chromedp.CSS("input[name=typed]"), "3"))
	b.expected = []string{"409"}
	b.run(chromedp.Click(chromedp.CSS("main form button.primary")))
	b.wait("document.querySelector('[role=alert]')")
	require.Empty(t, b.violations(), "the page that asks again")
	b.run(chromedp.Evaluate[chromedp.Void]("document.querySelector('input[name=typed]').value = ''"), chromedp.SendKeys(chromedp.CSS("input[name=typed]"), "4"))
	b.run(chromedp.Click(chromedp.CSS("main form button.primary")))
	b.wait("document.getElementById('flash')?.textContent === '4 jobs discarded.'")
}

// The pages work without scripts.
func TestVerbs_NoScript(t *testing.T) {
	s := serve(t, nil, 0, nil)
	s.enqueue(t, "mails")
	b := browse(t, s, chromedp.Flag("blink-settings", "scriptEnabled=false"))
	b.open(s.url)
	b.run(chromedp.Click(chromedp.CSS("form[action=pause] button")), chromedp.WaitVisible(chromedp.CSS(".tag.paused")))
	stats, err := s.queue("mails").Stats(context.Background())
	require.NoError(t, err)
	require.NotNil(t, stats.Pause)
}

// The server can shut down while pages with streams are open.
func TestLive_Shutdown(t *testing.T) {
	db := serve(t, nil, 0, nil).db
	h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
	server := &http.Server{Handler: h}
	server.RegisterOnShutdown(h.Close)
	t.Cleanup(func() { _ = server.Close() }) // the test is skipped below if there is no browser
	at := listen(t)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(at) }()
	b := browse(t, &site{url: "http://" + at.Addr().String() + "/honker/"})
	b.expected = []string{"net::", "Failed to load"}
	b.open("http://" + at.Addr().String() + "/")
	b.live()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, server.Shutdown(ctx))
	require.True(t, errors.Is(<-ended, http.ErrServerClosed))
	b.wait("document.querySelector('#live .text').textContent !== 'live'")
}
