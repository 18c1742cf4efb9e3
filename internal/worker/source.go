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

// Source is a queue, or several, from which jobs are claimed and in which they are settled. The
// handles of the root package use it too, so that claims of Queue.Claim and of Work are the same.
type Source struct {
	Engine   *engine.Engine
	Handoffs *Handoffs
	Running  *Running
	Presence Presence
	Queue    string // with Lanes: their names, for log messages
	Lanes    *Lanes // nil for a single Queue

	largest atomic.Int64 // recent maximum payload size in bytes; 0 if unknown
	limited atomic.Bool  // the queues had limits when a worker last waited
}

// Limited reports whether the queues had limits when a worker last waited. With limits, the end of
// a job may allow another job to start.
func (s *Source) Limited() bool { return s.limited.Load() }

// queues returns the names of the queues that jobs are claimed from.
func (s *Source) queues() []string {
	if s.Lanes == nil {
		return []string{s.Queue}
	}
	return s.Lanes.Queues
}

// ClaimOp claims up to Want jobs with a lease of Hold.
type ClaimOp struct {
	source *Source
	Worker string
	Want   int
	Hold   time.Duration

	Began time.Time
	Rows  []*row.Job  // after Run
	Dead  []row.Death // after Run: jobs that were dead-lettered instead of claimed

	paused       bool // after Run: there were no jobs, and a queue is paused
	more         bool // after Run: the claim reached a bound, and there may be more jobs
	sum, largest int  // payload sizes of Rows, in bytes
	slots        *Reservation
	ahead        []row.Lane // after Run, with fair Lanes: the start of the next claim
	handedOver   bool       // an enqueue inserted the jobs at Began
}

// Limits of a claim. A claim holds the writer and rewrites every claimed row, including its
// payload. A statement costs as much as five small jobs, so small jobs are claimed by a single
// statement.
const (
	claimBytes = 1 << 20 // bytes of payloads; the first statement may exceed it if payloads have grown
	claimFirst = 32      // jobs of the first statement, whatever their size
	claimGrows = 7       // growth of each further statement, as a multiple of the jobs claimed so far
)

// ReadyAt returns when a job of the claim could have started. The time is exact if an enqueue of
// this process handed the job over, and otherwise has the resolution of the file, a second.
func (c *ClaimOp) ReadyAt(row *row.Job) time.Time {
	if c.handedOver {
		return c.Began
	}
	return time.Unix(max(row.RunAt, row.CreatedAt), 0)
}

// NewClaim returns a claim of up to want jobs for worker, with a lease of hold. It does not run the
// claim.
func (s *Source) NewClaim(worker string, want int, hold time.Duration) *ClaimOp {
	return &ClaimOp{source: s, Worker: worker, Want: want, Hold: hold, Began: time.Now()}
}

// Run implements engine.Op. The lease begins at the time of the transaction, so that the wait for
// the writer takes no part of it.
func (c *ClaimOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	expires := now.Unix() + engine.Seconds(c.Hold)
	c.Rows, c.Dead, c.sum, c.largest, c.paused = nil, nil, 0, 0, false // Run may be called again
	c.Want = c.slots.Fill(c.Want)
	if c.source.Lanes != nil {
		c.ahead = c.source.Lanes.next
	}
	for n := c.first(); n > 0; n = c.next() {
		rows, dead, err := c.claim(ctx, q, n, now.UnixMilli(), expires)
		if err != nil {
			return err
		}
		if c.Rows == nil {
			c.Rows = rows // usually the only rows, so avoid a copy
		} else {
			c.Rows = append(c.Rows, rows...)
		}
		c.Dead = append(c.Dead, dead...)
		sum, largest := payloadBytes(rows)
		c.sum, c.largest = c.sum+sum, max(c.largest, largest)
		if c.more = len(rows) == n; !c.more {
			break
		}
	}
	if c.Want > 0 && len(c.Rows) == 0 {
		if err := c.askPaused(ctx, q, now.Unix()); err != nil {
			return err
		}
	}
	// Lower the recent maximum slowly, so that occasional large payloads among small ones are not
	// forgotten.
	c.source.largest.Store(max(int64(c.largest), c.source.largest.Load()*7/8))
	return nil
}

// askPaused sets paused if any of the queues is paused.
func (c *ClaimOp) askPaused(ctx context.Context, q engine.Querier, now int64) (err error) {
	for _, queue := range c.source.queues() {
		if c.paused, err = c.source.Engine.Stores.Jobs.Paused(ctx, q, queue, now); err != nil || c.paused {
			return err
		}
	}
	return nil
}

// claim runs a single statement.
func (c *ClaimOp) claim(ctx context.Context, q engine.Querier, n int, nowMS, expires int64) (rows []*row.Job, dead []row.Death, err error) {
	s := c.source
	if s.Lanes == nil {
		return s.Engine.Stores.Jobs.ClaimAt(ctx, q, s.Queue, c.Worker, n, nowMS, expires)
	}
	rows, dead, c.ahead, err = s.Lanes.claim(ctx, s.Engine.Stores.Jobs, q, c.ahead, c.Worker, n, nowMS, expires)
	return rows, dead, err
}

// committed must be called after the commit of the claim. It makes the next claim of fair lanes
// begin where this claim has ended.
func (c *ClaimOp) committed() {
	if c.ahead != nil {
		c.source.Lanes.next = c.ahead
	}
}

// first returns how many jobs the first statement takes: as many as fit if their payloads are no
// larger than the recent maximum.
func (c *ClaimOp) first() int {
	n := claimFirst
	if largest := int(c.source.largest.Load()); largest > 0 {
		n = max(n, claimBytes/largest)
	}
	return min(n, c.Want, row.ClaimRows)
}

// next returns how many jobs the next statement takes: as many as fit if their payloads are no
// larger than those so far. It returns 0 to end the claim, also when only a small statement would
// be left.
func (c *ClaimOp) next() int {
	rest := min(c.Want, row.ClaimRows) - len(c.Rows)
	n := min(rest, claimGrows*len(c.Rows), (claimBytes-c.sum)/max(c.largest, 1))
	if n < min(rest, claimFirst) {
		return 0
	}
	return n
}

// payloadBytes returns the total size of the payloads and the size of the largest.
func payloadBytes(rows []*row.Job) (sum, largest int) {
	for _, row := range rows {
		size := 0
		switch p := row.Payload.(type) {
		case string:
			size = len(p)
		case []byte:
			size = len(p)
		}
		sum, largest = sum+size, max(largest, size)
	}
	return sum, largest
}

// Single implements engine.Op. It returns false, because a claim also settles expired claims, with
// separate statements.
func (c *ClaimOp) Single() bool { return false }

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
		for _, queue := range s.queues() {
			if err := s.Engine.Stores.Jobs.PostponeOverdue(ctx, q, queue, now.Unix(), now.Add(postponed).Unix()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Ready reports whether a claim would find something to do. It reads without the write lock.
func (s *Source) Ready(ctx context.Context) (ready bool, err error) {
	err = s.Engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		ready, err = s.Engine.Stores.Jobs.ReadyAt(ctx, q, s.Queue, time.Now().UnixMilli())
		return err
	})
	return ready, err
}

// state returns the state of the queues: whether a claim would find something to do, and otherwise
// when. It costs more than Ready and should be called only before a wait.
func (s *Source) state(ctx context.Context) (state row.QueueState, err error) {
	err = s.Engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		states, err := s.Engine.Stores.Jobs.StatesAt(ctx, q, s.queues(), time.Now().UnixMilli())
		state = soonest(states)
		s.limited.Store(state.Limited)
		return err
	})
	return state, err
}

// soonest combines the states of several queues.
func soonest(states []row.QueueState) (all row.QueueState) {
	for _, s := range states {
		all.Ready, all.Limited = all.Ready || s.Ready, all.Limited || s.Limited
		all.Next, all.StartMS = sooner(all.Next, s.Next), sooner(all.StartMS, s.StartMS)
	}
	return all
}

// sooner returns the earlier of two times. A zero time means none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Await waits for work. It returns true when a claim should find a job, and false when interrupt
// receives a value first. In the meantime c is offered to the enqueues of this process, unless the
// source has Lanes. So c.Rows may hold jobs whatever Await returns. After a wake-up it does not
// look again, because the notifier has looked.
func (s *Source) Await(ctx context.Context, c *ClaimOp, interrupt <-chan struct{}) (found bool, err error) {
	var keys []wake.Key
	for _, queue := range s.queues() {
		keys = append(keys, wake.Key{Kind: wake.QueueReady, Name: queue})
	}
	waiter := s.Engine.Notifier.Subscribe(keys...)
	defer waiter.Close()
	state, err := s.state(ctx) // after subscribing, so that no commit in between is missed
	if err != nil || state.Ready {
		return state.Ready, err
	}
	s.Engine.Notifier.WakeAt(engine.Instant(state.Next))
	s.Engine.Notifier.WakeAt(engine.InstantMS(state.StartMS))
	// Offer c only after the look: waiting jobs come first, and an enqueue must not pass them.
	var filled <-chan struct{}
	if c.Want > 0 && s.Lanes == nil {
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
