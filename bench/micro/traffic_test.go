package micro_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkTraffic is what it costs to count jobs for admin.Traffic: x-raw is the speed beside a DB
// with NoTraffic, in alternation.
func BenchmarkTraffic(b *testing.B) {
	plain := func(b *testing.B) *honker.DB { return openBench(b, &honker.Options{NoTraffic: true}) }
	b.Run("claim-ack", func(b *testing.B) {
		alternate(b, 200, claimAck(b, plain(b)), claimAck(b, openBench(b, nil)))
	})
	b.Run("work", func(b *testing.B) {
		alternate(b, 20_000, fillAndWork(b, plain(b)), fillAndWork(b, openBench(b, nil)))
	})
}

// alternate is compare with each of both first in every other turn: the one that follows finds
// another machine than the one before it.
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

// fillAndWork works off n jobs, with eight workers and a handler that does nothing.
func fillAndWork(b *testing.B, db *honker.DB) func(n int) {
	q := honker.NewQueue[payload](db, "bench", nil)
	return func(n int) {
		_, err := db.SQL().Exec(fill, n, "{}")
		require.NoError(b, err)
		workOff(b, q, n)
	}
}
