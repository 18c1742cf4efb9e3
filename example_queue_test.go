package honker_test

import (
	"context"
	"database/sql"
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

// scratch returns a path for the file of an example. An application would use a path such as "app.db".
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

// At most one job per key waits or runs. If the job is running, RunAgain runs it once more.
func ExampleUnique() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	pages := honker.NewQueue[string](db, "pages", nil)
	for _, text := range []string{"draft", "second draft", "final"} {
		var p honker.Placement
		_, err := pages.Enqueue(ctx, text, honker.Placed(&p),
			honker.Unique("home", &honker.Uniqueness{Conflict: honker.RunAgain}))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.Result)
	}
	pages.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		fmt.Println("rendered", job.Args)
		return nil
	}, nil)
	// Output:
	// new
	// replaced
	// replaced
	// rendered final
}

// Each document has one index job, however often it changes. The job runs after a second without changes,
// and after a minute at the latest.
func ExampleDebounce() {
	type Document struct{ ID int }
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	index := honker.NewQueue[Document](db, "index", nil)
	for range 100 {
		_, err := index.Enqueue(ctx, Document{7}, honker.Debounce("document:7", time.Second, time.Minute))
		if err != nil {
			log.Fatal(err)
		}
	}
	work, stop := context.WithCancel(ctx)
	index.Work(work, func(_ context.Context, job *honker.Job[Document]) error {
		fmt.Println("indexed document", job.Args.ID)
		stop()
		return nil
	}, nil)
	// Output: indexed document 7
}

func ExampleQueue_Pause() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	emails := honker.NewQueue[string](db, "emails", nil)
	emails.Enqueue(ctx, "bob@example.com")
	if _, err := emails.Pause(ctx, &honker.PauseOptions{Reason: "the mail server is down", Until: time.Now().Add(time.Hour)}); err != nil {
		log.Fatal(err)
	}
	jobs, err := emails.Claim(ctx, "w", 1)
	fmt.Println(len(jobs), err)
	was, err := emails.Resume(ctx)
	fmt.Println(was, err)
	jobs, err = emails.Claim(ctx, "w", 1)
	fmt.Println(len(jobs), err)
	// Output:
	// 0 <nil>
	// true <nil>
	// 1 <nil>
}

func ExampleQueue_SetLimits() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	emails := honker.NewQueue[string](db, "emails", nil)
	if err := emails.SetLimits(ctx, honker.Limits{PerKey: 1}); err != nil {
		log.Fatal(err)
	}
	emails.Enqueue(ctx, "first to acme", honker.Key("acme"))
	emails.Enqueue(ctx, "second to acme", honker.Key("acme"))
	emails.Enqueue(ctx, "first to globex", honker.Key("globex"))

	jobs, err := emails.Claim(ctx, "w", 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range jobs {
		fmt.Println(job.Args)
	}
	if err := jobs[0].Ack(ctx); err != nil {
		log.Fatal(err)
	}
	jobs, err = emails.Claim(ctx, "w", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(jobs[0].Args)
	// Output:
	// first to acme
	// first to globex
	// second to acme
}

func ExampleHeaders() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.Enqueue(ctx, "ann", honker.Headers(map[string]string{"tenant": "acme"})); err != nil {
		log.Fatal(err)
	}
	_, err = mails.WorkDue(ctx, func(ctx context.Context, job *honker.Job[string]) error {
		fmt.Println("mail to", job.Args, "for", job.Headers["tenant"])
		return nil
	}, nil)
	fmt.Println(err)
	// Output:
	// mail to ann for acme
	// <nil>
}

// In a chain, each job waits for the previous job.
func ExampleAfter() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	steps := honker.NewQueue[string](db, "steps", nil)
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		boil, err := steps.EnqueueTx(ctx, tx, "boil")
		if err != nil {
			return err
		}
		steep, err := steps.EnqueueTx(ctx, tx, "steep", honker.After(boil))
		if err != nil {
			return err
		}
		_, err = steps.EnqueueTx(ctx, tx, "drink", honker.After(steep), honker.Priority(1))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	n, err := steps.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		fmt.Println(job.Args)
		return nil
	}, nil)
	fmt.Println(n, err)
	// Output:
	// boil
	// steep
	// drink
	// 3 <nil>
}

// In a fan-in, one job reads the results of its predecessors.
func ExampleJob_After() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	squares, sums := honker.NewQueue[int](db, "squares", nil), honker.NewQueue[string](db, "sums", nil)
	ids, err := squares.EnqueueMany(ctx, []int{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sums.Enqueue(ctx, "of squares", honker.After(ids...)); err != nil {
		log.Fatal(err)
	}
	_, err = squares.WorkDue(ctx, func(_ context.Context, job *honker.Job[int]) error {
		return job.SetResult(job.Args * job.Args)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = sums.WorkDue(ctx, func(ctx context.Context, job *honker.Job[string]) error {
		sum := 0
		for _, id := range job.After() {
			n, err := honker.Result[int](ctx, db, id)
			if err != nil {
				return err
			}
			sum += n
		}
		fmt.Println("sum", job.Args, sum)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output: sum of squares 14
}

// A batch accepts members until it is sealed. The job that waits for the batch runs when all members are
// done.
func ExampleBatch() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	batch, err := db.NewBatch(ctx, &honker.BatchOptions{Name: "import"})
	if err != nil {
		log.Fatal(err)
	}
	jobs := honker.NewQueue[string](db, "jobs", nil)
	if _, err := jobs.Enqueue(ctx, "report", honker.AfterBatch(batch.ID)); err != nil {
		log.Fatal(err)
	}
	for _, file := range []string{"a.csv", "b.csv"} {
		if _, err := jobs.Enqueue(ctx, file, honker.In(batch.ID)); err != nil {
			log.Fatal(err)
		}
	}
	if err := batch.Seal(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = jobs.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		fmt.Println(job.Args)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// a.csv
	// b.csv
	// report
}
