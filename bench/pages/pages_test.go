// Package pages_test benchmarks the pages of the dashboard on a large database.
//
// It is separate from bench/micro, because html/template prevents the linker from removing unused
// methods. That alone slowed SQLite down in bench/micro, by a tenth in BenchmarkQueue_Work.
package pages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/bench/bigfile"
	"github.com/honker-go/honker/ui"
)

// uiPages lists the pages of the dashboard with typical parameters.
func uiPages() []string {
	return []string{
		"", "queue?name=queue-010", "queue?name=queue-010&span=7d", "jobs", "jobs?queue=queue-010", "jobs?phase=dead",
		"job?id=500", fmt.Sprintf("job?id=%d", bigfile.Jobs()+500), "dead", "dead?queue=queue-010",
		"streams", "stream?topic=orders", "schedules", "batches", "locks", "workers", "file", "audit",
		"jobs?contains=nowhere", // a search that is cut off after a while
	}
}

const (
	bigEvents = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 / 10)
INSERT INTO _honker_stream (topic, key, payload) SELECT iif(i % 2, 'orders', printf('topic-%02d', i % 50)), 'k' || i % 100, '{"order":' || i || '}' FROM n`
	bigMinutes = `WITH RECURSIVE m(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM m WHERE i < ?1 - 1), q(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM q WHERE k < 100)
INSERT INTO _honkerx_minutes (minute, queue, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms)
SELECT unixepoch() / 60 - i, iif(k = 100, '', printf('queue-%03d', k)), 9, 9, 7, 1, 1, 0, 90, 900, 20 FROM m, q`
	// Makes the first twenty queues two hours late, after a day of traffic.
	bigLate = `UPDATE _honker_live SET run_at = unixepoch() - 7200 WHERE queue < 'queue-020' AND state = 'pending' AND run_at < unixepoch()`
)

// BenchmarkUI_Pages opens each page repeatedly, as a browser does. The counts of the queues are
// cached after the first time, for as long as the cache is valid.
func BenchmarkUI_Pages(b *testing.B) {
	db, _ := bigfile.Open(b)
	fillUI(b, db)
	h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
	b.Cleanup(h.Close)
	benchPages(b, h)
}

// benchPages opens each page.
func benchPages(b *testing.B, h http.Handler) {
	b.Helper()
	requirePage(b, h, "")
	for _, page := range uiPages() {
		b.Run("/"+page, func(b *testing.B) {
			before := cpuTime()
			for b.Loop() {
				requirePage(b, h, page)
			}
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/page")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/page")
		})
	}
}

// fillUI adds events with consumers, and a week of traffic of a hundred queues.
func fillUI(b *testing.B, db *honker.DB) {
	b.Helper()
	_, err := db.SQL().Exec(bigEvents, bigfile.Jobs())
	require.NoError(b, err)
	_, err = db.SQL().Exec(bigMinutes, minutes())
	require.NoError(b, err)
	_, err = db.SQL().Exec(bigLate)
	require.NoError(b, err)
	join(b, db)
}

// join adds a consumer and a member of a group.
func join(b *testing.B, db *honker.DB) {
	b.Helper()
	orders := honker.NewStream[int](db, "orders", nil)
	_, err := orders.SaveOffset(b.Context(), "mail", 1)
	require.NoError(b, err)
	_, err = orders.Group("ship", nil).Join(b.Context(), "a")
	require.NoError(b, err)
}

func requirePage(b *testing.B, h http.Handler, page string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+page, nil))
	require.Equal(b, http.StatusOK, w.Code, w.Body)
}

// minutes returns the number of minutes with traffic: those of a week.
func minutes() int {
	if testing.Short() {
		return 100
	}
	return 7 * 24 * 60
}
