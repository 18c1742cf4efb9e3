package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "modernc.org/sqlite" // or any other SQLite driver

	"github.com/honker-go/honker"
)

// Attach works on a pool that the application has already, of any SQLite driver.
func ExampleAttach() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close() // the caller keeps owning it

	db, err := honker.Attach(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	emails := honker.NewQueue[string](db, "emails", nil)
	tx, _ := pool.BeginTx(ctx, nil) // say, an ORM's
	emails.EnqueueTx(ctx, tx, "ada@example.com")
	fmt.Println(tx.Commit())

	jobs, err := emails.Claim(ctx, "mailer", 1)
	fmt.Println(jobs[0].Args, err)
	// Output:
	// <nil>
	// ada@example.com <nil>
}
