package honker

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
)

// crew is one running Work. Its caller's goroutine settles and claims, in turns that
// are one transaction each; the slots run handlers; the renewer keeps the leases. There
// are no more slots than there were jobs at a time, and no renewer without a job: a
// process with many quiet queues is cheap.
//
// The slots put finished jobs into finished and fill signal; the turn takes all of
// them. While a turn is in the engine more jobs finish, so turns grow with the load and
// there is no timer between a job and its ack.
type crew struct {
	q    *queue
	opts WorkOptions
	run  func(context.Context, *hand) error // the typed handler in its middleware

	jobs    chan *hand    // claimed and not started
	signal  chan struct{} // one slot: something has finished
	ended   chan struct{} // closed when the last handler has returned
	slots   sync.WaitGroup
	renewer sync.WaitGroup
	hard    context.Context // of the handlers; outlives the caller's ctx by DrainTimeout
	kill    context.CancelCauseFunc

	stopping atomic.Bool // no job is to start any more

	mu       sync.Mutex
	held     map[*hand]struct{} // a job may be here twice: an earlier handler lingers
	finished []*hand
	renewing bool // there is a renewer

	// the turn's own
	staff   int  // slots so far
	more    bool // a claim may find something
	pace    pace
	trouble int // turns in a row that failed
}

const (
	maxAhead   = 256
	stalled    = 200 * time.Millisecond // claimed ahead and not started for so long: give it back
	lastWord   = time.Second            // for handlers whose ctx was cancelled at the end of the drain
	paceWindow = 5 * time.Millisecond
)

func newCrew(q *queue, o WorkOptions) *crew {
	return &crew{
		q:      q,
		opts:   o,
		jobs:   make(chan *hand, o.Workers+maxAhead),
		signal: make(chan struct{}, 1),
		ended:  make(chan struct{}),
		held:   make(map[*hand]struct{}),
	}
}

func (c *crew) log() *slog.Logger { return c.q.db.opts.Logger }

// chain wraps the handler in the middleware.
func (c *crew) chain(run WorkFunc) WorkFunc {
	for _, wrap := range slices.Backward(c.opts.Middleware) {
		run = wrap(run)
	}
	return run
}

// work runs until ctx ends, and then drains.
func (c *crew) work(ctx context.Context) error {
	ctx, leave, err := c.q.db.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c.hard, c.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	defer c.kill(nil)

	if err = c.loop(ctx); err == nil && errors.Is(context.Cause(ctx), ErrClosed) {
		err = ErrClosed
	}
	c.stopping.Store(true)
	c.drain()

	close(c.jobs)
	c.slots.Wait()
	close(c.ended)
	c.renewer.Wait()
	return err
}

// loop takes turns until ctx ends. The error is one that no later turn can mend.
func (c *crew) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		done := c.collect()
		want := c.want(len(done))
		if len(done) == 0 && (want == 0 || !c.more) {
			if err := c.rest(ctx, want); err != nil {
				return err
			}
			continue
		}
		if !c.more {
			want = 0 // the probe of the next rest is cheaper than an empty claim
		}
		if err := c.turn(ctx, done, want); err != nil {
			return err
		}
	}
	return nil
}

// want says how many jobs to claim: one for each idle slot, and ahead what the slots
// finished in the last few milliseconds, so that fast handlers see batches and slow
// ones hoard nothing.
func (c *crew) want(done int) int {
	ahead := c.pace.ahead(time.Now(), done)
	return max(0, min(c.idle(done)+ahead, maxAhead))
}

// idle is the number of slots without a job, once done are settled; negative with jobs
// claimed ahead.
func (c *crew) idle(done int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opts.Workers - (len(c.held) - done - len(c.finished))
}

// pace remembers how many jobs finished in the last window.
type pace struct {
	since time.Time
	count int
	last  int
}

func (p *pace) ahead(now time.Time, done int) int {
	p.count += done
	if elapsed := now.Sub(p.since); elapsed >= paceWindow {
		p.last = int(int64(p.count) * int64(paceWindow) / int64(elapsed))
		p.since, p.count = now, 0
	}
	return min(max(p.last, p.count), maxAhead)
}

// rest waits until something has finished or, with room for more, there may be work.
func (c *crew) rest(ctx context.Context, want int) (err error) {
	limited := ctx
	if len(c.jobs) > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, stalled)
		defer cancel()
	}
	if want > 0 {
		err = c.await(limited)
	} else {
		select {
		case <-c.signal:
		case <-limited.Done():
		}
	}
	if limited.Err() != nil && ctx.Err() == nil {
		c.giveBack()
		return nil
	}
	return c.survive(ctx, err)
}

// await waits for work, which may come claimed: for idle slots only, since nobody knows
// how fast the handlers will be by then.
func (c *crew) await(ctx context.Context) error {
	claim := c.claiming(max(0, c.idle(0)))
	found, err := c.q.await(ctx, c.signal, &claim)
	c.more = found
	c.start(&claim)
	return err
}

// giveBack hands in what was claimed ahead and has not started.
func (c *crew) giveBack() {
	for {
		select {
		case h := <-c.jobs:
			c.handIn(h, &settlement{outcome: Released})
		default:
			return
		}
	}
}

// handIn queues h for the next turn.
func (c *crew) handIn(h *hand, end *settlement) {
	if end != nil {
		end.claim = h.claim
	}
	h.end = end
	c.mu.Lock()
	if _, ours := c.held[h]; ours { // else it was released over its handler's head
		h.done = true
		c.finished = append(c.finished, h)
	}
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

func (c *crew) collect() []*hand {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.finished
	c.finished = nil
	return done
}

// turn settles done and claims up to want jobs, in one commit. A failure that may pass
// is logged, and done is settled by a later turn: the leases hold.
func (c *crew) turn(ctx context.Context, done []*hand, want int) error {
	t := &turn{crew: c, done: done, claiming: c.claiming(want)}
	t.began = time.Now()
	err := c.q.db.writer.Do(context.WithoutCancel(ctx), t)
	if errors.Is(err, errUncertain) {
		t.careful = true
		err = c.q.db.writer.Do(context.WithoutCancel(ctx), t)
	}
	if err != nil {
		return c.failed(ctx, done, err)
	}
	if c.q.db.home == nil {
		c.q.db.hub.nudge()
	}
	c.trouble = 0
	c.settled(done)
	c.more = want == 0 && c.more || t.full()
	c.start(&t.claiming)
	return nil
}

// claiming is a claim of up to want jobs.
func (c *crew) claiming(want int) claiming {
	return claiming{q: c.q, worker: c.opts.WorkerID, want: want, hold: c.opts.Lease}
}

// failed keeps done for a later turn. What a rule of the application's, in a trigger, say,
// refuses again and again is settled one by one: one job must not hold up the others.
func (c *crew) failed(ctx context.Context, done []*hand, err error) error {
	if c.trouble >= 2 && sqlite.IsConstraint(err) {
		for _, h := range done {
			c.settleAlone(ctx, h)
		}
		done = nil
	}
	c.mu.Lock()
	c.finished = append(done, c.finished...)
	c.mu.Unlock()
	return c.survive(ctx, err)
}

// settleAlone lets h go if it cannot be settled: its lease will lapse.
func (c *crew) settleAlone(ctx context.Context, h *hand) {
	t := &turn{crew: c, done: []*hand{h}, careful: true}
	if err := c.q.db.writer.Do(context.WithoutCancel(ctx), t); err == nil {
		c.settled(t.done)
		return
	}
	c.mu.Lock()
	delete(c.held, h)
	c.mu.Unlock()
}

// survive waits a little after an error that may pass, and returns the others.
func (c *crew) survive(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrDatabaseReplaced) {
		return err
	}
	c.trouble++
	c.log().Error("honker: work cannot go on and will try again", "queue", c.q.name, "error", err)
	pause := time.NewTimer(min(time.Duration(c.trouble)*100*time.Millisecond, 5*time.Second))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
	return nil
}

// start hands claimed jobs to the slots.
func (c *crew) start(claimed *claiming) {
	if len(claimed.rows) == 0 {
		return
	}
	claimed.observe()
	hands := make([]*hand, len(claimed.rows))
	c.mu.Lock()
	for i, row := range claimed.rows {
		if row.Attempts > 1 {
			c.supersede(row.ID)
		}
		info := infoOf(row)
		hands[i] = &hand{claim: claimOf(row), info: &info, stored: row.Payload}
		c.held[hands[i]] = struct{}{}
	}
	c.keepLeases()
	needed := min(len(c.held), c.opts.Workers)
	c.mu.Unlock()
	for ; c.staff < needed; c.staff++ {
		c.slots.Add(1)
		go c.slot()
	}
	for _, h := range hands {
		c.jobs <- h // never blocks: want leaves room
	}
	if len(hands) <= c.opts.Workers {
		runtime.Gosched() // the slots first: with little to do, the next turn can wait
	}
}

// settled forgets jobs whose claims have ended, and says how.
func (c *crew) settled(done []*hand) {
	c.mu.Lock()
	for _, h := range done {
		delete(c.held, h)
	}
	c.mu.Unlock()
	for _, h := range done {
		if h.end == nil || h.end.quiet && h.end.became == Lost {
			continue
		}
		h.end.observe(c.q, h.ran)
		if h.end.became == Lost && h.end.outcome != Released {
			c.log().Warn("honker: the claim was lost before the job was settled",
				"queue", c.q.name, "job", h.claim.ID, "attempt", h.claim.Attempt)
			c.tell(h, failID("settle job", h.claim.ID, ErrClaimLost))
		}
	}
}
