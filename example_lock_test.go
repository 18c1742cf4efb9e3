package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log"

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
	_, err = db.TryLock(ctx, "nightly report", nil) // here, or in any other process
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

	lock, err := db.Lock(ctx, "migration", nil) // waits for whoever has it
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	// The lock's own context: should the lock be lost, the work stops.
	if err := migrate(lock.Context()); err != nil {
		log.Fatal(err)
	}
	// Output: migrated by one
}
