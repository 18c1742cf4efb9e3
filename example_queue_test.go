package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
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

// scratch returns a path for an example's file. An application would use a path such as "app.db".
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

// For each key, at most one job is waiting or running. If the job is running, RunAgain runs it once more.
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

// Each document has a single index job, no matter how often it changes. The job runs after a second without changes,
// or after a minute at the latest.
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

// In a fan-in, a job reads the results of its predecessors.
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
		if _, err := jobs.Enqueue(ctx, file, honker.InBatch(batch.ID)); err != nil {
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

func ExampleOutbox() {
	type Webhook struct{ URL, Event string }
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	hooks := honker.NewOutbox(db, "webhooks", func(ctx context.Context, w Webhook) error {
		fmt.Println("POST", w.URL, w.Event) // an error would retry the job
		stop()
		return nil
	}, nil)

	for _, paid := range []bool{false, true} {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := hooks.SendTx(ctx, tx, Webhook{"https://example.com/hook", fmt.Sprint("paid: ", paid)}); err != nil {
				return err
			}
			if !paid {
				return errors.New("no money") // rolls back the webhook too
			}
			return nil
		})
		fmt.Println("order:", err)
	}
	fmt.Println("drained:", hooks.Run(ctx, nil))
	// Output:
	// order: no money
	// order: <nil>
	// POST https://example.com/hook paid: true
	// drained: <nil>
}

func ExampleQueue_Work() {
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	urls := honker.NewQueue[string](db, "urls", nil)
	urls.EnqueueMany(ctx, []string{"gopher://example.com", "https://example.com"})

	err = urls.Work(ctx, func(ctx context.Context, job *honker.Job[string]) error {
		switch {
		case !strings.HasPrefix(job.Args, "https:"):
			return honker.Reject(errors.New("no such protocol")) // can never succeed
		case job.Attempts == 1:
			return honker.RetryAfter(0, errors.New("timeout"))
		}
		fmt.Println(job.Args, "fetched, attempt", job.Attempts)
		stop() // Work finishes the running handlers and returns
		return nil
	}, &honker.WorkOptions{
		Workers: 1, // a single worker keeps the output in order
		OnError: func(_ context.Context, job *honker.JobInfo, err error) { fmt.Printf("%s: %v\n", job.Payload, err) },
	})
	fmt.Println("drained:", err)
	// Output:
	// "gopher://example.com": no such protocol
	// "https://example.com": timeout
	// https://example.com fetched, attempt 2
	// drained: <nil>
}

func ExampleNewPool() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	pool := honker.NewPool(1) // a single slot, so that the handlers of both queues take turns
	var ended sync.WaitGroup
	var running, done atomic.Int32
	for _, name := range []string{"mails", "thumbnails"} {
		queue := honker.NewQueue[int](db, name, nil)
		queue.EnqueueMany(ctx, []int{1, 2, 3})
		ended.Go(func() {
			queue.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
				if running.Add(1) > 1 {
					fmt.Println("two at once")
				}
				defer running.Add(-1)
				if done.Add(1) == 6 {
					stop()
				}
				return nil
			}, &honker.WorkOptions{Pool: pool})
		})
	}
	ended.Wait()
	fmt.Println("done:", done.Load())
	// Output:
	// done: 6
}

func ExampleQueue_WorkTx() {
	type Payment struct{ Account, Cents int }
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SQL().ExecContext(ctx, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER); INSERT INTO accounts VALUES (7, 0)`)

	payments := honker.NewQueue[Payment](db, "payments", nil)
	payments.EnqueueMany(ctx, []Payment{{7, 500}, {7, 250}})

	done := 0
	payments.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[Payment]) error {
		if done++; done == 2 {
			stop()
		}
		// The booking is committed together with the ack, so it happens exactly once.
		_, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents + ? WHERE id = ?`, job.Args.Cents, job.Args.Account)
		return err
	}, &honker.WorkOptions{Workers: 1})

	var cents int
	db.SQL().QueryRow(`SELECT cents FROM accounts WHERE id = 7`).Scan(&cents)
	fmt.Println(cents)
	// Output: 750
}

// Cancel removes a waiting job and ends the handler of a running job, in any process.
func ExampleQueue_Cancel() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := openScratch(ctx)
	defer done()

	videos := honker.NewQueue[string](db, "videos", nil)
	id, err := videos.Enqueue(ctx, "holiday.mp4")
	if err != nil {
		log.Fatal(err)
	}
	err = videos.Work(ctx, func(ctx context.Context, job *honker.Job[string]) error {
		defer stop()
		go videos.Cancel(context.WithoutCancel(ctx), id) // called by an operator, for example
		<-ctx.Done()                                     // a real handler passes ctx on
		fmt.Println(errors.Is(context.Cause(ctx), honker.ErrCancelled))
		return ctx.Err() // it doesn't matter what is returned: the job is gone, and nothing has failed
	}, nil)
	fmt.Println("drained:", err)
	// Output:
	// true
	// drained: <nil>
}

// An Observer can count the operations of this process. Package examples/metrics has an Observer for
// Prometheus.
func ExampleObserver() {
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	var started, acked, failed atomic.Int64
	db, err := honker.Open(ctx, path, &honker.Options{Observer: &observe.Observer{
		Started: func(observe.Started) { started.Add(1) },
		Settled: func(s observe.Settled) {
			if s.Outcome == honker.OutcomeAcked {
				acked.Add(1)
			}
			if s.Err != nil {
				failed.Add(1)
			}
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	mails := honker.NewQueue[string](db, "mails", nil)
	mails.EnqueueMany(ctx, []string{"ada@example.com", "nowhere"})
	mails.Work(ctx, func(_ context.Context, job *honker.Job[string]) error {
		if job.Args == "nowhere" {
			stop()
			return honker.Reject(errors.New("no such address"))
		}
		return nil
	}, &honker.WorkOptions{Workers: 1})
	fmt.Println(started.Load(), "started", acked.Load(), "sent", failed.Load(), "failed")
	// Output: 2 started 1 sent 1 failed
}

func ExampleJob_Checkpoint() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	books := honker.NewQueue[[]string](db, "books", nil)
	if _, err := books.Enqueue(ctx, []string{"one", "two", "three"}); err != nil {
		log.Fatal(err)
	}
	out := errors.New("out of paper")
	_, err = books.WorkDue(ctx, func(ctx context.Context, job *honker.Job[[]string]) error {
		page := 0
		if _, err := job.Checkpointed(&page); err != nil {
			return honker.Reject(err)
		}
		for ; page < len(job.Args); page++ {
			if page == 2 && job.Attempts == 1 {
				return honker.RetryAfter(0, out)
			}
			fmt.Println("print", job.Args[page])
			if err := job.Checkpoint(ctx, page+1); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	fmt.Println(err)
	// Output:
	// print one
	// print two
	// print three
	// <nil>
}

// Log writes a line for each attempt. This example omits the attributes that vary from run to run.
func ExampleLog() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	attempts := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "wait" || a.Key == "ran" {
			return slog.Attr{}
		}
		return a
	}}))

	mails := honker.NewQueue[string](db, "mails", nil)
	for _, to := range []string{"ann", "no one"} {
		if _, err := mails.Enqueue(ctx, to); err != nil {
			log.Fatal(err)
		}
	}
	_, err = mails.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		if job.Args == "no one" {
			return honker.Reject(errors.New("no such address"))
		}
		return nil
	}, &honker.WorkOptions{Middleware: []honker.Middleware{honker.Log(attempts, nil)}})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=INFO msg="honker: attempt" queue=mails job=1 attempt=1 outcome=acked
	// level=ERROR msg="honker: attempt" queue=mails job=2 attempt=1 outcome=died error="no such address"
}
