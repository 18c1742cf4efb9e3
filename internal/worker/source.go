package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Presence records the running loops. The caller of Enter must call leave when the loop has ended.
type Presence interface {
	Enter(worker string, queues []string, slots int) (leave func())
}

// Source is one or more queues, from which jobs are claimed and in which they are settled. The
// handles of the root package use it too, so that claims of Queue.Claim and of Work are the same.
type Source struct {
	Engine   *engine.Engine
	Handoffs *Handoffs
	Running  *Running
	Limits   *Limited
	Presence Presence
	Name     string     // for log messages
	Queues   []string   // from which jobs are claimed
	Lanes    []row.Lane // order of the Queues; if they take turns, only a single Pool may run at a time

	largest atomic.Int64 // recent maximum payload size in bytes; 0 if unknown
}

// Limited reports whether any of the queues had limits when a worker last waited for it.
func (s *Source) Limited() bool { return s.Limits.Has(s.Queues...) }

// ClaimOp claims up to Want jobs with a lease of Hold.
type ClaimOp struct {
	source *Source
	Worker string
	Want   int
	Hold   time.Duration

	Began time.Time   // by the clock of the backend
	Rows  []*row.Job  // after Run
	Dead  []row.Death // after Run: jobs that were dead-lettered instead of claimed

	paused     bool // after Run: there were no jobs, and a queue is paused
	more       bool // after Run: the claim reached a bound, and there may be more jobs
	slots      *Reservation
	request    row.ClaimRequest
	lanes      []row.Lane // after Run: the lanes for the next claim
	handedOver bool       // an enqueue inserted the jobs at Began
}

// ReadyAt returns when a job of the claim could have started. The time is exact if an enqueue of
// this process handed the job over, and otherwise has the resolution of the file, a second.
func (c *ClaimOp) ReadyAt(job *row.Job) time.Time {
	if c.handedOver {
		return c.Began
	}
	return time.Unix(max(row.Unix(job.RunAt), row.Unix(job.CreatedAt)), 0)
}

// NewClaim returns a claim of up to want jobs for worker, with a lease of hold. It does not run the
// claim.
func (s *Source) NewClaim(worker string, want int, hold time.Duration) *ClaimOp {
	return &ClaimOp{source: s, Worker: worker, Want: want, Hold: hold, Began: s.Engine.Now()}
}

// Run implements engine.Op. The lease begins at the time of the transaction, so that the wait for
// the writer does not shorten it.
func (c *ClaimOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	claimed, err := c.source.Engine.Stores.Jobs.Step(ctx, q, row.Step{Claim: c.prepare()}, now)
	if err != nil {
		return err
	}
	c.took(claimed)
	return nil
}

// prepare returns the claim as a request. It must be called in the transaction.
func (c *ClaimOp) prepare() *row.ClaimRequest {
	c.Rows, c.Dead, c.paused = nil, nil, false // the transaction may run again
	c.Want = c.slots.Fill(c.Want)
	c.request = row.ClaimRequest{Lanes: c.source.Lanes, Worker: c.Worker, N: c.Want, Lease: c.Hold, Largest: int(c.source.largest.Load())}
	return &c.request
}

// took records the outcome of the claim.
func (c *ClaimOp) took(claimed row.Claimed) {
	c.Rows, c.Dead, c.lanes = claimed.Jobs, claimed.Dead, claimed.Lanes
	c.paused, c.more = claimed.Paused, claimed.More
	if claimed.Limited {
		c.source.Limits.claimed(c.source.Queues)
	}
	// Lower the recent maximum slowly, so that occasional large payloads among small ones are not
	// forgotten.
	c.source.largest.Store(max(int64(claimed.Largest), c.source.largest.Load()*7/8))
}

// committed must be called after the commit of the claim. It advances lanes that take turns, so that
// the next claim continues where this claim ended.
func (c *ClaimOp) committed() {
	if !row.TakeTurns(c.source.Lanes) {
		return
	}
	if c.handedOver {
		c.lanes = row.Advance(c.source.Lanes, c.Rows)
	}
	if c.lanes != nil {
		c.source.Lanes = c.lanes
	}
}

// of returns the part of the claim that concerns queue.
func (c *ClaimOp) of(queue string) *ClaimOp {
	part := *c
	part.Rows, part.Dead = nil, nil
	for _, job := range c.Rows {
		if job.Queue == queue {
			part.Rows = append(part.Rows, job)
		}
	}
	for _, death := range c.Dead {
		if death.Queue == queue {
			part.Dead = append(part.Dead, death)
		}
	}
	return &part
}

// Single implements engine.Op.
func (c *ClaimOp) Single() bool { return c.source.Engine.Stores.Single }

// full reports whether there may be more jobs than were claimed.
func (c *ClaimOp) full() bool { return c.more || c.Want > 0 && len(c.Rows) == c.Want }

// postponed is the time for which a job that cannot be dead-lettered is postponed.
const postponed = time.Minute

// ClaimFailed must be called after a claim that has failed with err. If err is a constraint error,
// it postpones the overdue jobs. A trigger of the application may refuse to dead-letter a job that
// may not run again; then every claim would fail, and the other jobs of the queue would wait
// forever. ClaimFailed ignores its own errors, because the next claim fails in the same way.
func (s *Source) ClaimFailed(ctx context.Context, err error) {
	if !s.Engine.Refused(err) {
		return
	}
	_ = s.Engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		for _, queue := range s.Queues {
			if err := s.Engine.Stores.Jobs.Postpone(ctx, q, queue, now.Add(postponed), now); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Ready reports whether a claim would find something to do. It reads without the write lock.
func (s *Source) Ready(ctx context.Context) (ready bool, err error) {
	err = s.Engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		states, err := s.Engine.Stores.Jobs.States(ctx, q, s.Queues, false, s.Engine.Now())
		ready = soonest(states).Ready
		return err
	})
	return ready, err
}

// state returns the state of the queues: whether a claim would find something to do, and otherwise
// when. It costs more than Ready and should be called only before a wait.
func (s *Source) state(ctx context.Context) (state row.QueueState, err error) {
	err = s.Engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		states, err := s.Engine.Stores.Jobs.States(ctx, q, s.Queues, true, s.Engine.Now())
		if err == nil {
			s.Limits.saw(states)
		}
		state = soonest(states)
		return err
	})
	return state, err
}

// soonest combines the states of several queues.
func soonest(states []row.QueueState) (all row.QueueState) {
	for _, s := range states {
		all.Ready = all.Ready || s.Ready
		all.Next, all.Start = sooner(all.Next, s.Next), sooner(all.Start, s.Start)
	}
	return all
}

// sooner returns the earlier of two times. A zero time means none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Await waits for work. It returns true when a claim should find a job, and false when interrupt
// receives a value first. In the meantime c is offered to the enqueues of this process, so c.Rows may
// hold jobs whatever Await returns. After a wake-up it does not read again, because the notifier has
// already read.
func (s *Source) Await(ctx context.Context, c *ClaimOp, interrupt <-chan struct{}) (found bool, err error) {
	var keys []wake.Key
	for _, queue := range s.Queues {
		keys = append(keys, wake.Key{Kind: wake.QueueReady, Name: queue})
	}
	waiter := s.Engine.Notifier.Subscribe(keys...)
	defer waiter.Close()
	state, err := s.state(ctx) // after subscribing, so that no commit in between is missed
	if err != nil || state.Ready {
		return state.Ready, err
	}
	s.Engine.Notifier.WakeAt(state.Next)
	s.Engine.Notifier.WakeAt(state.Start)
	// Offer c only after the read, so that an enqueue does not overtake the jobs that are waiting.
	var filled <-chan struct{}
	if c.Want > 0 {
		idle := s.Handoffs.add(c)
		defer s.Handoffs.remove(idle)
		filled = idle.filled
	}
	select {
	case <-interrupt:
		return false, nil
	case <-filled:
		return c.full(), nil
	case <-waiter.C():
		return true, s.Engine.Notifier.Err()
	case <-ctx.Done():
		return false, engine.Cause(ctx)
	}
}
