// Package traffic counts what this process does with jobs, by queue and minute, and adds it to the
// file. It causes next to no writes: the numbers go with a commit of others, once a second, and with
// one of their own when there was none for two seconds.
package traffic

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// Kept is how long the file keeps a minute.
const Kept = 7 * 24 * time.Hour

const (
	carryEvery = time.Second     // between two commits that carry the numbers
	quietAfter = 2 * time.Second // without such a commit, they are written by one of their own
	failPause  = time.Minute     // after a write that has failed

	mostQueues  = 100 // of a minute in the file: the others share one row
	placeKept   = 10  // minutes in which a queue with a row keeps its place among those
	tallies     = 8   // that one Meter counts in
	mostPending = 512 // rows of a tally that wait for a write
	trimSpan    = 10  // minutes that one write takes away, at most
)

// Counts are what has happened.
type Counts struct {
	Enqueued, Claimed, Acked, Retried, Died, Snoozed int64
	Wait, Ran                                        time.Duration // sums
	MaxWait                                          time.Duration
}

func (c *Counts) add(d Counts) {
	c.Enqueued += d.Enqueued
	c.Claimed += d.Claimed
	c.Acked += d.Acked
	c.Retried += d.Retried
	c.Died += d.Died
	c.Snoozed += d.Snoozed
	c.Wait += d.Wait
	c.Ran += d.Ran
	c.MaxWait = max(c.MaxWait, d.MaxWait)
}

// events is how many there are, to find the busiest queues.
func (c *Counts) events() int64 {
	return c.Enqueued + c.Claimed + c.Acked + c.Retried + c.Died + c.Snoozed
}

// rounded has the times as the file keeps them.
func (c *Counts) rounded() Counts {
	r := *c
	r.Wait, r.Ran = c.Wait.Truncate(time.Millisecond), c.Ran.Truncate(time.Millisecond)
	return r
}

// row is what is added to a row of the file.
func (c *Counts) row(k key) store.Minute {
	return store.Minute{
		Minute: k.minute, Queue: k.queue,
		Enqueued: c.Enqueued, Claimed: c.Claimed, Acked: c.Acked, Retried: c.Retried, Died: c.Died, Snoozed: c.Snoozed,
		Wait: c.Wait.Milliseconds(), Ran: c.Ran.Milliseconds(), MaxWait: c.MaxWait.Milliseconds(),
	}
}

// key is a row of the file.
type key struct {
	minute int64
	queue  string
}

// sums are counts by the rows that they are for.
type sums map[key]*Counts

// at is the sum of a row.
func (s sums) at(k key) *Counts {
	if s[k] == nil {
		s[k] = new(Counts)
	}
	return s[k]
}

// Meter counts for one DB. Add of a nil Meter does nothing. It is an engine.Rider of the DB: what
// it has counted is pending until a write takes it, and comes back if that fails.
type Meter struct {
	flush func() // writes what is pending, in a commit of its own

	due     atomic.Bool   // the next commit carries what is pending
	armed   atomic.Bool   // there is a timer; it changes under mu
	next    atomic.Uint32 // counts the calls of Add: each uses the next tally
	tallies [tallies]tally

	mu     sync.Mutex
	taken  sums        // by a write that is under way; nil: there is none
	last   time.Time   // when the last write took something
	timer  *time.Timer // of what is pending; nil: none was needed yet
	closed bool

	// Of the write that is under way.
	known  map[string]bool // queues with rows of their own
	looked int64           // the minute of known
}

// NewMeter returns a Meter that calls flush, in a goroutine of its own, where no commit has
// carried its numbers. flush is to take them by Take.
func NewMeter(flush func()) *Meter {
	return &Meter{flush: flush}
}

// Add counts something that has happened in a queue at a time. It is in the way of each job: it does
// not ask for the time, which on some machines costs more than all the rest.
func (m *Meter) Add(at time.Time, queue string, c Counts) {
	if m == nil || c == (Counts{}) {
		return
	}
	m.tallies[m.next.Add(1)%tallies].add(key{at.Unix() / 60, queue}, c)
	if m.armed.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed && !m.armed.Load() && m.taken == nil {
		m.armLocked(time.Until(m.last.Add(carryEvery)))
	}
}

// armLocked lets a commit after d carry what is pending, or a write of its own if none comes.
func (m *Meter) armLocked(d time.Duration) {
	if d > 0 {
		m.afterLocked(d, m.ripen)
	} else {
		m.ripenLocked()
	}
}

// afterLocked is the one timer.
func (m *Meter) afterLocked(d time.Duration, f func()) {
	m.stopLocked()
	m.armed.Store(true)
	m.timer = time.AfterFunc(d, f)
}

func (m *Meter) stopLocked() {
	if m.armed.Store(false); m.timer != nil {
		m.timer.Stop()
	}
}

func (m *Meter) ripen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.armed.Load() && !m.closed { // else it was stopped meanwhile
		m.ripenLocked()
	}
}

func (m *Meter) ripenLocked() {
	m.due.Store(true)
	m.afterLocked(quietAfter-carryEvery, m.flush)
}

// Take reports that a write which begins now carries what is pending: then Run is called in its
// transaction, and Done after it. alone is for a write of the Meter's own.
func (m *Meter) Take(alone bool) bool {
	if !alone && !m.due.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken != nil {
		return false
	}
	m.due.Store(false)
	m.stopLocked() // first: an Add that comes after its tally was taken sees it
	taken := make(sums)
	for i := range m.tallies {
		m.tallies[i].take(taken)
	}
	if len(taken) == 0 {
		return false
	}
	m.taken, m.last = taken, time.Now()
	return true
}

// Done ends what Take has begun.
func (m *Meter) Done(o engine.Ride) {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.taken
	m.taken = nil
	if o != engine.RideDone {
		for k, c := range taken {
			m.tallies[0].add(k, *c)
		}
	}
	if m.closed || m.empty() {
		return
	}
	switch o {
	case engine.RideDone:
		m.armLocked(time.Until(m.last.Add(carryEvery)))
	case engine.RideLeft:
		m.armLocked(0)
	case engine.RideFailed: // with no write of its own: a process that is quiet by then stays so
		m.afterLocked(failPause, func() { m.due.Store(true) })
	}
}

func (m *Meter) empty() bool {
	for i := range m.tallies {
		if !m.tallies[i].empty() {
			return false
		}
	}
	return true
}

// Close ends the counting. What is pending is left to a last Take.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.stopLocked()
}

// What implements engine.Rider.
func (m *Meter) What() string { return "what happened to jobs" }

// Run implements engine.Op.
func (m *Meter) Run(ctx context.Context, q store.Querier, now time.Time) error {
	minute := now.Unix() / 60
	first := m.looked != minute
	rows, err := m.rows(ctx, q, minute)
	if err != nil {
		return err
	}
	if err := (store.Minutes{}).Add(ctx, q, rows); err != nil || !first {
		return err
	}
	_, err = store.Minutes{}.Trim(ctx, q, Before(now), trimSpan)
	return err
}

// Single implements engine.Op.
func (m *Meter) Single() bool { return false }

// Before is the first minute that is kept.
func Before(now time.Time) int64 { return now.Add(-Kept).Unix() / 60 }

// rows are those that what was taken is added to, and the total of each minute.
func (m *Meter) rows(ctx context.Context, q store.Querier, minute int64) ([]store.Minute, error) {
	if err := m.look(ctx, q, minute); err != nil {
		return nil, err
	}
	all := make(sums, 2*len(m.taken))
	busiest := func(a, b key) int {
		return cmp.Or(cmp.Compare(m.taken[b].events(), m.taken[a].events()), cmp.Compare(a.queue, b.queue))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.taken), busiest) {
		c := m.taken[k].rounded() // before the sums, or a total would not be that of its rows
		all.at(key{k.minute, m.place(k.queue)}).add(c)
		all.at(key{k.minute, store.AllQueues}).add(c)
	}
	rows := make([]store.Minute, 0, len(all))
	for k, c := range all {
		rows = append(rows, c.row(k))
	}
	return rows, nil
}

// look finds out which queues have a row of their own, where it may have changed and matters: once a
// minute, and for a queue that was not seen yet.
func (m *Meter) look(ctx context.Context, q store.Querier, minute int64) error {
	if m.looked != minute {
		m.looked, m.known = minute, make(map[string]bool)
	}
	for k := range m.taken {
		if m.known[k.queue] || len(m.known) >= mostQueues {
			continue
		}
		names, err := store.Minutes{}.Queues(ctx, q, minute-placeKept)
		for _, name := range names {
			m.known[name] = true
		}
		return err
	}
	return nil
}

// place is the queue of the row for queue.
func (m *Meter) place(queue string) string {
	switch {
	case m.known[queue]:
		return queue
	case len(m.known) >= mostQueues:
		return store.OtherQueues
	}
	m.known[queue] = true
	return queue
}
