// Package worker runs the handlers of a Work call. It claims jobs in batches, passes them to
// goroutines, renews their leases, settles them, and drains at the end. Jobs are rows and handlers
// are functions here; the root package adds types, options and observers.
package worker

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Pool runs handlers for the jobs of a Source.
//
// The goroutine that called Run makes all claims and settles. It claims jobs and settles finished
// jobs in the same transaction, called a batch. Handlers run in worker goroutines. A pool starts no
// more of them than it holds jobs, so a process with many quiet queues is cheap. While the pool holds
// jobs, another goroutine renews their leases.
//
//	batch ──jobs──► workers ──finished, signal──► batch
//
// Workers append to finished and send to signal, and the next batch takes all finished jobs. More
// jobs finish while a batch is being written. Batches therefore grow with the load, and no timer
// delays an ack.
type Pool struct {
	Config
	source *Source

	slots    *Reservation    // from Config.Slots
	jobs     chan *activeJob // claimed jobs that have not started
	signal   chan struct{}   // capacity 1; a job has finished
	plenty   chan struct{}   // capacity 1; overlapJobs have finished
	began    chan struct{}   // capacity 1; jobs are held, see watchLoop
	workers  sync.WaitGroup
	renewer  sync.WaitGroup // renewLoop and watchLoop
	stopping atomic.Bool    // no further job may start

	// handlerCtx outlives the ctx of Run by up to DrainTimeout, so that handlers may finish.
	handlerCtx     context.Context
	cancelHandlers context.CancelCauseFunc
	// settleCtx is the ctx of all writes. It ends CancelGrace after handlerCtx. Jobs that are not
	// settled by then are left until their leases expire, however long the writer stays busy.
	settleCtx context.Context
	giveUp    context.CancelCauseFunc

	mu sync.Mutex
	// held contains the jobs whose claims this pool is responsible for. A job may be in it twice if
	// its claim expired and was taken again before the earlier handler noticed.
	held     map[*activeJob]struct{}
	finished []*activeJob // to be settled by the next batch

	// The following fields belong to the goroutine that called Run.
	more     bool // a claim may find something
	prefetch Prefetch
	under    underWay
	failures engine.Retry

	progressAt time.Time // when renewLoop last wrote progress

	// Guarded by mu. A pool without jobs has no workers and runs neither renewLoop nor watchLoop;
	// see attendLocked and rest.
	attended  bool
	attending context.Context    // ends with Run
	stopWatch context.CancelFunc // ends watchLoop
	retire    chan struct{}      // closed to end idle workers
	started   int                // workers started since the last rest
}

// NewPool returns a pool for the jobs of s.
func NewPool(s *Source, c Config) *Pool {
	return &Pool{
		Config: c,
		source: s,
		slots:  c.Slots.Reserve(),
		jobs:   make(chan *activeJob, c.Workers+prefetchLimit),
		signal: make(chan struct{}, 1),
		plenty: make(chan struct{}, 1),
		under:  underWay{written: make(chan *batchOp, overlap)},
		began:  make(chan struct{}, 1),
		held:   make(map[*activeJob]struct{}),
		failures: engine.Retry{
			Log: c.Logger, Message: "worker: transaction failed, retrying", Attrs: []any{"queue", s.Name},
		},
	}
}

// Run claims and runs jobs until ctx ends, and then drains. It returns an error only if no later
// batch can succeed.
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
		p.Logger.Warn("honker: worker: two workers of this process on the same queue have the same WorkerID, which must be unique",
			"queue", p.source.Name, "worker", p.WorkerID)
	}
	defer p.source.Running.remove(p)
	if !p.Due { // WorkDue runs only now and then, and is not listed as a worker
		defer p.source.Presence.Enter(p.WorkerID, p.source.Queues, p.Workers)()
	}

	// The time limit starts when ctx ends, even if a batch is being written then.
	limit := sync.OnceValue(p.limitDrain)
	defer context.AfterFunc(ctx, func() { limit() })()
	// Deferred: if a callback ends this goroutine with runtime.Goexit, as t.FailNow does, no other
	// goroutine may stay behind and renew leases forever.
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

// end drains within the time limit and waits for all goroutines.
func (p *Pool) end(limit func() (stop func()), stopRenewing func()) {
	p.stopping.Store(true) // before the drain empties jobs, because a worker may have just taken one
	p.slots.Release()
	defer limit()()
	defer func() { // also runs if the drain ends with runtime.Goexit
		close(p.jobs)
		p.workers.Wait()
		stopRenewing()
		p.renewer.Wait()
	}()
	p.drainAll()
}

// drainAll drains until no job is held. If a callback ends this goroutine with runtime.Goexit
// during a drain, some jobs are settled, and drainAll starts another drain for the rest.
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
		if p.overlaps() {
			if err := p.retry(ctx, p.turnOverlapped(ctx)); err != nil {
				return err
			}
			continue
		}
		p.collect() // a queue has got limits
		// Take all jobs that have finished by now. More jobs finish while this batch commits, and
		// the next batch takes them.
		done := p.takeFinished()
		want := p.want(len(done))
		if !p.more && (len(done) == 0 || !p.source.Limited()) {
			want = 0 // the read of the next wait is cheaper than a claim that finds nothing
		}
		want = p.reserve(want)
		var err error
		if len(done) == 0 && want == 0 {
			err = p.waitForWork(ctx)
		} else {
			err = p.runBatch(p.settleCtx, done, want)
		}
		if err := p.retry(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// retry pauses after an error of a turn. It returns an error if no later batch can succeed.
func (p *Pool) retry(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	p.slots.Release() // other loops can use the slot during the pause
	if err := p.failures.After(ctx, err); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// loopDue runs batches of a single job until no job is due. It returns the first error.
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
		if p.more {
			continue
		}
		// A claim that finds no job may have held many for their keys. It returns row.ErrStuck if it has changed
		// nothing and the queues are still ready, so the loop ends.
		var err error
		if p.more, err = p.source.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reserve returns want if the pool has a shared slot and may claim. If all slots are taken, it
// returns 0 and puts the pool on the waiting list. If want is 0, reserve gives the pool's slots back.
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

// want returns how many jobs to claim once done jobs have been settled: a job for each idle worker,
// plus as many as have finished within the last few milliseconds. Fast handlers thus get large
// batches, and slow handlers do not hoard jobs.
//
// With shared slots or queue limits, nothing is claimed ahead, because a waiting job must not occupy
// a slot or count against a limit.
func (p *Pool) want(done int) int {
	if p.slots != nil || p.source.Limited() {
		return max(0, min(p.idle(done), batchLimit))
	}
	ahead := p.prefetch.Size(time.Now(), done)
	return max(0, min(p.idle(done)+ahead, batchLimit))
}

// idle returns the number of workers without a job once done jobs have been settled. It is negative
// while jobs are claimed ahead.
func (p *Pool) idle(done int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Workers - (len(p.held) - done - p.under.settling - len(p.finished)) - p.under.claiming
}

// waitForWork waits until a job has finished or, if a worker is idle, until a claim may find a job.
// It releases jobs that were claimed ahead and have not started within prefetchTimeout.
func (p *Pool) waitForWork(ctx context.Context) error {
	// Limit the wait while jobs are claimed ahead: another process may have idle workers.
	limited := ctx
	if len(p.jobs) > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, prefetchTimeout)
		defer cancel()
	}
	var err error
	if p.want(0) > 0 && !p.more {
		// An enqueue may hand over jobs, but only as many as there are idle workers, because the
		// future speed of the handlers is unknown.
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

// start reports a committed claim to OnClaimed and passes its jobs to workers.
func (p *Pool) start(claimed *ClaimOp) {
	claimed.committed()
	if len(claimed.Rows) > 0 {
		defer p.hand(claimed) // even if OnClaimed ends this goroutine with runtime.Goexit
	}
	for i, h := range p.Handlers {
		part := claimed
		if len(p.Handlers) > 1 {
			part = claimed.of(p.source.Queues[i])
		}
		if len(part.Rows) > 0 || len(part.Dead) > 0 {
			h.OnClaimed(part)
		}
	}
}

// handler returns the Handler of the jobs of queue.
func (p *Pool) handler(queue string) *Handler {
	if len(p.Handlers) == 1 {
		return p.Handlers[0]
	}
	return p.Handlers[slices.Index(p.source.Queues, queue)]
}

// hand adds the jobs of claimed to held and passes them to workers.
func (p *Pool) hand(claimed *ClaimOp) {
	bytes, _ := row.PayloadBytes(claimed.Rows)
	p.prefetch.Saw(bytes, len(claimed.Rows))
	jobs := make([]*activeJob, len(claimed.Rows))
	p.mu.Lock()
	for i, row := range claimed.Rows {
		// Only a job that was claimed before can still have an earlier handler.
		if row.Attempts > 1 {
			p.supersedeLocked(row.ID)
		}
		jobs[i] = &activeJob{claim: ClaimOf(row), row: row, handler: p.handler(row.Queue), ready: claimed.ReadyAt(row)}
		jobs[i].claim.Pooled = true
		p.held[jobs[i]] = struct{}{}
	}
	p.attendLocked()
	if !p.Due && p.slots == nil {
		// Start no more workers than there are jobs: an idle queue needs no goroutines.
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
		p.runJob(jobs[0], nil) // such a batch has a single job
		return
	}
	if p.slots != nil {
		// The slots limit the goroutines as well. Each goroutine ends with its handler. Otherwise
		// many loops that were busy at some time would together keep far more goroutines than there
		// are slots.
		for _, j := range jobs {
			p.workers.Go(func() { p.runJob(j, nil) })
		}
		return
	}
	for _, j := range jobs {
		p.jobs <- j // never blocks, because want leaves room
	}
	if len(jobs) <= p.Workers {
		// Let the handlers start first. Otherwise the next read of the file would occupy this
		// processor until another processor has woken up. With the call, a handler starts 0.18 ms
		// after its enqueue, and without it 0.29 ms (p50, bench -suite wake, same process beside
		// 1,000 commits/s).
		runtime.Gosched()
	}
}

// attendLocked starts renewLoop and watchLoop unless they are running.
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

// rest ends the goroutines of a pool that holds no job and reports whether it did, so that a process
// can have a thousand idle pools. It is called by renewLoop. A pool therefore keeps its workers if it
// gets a job at least every third of its Lease.
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

// finish queues j for the next batch, which applies end. end is nil if the handler has settled the
// job itself.
func (p *Pool) finish(j *activeJob, end *SettleOp) {
	j.end = end
	p.mu.Lock()
	// A handler that outlived the drain has nothing to settle: its job was released.
	if _, held := p.held[j]; held {
		j.returned = true
		p.finished = append(p.finished, j)
	}
	plenty := len(p.finished) == overlapJobs
	p.mu.Unlock()
	if plenty {
		select {
		case p.plenty <- struct{}{}:
		default:
		}
	}
	p.slots.End() // before the signal, so that the batch that settles j can reuse the slot
	// A single value in the channel stands for any number of finished jobs.
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// takeFinished returns the jobs to be settled and clears the list. It drops the settle of a snoozed
// job that this pool has claimed again.
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

// claimedAgainLocked reports whether this pool also holds the job of j by a newer claim. If the
// handler has snoozed its job in a transaction of its own, the attempt is unspent, and the newer
// claim has the same fence. Settling the old claim would then end the new claim. No other pool has
// this fence, because it contains the worker id.
func (p *Pool) claimedAgainLocked(j *activeJob) bool {
	for other := range p.held {
		if other != j && other.claim.Claim == j.claim.Claim {
			return true
		}
	}
	return false
}

// forget removes done from held, because their claims have ended or cannot be settled.
func (p *Pool) forget(done []*activeJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range done {
		delete(p.held, j)
	}
}

// releaseUnstarted queues jobs that were claimed ahead for release. It is safe for concurrent use.
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
