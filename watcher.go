package honker

import (
	"context"
	"iter"

	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// Updates yields after each observed commit to the file by any process. Commits in quick succession may share an
// iteration. The first iteration comes immediately, so that a loop body that reads the file misses nothing. Updates
// waits without polling and ends silently when ctx ends. An error, [ErrClosed] or [ErrDatabaseReplaced], is yielded
// once, as the last element.
func (db *DB) Updates(ctx context.Context) iter.Seq2[struct{}, error] {
	return func(yield func(struct{}, error) bool) {
		if err := db.engine.RefuseInTx(ctx, ""); err != nil {
			yield(struct{}{}, fail("watch updates", "", err))
			return
		}
		w := db.engine.Notifier.Subscribe(wake.Key{Kind: wake.AnyCommit})
		defer w.Close()
		w.Wake() // a commit may have come between the caller's last read and the subscription
		for {
			err := w.Wait(ctx, wake.Forever)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(struct{}{}, fail("watch updates", "", err))
				return
			}
			if !yield(struct{}{}, nil) {
				return
			}
		}
	}
}

// woke returns the function that reports woken waiters to o.
func woke(o *observe.Observer) func(cause string, waiters int) {
	return func(cause string, waiters int) { o.Woke(observe.Woke{Cause: cause, Waiters: waiters}) }
}
