package observe_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// An observer counts the jobs that were added and acked.
func Example() {
	dir, err := os.MkdirTemp("", "honker")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	added, acked := 0, 0
	counts := &observe.Observer{
		Enqueued: func(e observe.Enqueued) { added += len(e.IDs) },
		Settled: func(s observe.Settled) {
			if s.Outcome == observe.OutcomeAcked {
				acked++
			}
		},
	}
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), &honker.Options{Observer: counts})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.EnqueueMany(ctx, []string{"ann", "ben"}); err != nil {
		log.Fatal(err)
	}
	job, err := mails.Claim(ctx, "worker", 1)
	if err != nil {
		log.Fatal(err)
	}
	if err := job[0].Ack(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(added, acked)
	// Output: 2 1
}

// Observers joins an observer for metrics and another that logs slow jobs.
func ExampleObservers() {
	metrics := &observe.Observer{Settled: func(s observe.Settled) { fmt.Println("count", s.Outcome) }}
	slow := &observe.Observer{Settled: func(s observe.Settled) {
		if s.Ran > time.Minute {
			fmt.Println("slow", s.Queue)
		}
	}}
	both := observe.Observers(metrics, slow)
	both.Settled(observe.Settled{Queue: "mails", Outcome: observe.OutcomeAcked, Ran: time.Hour})
	// Output:
	// count acked
	// slow mails
}
