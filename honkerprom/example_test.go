package honkerprom_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
)

// The observer counts the events of this process. The collector reads the state of the database.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "honker")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	reg := prometheus.NewRegistry() // to be served by promhttp.HandlerFor
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), &honker.Options{Observer: honkerprom.Observer(reg, nil)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	reg.MustRegister(honkerprom.New(db, nil))

	if _, err := honker.NewQueue[string](db, "mails", nil).Enqueue(ctx, "hello"); err != nil {
		log.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "honker_jobs_enqueued_total":
			fmt.Println("enqueued by this process:", f.GetMetric()[0].GetCounter().GetValue())
		case "honker_queue_oldest_ready_seconds":
			fmt.Println("queues in the file:", len(f.GetMetric()))
		}
	}
	// Output:
	// enqueued by this process: 1
	// queues in the file: 1
}
