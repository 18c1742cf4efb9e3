// Package worker runs the handlers of one Work: it claims jobs in batches, hands them to
// goroutines, renews their leases, settles them, and drains at the end. It knows jobs as rows
// and handlers as functions; types, options and observers are the root package's.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Config is one running Work.
type Config struct {
	WorkerID     string
	Workers      int           // handlers at once
	Lease        time.Duration // of a claim, renewed at a third of it
	Timeout      time.Duration // of one attempt; 0: none
	DrainTimeout time.Duration // after the end of ctx, before the handlers' ctx is cancelled
	ResultTTL    time.Duration
	Backoff      func(attempt int, err error) time.Duration
	Logger       *slog.Logger
	Slots        *Slots // shared with other loops: a handler needs one; nil: Workers alone bounds them
	Due          bool   // run what is due, one job after another in the goroutine of Run, and end

	Handle     func(ctx context.Context, claim *Claim, job *row.Job) error
	OnError    func(ctx context.Context, job *row.Job, err error) // of an attempt that failed, or a claim that was lost
	OnClaimed  func(*ClaimOp)                                     // after the commit
	OnStarted  func(*Claim)                                       // before Handle
	OnReturned func(*Claim)                                       // after it, once for each OnStarted
	OnSettled  func(end *SettleOp, ran time.Duration)             // after the commit
}

// Pool is one running Work.
//
// The goroutine that has called Run is the only one that writes: it claims jobs and settles
// what has finished, both in one transaction, a batch. Worker goroutines run handlers; there
// are no more of them than there were jobs at a time, so that a process with many quiet
// queues is cheap. One more goroutine renews leases, from the first job on.
//
//	batch ──jobs──► workers ──finished, signal──► batch
//
// Workers append to finished and fill signal; the next batch takes all of it. While a batch
// is being written more jobs finish, so batches grow with the load, and no timer stands
// between a job and its ack.
type Pool struct {
	Config
	source *Source

	slots    *Reservation    // of Config.Slots
	jobs     chan *activeJob // claimed and not started
	signal   chan struct{}   // one slot: something has finished
	began    chan struct{}   // one slot: jobs are held, see watchLoop
	workers  sync.WaitGroup
	renewer  sync.WaitGroup // and watchLoop
	stopping atomic.Bool    // no job is to start any more

	// handlerCtx outlives the ctx of Run by DrainTimeout: handlers may finish.
	handlerCtx     context.Context
	cancelHandlers context.CancelCauseFunc
	// settleCtx is that of all writes. It ends a moment after handlerCtx: what is not settled
	// then is left to lapse, however long the writer stays busy.
	settleCtx context.Context
	giveUp    context.CancelCauseFunc

	mu sync.Mutex
	// held are the jobs with claims that this pool answers for. A job may be in it twice: an
	// earlier handler may not have noticed that its claim lapsed and was taken again.
	held     map[*activeJob]struct{}
	finished []*activeJob // to be settled by the next batch

	// Of the goroutine that has called Run.
	more     bool // a claim may find something
	prefetch prefetch
	failures engine.Retry

	progressAt time.Time // of the renewer: when it last wrote progress

	// Guarded by mu. A pool without a job has neither renewLoop nor watchLoop nor workers: see attend and rest.
	attended  bool
	attending context.Context    // ends with the pool
	stopWatch context.CancelFunc // of watchLoop
	retire    chan struct{}      // closed: workers without a job end
	started   int                // workers since the last rest
}

// NewPool returns a pool for the jobs of s.
func NewPool(s *Source, c Config) *Pool {
	return &Pool{
		Config: c,
		source: s,
		slots:  c.Slots.Reserve(),
		jobs:   make(chan *activeJob, c.Workers+prefetchLimit),
		signal: make(chan struct{}, 1),
		began:  make(chan struct{}, 1),
		held:   make(map[*activeJob]struct{}),
		failures: engine.Retry{
			Log: c.Logger, What: "worker: transaction failed, retrying", Attrs: []any{"queue", s.Queue},
		},
	}
}

// Run claims and runs jobs until ctx ends, and then drains. The error is one that no later
// batch can mend.
func (p *Pool) Run(ctx context.Context) error {
	ctx, leave, err := p.source.Engine.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lasting := context.WithoutCancel(ctx)
	p.handlerCtx, p.cancelHandlers = context.WithCancelCause(lasting)
	defer p.cancelHandlers(nil)
	p.settleCtx, p.giveUp = context.WithCancelCause(lasting)
	defer p.giveUp(nil)

	var stopRenewing context.CancelFunc
	p.attending, stopRenewing = context.WithCancel(context.Background())
	defer stopRenewing()
	if p.source.Running.add(p) {
		p.Logger.Warn("honker: worker: two of this process on the same queue have the same WorkerID, which must be unique",
			"queue", p.source.Queue, "worker", p.WorkerID)
	}
	defer p.source.Running.remove(p)
	if !p.Due { // the caller has that run now and then
		defer p.source.Presence.Enter(p.WorkerID, p.source.queues(), p.Workers)()
	}

	// From the end of ctx on, whatever the batch waits for that is being written then.
	limit := sync.OnceValue(p.limitDrain)
	defer context.AfterFunc(ctx, func() { limit() })()
	// Deferred, so that no goroutine stays behind, renewing leases for ever, when a callback ends
	// this one by runtime.Goexit, as t.FailNow does.
	func() {
		defer p.end(limit, stopRenewing)
		if p.Due {
			err = p.loopDue(ctx)
			return
		}
		err = p.loop(ctx)
	}()
	if err == nil && errors.Is(context.Cause(ctx), engine.ErrClosed) {
		return engine.ErrClosed
	}
	return err
}

// end drains within limit, and waits for all goroutines.
func (p *Pool) end(limit func() (stop func()), stopRenewing func()) {
	p.stopping.Store(true) // before the drain empties jobs: a worker may have taken one already
	p.slots.Release()
	defer limit()()
	defer func() { // also when the drain ends by runtime.Goexit
		close(p.jobs)
		p.workers.Wait()
		stopRenewing()
		p.renewer.Wait()
	}()
	p.drainAll()
}

// drainAll drains. A callback that ends this goroutine by runtime.Goexit ends one drain, which has settled some jobs:
// another one follows, so that no job stays held.
func (p *Pool) drainAll() {
	drained := false
	defer func() {
		if !drained {
			p.drainAll()
		}
	}()
	p.drain()
	drained = true
}

// loop runs batches until ctx ends.
func (p *Pool) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		// All that has finished by now: the commit of this batch is the time in which the next
		// one gathers.
		done := p.takeFinished()
		want := p.want(len(done))
		if !p.more && (len(done) == 0 || !p.source.Limited()) {
			want = 0 // the read of the next wait is cheaper than a claim of nothing
		}
		want = p.reserve(want)
		var err error
		if len(done) == 0 && want == 0 {
			err = p.waitForWork(ctx)
		} else {
			err = p.runBatch(p.settleCtx, done, want)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		p.slots.Release() // others can use it during the pause
		if err := p.failures.After(ctx, err); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// loopDue runs batches of one job until none is due. The first error ends it.
func (p *Pool) loopDue(ctx context.Context) error {
	for p.more = true; p.more && ctx.Err() == nil; {
		done := p.takeFinished()
		want := p.reserve(1)
		if len(done) == 0 && want == 0 {
			select {
			case <-p.slots.Granted():
			case <-ctx.Done():
			}
			continue
		}
		if err := p.runBatch(p.settleCtx, done, want); err != nil {
			return err
		}
	}
	return nil
}

// reserve returns want where the pool may claim, and 0 where all slots that it shares are taken:
// then it waits for one, and may settle meanwhile. A pool that wants nothing holds none.
func (p *Pool) reserve(want int) int {
	if want == 0 {
		p.slots.Release()
		return 0
	}
	if !p.slots.Ask() {
		return 0
	}
	return want
}

const (
	// prefetchLimit bounds the jobs that are claimed and not started.
	prefetchLimit = 256
	// prefetchBytes bounds their payloads, by the mean of the last batch.
	prefetchBytes = 4 << 20
	// prefetchTimeout is how long such a job may wait for a worker. Then it is given back:
	// handlers have turned slow, and another process may be idle.
	prefetchTimeout = 200 * time.Millisecond
	// prefetchWindow is what is claimed ahead: as much as finished in that time.
	prefetchWindow = 5 * time.Millisecond
)

// want is how many jobs to claim once done are settled: one for each idle worker, and ahead
// what finished in the last few milliseconds, so that fast handlers see batches and slow ones
// hoard nothing.
//
// Slots that are shared, and the room that limits leave, are never used for a job that waits: nothing
// is claimed ahead.
func (p *Pool) want(done int) int {
	if p.slots != nil || p.source.Limited() {
		return max(0, min(p.idle(done), prefetchLimit))
	}
	ahead := p.prefetch.size(time.Now(), done)
	return max(0, min(p.idle(done)+ahead, prefetchLimit))
}

// idle is the number of workers without a job once done are settled. It is negative while
// jobs are claimed ahead.
func (p *Pool) idle(done int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Workers - (len(p.held) - done - len(p.finished))
}

// prefetch counts how many jobs finish in a window.
type prefetch struct {
	since time.Time
	count int
	last  int // of the window before
	bytes int // of a job's payload, the mean of the last batch
}

// saw notes how large the jobs of a batch are.
func (f *prefetch) saw(rows []*row.Job) {
	sum, _ := payloadBytes(rows)
	f.bytes = sum / len(rows)
}

func (f *prefetch) size(now time.Time, done int) int {
	f.count += done
	if elapsed := now.Sub(f.since); elapsed >= prefetchWindow {
		f.last = int(int64(f.count) * int64(prefetchWindow) / int64(elapsed))
		f.since, f.count = now, 0
	}
	return min(max(f.last, f.count), prefetchLimit, prefetchBytes/max(f.bytes, 1))
}

// waitForWork returns when a job has finished or, with an idle worker, when there may be one
// to claim. What is claimed ahead and does not start meanwhile is given back.
func (p *Pool) waitForWork(ctx context.Context) error {
	// With jobs claimed ahead the wait has an end: they must not lie here while another process
	// has idle workers.
	limited := ctx
	if len(p.jobs) > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, prefetchTimeout)
		defer cancel()
	}
	var err error
	if p.want(0) > 0 && !p.more {
		// An enqueue may hand jobs over: for idle workers only, since the pace of the handlers
		// by then is not known.
		claim := p.newClaim(max(0, p.idle(0)))
		p.more, err = p.source.Await(limited, claim, p.signal)
		p.start(claim)
	} else {
		select {
		case <-p.signal:
		case <-p.slots.Granted():
		case <-limited.Done():
		}
	}
	if limited.Err() != nil && ctx.Err() == nil {
		p.releaseUnstarted()
		return nil
	}
	return err
}

// start tells of a claim, and hands its jobs to workers.
func (p *Pool) start(claimed *ClaimOp) {
	claimed.committed()
	if len(claimed.Rows) > 0 {
		defer p.hand(claimed) // also when OnClaimed ends this goroutine by runtime.Goexit
	}
	if len(claimed.Rows) > 0 || len(claimed.Dead) > 0 {
		p.OnClaimed(claimed)
	}
}

// hand holds the jobs of claimed, and gives them to workers.
func (p *Pool) hand(claimed *ClaimOp) {
	p.prefetch.saw(claimed.Rows)
	jobs := make([]*activeJob, len(claimed.Rows))
	p.mu.Lock()
	for i, row := range claimed.Rows {
		// Only a job that was claimed before can still be in the hands of an earlier handler.
		if row.Attempts > 1 {
			p.supersedeLocked(row.ID)
		}
		jobs[i] = &activeJob{claim: ClaimOf(row), row: row, ready: claimed.ReadyAt(row)}
		jobs[i].claim.Pooled = true
		p.held[jobs[i]] = struct{}{}
	}
	p.attendLocked()
	if !p.Due && p.slots == nil {
		// As many workers as there are jobs, and no more: idle queues cost no goroutines.
		for needed := min(len(p.held), p.Workers); p.started < needed; p.started++ {
			p.workers.Add(1)
			go p.work(p.retire)
		}
	}
	p.mu.Unlock()
	p.slots.Start(len(jobs))
	select {
	case p.began <- struct{}{}:
	default:
	}
	if p.Due {
		p.runJob(jobs[0], nil) // batches are of one
		return
	}
	if p.slots != nil {
		// The slots bound the goroutines as well: they end with their handlers, since many loops
		// that were busy once would keep as many as they have workers together.
		for _, j := range jobs {
			p.workers.Go(func() { p.runJob(j, nil) })
		}
		return
	}
	for _, j := range jobs {
		p.jobs <- j // never blocks: want leaves room
	}
	if len(jobs) <= p.Workers {
		// The handlers first: the next look at the file can wait, and would keep this processor
		// until another one has woken up. From an enqueue to its handler it is 0.18 ms with it and
		// 0.29 without (p50, bench -suite wake, same process beside 1,000 commits/s).
		runtime.Gosched()
	}
}

// attendLocked starts what watches over jobs that are held, if it does not run.
func (p *Pool) attendLocked() {
	if p.attended {
		return
	}
	p.attended = true
	p.retire = make(chan struct{})
	var watching context.Context
	watching, p.stopWatch = context.WithCancel(p.attending)
	p.renewer.Go(func() { p.renewLoop(p.attending) })
	p.renewer.Go(func() { p.watchLoop(watching) })
}

// rest ends the goroutines of a pool that holds no job, and tells whether it has: an idle queue has no leases, and a
// process may have a thousand files open. Its caller is renewLoop, so a pool that gets a job at least once in a third of its
// Lease keeps its workers.
func (p *Pool) rest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) > 0 {
		return false
	}
	p.attended, p.started = false, 0
	p.stopWatch()
	close(p.retire)
	return true
}

// finish queues j for the next batch, to be settled by end; nil when the handler has settled
// it.
func (p *Pool) finish(j *activeJob, end *SettleOp) {
	j.end = end
	p.mu.Lock()
	// A handler that outlived the drain has nothing to settle: its job was given back.
	if _, held := p.held[j]; held {
		j.returned = true
		p.finished = append(p.finished, j)
	}
	p.mu.Unlock()
	p.slots.End() // before the signal: the batch that settles j may use it again
	// One value in the channel stands for any number of finished jobs.
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// takeFinished returns what is to be settled.
func (p *Pool) takeFinished() []*activeJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.finished
	p.finished = nil
	for _, j := range done {
		if j.claim.SnoozedTx.Load() && p.claimedAgainLocked(j) {
			j.end = nil
		}
	}
	return done
}

// claimedAgainLocked reports that this pool holds the job of j by another claim. A snooze in
// a transaction of the handler's leaves the attempt unspent, so the fence of the new claim is
// that of the old one, and to settle the old one would end the new one. No other pool has the
// fence: it contains the worker's id.
func (p *Pool) claimedAgainLocked(j *activeJob) bool {
	for other := range p.held {
		if other != j && other.claim.Claim == j.claim.Claim {
			return true
		}
	}
	return false
}

// forget lets go of jobs with claims that have ended, or cannot be settled.
func (p *Pool) forget(done []*activeJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range done {
		delete(p.held, j)
	}
}

// releaseUnstarted queues what was claimed ahead for release. Any goroutine may call it.
func (p *Pool) releaseUnstarted() {
	for {
		select {
		case j, open := <-p.jobs:
			if !open {
				return
			}
			p.finish(j, p.source.release(j.claim))
		default:
			return
		}
	}
}
