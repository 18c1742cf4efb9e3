package testkit

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// Task contains a child process's arguments.
type Task struct {
	Path   string
	Ledger string        // path for the notes of workers
	Owner  string        // owner of a lock; empty to choose a unique name
	Quiet  bool          // do not report each handler
	Jobs   int           // number of jobs
	Seed   uint64        // random seed
	Span   time.Duration // length of a lease, or how long a lock is held
}

// OpenChild opens the file named by the child's task. The observer may be nil.
func OpenChild(o *observe.Observer) (Task, *honker.DB) {
	a := ChildArgs[Task]()
	db, err := honker.Open(context.Background(), a.Path, &honker.Options{Observer: o})
	Must(err)
	return a, db
}
