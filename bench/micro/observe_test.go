package micro_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// BenchmarkObserver_Tx is BenchmarkQueue_Enqueue with an observer of transactions, compared with
// none.
func BenchmarkObserver_Tx(b *testing.B) {
	for _, callers := range []int{1, 8} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			var ended atomic.Int64
			plain := enqueueOne(b, nil)
			observed := enqueueOne(b, &honker.Options{Observer: &observe.Observer{Tx: func(observe.TxEnded) { ended.Add(1) }}})
			compare(b, 1000,
				func(n int) { spread(callers, n, plain) },
				func(n int) { spread(callers, n, observed) })
			if ended.Load() == 0 {
				b.Error("no transaction was observed")
			}
		})
	}
}

// enqueueOne returns a function that enqueues a job to a DB with opts.
func enqueueOne(b *testing.B, opts *honker.Options) func() {
	q := honker.NewQueue[payload](openBench(b, opts), "bench", nil)
	return func() {
		if _, err := q.Enqueue(context.Background(), onePayload); err != nil {
			b.Error(err)
		}
	}
}
