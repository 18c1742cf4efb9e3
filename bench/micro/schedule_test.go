package micro_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// BenchmarkScheduler_Tick measures a tick over 10,000 schedules, some of which are due. A leader
// does nothing else at such a time.
func BenchmarkScheduler_Tick(b *testing.B) {
	const all = 10_000
	for _, due := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprintf("due=%d", due), func(b *testing.B) {
			db := openBench(b, nil)
			_, err := db.SQL().Exec(testkit.Numbers(all)+`INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at)
SELECT 'schedule ' || n, 'bench', iif(n <= ?1, '@every 1s', '*/5 * * * *'), '{"n": 1}', iif(n <= ?1, 1700000000, 4000000000) FROM some`, due)
			require.NoError(b, err)
			s, at := db.Scheduler(), time.Unix(1_700_000_000, 0)
			b.ResetTimer()
			for range b.N {
				fires, err := s.Tick(b.Context(), at)
				if err != nil || len(fires) != due {
					b.Fatal(len(fires), err)
				}
				at = at.Add(time.Second)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/tick")
		})
	}
}

// BenchmarkScheduler_Soonest measures the query that a leader runs after each commit to the file.
func BenchmarkScheduler_Soonest(b *testing.B) {
	db := openBench(b, nil)
	_, err := db.SQL().Exec(testkit.Numbers(10_000) + `INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at)
SELECT 'schedule ' || n, 'bench', '@every 1h', '1', 4000000000 - n FROM some`)
	require.NoError(b, err)
	b.ResetTimer()
	for range b.N {
		if at, err := db.Scheduler().Soonest(b.Context()); err != nil || at.IsZero() {
			b.Fatal(at, err)
		}
	}
}

// BenchmarkScheduler_Register registers an unchanged schedule, as every start of a service does.
func BenchmarkScheduler_Register(b *testing.B) {
	db := openBench(b, nil)
	for range b.N {
		err := db.Scheduler().Register(b.Context(), honker.Schedule{Name: "report", Queue: "reports", Spec: "0 9 * * 1-5"})
		if err != nil {
			b.Fatal(err)
		}
	}
}
