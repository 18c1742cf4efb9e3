package uitest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// patience is the timeout for a page. It is long because the machine may be busy with other tests.
const patience = time.Minute

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	testkit.Main(m, map[string]func(){"enqueue": enqueueLines, "tabs": openTabs})
}

// enqueueLines is the main function of a child process. It enqueues a job in the queue named by each input line.
func enqueueLines() {
	ctx := testkit.ChildContext()
	db, err := honker.Open(ctx, testkit.ChildArgs[string](), nil)
	testkit.Must(err)
	defer db.Close()
	testkit.Say("open")
	for {
		name, more := testkit.ReadLine()
		if !more {
			return
		}
		_, err := honker.NewQueue[json.RawMessage](db, name, nil).Enqueue(ctx, json.RawMessage(`{"from":"elsewhere"}`))
		testkit.Must(err)
		testkit.Say("enqueued")
	}
}

// chromium returns the path to the browser. It skips the test if there is none.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("HONKER_CHROMIUM"), "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: see HONKER_CHROMIUM")
	return ""
}

// site is a dashboard on a server.
type site struct {
	db   *honker.DB
	path string
	url  string
}

func serve(t *testing.T, opts *ui.Options, timeout time.Duration, wrap func(http.Handler) http.Handler) *site {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(context.Background(), path, &honker.Options{NoTraffic: true}) // seedTraffic writes the traffic
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	if opts == nil {
		opts = &ui.Options{Authorize: ui.AllowAll}
	}
	h := ui.New(db, opts)
	t.Cleanup(h.Close)
	handler := http.Handler(h)
	if wrap != nil {
		handler = wrap(h)
	}
	mux := http.NewServeMux()
	mux.Handle("/honker/", http.StripPrefix("/honker", handler))
	server := httptest.NewUnstartedServer(mux)
	server.Config.WriteTimeout = timeout
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return &site{db, path, server.URL + "/honker/"}
}

func (s *site) queue(name string) *honker.Queue[json.RawMessage] {
	return honker.NewQueue[json.RawMessage](s.db, name, nil)
}

// browser is a page in a running Chromium, along with the errors it has logged.
type browser struct {
	t    *testing.T
	ctx  context.Context
	home string // prefix of all allowed requests

	mu       sync.Mutex
	faults   []string
	expected []string // parts of errors that the test expects
}

func browse(t *testing.T, s *site, more ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	opts := append([]chromedp.ExecAllocatorOption{chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU}, chromedp.DefaultExecAllocatorOptions[:]...)
	opts = append(opts, chromedp.CombinedOutput(io.Discard))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(opts, more...)...)
	t.Cleanup(stop)
	b := &browser{t: t, home: s.url[:strings.Index(s.url, "/honker/")]}
	ctx, end := chromedp.NewContext(allocator, chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); end() })
	b.begin()
	return b
}

// begin starts the browser or opens the tab.
func (b *browser) begin() {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx))
	_, err := chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	require.NoError(b.t, err)
	b.t.Cleanup(b.check)
}

// tab returns another page in the same browser.
func (b *browser) tab() *browser {
	b.t.Helper()
	other := &browser{t: b.t, home: b.home}
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithListener(other.listen))
	other.ctx = ctx
	b.t.Cleanup(end)
	other.begin()
	return other
}

// listen records script errors, violations of the content security policy, and requests to other servers.
func (b *browser) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("exception: " + e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.fault("console: " + string(e.Type))
	case *log.EventEntryAdded:
		b.fault("log: " + e.Entry.Text + " " + e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !strings.HasPrefix(url, b.home+"/") && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			b.fault("a request to " + url)
		}
	}
}

func (b *browser) fault(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	b.faults = append(b.faults, text)
}

func (b *browser) complained(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.faults, func(fault string) bool { return strings.Contains(fault, part) })
}

func (b *browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.faults, "the browser has complained")
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	err := chromedp.Do(ctx, actions...)
	if err != nil && strings.Contains(err.Error(), "Could not find node") { // an update of the page has just replaced it
		err = chromedp.Do(ctx, actions...)
	}
	require.NoError(b.t, err)
}

// wait waits until a script expression is true on the page.
func (b *browser) wait(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && is {
			return
		}
		require.NoError(b.t, ctx.Err(), "%s: %v", expression, err) // the expression may fail while the page loads
		require.NoError(b.t, chromedp.Do(ctx, chromedp.Sleep(10*time.Millisecond)))
	}
}

// text returns the value of a script expression on the page.
func (b *browser) text(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	require.NoError(b.t, err, expression)
	return s
}

// open loads a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("main h1")))
}

// live waits until the page has a stream.
func (b *browser) live() {
	b.t.Helper()
	b.wait("document.querySelector('#live .text').textContent === 'live'")
}

// listen opens a listener on a free local port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return at
}
