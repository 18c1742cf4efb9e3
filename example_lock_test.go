package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/honker-go/honker"
)

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

	// Each customer may reset the password twice a year, counted over all processes.
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
