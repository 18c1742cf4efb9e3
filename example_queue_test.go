package honker_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
)

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
	jobs[0].Fail(ctx, fmt.Errorf("out of paper"))

	job, err := reports.Get(ctx, id)
	fmt.Println(job.State, job.Attempts, job.LastError, err)
	// Output: dead 1 out of paper <nil>
}
