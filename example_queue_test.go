package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
)

func ExampleQueue_Jobs() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	steps := honker.NewQueue[string](db, "steps", nil)
	steps.EnqueueMany(ctx, []string{"boil", "steep", "drink"})

	for job, err := range steps.Jobs(ctx, "kitchen") { // waits for more until ctx ends
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Args)
		if err := job.Ack(ctx); err != nil {
			log.Fatal(err)
		}
		if job.Args == "drink" {
			break
		}
	}
	// Output:
	// boil
	// steep
	// drink
}

// scratch is where an example keeps its file: an application would say "app.db".
func scratch() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "honker-example")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "app.db"), func() { os.RemoveAll(dir) }
}

func ExampleQueue() {
	type Email struct{ To, Subject string }
	ctx := context.Background()
	path, remove := scratch()
	defer remove()

	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	emails := honker.NewQueue[Email](db, "emails", nil)
	emails.Enqueue(ctx, Email{"ada@example.com", "Welcome"})
	emails.Enqueue(ctx, Email{"bob@example.com", "Your password"}, honker.Priority(10))
	emails.Enqueue(ctx, Email{"eve@example.com", "How was it?"}, honker.Delay(24*time.Hour))

	jobs, err := emails.Claim(ctx, "mailer-1", 10)
	for _, job := range jobs {
		fmt.Println(job.Args.To, job.Args.Subject)
		job.Ack(ctx)
	}
	fmt.Println(len(jobs), "sent:", err)
	// Output:
	// bob@example.com Your password
	// ada@example.com Welcome
	// 2 sent: <nil>
}

func ExampleQueue_Get() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	reports := honker.NewQueue[string](db, "reports", nil)
	id, _ := reports.Enqueue(ctx, "2026-Q1")
	jobs, _ := reports.Claim(ctx, "printer", 1)
	jobs[0].Reject(ctx, fmt.Errorf("out of paper"))

	job, err := reports.Get(ctx, id)
	fmt.Println(job.State, job.Attempts, job.LastError, err)
	// Output: dead 1 out of paper <nil>
}

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
