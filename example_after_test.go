package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

// A chain: each job waits for the one before.
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

// A fan-in: one job reads what the others have left.
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

// A batch takes members until it is sealed; then what comes after it runs when they are done.
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
