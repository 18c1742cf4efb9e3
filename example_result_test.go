package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

func ExampleWaitResult() {
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	squares := honker.NewQueue[int](db, "squares", nil)
	done := make(chan error)
	go func() {
		done <- squares.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
			if job.Args < 0 {
				return honker.Reject(errors.New("too cold"))
			}
			return job.SetResult(job.Args * job.Args) // saved with the ack
		}, nil)
	}()

	good, _ := squares.Enqueue(ctx, 12)
	n, err := honker.WaitResult[int](ctx, db, good)
	fmt.Println(n, err)

	bad, _ := squares.Enqueue(ctx, -1)
	_, err = honker.WaitResult[int](ctx, db, bad)
	var failed *honker.JobFailedError
	fmt.Println(errors.As(err, &failed), failed.LastError)

	stop()
	fmt.Println(<-done)
	// Output:
	// 144 <nil>
	// true too cold
	// <nil>
}
