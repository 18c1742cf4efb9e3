package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// children maps the names of child processes to their main functions.
var children = map[string]func(){"hold": hold}

func TestMain(m *testing.M) { testkit.Main(m, children) }

// hold claims a job for two seconds and keeps it until the process ends.
func hold() {
	db, err := honker.Open(context.Background(), testkit.ChildArgs[string](), nil)
	testkit.Must(err)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: 2 * time.Second})
	for job, err := range q.Jobs(testkit.ChildContext(), "go") {
		testkit.Must(err)
		testkit.Say("held", job.Args)
		<-testkit.ChildContext().Done()
	}
}
