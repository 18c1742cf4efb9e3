package dispatch

import (
	"context"
	"sync"

	"github.com/honker-go/honker"
)

// workLanes works off queues by fn, until ctx ends.
func workLanes[T any](ctx context.Context, db *honker.DB, queues []string, b honker.Backoff, fn func(context.Context, *honker.Job[T]) error, o *honker.WorkOptions) error {
	var works sync.WaitGroup
	errs := make(chan error, len(queues))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, queue := range queues {
		works.Go(func() {
			if err := honker.NewQueue[T](db, queue, &honker.QueueOptions{Backoff: b}).Work(ctx, fn, o); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	works.Wait()
	close(errs)
	return <-errs
}
