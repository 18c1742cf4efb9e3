package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

// Each kind of job has a queue and a handler. A single worker runs all kinds, in the order of their priorities.
func ExampleWorkers() {
	type Mail struct{ To string }
	type Thumbnail struct{ Photo int }
	type Report struct{ Month string }

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	mails := honker.NewQueue[Mail](db, "mails", nil)
	thumbnails := honker.NewQueue[Thumbnail](db, "thumbnails", nil)
	reports := honker.NewQueue[Report](db, "reports", nil)

	reports.Enqueue(ctx, Report{Month: "May"}, honker.Priority(-1)) // when there is nothing else to do
	thumbnails.Enqueue(ctx, Thumbnail{Photo: 17})
	mails.Enqueue(ctx, Mail{To: "ada@example.com"}, honker.Priority(10))

	w := honker.NewWorkers(db, nil)
	honker.Handle(w, mails, func(_ context.Context, job *honker.Job[Mail]) error {
		fmt.Println("mail to", job.Args.To)
		return nil
	})
	honker.Handle(w, thumbnails, func(_ context.Context, job *honker.Job[Thumbnail]) error {
		fmt.Println("thumbnail of photo", job.Args.Photo)
		return nil
	})
	honker.Handle(w, reports, func(_ context.Context, job *honker.Job[Report]) error {
		fmt.Println("report for", job.Args.Month)
		stop() // a service goes on until it is told to stop
		return nil
	})
	err = w.Work(ctx, &honker.WorkOptions{Workers: 1})
	fmt.Println("drained:", err)
	// Output:
	// mail to ada@example.com
	// thumbnail of photo 17
	// report for May
	// drained: <nil>
}

// Two queues take turns on a worker: three jobs from the first run for each job from the second.
func ExampleWorkers_inTurns() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	free, paid := honker.NewQueue[int](db, "free", nil), honker.NewQueue[int](db, "paid", nil)
	free.EnqueueMany(ctx, []int{1, 2})
	paid.EnqueueMany(ctx, []int{1, 2, 3, 4})

	jobs := map[string]int{}
	count := func(_ context.Context, job *honker.Job[int]) error {
		if jobs[job.Queue]++; jobs["paid"]+jobs["free"] == 6 {
			stop()
		}
		return nil
	}
	w := honker.NewWorkers(db, &honker.WorkersOptions{Order: honker.InTurns, Weights: map[string]int{"paid": 3}})
	honker.Handle(w, free, count)
	honker.Handle(w, paid, count)
	err = w.Work(ctx, &honker.WorkOptions{Workers: 1})
	fmt.Println(jobs, err)
	// Output: map[free:2 paid:4] <nil>
}

// The booking and the ack of its job are committed together, so each payment is booked exactly once.
func ExampleHandleTx() {
	type Payment struct{ Account, Cents int }

	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SQL().ExecContext(ctx, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER)`)
	db.SQL().ExecContext(ctx, `INSERT INTO accounts VALUES (1, 0)`)

	payments := honker.NewQueue[Payment](db, "payments", nil)
	payments.EnqueueMany(ctx, []Payment{{Account: 1, Cents: 500}, {Account: 1, Cents: 250}})

	w := honker.NewWorkers(db, nil)
	honker.HandleTx(w, payments, func(ctx context.Context, tx *sql.Tx, job *honker.Job[Payment]) error {
		_, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents + ? WHERE id = ?`, job.Args.Cents, job.Args.Account)
		return err // an error rolls the booking back and retries the job
	})
	n, err := w.WorkDue(ctx, nil)
	fmt.Println(n, "payments:", err)

	var cents int
	db.SQL().QueryRowContext(ctx, `SELECT cents FROM accounts WHERE id = 1`).Scan(&cents)
	fmt.Println("balance:", cents)
	// Output:
	// 2 payments: <nil>
	// balance: 750
}

// Run runs the loops of a service. They end together, when ctx ends or a loop fails.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background()) // in a service: signal.NotifyContext
	defer stop()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // after all loops have ended

	mails := honker.NewQueue[string](db, "mails", nil)
	mails.Enqueue(ctx, "ada@example.com")

	w := honker.NewWorkers(db, nil)
	honker.Handle(w, mails, func(_ context.Context, job *honker.Job[string]) error {
		fmt.Println("mail to", job.Args)
		stop()
		return nil
	})
	err = honker.Run(ctx,
		func(ctx context.Context) error { return w.Work(ctx, nil) },
		db.Scheduler().Run,
		func(ctx context.Context) error { return db.Maintain(ctx, nil) },
	)
	fmt.Println("ended:", err)
	// Output:
	// mail to ada@example.com
	// ended: <nil>
}

// The options of a queue can hold the options of its enqueues. An option of the call overrides a default.
func ExampleQueueOptions_enqueue() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	syncs := honker.NewQueue[string](db, "syncs", &honker.QueueOptions{Enqueue: []honker.EnqueueOption{
		honker.UniqueArgs(nil), // at most one job per account
		honker.Priority(5),
	}})
	first, _ := syncs.Enqueue(ctx, "acme")
	again, _ := syncs.Enqueue(ctx, "acme")
	fmt.Println("the same job:", first == again)

	urgent, _ := syncs.Enqueue(ctx, "blau", honker.Priority(100))
	for _, id := range []int64{first, urgent} {
		job, err := syncs.Get(ctx, id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(job.Payload), "has priority", job.Priority)
	}
	// Output:
	// the same job: true
	// "acme" has priority 5
	// "blau" has priority 100
}
