// Package wake lets goroutines sleep until this process or another commits something that they are waiting for.
//
// A waiter subscribes to keys, checks the file itself, and then sleeps. When the watcher notices a commit, the
// sources query the store once for each kind of key to find the names that are ready, and only the waiters for these
// keys are woken. A thousand listeners on other channels stay asleep. A wake-up carries no data and may be spurious.
package wake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Kind is a kind of event to wait for.
type Kind int

// The kinds, each with the meaning of Key.Name.
const (
	AnyCommit      Kind = iota // no name
	QueueReady                 // the queue
	ChannelMessage             // the channel
	JobDone                    // the job's ID
	TopicEvent                 // the topic or pattern
	GroupReturn                // the group's id: an event was returned to the group
	LockFree                   // the lock
	ScheduleDue                // no name
	RelayReady                 // see RelayName: one of the queue's partitions can be taken
	Closing                    // no name; woken only when the notifier ends
	kinds
)

// Key identifies the events that a waiter waits for.
type Key struct {
	Kind   Kind
	Name   string
	Filter *row.Filter // with TopicEvent: only events that match it; nil for all
}

// id returns the name under which waiters for k are registered.
func (k Key) id() string {
	if k.Kind != TopicEvent {
		return k.Name
	}
	return k.selection().id()
}

func (k Key) selection() selection { return selection{Topic: k.Name, Filter: k.Filter} }

// Watcher detects commits to a database; see package watch. It runs only while it has waiters. It is an interface
// because other databases have other ways to detect commits, such as LISTEN in Postgres.
type Watcher interface {
	AddWaiter(Signals)
	RemoveWaiter(Signals)
	Committed()         // reports a commit by this process
	Raise(Signals)      // wakes the waiters for these signals in all processes
	WakeAt(t time.Time) // requests a check at t, by the process's clock, even without a commit
	Close() error
}

// Events holds the callbacks of a Watcher. It calls them one at a time.
type Events struct {
	Changed func(Reason, Signals) (woken int)
	Lost    func(error) // the database is gone for good; this is the last call
}

// Config holds the dependencies of a Notifier.
type Config struct {
	Watch      func(Events) Watcher
	Reader     *sql.DB
	Statements Statements
	Now        func() time.Time                // the clock that stored times are compared with
	Woke       func(cause string, waiters int) // called after each change that woke waiters
}

// Notifier wakes the waiters that are waiting for a change made by a commit. It is safe for concurrent use.
//
// Waiters are indexed by kind and then by name, because a commit affects few kinds and, within a kind, few names. A
// waiter with several keys is registered under each of them, as a single subscription.
type Notifier struct {
	watcher Watcher
	cfg     Config
	sources *sources
	ctx     context.Context // ends with Close, because a check may be waiting for a connection
	cancel  context.CancelFunc

	mu      sync.Mutex
	waiting [kinds]map[string]map[*Waiter]struct{} // by ID
	keys    [kinds]int                             // total number of the waiters' keys
	sparse  sparse                                 // selections of TopicEvent, by ID
	err     error                                  // why waits can no longer succeed: Close, or a replaced file
}

// New returns a notifier. Its watcher starts with the first waiter.
func New(cfg Config) *Notifier {
	n := &Notifier{cfg: cfg, sparse: make(sparse)}
	// Use a separate ctx. The ctx of the DB ends when Close begins, but handlers may still wait for
	// commits while Work drains.
	n.ctx, n.cancel = context.WithCancel(context.Background())
	for kind := range n.waiting {
		n.waiting[kind] = make(map[string]map[*Waiter]struct{})
	}
	n.sources = newSources(cfg.Statements, n)
	n.watcher = cfg.Watch(Events{Changed: n.changed, Lost: n.end})
	return n
}

// Waiter is a subscription. It holds at most a single pending wake-up.
type Waiter struct {
	notifier *Notifier
	keys     []Key
	signals  Signals // of keys
	woken    chan struct{}
}

// Subscribe registers a waiter for keys. The caller must check the file itself after Subscribe and before it sleeps,
// so that it doesn't miss a commit that happens in between. Close ends the subscription.
func (n *Notifier) Subscribe(keys ...Key) *Waiter {
	w := &Waiter{notifier: n, keys: keys, woken: make(chan struct{}, 1)}
	for _, k := range keys {
		w.signals |= signalsOf(k.Kind, k.Name)
	}
	n.mu.Lock()
	for _, k := range keys {
		id := k.id()
		set := n.waiting[k.Kind][id]
		if set == nil {
			set = make(map[*Waiter]struct{}, 1)
			n.waiting[k.Kind][id] = set
			if k.Kind == TopicEvent {
				n.sparse.add(id, k.selection())
			}
		}
		set[w] = struct{}{}
		n.keys[k.Kind]++
	}
	if n.err != nil {
		w.Wake() // end has run, so no later wake-up will come
	}
	n.mu.Unlock()
	// Call this without holding mu, because the watcher's goroutine takes mu during a check.
	n.watcher.AddWaiter(w.signals)
	return w
}

// Close ends the subscription.
func (w *Waiter) Close() {
	n := w.notifier
	n.mu.Lock()
	for _, k := range w.keys {
		id := k.id()
		set := n.waiting[k.Kind][id]
		delete(set, w)
		n.keys[k.Kind]--
		if len(set) > 0 {
			continue
		}
		// The sources query every name in the map. A name without waiters would be queried after
		// each commit forever.
		delete(n.waiting[k.Kind], id)
		if k.Kind == TopicEvent {
			delete(n.sparse, id)
		}
	}
	n.mu.Unlock()
	n.watcher.RemoveWaiter(w.signals) // without waiters the watcher sleeps
}

// Wake wakes w. If an earlier wake-up is still pending, Wake does nothing: the waiter has yet to check the file and
// will see both changes.
func (w *Waiter) Wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// C returns a channel that receives a value when w is woken. It is for callers that also wait for
// something else. After receiving from it, callers must check [Notifier.Err].
func (w *Waiter) C() <-chan struct{} { return w.woken }

// Done and Forever are special results of the look function of [Notifier.Until]. Done ends the
// wait; Forever sleeps until the next wake-up.
const (
	Done    time.Duration = 0
	Forever time.Duration = math.MaxInt64
)

// Wait blocks until w is woken or d has passed. It returns an error if ctx has ended or waits can
// no longer succeed.
func (w *Waiter) Wait(ctx context.Context, d time.Duration) error {
	// Most waits have no time limit, and a timer costs the runtime a wake-up.
	var passed <-chan time.Time
	if d != Forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-w.woken:
		return w.notifier.Err() // nil unless end has woken the waiter
	case <-passed:
		return nil
	case <-ctx.Done():
		return Cause(ctx)
	}
}

// Until calls look repeatedly until it returns Done or an error. Between the calls it sleeps until a key is ready or
// the time returned by look has passed. If ctx ends, Until returns its cause. All waiting verbs use this loop;
// workers also wait for other events; see worker.Source.Await.
//
// The subscription begins before the first call to look and lasts until after the last.
func (n *Notifier) Until(ctx context.Context, look func() (wait time.Duration, err error), keys ...Key) error {
	w := n.Subscribe(keys...)
	defer w.Close()
	return w.Until(ctx, look)
}

// Until is like [Notifier.Until], with a subscription that has begun before and lasts longer. A commit during look, or
// between two calls of Until, leaves a wake-up pending, so the next sleep ends immediately.
func (w *Waiter) Until(ctx context.Context, look func() (wait time.Duration, err error)) error {
	for {
		wait, err := look()
		if err != nil || wait == Done {
			return err
		}
		if err := w.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// Wake wakes the waiters that are waiting for changes that this process has committed. Waiters in this process don't
// have to wait for the watcher's next check. Waiters in other processes are woken by a signal, because their watchers
// may check only rarely while the file is busy.
func (n *Notifier) Wake(changes ...Change) {
	for _, c := range changes {
		if c.Kind == TopicEvent {
			for _, id := range n.concerned(row.Added{c.Name: {c.EventKey: true}}) {
				n.wake(TopicEvent, id)
			}
		} else {
			n.wake(c.Kind, c.Name)
		}
	}
	n.watcher.Raise(SignalsOf(changes...))
}

// surelyLooked is a time in which the watcher of each process looks at least once, even if it hears of no commit.
const surelyLooked = 10 * time.Second

// Announce tells other processes about changes that take effect at the time at. A wait of theirs may have to end earlier
// than they know. Waiters of this process are not woken, because its watcher looks after the commit. A time in the far
// future need not be announced.
func (n *Notifier) Announce(at time.Time, changes ...Change) {
	if at.Sub(n.cfg.Now()) < surelyLooked {
		n.watcher.Raise(SignalsOf(changes...))
	}
}

// wake wakes this process's waiters for an ID and returns how many there were.
func (n *Notifier) wake(kind Kind, id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	set := n.waiting[kind][id]
	for w := range set {
		w.Wake()
	}
	return len(set)
}

// concerned returns the TopicEvent IDs that events belong to, including IDs without waiters.
func (n *Notifier) concerned(events row.Added) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sparse.concerned(events)
}

// sparseIDs returns the TopicEvent IDs whose waiters skip some of their topics' events.
func (n *Notifier) sparseIDs() (ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.waiting[TopicEvent] {
		if n.sparse.passesOver(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// pageOf returns how many log rows a single check may read to find the waiters of kind that are waiting for those
// rows. Reading a row costs less than waking a waiter, which then reads for itself. The page therefore grows with the
// number of waiters: a thousand messages on a channel must not wake a hundred thousand listeners on other channels.
func (n *Notifier) pageOf(kind Kind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(tailPage, n.keys[kind])
}

// farAway is longer than any process runs.
const farAway = 50 * 365 * 24 * time.Hour

// WakeAt requests a check at t, a time by the clock of stored times. The zero time is ignored, and so is a time that is
// farAway, such as the end of a suspension without a limit: while a check is pending, the watcher keeps comparing the
// clocks.
func (n *Notifier) WakeAt(t time.Time) {
	if !t.IsZero() && t.Sub(n.cfg.Now()) < farAway {
		// The watcher must see when the wall clock is set, which a monotonic reading would hide.
		n.watcher.WakeAt(Local(t, n.cfg.Now).Round(0))
	}
}

// Local returns the time of the process's clock at which the clock now will show t.
func Local(t time.Time, now func() time.Time) time.Time {
	left := t.Sub(now()) // first, so that the result is never early
	return time.Now().Add(left)
}

// Err returns the reason why waits can no longer succeed, or nil.
func (n *Notifier) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Close wakes every waiter with ErrClosed. It returns when the watcher has ended.
func (n *Notifier) Close() error {
	n.cancel() // first, because the watcher's goroutine may be waiting for a connection
	n.end(ErrClosed)
	return n.watcher.Close()
}

// end wakes every waiter permanently. Later calls keep the first reason, because a replaced file is
// more informative than the Close that follows.
func (n *Notifier) end(reason error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.err = reason
	}
	for _, names := range n.waiting {
		for _, set := range names {
			for w := range set {
				w.Wake()
			}
		}
	}
}

// changed is called on the watcher's goroutine after each commit that it notices and at each deadline. It queries
// each source that has waiters only once, no matter how many waiters there are. After a signal, it queries only for
// waiters for signals.
func (n *Notifier) changed(cause Reason, signals Signals) (woken int) {
	// A deadline is a time requested by a waiter, not a commit.
	if cause != Deadline {
		woken += n.wake(AnyCommit, "")
	}
	if cause == Notice {
		cause = Commit // for observers
		direct, others := n.wakeQueue(signals)
		woken, signals = woken+direct, others
	}
	if n.asked(signals) {
		// Close must be able to end the wait for a connection, because all of an attached pool's connections may be
		// in use. The statements use a ctx without cancellation, because with a cancelable ctx the driver starts a
		// goroutine for each statement.
		conn, err := n.cfg.Reader.Conn(n.ctx)
		if err == nil {
			woken += n.ask(context.Background(), conn, signals)
			_ = conn.Close()
		} else if n.ctx.Err() == nil {
			woken += n.wakeAll(signals)
		}
	}
	if woken > 0 && n.cfg.Woke != nil {
		n.cfg.Woke(string(cause), woken)
	}
	return woken
}

// wakeQueue wakes the waiters of a queue after a notice for signals, if they belong to one queue only. A worker that is woken
// claims, so it finds out by itself whether there is work. It returns the signals of the waiters to ask for.
func (n *Notifier) wakeQueue(signals Signals) (woken int, others Signals) {
	queues := signals & signalsOfKind(QueueReady)
	if bits.OnesCount64(uint64(queues)) != 1 {
		return 0, signals
	}
	names := n.names(QueueReady, queues)
	if len(names) != 1 {
		return 0, signals
	}
	return n.wake(QueueReady, names[0]), signals &^ queues
}

// ask wakes the waiters for the names that the sources report as ready. If a source fails, ask wakes all waiters of
// its kind, so that each of them encounters the error and can return it.
func (n *Notifier) ask(ctx context.Context, q row.Querier, signals Signals) (woken int) {
	now := n.cfg.Now() // the same time for all sources, as in a transaction
	for kind := range kinds {
		ready := n.sources.ask[kind]
		if ready == nil || !n.awaited(kind, signals) {
			continue
		}
		names := func() []string { return n.names(kind, signals) }
		found, err := ready(ctx, q, names, now)
		if err != nil {
			found = names()
		}
		for _, name := range found {
			woken += n.wake(kind, name)
		}
	}
	return woken
}

// wakeAll wakes the waiters of every kind that has a source.
func (n *Notifier) wakeAll(signals Signals) (woken int) {
	for kind := range kinds {
		if n.sources.ask[kind] == nil {
			continue
		}
		for _, name := range n.names(kind, signals) {
			woken += n.wake(kind, name)
		}
	}
	return woken
}

// asked reports whether a kind with a source has a waiter for signals.
func (n *Notifier) asked(signals Signals) bool {
	for kind := range kinds {
		if n.sources.ask[kind] != nil && n.awaited(kind, signals) {
			return true
		}
	}
	return false
}

// awaited reports whether kind may have a waiter for signals. It is cheaper than names.
func (n *Notifier) awaited(kind Kind, signals Signals) bool {
	if signals&signalsOfKind(kind) == 0 {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.waiting[kind]) > 0
}

// names returns the names of kind that have waiters for signals. It returns a copy, so that the store can be queried
// without holding mu, which every Subscribe and Wake needs.
func (n *Notifier) names(kind Kind, signals Signals) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, 0, len(n.waiting[kind]))
	for name := range n.waiting[kind] {
		// The new rows of a log are read once for all names.
		if kind.isLog() || signals&signalsOf(kind, name) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Cause returns why ctx has ended: ErrClosed after Close, and otherwise ctx's error, with its cause if ctx's owner
// has set it.
func Cause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == ctx.Err() || errors.Is(cause, ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}

// ErrClosed is returned by every verb and wait after Close.
var ErrClosed = errors.New("the database is closed")
