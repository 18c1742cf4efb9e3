package testkit

import (
	"context"
	"time"

	"github.com/honker-go/honker"
)

// Task is what a child is asked to do.
type Task struct {
	Path   string
	Ledger string        // where workers note what they did
	Owner  string        // of a lock; empty for one of its own
	Quiet  bool          // do not report each handler
	Jobs   int           // how many
	Seed   uint64        // of what is drawn
	Span   time.Duration // of a lease, of holding a lock
}

// OpenChild opens the file of the child's task.
func OpenChild(o *honker.Observer) (Task, *honker.DB) {
	a := ChildArgs[Task]()
	db, err := honker.Open(context.Background(), a.Path, &honker.Options{Observer: o})
	Must(err)
	return a, db
}
