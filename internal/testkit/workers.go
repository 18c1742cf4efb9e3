package testkit

import "github.com/honker-go/honker"

// Workers returns a Workers that runs fn for the jobs of each of the named queues.
func Workers[T any](db *honker.DB, opts *honker.WorkersOptions, names []string, fn Handler[T]) *honker.Workers {
	w := honker.NewWorkers(db, opts)
	for _, name := range names {
		honker.Handle(w, honker.NewQueue[T](db, name, nil), fn)
	}
	return w
}
