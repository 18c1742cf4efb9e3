package micro_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/bench/bigfile"
)

// BenchmarkAdmin_Problems finds problems in a large file, where every queue has some.
func BenchmarkAdmin_Problems(b *testing.B) {
	db, _ := bigfile.Open(b)
	look := func() {
		all, err := admin.Problems(b.Context(), db)
		require.NoError(b, err)
		require.NotEmpty(b, all)
	}
	look() // caches the counts of the queues
	for b.Loop() {
		look()
	}
}

// BenchmarkWorker_Short runs a Work that ends after a single job, including its worker row in the
// file.
func BenchmarkWorker_Short(b *testing.B) {
	db := openBench(b, nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		_, err := q.Enqueue(ctx, 1)
		require.NoError(b, err)
		err = q.Work(ctx, func(context.Context, *honker.Job[int]) error { cancel(); return nil }, &honker.WorkOptions{Workers: 1})
		require.NoError(b, err)
	}
}

// BenchmarkAdmin_Queues lists the queues of a large file, first with counting and then from cached
// counts.
func BenchmarkAdmin_Queues(b *testing.B) {
	db, path := bigfile.Open(b)
	b.Run("counted", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			other, err := honker.Open(b.Context(), path, nil) // the counts cached by another process are not used
			require.NoError(b, err)
			b.StartTimer()
			requireOverview(b, other)
			b.StopTimer()
			require.NoError(b, other.Close())
			b.StartTimer()
		}
	})
	b.Run("again", func(b *testing.B) {
		requireOverview(b, db)
		for b.Loop() {
			requireOverview(b, db)
		}
	})
	b.Run("one", func(b *testing.B) {
		q := honker.NewQueue[payload](db, "queue-007", nil)
		for b.Loop() {
			s, err := q.Stats(b.Context())
			require.NoError(b, err)
			require.NotZero(b, s.Ready.N)
		}
	})
}

func requireOverview(b *testing.B, db *honker.DB) {
	all, err := admin.Queues(b.Context(), db)
	require.NoError(b, err)
	require.Len(b, all, 500)
}

// BenchmarkAdmin_List reads all pages of a list and reports the slowest.
func BenchmarkAdmin_List(b *testing.B) {
	db, _ := bigfile.Open(b)
	one := []string{"queue-010"}
	for _, l := range []struct {
		name  string
		f     admin.JobFilter
		order admin.Order
		pages int // upper bound
	}{
		{"newest", admin.JobFilter{}, admin.NewestFirst, 300},
		{"oldest", admin.JobFilter{}, admin.OldestFirst, 300},
		{"newest of a queue", admin.JobFilter{Queues: one}, admin.NewestFirst, 300},
		{"claims of a queue", admin.JobFilter{Queues: one}, admin.ClaimOrder, 300},
		{"last died", admin.JobFilter{}, admin.LastDiedFirst, 300},
		{"last died of a queue", admin.JobFilter{Queues: one}, admin.LastDiedFirst, 300},
		{"running", admin.JobFilter{Phases: []honker.Phase{honker.PhaseRunning}}, admin.NewestFirst, 300},
		{"scheduled", admin.JobFilter{Phases: []honker.Phase{honker.PhaseScheduled}}, admin.NewestFirst, 300},
		{"search for nothing", admin.JobFilter{Contains: "nowhere"}, admin.NewestFirst, 60},
		{"field that is nowhere", admin.JobFilter{Where: map[string]string{"order": "x"}}, admin.NewestFirst, 60},
		{"search among dead", admin.JobFilter{Contains: "nowhere"}, admin.LastDiedFirst, 60},
	} {
		for _, limit := range []int{50, 1000} {
			b.Run(fmt.Sprintf("%s/limit=%d", l.name, limit), func(b *testing.B) {
				for b.Loop() {
					slowestPage(b, db, l.f, &admin.PageOptions{Order: l.order, Limit: limit}, l.pages)
				}
			})
		}
	}
}

func slowestPage(b *testing.B, db *honker.DB, f admin.JobFilter, o *admin.PageOptions, most int) {
	var took []time.Duration
	scanned := int64(0)
	for len(took) < most {
		began := time.Now()
		p, err := admin.ListJobs(b.Context(), db, f, o)
		require.NoError(b, err)
		took = append(took, time.Since(began))
		scanned += p.Scanned
		if o.After = p.Next; p.Next == "" {
			break
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-slowest")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(len(took)), "pages")
	b.ReportMetric(float64(scanned)/float64(len(took)), "scanned/page")
}

// BenchmarkAdmin_Viewers measures a worker at full speed in a large file, with and without twenty
// viewers that each read all queues and the newest jobs every second. It alternates between both.
func BenchmarkAdmin_Viewers(b *testing.B) {
	db, _ := bigfile.Open(b)
	q := honker.NewQueue[payload](db, "busy", nil)
	jobs := slices.Repeat([]payload{onePayload}, 1000)
	turn := func(viewers int) time.Duration {
		n := 200_000
		if testing.Short() {
			n = 2000
		}
		for range n / len(jobs) {
			_, err := q.EnqueueMany(b.Context(), jobs)
			require.NoError(b, err)
		}
		ctx, stop := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for i := range viewers {
			wg.Go(func() { view(b, ctx, db, time.Duration(i)*time.Second/time.Duration(viewers)) })
		}
		var left atomic.Int64
		left.Store(int64(n))
		began := time.Now()
		work, done := context.WithCancel(ctx)
		err := q.Work(work, func(context.Context, *honker.Job[payload]) error {
			if left.Add(-1) == 0 {
				done()
			}
			return nil
		}, &honker.WorkOptions{Workers: 8})
		took := time.Since(began)
		require.NoError(b, err)
		stop()
		wg.Wait()
		return took
	}
	turn(0) // warm up
	var ratios []float64
	b.ResetTimer()
	for range b.N {
		with, without := turn(20), turn(0)
		ratios = append(ratios, 100*(float64(with)/float64(without)-1))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "%-slower")
	b.ReportMetric(ratios[0], "%-least")
	b.ReportMetric(ratios[len(ratios)-1], "%-most")
}

// view reads the overview every second until ctx is done.
func view(b *testing.B, ctx context.Context, db *honker.DB, after time.Duration) {
	tick := time.NewTimer(after)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tick.Reset(time.Second)
		if _, err := admin.Queues(ctx, db); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
		if _, err := admin.ListJobs(ctx, db, admin.JobFilter{}, nil); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	}
}
