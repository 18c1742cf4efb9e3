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

// ErrCancelled is the cause of the end of a handler's ctx when its job was cancelled.
var ErrCancelled = errors.New("job cancelled")

// Running are the pools of one DB that run, by queue: what is cancelled in this process ends at
// once. It is safe for concurrent use.
type Running struct {
	mu    sync.Mutex
	pools map[string][]*Pool
}

// add enters p. It reports whether a pool on the same queue has the same worker's id.
func (r *Running) add(p *Pool) (twice bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pools == nil {
		r.pools = make(map[string][]*Pool)
	}
	for _, queue := range p.source.queues() {
		for _, other := range r.pools[queue] {
			twice = twice || other.WorkerID == p.WorkerID
		}
		r.pools[queue] = append(r.pools[queue], p)
	}
	return twice
}

func (r *Running) remove(p *Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, queue := range p.source.queues() {
		left := slices.DeleteFunc(r.pools[queue], func(other *Pool) bool { return other == p })
		if r.pools[queue] = left; len(left) == 0 {
			delete(r.pools, queue)
		}
	}
}

// Cancel ends the handler of a job that was cancelled, if one of these pools runs it.
func (r *Running) Cancel(queue string, id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pools[queue] {
		p.cancel(func(j *activeJob) bool { return j.claim.ID == id })
	}
}

// Release gives back what these pools have claimed ahead and not begun: the queue was paused.
func (r *Running) Release(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pools[queue] {
		p.releaseUnstarted()
	}
}

// cancel ends the handlers of the held jobs that was picks.
func (p *Pool) cancel(was func(*activeJob) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := range p.held {
		if was(j) {
			j.cancelLocked()
		}
	}
}

func (j *activeJob) cancelLocked() {
	j.cancelled = true
	if j.cancel != nil {
		j.cancel(ErrCancelled)
	}
}

// isCancelled reports that the job of j was cancelled.
func (p *Pool) isCancelled(j *activeJob) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return j.cancelled || j.claim.cancelled.Load()
}

const (
	// watchAfter is how long a handler runs before its job is watched. Shorter ones, which are
	// most, cost nothing.
	watchAfter = 100 * time.Millisecond
	// watchPause is between two looks, so that a busy file costs a slow handler little.
	watchPause = 50 * time.Millisecond
)

// watchLoop ends the handlers of jobs that are cancelled elsewhere: by another process, or by a
// transaction of the application's. Their rows are gone then, which is also what the waiters
// for a job's result wait for. It runs until ctx ends.
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

// slow reports whether there is a handler to be watched.
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

// watch looks for cancelled jobs, now and when one of those that are held is over. It ends
// when there are others.
func (p *Pool) watch(ctx context.Context) {
	jobs := p.unsettled()
	keys := make([]wake.Key, len(jobs))
	for i, j := range jobs {
		keys[i] = wake.Key{Kind: wake.JobDone, Name: strconv.FormatInt(j.claim.ID, 10)}
	}
	waiter := p.source.Engine.Notifier.Subscribe(keys...)
	defer waiter.Close()
	p.cancelGone(ctx, jobs) // after subscribing: a commit in between is not missed
	select {
	case <-waiter.C():
		p.cancelGone(ctx, jobs)
	case <-p.began:
	case <-ctx.Done():
	}
}

// cancelGone ends the handlers of those of jobs that have no row any more although their claims
// hold: they were cancelled. An error is no news of them; the next renewal will see.
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
		gone, err = p.source.Jobs.Gone(ctx, q, ids)
		return err
	})
	if err != nil || len(gone) == 0 {
		return
	}
	now := time.Now().Unix() // after the read: a claim that holds now has held then
	p.cancel(func(j *activeJob) bool {
		return slices.Contains(jobs, j) && slices.Contains(gone, j.claim.ID) && j.claim.holds(now) && !j.claim.ended() && !j.returned
	})
}
