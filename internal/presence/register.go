package presence

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

const (
	// startDelay is how old a loop is before its row is due: one that ends before costs nothing. Then a commit takes
	// the row along, or one of its own does after aloneDelay, together with those of the loops that have
	// started meanwhile.
	startDelay = 20 * time.Millisecond
	aloneDelay = 20 * time.Millisecond
	seenEvery  = time.Minute            // between two commits that carry that the loops were seen
	failPause  = time.Minute            // after a write that has failed
	leaveWait  = 250 * time.Millisecond // how long the end of a loop waits for a write that is under way
)

// Register has the Work loops of one DB. It is an engine.Rider: its rows go with commits of others,
// or by a write of their own soon after a loop has started, and when one has ended.
type Register struct {
	flush func() // writes what is due, in a commit of its own

	due atomic.Bool // the next commit carries something

	mu      sync.Mutex
	running map[key]*loop
	written map[key]store.Worker // what is in the file
	taken   *change              // by a write that is under way; nil: there is none
	seen    time.Time            // when all rows were last written
	timer   *time.Timer          // nil: none was needed yet
	soon    bool                 // the timer is for a write
	closed  bool
}

// key is a row of the file.
type key struct{ worker, queue string }

// loop is a Work loop, or several that have the same name by mistake.
type loop struct {
	row store.Worker
	n   int
}

// change is what one write does.
type change struct {
	put, drop []store.Worker
	all       bool // put has all that run
	first     bool // this process has had no rows: it looks for those that others have left
	ended     chan struct{}
}

// NewRegister returns a Register that calls flush, in a goroutine of its own or in that of a loop that
// ends. flush is to take what there is by Take.
func NewRegister(flush func()) *Register {
	return &Register{flush: flush, running: make(map[key]*loop), written: make(map[key]store.Worker)}
}

// Enter notes a loop that starts. leave is to be called when it has ended, and waits for the
// write that says so, but not for long.
func (r *Register) Enter(worker string, queues []string, slots int) (leave func()) {
	now := time.Now().UnixMilli()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, queue := range queues {
		k := key{worker, queue}
		if r.running[k] == nil {
			r.running[k] = &loop{row: store.Worker{
				ID: worker, Queue: queue, Process: self(), Version: version(), Slots: int64(slots), SinceMS: now,
			}}
		}
		r.running[k].n++
	}
	r.soonLocked()
	return func() { r.leave(worker, queues) }
}

func (r *Register) leave(worker string, queues []string) {
	r.mu.Lock()
	for _, queue := range queues {
		k := key{worker, queue}
		if r.running[k].n--; r.running[k].n == 0 {
			delete(r.running, k)
		}
	}
	underWay := r.taken
	r.mu.Unlock()
	if underWay != nil { // what it puts is not in written before
		select {
		case <-underWay.ended:
		case <-time.After(leaveWait):
		}
	}
	if r.leftRows() {
		r.flush()
	}
}

// leftRows tells whether the file has rows of loops that have ended.
func (r *Register) leftRows() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.changeLocked(time.Now()).drop) > 0
}

// soonLocked lets a commit carry what has changed, or one of its own.
func (r *Register) soonLocked() {
	if r.closed || r.taken != nil || r.soon {
		return // or Done will do so, or it is done
	}
	r.afterLocked(startDelay, r.ripen)
	r.soon = true
}

func (r *Register) ripen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.soon && !r.closed { // else it was stopped meanwhile
		r.due.Store(true)
		r.afterLocked(aloneDelay, r.flush)
		r.soon = true
	}
}

func (r *Register) afterLocked(d time.Duration, f func()) {
	r.stopLocked()
	r.timer = time.AfterFunc(d, f)
}

func (r *Register) stopLocked() {
	r.soon = false
	if r.timer != nil {
		r.timer.Stop()
	}
}

// changeLocked is what the file lacks.
func (r *Register) changeLocked(now time.Time) *change {
	c := &change{first: len(r.written) == 0, all: now.Sub(r.seen) >= seenEvery}
	for k, l := range r.running {
		if _, there := r.written[k]; !there || c.all {
			row := l.row
			row.SeenMS = now.UnixMilli()
			c.put = append(c.put, row)
		}
	}
	for k, row := range r.written {
		if r.running[k] == nil {
			c.drop = append(c.drop, row)
		}
	}
	return c
}

// Take implements engine.Rider.
func (r *Register) Take(alone bool) bool {
	if !alone && !r.due.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken != nil {
		return false
	}
	r.due.Store(false)
	r.stopLocked()
	c := r.changeLocked(time.Now())
	if len(c.put) == 0 && len(c.drop) == 0 {
		return false
	}
	c.ended = make(chan struct{})
	r.taken = c
	return true
}

// Done implements engine.Rider.
func (r *Register) Done(ride engine.Ride) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.taken
	r.taken = nil
	defer close(c.ended)
	if ride == engine.RideDone {
		r.committedLocked(c)
	}
	if r.closed {
		return
	}
	rest := r.changeLocked(r.seen)
	switch changed := len(rest.put)+len(rest.drop) > 0; {
	case changed && ride == engine.RideFailed:
		r.afterLocked(failPause, func() { r.due.Store(true) })
	case changed:
		r.soonLocked()
	case len(r.running) > 0: // with no write of its own: a process that waits for work writes nothing
		r.afterLocked(seenEvery, func() { r.due.Store(true) })
	}
}

func (r *Register) committedLocked(c *change) {
	for _, row := range c.put {
		r.written[key{row.ID, row.Queue}] = row
	}
	for _, row := range c.drop {
		delete(r.written, key{row.ID, row.Queue})
	}
	if c.all {
		r.seen = time.Now()
	}
}

// Close implements engine.Rider.
func (r *Register) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.stopLocked()
}

// What implements engine.Rider.
func (r *Register) What() string { return "which workers run" }

// Run implements engine.Op.
func (r *Register) Run(ctx context.Context, q store.Querier, now time.Time) error {
	if r.taken.first {
		if err := Sweep(ctx, q, now); err != nil {
			return err
		}
	}
	if err := (store.Workers{}).Drop(ctx, q, r.taken.drop); err != nil {
		return err
	}
	return store.Workers{}.Put(ctx, q, r.taken.put)
}

// Single implements engine.Op.
func (r *Register) Single() bool { return false }

// Sweep deletes the rows that processes have left behind.
func Sweep(ctx context.Context, q store.Querier, now time.Time) error {
	all, err := store.Workers{}.List(ctx, q, "")
	if err != nil {
		return err
	}
	return store.Workers{}.Drop(ctx, q, Left(all, now))
}
