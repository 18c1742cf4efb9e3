package uitest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

type mail struct{ To, Subject, Body string }

var oneMail = mail{"someone@example.org", "Your order has been shipped", "it is on its way, number 4711"}

// tabs lists the pages that are open during the benchmark.
var tabs = slices.Repeat([]string{"", "queue?name=bench", "jobs?queue=bench", ""}, 5)

// openTabs is the main function of a child process. It opens the tabs when it reads an input line, closes them at
// the next line, and starts over.
func openTabs() {
	url := testkit.ChildArgs[string]()
	for {
		if _, more := testkit.ReadLine(); !more {
			return
		}
		ctx, stop := context.WithCancel(testkit.ChildContext())
		var open, closed sync.WaitGroup
		var fetched atomic.Int64
		open.Add(len(tabs))
		for _, page := range tabs {
			closed.Go(func() { openTab(ctx, url, page, &open, &fetched) })
		}
		open.Wait()
		testkit.Say("open")
		_, more := testkit.ReadLine()
		stop()
		closed.Wait()
		testkit.Say(fetched.Load())
		if !more {
			return
		}
	}
}

// openTab simulates a page's script. After each tick of the stream, it requests the page with the last ETag, at
// most four times a second and less often if the page is slow.
func openTab(ctx context.Context, url, page string, open *sync.WaitGroup, fetched *atomic.Int64) {
	stream := tabAsks(ctx, url+"events")
	if stream == nil {
		return
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	ticks := make(chan struct{}, 1)
	go func() {
		defer close(ticks)
		for lines.Scan() {
			switch lines.Text() {
			case "event: hello":
				open.Done()
			case "event: tick":
				select {
				case ticks <- struct{}{}:
				default:
				}
			}
		}
	}()
	tag := ""
	for range ticks {
		began := time.Now()
		answer := tabAsks(ctx, url+page, "Honker-Fragment", "1", "If-None-Match", tag)
		if answer == nil {
			break
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		tag = answer.Header.Get("ETag")
		fetched.Add(1)
		time.Sleep(min(5*time.Second, max(250*time.Millisecond, 10*time.Since(began))))
	}
	for range ticks { // ends with the stream when ctx ends
	}
}

// tabAsks sends a GET request. It returns nil if ctx has ended.
func tabAsks(ctx context.Context, url string, headers ...string) *http.Response {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	testkit.Must(err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if ctx.Err() != nil {
		return nil
	}
	testkit.Must(err)
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNotModified {
		testkit.Must(fmt.Errorf("%s: %s", url, answer.Status))
	}
	return answer
}

// BenchmarkUI_Tabs measures how much open dashboards slow down jobs. Each iteration takes about four seconds and
// alternates between having twenty tabs open in another process and having none. The x-unseen metric is the median
// ratio of the throughput with tabs to the throughput without. The load is either as many jobs as possible or
// 10,000 jobs a second. Use -benchtime 6x for comparable results.
func BenchmarkUI_Tabs(b *testing.B) {
	b.Run("flat-out", func(b *testing.B) { benchTabs(b, enqueueAhead) })
	b.Run("jobs=10k/s", func(b *testing.B) { benchTabs(b, enqueueEvenly) })
}

// enqueuer enqueues jobs until ctx ends. done is the number of completed jobs.
type enqueuer func(ctx context.Context, q *honker.Queue[mail], done *atomic.Int64) error

func benchTabs(b *testing.B, enqueue enqueuer) {
	db, err := honker.Open(context.Background(), filepath.Join(b.TempDir(), "app.db"), nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	b.Cleanup(h.Close)
	browser := testkit.StartChild(b, "tabs", server.URL+"/")
	done := busy(b, db, enqueue)
	turn := 750 * time.Millisecond
	if testing.Short() {
		turn = 50 * time.Millisecond
	}
	rate := func() float64 { return rateOf(done, turn) }
	var pages, looks int64
	seen := func() float64 {
		browser.Tell("look")
		require.Equal(b, "open", browser.Line(testkit.Timeout))
		began := time.Now()
		r := rate()
		looks += int64(time.Since(began))
		browser.Tell("stop")
		var n int64
		_, err := fmt.Sscan(browser.Line(testkit.Timeout), &n)
		require.NoError(b, err)
		pages += n
		return r
	}
	var ratios, unseen []float64
	rate()
	b.ResetTimer()
	for range b.N {
		before, first, second, after := rate(), seen(), seen(), rate()
		ratios = append(ratios, (first+second)/(before+after))
		unseen = append(unseen, (before+after)/2)
	}
	b.StopTimer()
	browser.End()
	slices.Sort(ratios)
	slices.Sort(unseen)
	b.ReportMetric(ratios[b.N/2], "x-unseen")
	b.ReportMetric(unseen[b.N/2], "jobs/s")
	b.ReportMetric(float64(pages)/time.Duration(looks).Seconds(), "pages/s")
}

// rateOf returns the number of jobs completed per second in a turn.
func rateOf(done *atomic.Int64, turn time.Duration) float64 {
	time.Sleep(turn / 5) // let the effects of the previous turn wear off
	began, before := time.Now(), done.Load()
	time.Sleep(turn)
	return float64(done.Load()-before) / time.Since(began).Seconds()
}

// busy enqueues and processes jobs until the benchmark ends.
func busy(b *testing.B, db *honker.DB, enqueue enqueuer) *atomic.Int64 {
	q := honker.NewQueue[mail](db, "bench", nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := new(atomic.Int64)
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := enqueue(ctx, q, done); ctx.Err() == nil {
			b.Error(err)
		}
	})
	ended.Go(func() {
		err := q.Work(ctx, func(context.Context, *honker.Job[mail]) error { done.Add(1); return nil }, &honker.WorkOptions{Workers: 8})
		if err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { cancel(); ended.Wait() })
	return done
}

// enqueueAhead keeps a number of jobs ready.
func enqueueAhead(ctx context.Context, q *honker.Queue[mail], done *atomic.Int64) error {
	args := slices.Repeat([]mail{oneMail}, 500)
	for n := int64(0); ; n += int64(len(args)) {
		for n-done.Load() > 4000 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if _, err := q.EnqueueMany(ctx, args); err != nil {
			return err
		}
	}
}

// enqueueEvenly enqueues 10,000 jobs a second.
func enqueueEvenly(ctx context.Context, q *honker.Queue[mail], _ *atomic.Int64) error {
	args := slices.Repeat([]mail{oneMail}, 100)
	for next := time.Now(); ; next = next.Add(10 * time.Millisecond) {
		time.Sleep(time.Until(next))
		if _, err := q.EnqueueMany(ctx, args); err != nil {
			return err
		}
	}
}
