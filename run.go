package honker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/honker-go/honker/internal/engine"
)

// Run runs the loops of a service, each in its own goroutine, until all of them have returned:
//
//	err := honker.Run(ctx,
//		func(ctx context.Context) error { return workers.Work(ctx, nil) },
//		db.Scheduler().Run,
//		func(ctx context.Context) error { return db.Maintain(ctx, nil) },
//	)
//
// Each loop should run until the ctx that it receives ends. That ctx ends with the ctx of Run, and when another
// loop fails. Run waits without a time limit for all loops, so that the caller can close the DB afterwards. It
// returns the error of the loop that failed first, or nil if none has failed. An error that only reports the end
// of ctx is not a failure. A loop that calls runtime.Goexit has failed. A loop that returns nil does not end the
// others. Without loops, Run returns nil at once.
//
// If ctx or a loop is nil, Run starts no loop and returns [ErrInvalid]. Run does not recover panics.
func Run(ctx context.Context, loops ...func(context.Context) error) error {
	if err := engine.CheckContext(ctx); err != nil {
		return fmt.Errorf("honker: run: %w", err)
	}
	for i, loop := range loops {
		if loop == nil {
			return fmt.Errorf("honker: run: %w: loop %d of %d is nil", ErrInvalid, i+1, len(loops))
		}
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var failed sync.Once
	var first error
	for _, loop := range loops {
		all.Go(func() {
			err := errLoopExited // unless loop returns
			defer func() {
				if err != nil && !ended(running, err) {
					failed.Do(func() {
						first = err
						cancel()
					})
				}
			}()
			err = loop(running)
		})
	}
	all.Wait()
	return first
}

var errLoopExited = errors.New("honker: run: a loop called runtime.Goexit")

// ended reports whether err only reports the end of ctx.
func ended(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}
