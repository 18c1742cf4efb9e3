package worker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// ErrCancelled is the cancellation cause of a handler's ctx after its job was cancelled.
var ErrCancelled = errors.New("job cancelled")

// Running holds the running pools of one DB by queue. It lets a cancellation in this process end a
// handler at once. It is safe for concurrent use.
type Running struct {
	mu    sync.Mutex
	pools map[string][]*Pool
}

// add registers p. It reports whether another pool on one of its queues has the same worker id.
func (r *Running) add(p *Pool) (twice bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pools == nil {
		r.pools = make(map[string][]*Pool)
	}
	for _, queue := range p.source.Queues {
		for _, other := range r.pools[queue] {
			twice = twice || other.WorkerID == p.WorkerID
		}
		r.pools[queue] = append(r.pools[queue], p)
	}
	return twice
}

// remove unregisters p.
func (r *Running) remove(p *Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, queue := range p.source.Queues {
		left := slices.DeleteFunc(r.pools[queue], func(other *Pool) bool { return other == p })
		if r.pools[queue] = left; len(left) == 0 {
			delete(r.pools, queue)
		}
	}
}

// Cancel cancels the handler of job id of queue, if a pool of this DB holds the job.
func (r *Running) Cancel(queue string, id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pools[queue] {
		p.cancel(func(j *activeJob) bool { return j.claim.ID == id })
	}
}

// Release releases the jobs of queue that were claimed ahead and have not started. It is called when
// the queue is paused.
func (r *Running) Release(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pools[queue] {
		p.releaseUnstarted()
	}
}

// cancel cancels the handlers of all held jobs for which was returns true.
func (p *Pool) cancel(was func(*activeJob) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := range p.held {
		if was(j) {
			j.cancelLocked()
		}
	}
}

// cancelLocked marks j as cancelled. If the handler has not started yet, runJob settles j without
// calling it.
func (j *activeJob) cancelLocked() {
	j.cancelled = true
	if j.cancel != nil {
		j.cancel(ErrCancelled)
	}
}

// isCancelled reports whether the job of j was cancelled.
func (p *Pool) isCancelled(j *activeJob) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return j.cancelled || j.claim.cancelled.Load()
}

const (
	// watchAfter is the time after which the job of a running handler is watched. Most handlers are
	// shorter and cost nothing.
	watchAfter = 100 * time.Millisecond
	// watchPause is the minimum pause between two reads, so that a slow handler costs little while
	// the file is busy.
	watchPause = 50 * time.Millisecond
)

// watchLoop cancels the handlers of jobs that were cancelled by another process or in a transaction
// of the application. The row of such a job is gone, and the commit that deletes it wakes the
// waiters for the job's result. watchLoop runs until ctx ends.
func (p *Pool) watchLoop(ctx context.Context) {
	for {
		select {
		case <-p.began:
		case <-ctx.Done():
			return
		}
		for p.busy() {
			pause := watchAfter
			if p.slow() {
				p.watch(ctx)
				pause = watchPause
			}
			if engine.Sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// slow reports whether a handler has run for long enough to be watched.
func (p *Pool) slow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := range p.held {
		if j.cancel != nil && !j.returned && !j.cancelled && !j.claim.ended() && j.claim.Ran() >= watchAfter {
			return true
		}
	}
	return false
}

// watch looks for cancelled jobs at once, and again when a held job has ended. It returns after
// that, or as soon as the pool holds more jobs or ctx ends.
func (p *Pool) watch(ctx context.Context) {
	jobs := p.unsettled()
	keys := make([]wake.Key, len(jobs))
	for i, j := range jobs {
		keys[i] = wake.Key{Kind: wake.JobDone, Name: strconv.FormatInt(j.claim.ID, 10)}
	}
	waiter := p.source.Engine.Notifier.Subscribe(keys...)
	defer waiter.Close()
	p.cancelGone(ctx, jobs) // after subscribing, so that no commit in between is missed
	select {
	case <-waiter.C():
		p.cancelGone(ctx, jobs)
	case <-p.began:
	case <-ctx.Done():
	}
}

// cancelGone cancels the handlers of cancelled jobs. The row of a cancelled job is gone although its
// claim has not expired. Read errors are ignored, because the next renewal of the leases reads again.
func (p *Pool) cancelGone(ctx context.Context, jobs []*activeJob) {
	if len(jobs) == 0 {
		return
	}
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.claim.ID
	}
	var gone []int64
	err := p.source.Engine.Read(context.WithoutCancel(ctx), func(ctx context.Context, q engine.Querier) (err error) {
		gone, err = p.source.Engine.Stores.Jobs.Gone(ctx, q, ids)
		return err
	})
	if err != nil || len(gone) == 0 {
		return
	}
	now := p.source.Engine.Now().Unix() // after the read: a claim that still holds now also held then
	p.cancel(func(j *activeJob) bool {
		return slices.Contains(jobs, j) && slices.Contains(gone, j.claim.ID) && j.claim.holds(now) && !j.claim.ended() && !j.returned
	})
}
