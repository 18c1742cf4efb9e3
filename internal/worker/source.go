package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// Jobs are the statements about jobs that claiming, settling and renewing need.
type Jobs interface {
	ReadyAt(ctx context.Context, q engine.Querier, queue string, nowMS int64) (bool, error)
	StatesAt(ctx context.Context, q engine.Querier, queues []string, nowMS int64) ([]row.QueueState, error)
	ClaimAt(ctx context.Context, q engine.Querier, queue, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, error)
	Paused(ctx context.Context, q engine.Querier, queue string, now int64) (bool, error)
	ClaimStrict(ctx context.Context, q engine.Querier, queues []string, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, error)
	ClaimFair(ctx context.Context, q engine.Querier, lanes []row.Lane, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, error)
	PostponeOverdue(ctx context.Context, q engine.Querier, queue string, now, until int64) error
	InsertClaimed(ctx context.Context, q engine.Querier, j row.NewJob, payload, worker string, expires int64) (*row.Job, error)
	ForeignTriggers(ctx context.Context, q engine.Querier) (bool, error)
	Ack(ctx context.Context, q engine.Querier, c row.Claim, now int64) (bool, error)
	AckAlone(ctx context.Context, q engine.Querier, c row.Claim, now int64) (bool, error)
	AckAttempt(ctx context.Context, q engine.Querier, ids []int64, worker string, attempt, now int64) (int, error)
	AckAttemptIDs(ctx context.Context, q engine.Querier, ids []int64, worker string, attempt, now int64) ([]int64, error)
	Retry(ctx context.Context, q engine.Querier, c row.Claim, runAt int64, cause string, now int64) (held, died bool, err error)
	DeadLetter(ctx context.Context, q engine.Querier, c row.Claim, cause string, now int64) (bool, error)
	SaveProgress(ctx context.Context, q engine.Querier, all []row.ProgressOf, worker string, acked bool, now int64) error
	AddAttempts(ctx context.Context, q engine.Querier, failed []row.Attempt) error
	PutBack(ctx context.Context, q engine.Querier, c row.Claim, runAt, now int64) (bool, error)
	SlowDown(ctx context.Context, q engine.Querier, queue string, id int64, p row.Pause, now int64) error
	Base(ctx context.Context, q engine.Querier, id int64) (int64, error)
	Gone(ctx context.Context, q engine.Querier, ids []int64) ([]int64, error)
	FreePlace(ctx context.Context, q engine.Querier, c row.Claim) error
	RenewPlaces(ctx context.Context, q engine.Querier, ids []int64, worker string, now, expires int64) error
	Renew(ctx context.Context, q engine.Querier, ids []int64, worker string, now, expires int64) ([]int64, error)
}

// Results are the statements about results that an ack needs.
type Results interface {
	Save(ctx context.Context, q engine.Querier, id int64, value string, now, expires int64) error
}

// Presence is told which loops run. leave is called when one has ended.
type Presence interface {
	Enter(worker string, queues []string, slots int) (leave func())
}

// Source is a queue as a worker sees it: where jobs are claimed from and settled. The handles of
// the root use it too, so that a claim of Queue.Claim and one of Work are the same.
type Source struct {
	Engine   *engine.Engine
	Jobs     Jobs
	Results  Results
	Handoffs *Handoffs
	Running  *Running
	Presence Presence
	Queue    string // of Lanes: their names, for the log
	Lanes    *Lanes // nil: Queue alone

	largest atomic.Int64 // payload of late, in bytes: 0 is unknown
	limited atomic.Bool  // the queues had limits when a worker last waited
}

// Limited tells whether the queues had limits when a worker last waited: the end of a job may let
// another start then.
func (s *Source) Limited() bool { return s.limited.Load() }

// queues are the names of the queues that jobs are claimed from.
func (s *Source) queues() []string {
	if s.Lanes == nil {
		return []string{s.Queue}
	}
	return s.Lanes.Queues
}

// ClaimOp is one claim of up to Want jobs, held for Hold.
type ClaimOp struct {
	source *Source
	Worker string
	Want   int
	Hold   time.Duration

	Began time.Time
	Rows  []*row.Job  // after Run
	Dead  []row.Death // after Run: jobs of the queue that could not run again

	paused       bool // after Run: there were no jobs, and a queue is paused
	more         bool // after Run: it has stopped at a bound, and there may be others
	sum, largest int  // of the payloads of Rows, in bytes
	slots        *Reservation
	ahead        []row.Lane // after Run, of fair Lanes: where the next claim begins
	handedOver   bool       // by an enqueue, at Began
}

// Bounds of one claim, which holds the writer meanwhile: a claimed row is written anew, its payload
// included. Each statement costs as much as five small jobs, so they are claimed by one.
const (
	claimBytes = 1 << 20 // of payloads; the first statement takes more where they are larger than of late
	claimFirst = 32      // jobs of the first statement, whatever their size
	claimGrows = 7       // times what was claimed before, for the next one
)

// ReadyAt is when a job of the claim could have begun: to the second, as the file has it, or
// exactly, where an enqueue of this process has handed it over.
func (c *ClaimOp) ReadyAt(row *row.Job) time.Time {
	if c.handedOver {
		return c.Began
	}
	return time.Unix(max(row.RunAt, row.CreatedAt), 0)
}

// NewClaim returns a claim that has not run.
func (s *Source) NewClaim(worker string, want int, hold time.Duration) *ClaimOp {
	return &ClaimOp{source: s, Worker: worker, Want: want, Hold: hold, Began: time.Now()}
}

// Run implements engine.Op. The lease begins at the time of the transaction, not at that of the
// call: what waited for the writer must not have lost a part of its lease to that.
func (c *ClaimOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	expires := now.Unix() + engine.Seconds(c.Hold)
	c.Rows, c.Dead, c.sum, c.largest, c.paused = nil, nil, 0, 0, false // it may run again
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
			c.Rows = rows // mostly the only ones: not copied
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
	// Large ones are remembered for some claims, where they come among small ones.
	c.source.largest.Store(max(int64(c.largest), c.source.largest.Load()*7/8))
	return nil
}

// askPaused finds out whether a pause, of any of the queues, is why there were no jobs.
func (c *ClaimOp) askPaused(ctx context.Context, q engine.Querier, now int64) (err error) {
	for _, queue := range c.source.queues() {
		if c.paused, err = c.source.Jobs.Paused(ctx, q, queue, now); err != nil || c.paused {
			return err
		}
	}
	return nil
}

// claim runs one statement.
func (c *ClaimOp) claim(ctx context.Context, q engine.Querier, n int, nowMS, expires int64) (rows []*row.Job, dead []row.Death, err error) {
	s := c.source
	if s.Lanes == nil {
		return s.Jobs.ClaimAt(ctx, q, s.Queue, c.Worker, n, nowMS, expires)
	}
	rows, dead, c.ahead, err = s.Lanes.claim(ctx, s.Jobs, q, c.ahead, c.Worker, n, nowMS, expires)
	return rows, dead, err
}

// committed is called when the claim is: the next one begins where it has ended.
func (c *ClaimOp) committed() {
	if c.ahead != nil {
		c.source.Lanes.next = c.ahead
	}
}

// first is how many jobs the first statement of the claim takes: as many as fit if they are not
// larger than those of late.
func (c *ClaimOp) first() int {
	n := claimFirst
	if largest := int(c.source.largest.Load()); largest > 0 {
		n = max(n, claimBytes/largest)
	}
	return min(n, c.Want, store.ClaimRows)
}

// next is how many jobs the next statement takes, so that they fit if none is larger than those
// so far; 0 ends the claim. It ends early rather than with many small statements.
func (c *ClaimOp) next() int {
	rest := min(c.Want, store.ClaimRows) - len(c.Rows)
	n := min(rest, claimGrows*len(c.Rows), (claimBytes-c.sum)/max(c.largest, 1))
	if n < min(rest, claimFirst) {
		return 0
	}
	return n
}

// payloadBytes is how large the payloads are in sum, and the largest.
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

// Single implements engine.Op. A claim also settles what has lapsed, by statements of their own.
func (c *ClaimOp) Single() bool { return false }

// full reports that there may be more than was claimed.
func (c *ClaimOp) full() bool { return c.more || c.Want > 0 && len(c.Rows) == c.Want }

// postponed is how long a job that cannot be dead-lettered is left alone.
const postponed = time.Minute

// ClaimFailed is called after a claim that has failed with err. A trigger of the application may
// keep a job that may not run again from the dead letters: then each claim would fail, and the
// others of the queue would wait for ever. What this cannot write either, the next claim meets.
func (s *Source) ClaimFailed(ctx context.Context, err error) {
	if !sqlite.IsConstraint(err) {
		return
	}
	_ = s.Engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		for _, queue := range s.queues() {
			if err := s.Jobs.PostponeOverdue(ctx, q, queue, now.Unix(), now.Add(postponed).Unix()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Ready reads whether a claim would find something to do, without the write lock.
func (s *Source) Ready(ctx context.Context) (ready bool, err error) {
	err = s.Engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		ready, err = s.Jobs.ReadyAt(ctx, q, s.Queue, time.Now().UnixMilli())
		return err
	})
	return ready, err
}

// state reads what Ready does, and otherwise when a claim will find something. It costs more
// than Ready, so it is for a caller that is about to wait.
func (s *Source) state(ctx context.Context) (state row.QueueState, err error) {
	err = s.Engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		states, err := s.Jobs.StatesAt(ctx, q, s.queues(), time.Now().UnixMilli())
		state = soonest(states)
		s.limited.Store(state.Limited)
		return err
	})
	return state, err
}

// soonest is the state of several queues together.
func soonest(states []row.QueueState) (all row.QueueState) {
	for _, s := range states {
		all.Ready, all.Limited = all.Ready || s.Ready, all.Limited || s.Limited
		all.Next, all.StartMS = sooner(all.Next, s.Next), sooner(all.StartMS, s.StartMS)
	}
	return all
}

// sooner is the earlier of two times of which 0 is none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Await waits for work: true when a claim should find a job, false when interrupt has a value
// before. Meanwhile c is offered to the enqueues of this process, unless it is one of Lanes, so
// whatever is returned, c.Rows may hold jobs. After a wake it does not look again, since the notifier has looked.
func (s *Source) Await(ctx context.Context, c *ClaimOp, interrupt <-chan struct{}) (found bool, err error) {
	var keys []wake.Key
	for _, queue := range s.queues() {
		keys = append(keys, wake.Key{Kind: wake.QueueReady, Name: queue})
	}
	waiter := s.Engine.Notifier.Subscribe(keys...)
	defer waiter.Close()
	state, err := s.state(ctx) // after subscribing: a commit in between is not missed
	if err != nil || state.Ready {
		return state.Ready, err
	}
	s.Engine.Notifier.WakeAt(engine.Instant(state.Next))
	s.Engine.Notifier.WakeAt(engine.InstantMS(state.StartMS))
	// Offered only after the look: with jobs waiting, those come first and an enqueue must not
	// pass them.
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
