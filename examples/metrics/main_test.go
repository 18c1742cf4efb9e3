package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
)

// A scrape reports the enqueued jobs, the outcomes of attempts and the waiting jobs.
func TestMetrics_Scrape(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reg := prometheus.NewRegistry()
	db := honkertest.Open(t, &honker.Options{Observer: newEvents(reg).observer()})
	reg.MustRegister(depths{db})
	mails := honker.NewQueue[int](db, "mails", nil)
	_, err := mails.EnqueueMany(ctx, []int{1, 2})
	require.NoError(t, err)
	_, err = mails.Enqueue(ctx, 3, honker.Delay(time.Hour)) // will still be waiting at the scrape
	require.NoError(t, err)

	ran := 0
	require.NoError(t, mails.Work(ctx, func(context.Context, *honker.Job[int]) error {
		if ran++; ran == 2 {
			stop()
			return honker.Reject(errors.New("no such address"))
		}
		return nil
	}, &honker.WorkOptions{Workers: 1}))

	orders := honker.NewStream[int](db, "orders", nil)
	member, err := orders.Group("packers", &honker.GroupOptions{MaxAttempts: 1}).Join(t.Context(), "ada")
	require.NoError(t, err)
	_, err = orders.Publish(t.Context(), 17)
	require.NoError(t, err)
	order, err := member.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, order[0].Nack(t.Context(), errors.New("no box")))

	text := scrape(reg)
	require.Contains(t, text, `honker_jobs_enqueued_total{queue="mails"} 3`)
	require.Contains(t, text, `honker_jobs_settled_total{outcome="acked",queue="mails"} 1`)
	require.Contains(t, text, `honker_jobs_settled_total{outcome="died",queue="mails"} 1`)
	require.Contains(t, text, `honker_group_events_died_total{group="packers",topic="orders"} 1`)
	require.NotContains(t, text, `queue=""`)
	require.Contains(t, text, `honker_job_run_seconds_count{queue="mails"} 2`)
	require.Contains(t, text, `honker_queue_jobs{queue="mails",state="pending"} 1`)
	require.Contains(t, text, `honker_queue_oldest_ready_seconds{queue="mails"} `)
}

// A job whose last lease expired counts as dead but not as a run.
func TestMetrics_LapsedJob(t *testing.T) {
	ctx, reg := t.Context(), prometheus.NewRegistry()
	db := honkertest.Open(t, &honker.Options{Observer: newEvents(reg).observer()})
	mails := honker.NewQueue[int](db, "mails", nil)
	_, err := mails.Enqueue(ctx, 1, honker.MaxAttempts(1))
	require.NoError(t, err)
	_, err = mails.Claim(ctx, "killed", 1)
	require.NoError(t, err)
	_, err = db.SQL().ExecContext(ctx, `UPDATE _honker_live SET claim_expires_at = 1`) // expires the lease
	require.NoError(t, err)
	_, err = mails.Claim(ctx, "heir", 1)
	require.NoError(t, err)

	text := scrape(reg)
	require.Contains(t, text, `honker_jobs_settled_total{outcome="died",queue="mails"} 1`)
	require.NotContains(t, text, `honker_job_run_seconds_count`)
}

func scrape(reg *prometheus.Registry) string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// The guide shows the code of this program.
func TestMetrics_Guide(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/observability.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.True(t, bytes.Contains(page, append([]byte("```go\n"), program...)), "docs/guide/observability.md shows another program")
}
