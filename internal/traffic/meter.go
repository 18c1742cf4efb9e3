// Package traffic counts this process's job events by queue and minute, and adds the counts to the file. It causes
// few writes: once a second, the counts are written along with another commit. They get a separate commit only if
// there has been none for two seconds.
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
	"github.com/honker-go/honker/internal/row"
)

// Kept is how long per-minute counts are kept in the file.
const Kept = 7 * 24 * time.Hour

const (
	placeKept  = 10 * time.Minute // how long a queue keeps a separate row
	carryEvery = time.Second      // between two commits that carry counts
	quietAfter = 2 * time.Second  // after this long without a commit, the counts get a separate commit
	failPause  = time.Minute      // after a failed write

	mostQueues  = 100 // per minute in the file; any further queues share a row
	tallies     = 8   // per Meter
	mostPending = 512 // per tally, waiting for a write
	trimSpan    = 10  // minutes deleted by a single write, at most
)

// Counts holds counts of events and sums of durations.
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

// events returns the number of events. It is used to find the busiest queues.
func (c *Counts) events() int64 {
	return c.Enqueued + c.Claimed + c.Acked + c.Retried + c.Died + c.Snoozed
}

// rounded truncates the durations to the file's resolution.
func (c *Counts) rounded() Counts {
	r := *c
	r.Wait, r.Ran = c.Wait.Truncate(time.Millisecond), c.Ran.Truncate(time.Millisecond)
	return r
}

// row converts c to an increment for row k.
func (c *Counts) row(k key) row.Minute {
	return row.Minute{
		Start: time.Unix(k.minute*60, 0), Queue: k.queue,
		Enqueued: c.Enqueued, Claimed: c.Claimed, Acked: c.Acked, Retried: c.Retried, Died: c.Died, Snoozed: c.Snoozed,
		Wait: c.Wait, Ran: c.Ran, MaxWait: c.MaxWait,
	}
}

// key identifies a row in the file.
type key struct {
	minute int64
	queue  string
}

// sums holds counts by row.
type sums map[key]*Counts

// at returns row k's counts.
func (s sums) at(k key) *Counts {
	if s[k] == nil {
		s[k] = new(Counts)
	}
	return s[k]
}

// Meter counts a DB's job events. It is an engine.Piggyback: counts are pending until a write takes
// them, and become pending again if the write fails. Calling Add on a nil Meter does nothing.
type Meter struct {
	store engine.MinuteStore
	flush func() // writes pending counts in a separate commit

	due     atomic.Bool   // the next commit carries the pending counts
	armed   atomic.Bool   // a timer is set; changed under mu
	next    atomic.Uint32 // number of calls to Add, to select the next tally
	tallies [tallies]tally

	mu     sync.Mutex
	taken  sums        // counts being written; nil if no write is in progress
	last   time.Time   // when counts were last taken
	timer  *time.Timer // for pending counts; nil until first needed
	closed bool

	// State of the write in progress.
	known  map[string]bool // queues with separate rows
	looked int64           // minute of known
}

// NewMeter returns a Meter that calls flush on a separate goroutine if its counts were not written
// with another commit. flush must call Take and write the counts.
func NewMeter(store engine.MinuteStore, flush func()) *Meter {
	return &Meter{store: store, flush: flush}
}

// Add counts events in queue at time at. It is called for each job, so it doesn't read the clock, which on some
// machines would cost more than everything else.
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

// armLocked makes the pending counts due after d. They are then written with the next commit, or in
// a separate commit if there is none.
func (m *Meter) armLocked(d time.Duration) {
	if d > 0 {
		m.afterLocked(d, m.ripen)
	} else {
		m.ripenLocked()
	}
}

// afterLocked sets the timer, replacing any earlier setting.
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
	if m.armed.Load() && !m.closed { // otherwise the timer has since been stopped
		m.ripenLocked()
	}
}

func (m *Meter) ripenLocked() {
	m.due.Store(true)
	m.afterLocked(quietAfter-carryEvery, m.flush)
}

// Take reports whether a write that is about to begin should include the pending counts. If so, the caller must call
// Run in the write's transaction, and Done after it. alone is true if the write exists only for the Meter.
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
	m.stopLocked() // must come first, so that an Add after its tally was taken arms the timer again
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

// Done reports the outcome of the write started by Take.
func (m *Meter) Done(o engine.PiggybackResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.taken
	m.taken = nil
	if o != engine.PiggybackWritten {
		for k, c := range taken {
			m.tallies[0].add(k, *c)
		}
	}
	if m.closed || m.empty() {
		return
	}
	switch o {
	case engine.PiggybackWritten:
		m.armLocked(time.Until(m.last.Add(carryEvery)))
	case engine.PiggybackSkipped:
		m.armLocked(0)
	case engine.PiggybackFailed: // no separate commit: a process that is idle by then stays idle
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

// Close stops counting. Pending counts remain for a final Take.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.stopLocked()
}

// Name implements engine.Piggyback.
func (m *Meter) Name() string { return "the job counts" }

// Run implements engine.Op.
func (m *Meter) Run(ctx context.Context, q row.Querier, now time.Time) error {
	minute := now.Unix() / 60
	first := m.looked != minute
	rows, err := m.rows(ctx, q, now)
	if err != nil {
		return err
	}
	if err := m.store.Add(ctx, q, rows); err != nil || !first {
		return err
	}
	_, err = m.store.Trim(ctx, q, Before(now), trimSpan)
	return err
}

// Single implements engine.Op.
func (m *Meter) Single() bool { return false }

// Before returns the first minute whose counts are kept.
func Before(now time.Time) int64 { return now.Add(-Kept).Unix() / 60 }

// rows returns the increments for the taken counts and for each minute's total.
func (m *Meter) rows(ctx context.Context, q row.Querier, now time.Time) ([]row.Minute, error) {
	if err := m.look(ctx, q, now); err != nil {
		return nil, err
	}
	all := make(sums, 2*len(m.taken))
	busiest := func(a, b key) int {
		return cmp.Or(cmp.Compare(m.taken[b].events(), m.taken[a].events()), cmp.Compare(a.queue, b.queue))
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.taken), busiest) {
		c := m.taken[k].rounded() // truncate before adding up, so that the total matches its rows
		all.at(key{k.minute, m.place(k.queue)}).add(c)
		all.at(key{k.minute, row.AllQueues}).add(c)
	}
	rows := make([]row.Minute, 0, len(all))
	for k, c := range all {
		rows = append(rows, c.row(k))
	}
	return rows, nil
}

// look determines which queues have a separate row. It queries the file once per minute, and
// whenever it sees a new queue.
func (m *Meter) look(ctx context.Context, q row.Querier, now time.Time) error {
	minute := now.Unix() / 60
	if m.looked != minute {
		m.looked, m.known = minute, make(map[string]bool)
	}
	for k := range m.taken {
		if m.known[k.queue] || len(m.known) >= mostQueues {
			continue
		}
		names, err := m.store.Queues(ctx, q, now.Add(-placeKept))
		for _, name := range names {
			m.known[name] = true
		}
		return err
	}
	return nil
}

// place returns the name of the row that counts queue.
func (m *Meter) place(queue string) string {
	switch {
	case m.known[queue]:
		return queue
	case len(m.known) >= mostQueues:
		return row.OtherQueues
	}
	m.known[queue] = true
	return queue
}
