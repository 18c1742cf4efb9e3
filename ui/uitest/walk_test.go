package uitest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/ui"
)

// walked lists the pages with the names of their pictures in docs/images. A page without a name has no picture, or has that
// of TestPages_Outage.
var walked = []struct{ page, picture string }{
	{"", ""}, {"queue?name=webhooks", ""}, {"queue?name=emails&span=24h", ""}, {"jobs", ""}, {"jobs?queue=emails", "jobs"},
	{"jobs?phase=dead&contains=customer-3", "search"}, {"dead", "dead"}, {"job?id=1", ""}, {"job?id=40", ""}, {"streams", "streams"},
	{"stream?topic=orders", "stream"}, {"schedules", "schedules"}, {"batches", "batches"}, {"relays", "relays"}, {"relay?name=webhooks", "relay"},
	{"flows", "flows"}, {"run?flow=order&id=order-17", "run"}, {"actors", "actors"}, {"locks", "locks"}, {"workers", "workers"}, {"file", "file"},
	{"audit", "audit"},
}

// Every page is tested in wide and narrow windows and in both color schemes. It must load no external resources,
// run no inline scripts, fit the width of its window, and have no accessibility violations. With
// HONKER_PICTURES=dir, screenshots of the pages are saved in dir.
func TestPages_Walk(t *testing.T) {
	s := serve(t, &ui.Options{Authorize: ui.AllowAll, Title: "staging", Color: "#d97706", Enqueue: true}, 0, nil)
	seed(t, s.db)
	b := browse(t, s)
	for _, dark := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.run(chromedp.EmulateViewport(width, 900))
			_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: dark}}})
			require.NoError(t, err)
			for _, w := range walked {
				page := w.page
				b.open(s.url + page)
				require.Equal(t, "true", b.text("document.documentElement.scrollWidth <= innerWidth"), "%s is wider than %d", page, width)
				require.Equal(t, "1", b.text("document.querySelectorAll('h1').length"), page)
				require.Equal(t, "0", b.text("document.querySelectorAll('[style], style, script:not([src])').length"), page)
				b.live()
				b.picture(w.picture, width, dark)
				require.Empty(t, b.violations(), "%s, %d wide, %s", page, width, dark)
			}
		}
	}
}

// picture saves a screenshot of a wide light or narrow dark page in the directory named by HONKER_PICTURES.
func (b *browser) picture(name string, width int64, colors string) {
	dir := os.Getenv("HONKER_PICTURES")
	if dir == "" || name == "" {
		return
	}
	switch fmt.Sprintf("%d %s", width, colors) {
	case "1280 light":
	case "390 dark":
		name += "-phone"
	case "1280 dark":
		if name != "overview" {
			return
		}
		name += "-dark"
	default:
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// The browser fixture reports policy violations, requests to other servers and script errors. The other tests rely on it.
func TestPages_Complaints(t *testing.T) {
	s := serve(t, nil, 0, nil)
	b := browse(t, s)
	b.open(s.url)
	elsewhere := strings.Replace(s.url, "127.0.0.1", "localhost", 1)
	for _, c := range []struct{ complaint, script string }{
		{"Content Security Policy", fmt.Sprintf("fetch(%q).catch(() => {})", elsewhere)},
		{"console: error", "console.error('x')"},
		{"exception: ", "setTimeout(() => { throw new Error('x') })"},
		{"a request to " + elsewhere, fmt.Sprintf("location = %q", elsewhere)},
	} {
		require.False(t, b.complained(c.complaint))
		b.run(chromedp.Evaluate[chromedp.Void](c.script))
		require.Eventually(t, func() bool { return b.complained(c.complaint) }, patience, time.Millisecond, c.complaint)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults, b.expected = nil, []string{""}
}
