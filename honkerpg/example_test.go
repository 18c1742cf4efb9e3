package honkerpg_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
)

// Mail is the payload of a job.
type Mail struct{ To string }

// A queue on a server is used like a queue in a file.
func ExampleOpen() {
	ctx := context.Background()
	db, err := honkerpg.Open(ctx, os.Getenv("DATABASE_URL"), nil) // such as postgres://app@db.internal/app
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[Mail](db, "mails", nil)
	if _, err := mails.Enqueue(ctx, Mail{To: "ann@example.com"}); err != nil {
		log.Fatal(err)
	}
	// Work would run until ctx ends. WorkDue returns when no job is due.
	_, err = mails.WorkDue(ctx, func(ctx context.Context, job *honker.Job[Mail]) error {
		fmt.Println("mail to", job.Args.To)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
}

// An order and the job that mails its receipt are committed together, or not at all.
func ExampleWithTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	db, err := honkerpg.Attach(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[Mail](db, "mails", nil)

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (item, customer) VALUES ($1, $2)`, "tea", "ann@example.com"); err != nil {
			return err
		}
		_, err := mails.EnqueueTx(ctx, honkerpg.WithTx(tx), Mail{To: "ann@example.com"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// honker uses the application's pool, which the application closes after the DB.
func ExampleAttach() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	db, err := honkerpg.Attach(ctx, pool, &honkerpg.Options{Schema: "jobs"})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	n, err := honker.NewStream[string](db, "orders", nil).Publish(ctx, "tea")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("offset", n)
}

// An administrator creates the tables, and programs open them with NoMigrate.
func ExampleSchema() {
	text, err := honkerpg.Schema("jobs")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("honker.sql", []byte(text), 0o644); err != nil { // psql -f honker.sql
		log.Fatal(err)
	}
}
