package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

// slowCounts is a store whose counts take a second and report the given cost.
type slowCounts struct {
	Backend
	OperatorStore
	cost  int64
	taken int
}

func (*slowCounts) Now() time.Time { return time.Now() }

func (s *slowCounts) Read(ctx context.Context, _ bool, f func(context.Context, Querier) error) error {
	return f(ctx, nil)
}

func (s *slowCounts) Heads(context.Context, Querier, []string, time.Time) ([]row.QueueHead, error) {
	return nil, nil
}

func (s *slowCounts) Counts(context.Context, Querier, row.JobSelect, int64, time.Time) (map[string]row.QueueCounts, int64, error) {
	time.Sleep(time.Second)
	s.taken++
	return nil, s.cost, nil
}

// A count that took a second is cached for a hundred seconds for all concurrent callers. Small numbers are counted on
// every call.
func TestEngine_Stats_Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowCounts{cost: freshCost}
		e := &Engine{Backend: slow, Config: Config{Stores: Stores{Operators: slow}}}
		e.ctx, e.cancel = context.WithCancelCause(t.Context())
		defer e.cancel(nil)
		ask := func(n int) {
			for range n {
				go func() { _, _ = e.Counts(t.Context()) }()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		ask(20)
		require.Equal(t, 1, slow.taken)
		ask(20)
		require.Equal(t, 1, slow.taken, "after a minute")
		ask(20)
		require.Equal(t, 2, slow.taken, "after two")
		slow.cost, e.lastCounts = freshCost-1, sync.Map{}
		ask(20)
		require.Equal(t, 22, slow.taken)
	})
}

// Searches run one at a time in order of arrival, and the wait ends with its ctx.
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
