package honker_test

import (
	"context"
	"fmt"
	"log"

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
