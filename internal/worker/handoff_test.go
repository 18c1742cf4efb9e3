package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// clockOnly is an engine that has nothing but a clock.
var clockOnly = &engine.Engine{Backend: processTime{}}

type processTime struct{ engine.Backend }

func (processTime) Now() time.Time { return time.Now() }

// A claim that is withdrawn leaves nothing behind in any of its queues.
func TestHandoffs_Remove_EveryQueue(t *testing.T) {
	var h Handoffs
	s := &Source{Engine: clockOnly, Queues: []string{"a", "b", "c"}}
	for range 3 {
		h.remove(h.add(s.NewClaim("w", 1, time.Minute)))
	}
	for _, queue := range s.Queues {
		require.True(t, h.idle.Empty(queue), queue)
	}
}

// A claim taken from one of its queues is not taken again from another. The enqueue there takes the next claim, and
// a claim that was taken leaves nothing behind.
func TestHandoffs_Take_OtherQueue(t *testing.T) {
	var h Handoffs
	s := &Source{Engine: clockOnly, Queues: []string{"a", "b"}}
	first, second := h.add(s.NewClaim("first", 1, time.Minute)), h.add(s.NewClaim("second", 1, time.Minute))
	now := time.Now().Add(time.Hour)
	require.Same(t, first, h.take("b", now))
	require.Same(t, second, h.take("a", now))
	require.Nil(t, h.take("a", now))
	require.Nil(t, h.take("b", now))
	for _, idle := range []*IdleClaim{first, second} {
		idle.fill(nil)
		h.remove(idle)
	}
	require.True(t, h.idle.Empty("a"))
	require.True(t, h.idle.Empty("b"))
}

// The claim of a handoff begins at the enqueue, and not when the worker became idle. Its jobs were ready then.
func TestHandoffs_Take_Began(t *testing.T) {
	var h Handoffs
	s := &Source{Engine: clockOnly, Queues: []string{"a"}}
	idle, now := h.add(s.NewClaim("w", 1, time.Minute)), time.Now().Add(time.Hour)
	require.Same(t, idle, h.take("a", now))
	require.NotNil(t, idle.offer(1))
	require.Equal(t, now, idle.Began)
	require.Equal(t, now, idle.ReadyAt(new(row.Job)))
}

// Jobs that were handed over count as turns of their queue, so the other queue has the next turn.
func TestClaimOp_Committed_HandoffTakesTurn(t *testing.T) {
	names := []string{"a", "b"}
	s := &Source{Engine: clockOnly, Queues: names, Lanes: row.InTurns(names, []int{1, 1})}
	c := s.NewClaim("w", 1, time.Minute)
	c.handedOver, c.Rows = true, []*row.Job{{Queue: "a"}}
	want := row.Advance(s.Lanes, c.Rows)
	require.NotEqual(t, s.Lanes, want)
	c.committed()
	require.Equal(t, want, s.Lanes)
}

// A pool is found under each of its queues while it runs. Pausing any of them releases the jobs claimed ahead, and a
// cancel in any of them reaches the handler.
func TestRunning_EveryQueue(t *testing.T) {
	for _, queue := range []string{"a", "b", "c"} {
		var r Running
		p := NewPool(&Source{Engine: clockOnly, Queues: []string{"a", "b", "c"}}, Config{WorkerID: "w", Workers: 1})
		require.False(t, r.add(p))
		j := &activeJob{claim: &Claim{}}
		j.claim.ID = 7
		p.held[j] = struct{}{}
		r.Cancel(queue, 7)
		require.True(t, j.cancelled, queue)
		p.jobs <- j
		r.Release(queue)
		require.Empty(t, p.jobs, queue)
		require.Equal(t, []*activeJob{j}, p.finished, queue)
		r.remove(p)
		require.Empty(t, r.pools)
	}
}
