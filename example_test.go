package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/honker-go/honker"
)

// Attach uses the application's existing pool, with any SQLite driver.
func ExampleAttach() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close() // the caller still owns the pool

	db, err := honker.Attach(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	emails := honker.NewQueue[string](db, "emails", nil)
	tx, _ := pool.BeginTx(ctx, nil) // for example, an ORM's transaction
	emails.EnqueueTx(ctx, tx, "ada@example.com")
	fmt.Println(tx.Commit())

	jobs, err := emails.Claim(ctx, "mailer", 1)
	fmt.Println(jobs[0].Args, err)
	// Output:
	// <nil>
	// ada@example.com <nil>
}

// Receipt is the payload of a job that sends an order's receipt.
type Receipt struct{ Order int }

// The job exists if the transaction commits. After a rollback it does not.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	send := func(_ context.Context, r Receipt) error {
		fmt.Println("receipt of order", r.Order)
		stop()
		return nil
	}

	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SQL().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	receipts := honker.NewQueue[Receipt](db, "receipts", nil)

	// The job exists if the transaction commits. After a rollback it does not.
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, 17); err != nil {
			return err
		}
		_, err := receipts.EnqueueTx(ctx, tx, Receipt{Order: 17})
		return err
	})
	fmt.Println("stored:", err)

	// Work blocks until ctx ends and running handlers have finished. It may run in any number of processes.
	err = receipts.Work(ctx, func(ctx context.Context, job *honker.Job[Receipt]) error {
		return send(ctx, job.Args) // nil acks the job; an error retries it with backoff
	}, nil)
	fmt.Println("drained:", err)
	// Output:
	// stored: <nil>
	// receipt of order 17
	// drained: <nil>
}

// The error that a handler returns determines what happens to its job.
func ExampleRetryAfter() {
	err := errors.New("the mail server is down")
	steer := map[string]func() error{
		"later": func() error {
			return honker.RetryAfter(time.Minute, err) // retried after a minute, regardless of the backoff
		},
		"not now": func() error {
			return honker.Snooze(time.Hour) // retried in an hour; this attempt does not count
		},
		"never": func() error {
			return honker.Reject(err) // dead-lettered immediately
		},
	}
	fmt.Println("later:", steer["later"]())
	fmt.Println("not now:", steer["not now"]())
	fmt.Println("never:", steer["never"]())
	// Output:
	// later: the mail server is down
	// not now: snooze for 1h0m0s
	// never: the mail server is down
}

// A business row and its follow-up job are written in the same transaction. Either both exist or neither does.
func ExampleDB_Tx() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SQL().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT UNIQUE)`)
	receipts := honker.NewQueue[string](db, "receipts", nil)

	order := func(item string) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := receipts.EnqueueTx(ctx, tx, item); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO orders (item) VALUES (?)`, item)
			return err
		})
	}
	fmt.Println("tea:", order("tea"))
	fmt.Println("tea again failed:", order("tea") != nil)

	jobs, _ := receipts.Claim(ctx, "printer", 10)
	fmt.Println("receipts:", len(jobs))
	// Output:
	// tea: <nil>
	// tea again failed: true
	// receipts: 1
}

func ExampleDB_Tx_plainVerb() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.Notify(ctx, "news", "hello") // would wait for its own caller
		return err
	})
	fmt.Println(errors.Is(err, honker.ErrInTx))
	fmt.Println(err)
	// Output:
	// true
	// honker: notify "news": called inside DB.Tx: use the Tx form: NotifyTx
}

func ExampleDB_Listen() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	db.Notify(ctx, "prices", "nobody hears this")
	prices, err := db.Listen(ctx, "prices") // messages from now on, by any process
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close()

	db.Notify(ctx, "prices", map[string]int{"tea": 395})
	db.Notify(ctx, "weather", "rain")
	db.Notify(ctx, "prices", map[string]int{"tea": 410})

	for n, err := range prices.All(ctx) {
		var price struct{ Tea int }
		if err != nil || n.Decode(&price) != nil {
			log.Fatal(err)
		}
		fmt.Println("tea costs", price.Tea)
		if price.Tea > 400 {
			break
		}
	}
	// Output:
	// tea costs 395
	// tea costs 410
}

func ExampleDB_TryLock() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	report, err := db.TryLock(ctx, "nightly report", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = db.TryLock(ctx, "nightly report", nil) // held by this or any other process
	fmt.Println("second:", errors.Is(err, honker.ErrLockHeld))

	report.Unlock(ctx)
	again, err := db.TryLock(ctx, "nightly report", nil)
	fmt.Println("after the unlock:", err, again.Token() > report.Token())
	again.Unlock(ctx)
	// Output:
	// second: true
	// after the unlock: <nil> true
}

func ExampleDB_Lock() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	migrate := func(ctx context.Context) error { fmt.Println("migrated by one"); return ctx.Err() }

	lock, err := db.Lock(ctx, "migration", nil) // waits until the holder unlocks
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	// The lock's own context ends with ctx, and also when the lock is lost.
	if err := migrate(lock.Context()); err != nil {
		log.Fatal(err)
	}
	// Output: migrated by one
}

func ExampleDB_RateLimit() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	// Each customer may reset the password twice a year, counted across all processes.
	resets := db.RateLimit("password reset of customer 7", 2, 365*24*time.Hour)
	for range 3 {
		ok, err := resets.Allow(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ok)
	}
	left, _, _ := resets.Remaining(ctx)
	fmt.Println(left, "left")
	// Output:
	// true
	// true
	// false
	// 0 left
}

func ExampleRateLimit_Wait() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	api := db.RateLimit("api", 100, time.Second)
	for page := range 3 {
		if err := api.Wait(ctx); err != nil { // waits for the next second if necessary
			log.Fatal(err)
		}
		fmt.Println("page", page)
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

// Run Maintain in every process, alongside the work. Only one process at a time does the maintenance.
func ExampleDB_Maintain() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := openScratch(ctx)
	defer done()

	logs := honker.NewStream[int](db, "logs", nil)
	logs.SetRetention(ctx, honker.Retention{MaxCount: 10})
	logs.PublishMany(ctx, make([]int, 100))

	maintained := make(chan error)
	go func() { maintained <- db.Maintain(ctx, &honker.MaintainOptions{Every: time.Minute}) }()

	for range db.Updates(ctx) { // ticks after each commit by any process
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

// Run the scheduler in every process. One process leads, and the others stand by. Registering a schedule each time a
// process starts doesn't delay its next firing.
func ExampleScheduler_Run() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := openScratch(ctx)
	defer done()

	scheduler := db.Scheduler()
	err := scheduler.Register(ctx, honker.Schedule{Name: "heartbeat", Queue: "monitor", Spec: "@every 1s", Payload: "ping"})
	fmt.Println("registered:", err)

	leader := make(chan error)
	go func() { leader <- scheduler.Run(ctx) }()

	monitor := honker.NewQueue[string](db, "monitor", nil)
	monitor.Work(ctx, func(_ context.Context, job *honker.Job[string]) error {
		fmt.Println("job:", job.Args)
		stop()
		return nil
	}, &honker.WorkOptions{Workers: 1}) // with two workers, one could start before the other has stopped the scheduler
	fmt.Println("scheduler:", <-leader)
	// Output:
	// registered: <nil>
	// job: ping
	// scheduler: <nil>
}

// Tick enqueues the jobs of all due schedules. Each schedule fires once, in whichever process ticks first. Run calls
// Tick on its own.
func ExampleScheduler_Tick() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	scheduler := db.Scheduler()
	scheduler.Register(ctx, honker.Schedule{Name: "report", Queue: "reports", Spec: "@every 1h"})
	began := time.Now()

	fires, _ := scheduler.Tick(ctx, began)
	fmt.Println("at once:", len(fires))
	fires, _ = scheduler.Tick(ctx, began.Add(3*time.Hour+time.Minute))
	fmt.Println("three hours later:", len(fires))
	fires, _ = scheduler.Tick(ctx, began.Add(3*time.Hour+time.Minute))
	fmt.Println("once more:", len(fires))
	// Output:
	// at once: 0
	// three hours later: 3
	// once more: 0
}

// Missed determines how a schedule catches up after a night without a running process.
func ExampleMissed() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	scheduler := db.Scheduler()
	for name, missed := range map[string]honker.Missed{"export": honker.FireAll, "cache": honker.FireLast, "ping": honker.Skip} {
		err := scheduler.Register(ctx, honker.Schedule{Name: name, Queue: name, Spec: "@every 1h", Missed: missed})
		if err != nil {
			log.Fatal(err)
		}
	}
	fires, err := scheduler.Tick(ctx, time.Now().Add(8*time.Hour+30*time.Minute))
	runs := map[string]int{}
	for _, fire := range fires {
		runs[fire.Name]++ // fire.FireAt is the time at which the job was due
	}
	fmt.Println(runs["export"], runs["cache"], runs["ping"], err)
	// Output: 8 1 0 <nil>
}

// Schedules are stored in the file. Any program that opens it can list and change them.
func ExampleScheduler_Update() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	scheduler := db.Scheduler()
	scheduler.Register(ctx, honker.Schedule{Name: "backup", Queue: "backups", Spec: "0 3 * * *", Payload: "all"})
	scheduler.Register(ctx, honker.Schedule{Name: "report", Queue: "reports", Spec: "0 9 * * 1-5"})

	spec := "30 4 * * *"
	changed, err := scheduler.Update(ctx, "backup", honker.ScheduleChange{Spec: &spec})
	fmt.Println("updated:", changed, err)
	paused, err := scheduler.Pause(ctx, "report")
	fmt.Println("paused:", paused, err)

	schedules, _ := scheduler.List(ctx)
	for _, s := range schedules {
		fmt.Println(s.Name, s.Spec, s.Enabled, string(s.Payload))
	}
	// Output:
	// updated: true <nil>
	// paused: true <nil>
	// backup 30 4 * * * true "all"
	// report 0 9 * * 1-5 false null
}

// Unlike in other cron implementations, both day fields must match.
func ExampleNextAfter() {
	from := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.Local)
	for _, spec := range []string{"0 9 * * 1-5", "0 0 13 * 5", "30 59 23 * * *", "@every 90s", "0 0 30 2 *"} {
		at, err := honker.NextAfter(spec, from)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(at.Format("Mon 2 Jan 15:04:05"))
	}
	// Output:
	// Fri 2 Jan 09:00:00
	// Fri 13 Feb 00:00:00
	// Thu 1 Jan 23:59:30
	// Thu 1 Jan 12:01:30
	// honker: schedule "0 0 30 2 *": invalid argument: no schedule match found within 100 years after local datetime 2026-01-01T12:00:00
}
