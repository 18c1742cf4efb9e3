// Metrics exports Prometheus metrics of honker. An Observer counts the events of this process, and
// each scrape queries the depth of the queues.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// events counts the events of this process. Sum them over all processes.
type events struct {
	enqueued *prometheus.CounterVec
	found    *prometheus.CounterVec
	settled  *prometheus.CounterVec
	died     *prometheus.CounterVec
	ran      *prometheus.HistogramVec
}

func newEvents(reg prometheus.Registerer) *events {
	e := &events{
		enqueued: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "honker_jobs_enqueued_total"}, []string{"queue"}),
		found:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "honker_jobs_deduplicated_total"}, []string{"queue", "result"}),
		settled:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "honker_jobs_settled_total"}, []string{"queue", "outcome"}),
		died:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "honker_group_events_died_total"}, []string{"topic", "group"}),
		ran: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "honker_job_run_seconds",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"queue"}),
	}
	reg.MustRegister(e.enqueued, e.found, e.settled, e.died, e.ran)
	return e
}

// observer returns callbacks that must be fast: they run in the goroutine that did the work.
func (e *events) observer() *observe.Observer {
	return &observe.Observer{
		Enqueued: func(q observe.Enqueued) { e.enqueued.WithLabelValues(q.Queue).Add(float64(len(q.IDs))) },
		Deduplicated: func(d observe.Deduplicated) { // the unique key was taken
			e.found.WithLabelValues(d.Queue, "existing").Add(float64(d.Existing))
			e.found.WithLabelValues(d.Queue, "replaced").Add(float64(d.Replaced))
		},
		Settled: func(s observe.Settled) {
			if s.Group != "" { // groups report only dead events
				e.died.WithLabelValues(s.Topic, s.Group).Inc()
				return
			}
			e.settled.WithLabelValues(s.Queue, string(s.Outcome)).Inc()
			if s.Ran > 0 { // 0 if unknown, for example for an expired job
				e.ran.WithLabelValues(s.Queue).Observe(s.Ran.Seconds())
			}
		},
	}
}

// depths collects the number of jobs in each queue and the delay of the oldest due job. All
// processes on the same database report the same values: take the maximum, not the sum.
type depths struct{ db *honker.DB }

var (
	jobs = prometheus.NewDesc("honker_queue_jobs", "Jobs that wait or run.", []string{"queue", "state"}, nil)
	late = prometheus.NewDesc("honker_queue_oldest_ready_seconds", "How long the oldest due job has waited.", []string{"queue"}, nil)
)

func (d depths) Describe(ch chan<- *prometheus.Desc) { ch <- jobs; ch <- late }

func (d depths) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	rows, err := d.db.SQL().QueryContext(ctx, `
		SELECT queue, state, count(*), max(0, unixepoch() - min(CASE WHEN state = 'pending' THEN run_at END))
		FROM _honker_live GROUP BY queue, state`)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(jobs, err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var queue, state string
		var n, waited *float64
		if err := rows.Scan(&queue, &state, &n, &waited); err != nil {
			ch <- prometheus.NewInvalidMetric(jobs, err)
			return
		}
		ch <- prometheus.MustNewConstMetric(jobs, prometheus.GaugeValue, *n, queue, state)
		if waited != nil {
			ch <- prometheus.MustNewConstMetric(late, prometheus.GaugeValue, *waited, queue)
		}
	}
	if err := rows.Err(); err != nil {
		ch <- prometheus.NewInvalidMetric(jobs, err)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	reg := prometheus.NewRegistry()
	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: newEvents(reg).observer()})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	reg.MustRegister(depths{db})

	server := &http.Server{Addr: ":9090", Handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Print(err)
	}
}
