package presence

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

const (
	// startDelay is the age at which a loop's row becomes due, so that shorter loops cost nothing. The row is then
	// written with the next commit or, after aloneDelay, in a separate commit, along with the rows of other loops
	// that have started by then.
	startDelay = 20 * time.Millisecond
	aloneDelay = 20 * time.Millisecond
	seenEvery  = time.Minute            // between updates of the last-seen time, which are written with other commits
	failPause  = time.Minute            // after a failed write
	leaveWait  = 250 * time.Millisecond // how long the end of a loop waits for a write in progress
)

// Register maintains the rows for a DB's Work loops. It is an engine.Piggyback: its rows are written with other
// commits, or in a separate commit soon after a loop starts and when it ends.
type Register struct {
	store engine.WorkerStore
	now   func() time.Time // the clock of the backend
	flush func()           // writes due rows in a separate commit

	due atomic.Bool // the next commit carries changes

	mu      sync.Mutex
	running map[key]*loop
	written map[key]row.Worker // rows in the file
	taken   *change            // change being written; nil if no write is in progress
	seen    time.Time          // when all rows were last written
	timer   *time.Timer        // nil until first needed
	soon    bool               // timer is set, and will trigger a write
	closed  bool
}

// key identifies a row in the file.
type key struct{ worker, queue string }

// loop is a Work loop, or several loops that were given the same name by mistake.
type loop struct {
	row row.Worker
	n   int
}

// change is the content of a single write.
type change struct {
	put, drop []row.Worker
	all       bool // put contains all running loops
	first     bool // this process had no rows yet, so it also deletes dead processes' rows
	ended     chan struct{}
}

// NewRegister returns a Register that takes the time from now. It calls flush, either on a separate goroutine or on the goroutine of a loop that
// is ending. flush must call Take and write the changes.
func NewRegister(store engine.WorkerStore, now func() time.Time, flush func()) *Register {
	return &Register{store: store, now: now, flush: flush, running: make(map[key]*loop), written: make(map[key]row.Worker)}
}

// Enter registers a loop that is starting. The caller must call leave after the loop has ended. leave waits briefly
// for the row to be deleted.
func (r *Register) Enter(worker string, queues []string, slots int) (leave func()) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, queue := range queues {
		k := key{worker, queue}
		if r.running[k] == nil {
			r.running[k] = &loop{row: row.Worker{
				ID: worker, Queue: queue, Process: self(), Version: version(), Slots: int64(slots), Since: now,
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
	if underWay != nil { // its rows are not yet in written
		select {
		case <-underWay.ended:
		case <-time.After(leaveWait):
		}
	}
	if r.leftRows() {
		r.flush()
	}
}

// leftRows reports whether the file has rows for loops that have ended.
func (r *Register) leftRows() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.changeLocked(r.now()).drop) > 0
}

// soonLocked schedules a write of the pending changes, with another commit or in a separate commit.
func (r *Register) soonLocked() {
	if r.closed || r.taken != nil || r.soon {
		return // Done will schedule it, or it isn't needed
	}
	r.afterLocked(startDelay, r.ripen)
	r.soon = true
}

func (r *Register) ripen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.soon && !r.closed { // otherwise the timer has since been stopped
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

// changeLocked returns the changes that haven't been written to the file yet.
func (r *Register) changeLocked(now time.Time) *change {
	c := &change{first: len(r.written) == 0, all: now.Sub(r.seen) >= seenEvery}
	for k, l := range r.running {
		if _, there := r.written[k]; !there || c.all {
			row := l.row
			row.Seen = now
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

// Take implements engine.Piggyback.
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
	c := r.changeLocked(r.now())
	if len(c.put) == 0 && len(c.drop) == 0 {
		return false
	}
	c.ended = make(chan struct{})
	r.taken = c
	return true
}

// Done implements engine.Piggyback.
func (r *Register) Done(result engine.PiggybackResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.taken
	r.taken = nil
	defer close(c.ended)
	if result == engine.PiggybackWritten {
		r.committedLocked(c)
	}
	if r.closed {
		return
	}
	rest := r.changeLocked(r.seen)
	switch changed := len(rest.put)+len(rest.drop) > 0; {
	case changed && result == engine.PiggybackFailed:
		r.afterLocked(failPause, func() { r.due.Store(true) })
	case changed:
		r.soonLocked()
	case len(r.running) > 0: // no separate commit: an idle process writes nothing
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
		r.seen = r.now()
	}
}

// Close implements engine.Piggyback.
func (r *Register) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.stopLocked()
}

// Name implements engine.Piggyback.
func (r *Register) Name() string { return "the running workers" }

// Run implements engine.Op.
func (r *Register) Run(ctx context.Context, q row.Querier, now time.Time) error {
	if r.taken.first {
		if err := Sweep(ctx, q, r.store, now); err != nil {
			return err
		}
	}
	if err := r.store.Drop(ctx, q, r.taken.drop); err != nil {
		return err
	}
	return r.store.Put(ctx, q, r.taken.put)
}

// Single implements engine.Op.
func (r *Register) Single() bool { return false }

// Sweep deletes the rows of dead and forgotten processes.
func Sweep(ctx context.Context, q row.Querier, workers engine.WorkerStore, now time.Time) error {
	all, err := workers.List(ctx, q, "")
	if err != nil {
		return err
	}
	return workers.Drop(ctx, q, Left(all, now))
}
