package micro_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkTraffic measures the cost of counting jobs for admin.Traffic. x-raw is the speed
// relative to a DB with NoTraffic.
func BenchmarkTraffic(b *testing.B) {
	plain := func(b *testing.B) *honker.DB { return openBench(b, &honker.Options{NoTraffic: true}) }
	b.Run("claim-ack", func(b *testing.B) {
		alternate(b, 200, claimAck(b, plain(b)), claimAck(b, openBench(b, nil)))
	})
	b.Run("work", func(b *testing.B) {
		alternate(b, 20_000, fillAndWork(b, plain(b)), fillAndWork(b, openBench(b, nil)))
	})
}

// alternate is like compare but swaps the order in every other turn, because the speed of the
// machine changes between the first and the second.
func alternate(b *testing.B, turn int, plain, counted func(n int)) {
	plain(turn)
	counted(turn)
	var ratios []float64
	var spent time.Duration
	b.ResetTimer()
	for left, first := b.N, false; left > 0; left, first = left-turn, !first {
		n := min(turn, left)
		var p, c time.Duration
		if first {
			c = timed(counted, n)
		}
		p = timed(plain, n)
		if !first {
			c = timed(counted, n)
		}
		spent += c
		ratios = append(ratios, float64(p)/float64(c))
	}
	reportRatios(b, spent, ratios)
}

// fillAndWork works n jobs with eight workers and a no-op handler.
func fillAndWork(b *testing.B, db *honker.DB) func(n int) {
	q := honker.NewQueue[payload](db, "bench", nil)
	return func(n int) {
		_, err := db.SQL().Exec(fill, n, "{}")
		require.NoError(b, err)
		workOff(b, q, n)
	}
}
