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

	mostQueues  = 100  // of a minute in the file: the others share one row
	recent      = 10   // minutes in which a queue with a row keeps its place among those
	mostPending = 4096 // rows that wait for a write
	trimSpan    = 10   // minutes that one write takes away, at most
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

// row is what is added to a row of the file.
func (c *Counts) row() store.Minute {
	return store.Minute{
		Enqueued: c.Enqueued, Claimed: c.Claimed, Acked: c.Acked, Retried: c.Retried, Died: c.Died, Snoozed: c.Snoozed,
		Wait: c.Wait.Milliseconds(), Ran: c.Ran.Milliseconds(), MaxWait: c.MaxWait.Milliseconds(),
	}
}

// key is a row of the file.
type key struct {
	minute int64
	queue  string
}

// Meter counts for one DB. A nil Meter counts nothing. It is the engine.Rider of the DB: what
// it has counted is pending until a write takes it, and comes back if that fails.
type Meter struct {
	flush func() // writes what is pending, in a commit of its own

	due atomic.Int64 // unix nanoseconds: from when on a commit carries what is pending; 0: nothing is

	mu      sync.Mutex
	pending map[key]*Counts
	taken   map[key]*Counts // by a write that is under way; nil: there is none
	last    time.Time       // when the last write took something
	quiet   *time.Timer     // calls flush
	closed  bool

	// Of the write that is under way.
	known  map[string]bool // queues with rows of their own
	looked int64           // the minute of known
}

// NewMeter returns a Meter that calls flush, in a goroutine of its own, where no commit has
// carried its numbers. flush is to take them by Take.
func NewMeter(flush func()) *Meter {
	return &Meter{flush: flush, pending: make(map[key]*Counts)}
}

// Add counts something that has just happened in a queue.
func (m *Meter) Add(queue string, c Counts) {
	if m == nil || c == (Counts{}) {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.addLocked(key{now.Unix() / 60, queue}, c)
	if m.due.Load() == 0 && m.taken == nil {
		m.armLocked(now, m.last.Add(carryEvery))
	}
}

func (m *Meter) addLocked(k key, c Counts) {
	at := m.pending[k]
	if at == nil && len(m.pending) >= mostPending {
		k.queue = store.OtherQueues
		at = m.pending[k]
	}
	if at == nil {
		at = new(Counts)
		m.pending[k] = at
	}
	at.add(c)
}

// armLocked lets a commit from then on carry what is pending, or one of its own if none comes.
func (m *Meter) armLocked(now, from time.Time) {
	if from.Before(now) {
		from = now
	}
	m.due.Store(from.UnixNano())
	if m.quiet != nil {
		m.quiet.Stop()
	}
	m.quiet = time.AfterFunc(from.Sub(now)+quietAfter-carryEvery, m.flush)
}

// Take reports that a write which begins now carries what is pending: then Run is called in its
// transaction, and Done after it. alone is for a write of the Meter's own, which waits for no second.
func (m *Meter) Take(alone bool) bool {
	if m == nil {
		return false
	}
	due := m.due.Load()
	if due == 0 || !alone && time.Now().UnixNano() < due {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken != nil || len(m.pending) == 0 {
		return false
	}
	m.taken, m.pending = m.pending, make(map[key]*Counts)
	m.due.Store(0)
	m.quiet.Stop()
	m.last = time.Now()
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
			m.addLocked(k, *c)
		}
	}
	if m.closed || len(m.pending) == 0 {
		return
	}
	now := time.Now()
	switch o {
	case engine.RideDone:
		m.armLocked(now, m.last.Add(carryEvery))
	case engine.RideLeft:
		m.armLocked(now, now)
	case engine.RideFailed: // with no write of its own: a process that is quiet by then stays so
		m.due.Store(now.Add(failPause).UnixNano())
	}
}

// Close ends the counting. What is pending is left to a last Take.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.quiet != nil {
		m.quiet.Stop()
	}
}

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
	sums := make(map[key]*store.Minute, 2*len(m.taken))
	add := func(k key, c store.Minute) {
		if sums[k] == nil {
			sums[k] = &store.Minute{Minute: k.minute, Queue: k.queue}
		}
		sums[k].Add(c)
	}
	busiest := func(a, b key) int {
		return cmp.Or(cmp.Compare(m.taken[b].events(), m.taken[a].events()), cmp.Compare(a.queue, b.queue))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.taken), busiest) {
		row := m.taken[k].row()
		add(key{k.minute, m.place(k.queue)}, row)
		add(key{k.minute, store.AllQueues}, row)
	}
	rows := make([]store.Minute, 0, len(sums))
	for _, row := range sums {
		rows = append(rows, *row)
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
		names, err := store.Minutes{}.Queues(ctx, q, minute-recent)
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
