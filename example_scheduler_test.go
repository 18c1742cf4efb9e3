package honker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/honker-go/honker"
)

// Run Maintain in every process, beside the work. One process at a time does the chores.
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

// Run the scheduler in every process. One process leads, and the others stand by. Registering a schedule at
// every start does not delay its next fire.
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

// Tick enqueues the jobs of all due schedules. Each fire happens once, in whichever process ticks first.
// Run calls it by itself.
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

// Missed decides how a schedule catches up after a night without a running process.
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

// Unlike in other crons, both day fields have to match.
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
