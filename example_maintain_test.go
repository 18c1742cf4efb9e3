package honker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
)

// Run it in every process, beside the work; one of them does the chores.
func ExampleDB_Maintain() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := openScratch(ctx)
	defer done()

	logs := honker.NewStream[int](db, "logs", nil)
	logs.SetRetention(ctx, honker.Retention{MaxCount: 10})
	logs.PublishMany(ctx, make([]int, 100))

	maintained := make(chan error)
	go func() { maintained <- db.Maintain(ctx, time.Minute) }()

	for range db.Updates(ctx) { // after each commit, by whomever
		left := 0
		for range logs.Read(ctx, 0) {
			left++
		}
		if left == 10 {
			fmt.Println("events left:", left)
			break
		}
	}
	stop()
	fmt.Println("maintain:", <-maintained)
	// Output:
	// events left: 10
	// maintain: <nil>
}
