package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Searches run one at a time, in the order in which they came; the wait ends with its ctx.
func TestEngine_Search_InTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(Engine)
		e.ctx, e.cancel = context.WithCancelCause(t.Context())
		defer e.cancel(nil)
		first, end := make(chan struct{}), make(chan struct{})
		var order []string
		search := func(ctx context.Context, name string, until chan struct{}) chan error {
			done := make(chan error, 1)
			go func() {
				done <- e.Search(ctx, func(context.Context) error {
					order = append(order, name)
					if until != nil {
						close(first)
						<-until
					}
					return nil
				})
			}()
			synctest.Wait()
			return done
		}
		a := search(t.Context(), "a", end)
		<-first
		waits, stop := context.WithCancel(t.Context())
		b, c := search(waits, "b", nil), search(t.Context(), "c", nil)
		require.Equal(t, []string{"a"}, order)
		stop()
		require.ErrorIs(t, <-b, context.Canceled)
		close(end)
		require.NoError(t, <-a)
		require.NoError(t, <-c)
		require.Equal(t, []string{"a", "c"}, order)
	})
}
