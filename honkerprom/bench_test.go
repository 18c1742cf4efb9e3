package honkerprom_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// BenchmarkScrape scrapes 500 queues with a million jobs. The first scrape counts the jobs, the
// second uses the values of the first, and a new collector uses the counts cached by the DB.
func BenchmarkScrape(b *testing.B) {
	db := honkertest.Open(b, nil)
	jobs := 1_000_000
	if testing.Short() {
		jobs = 10_000
	}
	testkit.Exec(b, db, testkit.Numbers(jobs)+`INSERT INTO _honker_live (queue, payload, run_at)
		SELECT 'queue ' || (n % 500), '1', 1000 + n FROM some`)
	reg := registered(honkerprom.New(db, nil))
	first, second := gather(b, reg), gather(b, reg)
	again := gather(b, registered(honkerprom.New(db, nil)))
	for b.Loop() {
		gather(b, reg)
	}
	b.ReportMetric(first, "first-ms")
	b.ReportMetric(second, "second-ms")
	b.ReportMetric(again, "again-ms")
}

func gather(b *testing.B, reg *prometheus.Registry) (ms float64) {
	began := time.Now()
	_, err := reg.Gather()
	require.NoError(b, err)
	return float64(time.Since(began).Microseconds()) / 1000
}

// BenchmarkLook measures a read of a small database, whose counts are not cached.
func BenchmarkLook(b *testing.B) {
	db := honkertest.Open(b, nil)
	testkit.Exec(b, db, testkit.Numbers(1000)+`INSERT INTO _honker_live (queue, payload, run_at)
		SELECT 'queue ' || (n % 20), '1', 1000 + n FROM some`)
	for b.Loop() {
		gather(b, registered(honkerprom.New(db, nil)))
	}
}

// BenchmarkObserver measures the cost of the callbacks for a job.
func BenchmarkObserver(b *testing.B) {
	o := honkerprom.Observer(registered(), nil)
	b.ReportAllocs()
	for b.Loop() {
		o.Started(started)
		o.Returned(returned)
		o.Settled(settled)
	}
}

var (
	started  = observe.Started{Queue: "mails", ID: 1, Worker: "w", Attempt: 1, Wait: time.Millisecond}
	returned = observe.Returned{Queue: "mails", ID: 1, Worker: "w", Attempt: 1, Ran: time.Millisecond}
	settled  = observe.Settled{Queue: "mails", ID: 1, Worker: "w", Attempt: 1, Outcome: honker.OutcomeAcked}
)
