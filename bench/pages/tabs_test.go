package pages_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// BenchmarkUI_Tabs measures the CPU time of a process that enqueues and works 10,000 jobs a second, without and with open
// pages of its dashboard. An iteration is a second.
func BenchmarkUI_Tabs(b *testing.B) {
	for _, tabs := range []int{0, 20} {
		b.Run(fmt.Sprint(tabs), func(b *testing.B) {
			db, err := honker.Open(b.Context(), filepath.Join(b.TempDir(), "honker.db"), nil)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, db.Close()) })
			h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
			server := httptest.NewServer(h)
			b.Cleanup(func() { h.Close(); server.CloseClientConnections(); server.Close() })
			ctx, stop := context.WithCancel(b.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			running.Go(func() { load(ctx, b, db) })
			for i := range tabs {
				running.Go(func() { follow(ctx, server.URL, []string{"", "queue?name=mails", "jobs", "dead", "workers"}[i%5]) })
			}
			<-time.After(3 * time.Second) // until the load is even
			before := cpuTime()
			b.ResetTimer()
			for b.Loop() {
				<-time.After(time.Second)
			}
			b.ReportMetric(100*(cpuTime()-before).Seconds()/b.Elapsed().Seconds(), "cpu-%")
		})
	}
}

// load enqueues and works 10,000 jobs a second.
func load(ctx context.Context, b *testing.B, db *honker.DB) {
	q := honker.NewQueue[int](db, "mails", nil)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		_ = q.Work(ctx, func(context.Context, *honker.Job[int]) error { return nil }, &honker.WorkOptions{Pool: honker.NewPool(8)})
	})
	for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		if _, err := q.EnqueueMany(ctx, make([]int, 100)); err != nil && ctx.Err() == nil {
			b.Error(err)
			return
		}
	}
}

// follow keeps a page up to date, as its script does.
func follow(ctx context.Context, url, page string) {
	get := func(path, header, value string) *http.Response {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+path, nil)
		r.Header.Set(header, value)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil
		}
		return w
	}
	stream := get("events", "Accept", "text/event-stream")
	if stream == nil {
		return
	}
	defer stream.Body.Close()
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		if lines.Text() != "event: tick" {
			continue
		}
		if w := get(page, "Honker-Fragment", "1"); w != nil {
			_, _ = io.Copy(io.Discard, w.Body)
			_ = w.Body.Close()
		}
	}
}
