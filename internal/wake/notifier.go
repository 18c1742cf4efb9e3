// Package wake lets goroutines sleep until a commit concerns them: the commits of this
// process and those of any other.
//
// A waiter subscribes to keys, looks for itself, and then sleeps. The watcher tells that
// there was a commit, the sources ask the store once per kind of key what has become ready,
// and only the waiters of those keys are woken: a thousand listeners on other channels
// sleep on. A wake carries no data and may come for nothing.
package wake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/watch"
)

// Kind is a kind of event that can be waited for.
type Kind int

// The kinds, and what the Name of a key is.
const (
	AnyCommit      Kind = iota // no name
	QueueReady                 // the queue
	ChannelMessage             // the channel
	JobDone                    // the job's id
	TopicEvent                 // the topic or pattern
	GroupReturn                // the group's id: an event came back to it
	LockFree                   // the lock
	ScheduleDue                // no name
	RelayReady                 // RelayName: one of the queue's partitions can be taken
	Closing                    // no name; only the end of the notifier wakes it
	kinds
)

// Key is what a waiter waits for.
type Key struct {
	Kind   Kind
	Name   string
	Filter *row.Filter // of a TopicEvent: only events that pass it; nil: all
}

// id is the name under which the waiters of k stand.
func (k Key) id() string {
	if k.Kind != TopicEvent {
		return k.Name
	}
	return k.selection().id()
}

func (k Key) selection() selection { return selection{Topic: k.Name, Filter: k.Filter} }

// Change is what a commit has brought for the waiters of a key.
type Change struct {
	Kind     Kind
	Name     string
	EventKey string // of a TopicEvent: the event's key; "" is none
}

// Watcher notices commits to one database, see package watch. It runs only while there is
// at least one waiter. It is an interface, because another kind of database notices commits
// otherwise: Postgres by LISTEN.
type Watcher interface {
	AddWaiter(watch.Signals)
	RemoveWaiter(watch.Signals)
	Committed()          // this process has committed
	Raise(watch.Signals) // what it has committed concerns the waiters of these, in any process
	WakeAt(t time.Time)  // look at t even without a commit
	Close() error
}

// Events are what a Watcher calls, one at a time.
type Events struct {
	Changed func(watch.Cause, watch.Signals) (woken int)
	Lost    func(error) // the database is gone for good; it is the last call
}

// Config is what a Notifier needs.
type Config struct {
	Watch      func(Events) Watcher
	Reader     *sql.DB
	Statements Statements
	Woke       func(cause string, waiters int) // reports each change that woke waiters
}

// Notifier wakes the waiters that a commit concerns. It is safe for concurrent use.
//
// Waiters are found by (kind, name) in two steps: a commit concerns few kinds, and of a kind few
// names. A waiter with several keys stands in the list of each, and is one subscription.
type Notifier struct {
	watcher Watcher
	cfg     Config
	sources *sources
	ctx     context.Context // ends with Close: a look may be waiting for a connection
	cancel  context.CancelFunc

	mu      sync.Mutex
	waiting [kinds]map[string]map[*Waiter]struct{} // by id
	keys    [kinds]int                             // of all waiters
	sparse  sparse                                 // of the ids of TopicEvent
	err     error                                  // closed, or the file was replaced: no wait can succeed any more
}

// New returns a notifier. The watcher starts with the first waiter.
func New(cfg Config) *Notifier {
	n := &Notifier{cfg: cfg, sparse: make(sparse)}
	// Its own ctx and not that of the DB, which ends when Close begins: while Work drains, its
	// handlers may still wait for what other commits bring.
	n.ctx, n.cancel = context.WithCancel(context.Background())
	for kind := range n.waiting {
		n.waiting[kind] = make(map[string]map[*Waiter]struct{})
	}
	n.sources = newSources(cfg.Statements, n)
	n.watcher = cfg.Watch(Events{Changed: n.changed, Lost: n.end})
	return n
}

// Waiter is one subscription. It collects at most one wake.
type Waiter struct {
	notifier *Notifier
	keys     []Key
	signals  watch.Signals // of keys
	woken    chan struct{}
}

// Subscribe starts to collect wakes for keys. The caller looks for itself after it and
// sleeps then, so that no commit in between is missed. Close ends the subscription.
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
		w.Wake() // end has run, and no later wake will come
	}
	n.mu.Unlock()
	// Outside of mu, which the watcher's goroutine takes while it looks.
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
		// The sources ask for every name in the map, so a name without a waiter would be
		// asked for at each commit, for ever.
		delete(n.waiting[k.Kind], id)
		if k.Kind == TopicEvent {
			delete(n.sparse, id)
		}
	}
	n.mu.Unlock()
	n.watcher.RemoveWaiter(w.signals) // the last one puts the watcher to sleep
}

// Wake wakes w. A wake that was not consumed yet covers this one too: the waiter has still to
// look, and will see what both were about.
func (w *Waiter) Wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// C has a value when w was woken. It is for a caller that waits for more than one thing;
// [Notifier.Err] has to be looked at afterwards.
func (w *Waiter) C() <-chan struct{} { return w.woken }

// Done and Forever are what a look of [Notifier.Until] returns to end the wait, and to sleep
// until a wake.
const (
	Done    time.Duration = 0
	Forever time.Duration = math.MaxInt64
)

// Wait returns nil when w is woken or d has passed, and an error when ctx has ended or no
// wait can succeed any more.
func (w *Waiter) Wait(ctx context.Context, d time.Duration) error {
	// Most waits have no time of their own, and a timer costs the runtime a wake-up.
	var passed <-chan time.Time
	if d != Forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-w.woken:
		return w.notifier.Err() // end wakes as a commit does
	case <-passed:
		return nil
	case <-ctx.Done():
		return Cause(ctx)
	}
}

// Until calls look until it returns Done or an error, sleeping in between until one of keys
// is ready or the time that look returned has passed. It is the loop in which a verb
// waits; a worker waits for more than keys, see worker.Source.Await. look runs first after the subscription, so that no commit is missed. The end of ctx
// is returned as its cause.
//
// The subscription holds from the first look to the last: a commit that comes while look runs
// leaves a wake behind, and the sleep after it ends at once.
func (n *Notifier) Until(ctx context.Context, look func() (wait time.Duration, err error), keys ...Key) error {
	w := n.Subscribe(keys...)
	defer w.Close()
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

// Wake wakes the waiters that a commit of this process concerns. Those of this process need
// not sleep until the watcher has looked, and those of others are woken by a signal, in case
// that their watchers look rarely because the file is busy.
func (n *Notifier) Wake(changes ...Change) {
	var raise watch.Signals
	for _, c := range changes {
		if c.Kind == TopicEvent {
			for _, id := range n.concerned(row.Added{c.Name: {c.EventKey: true}}) {
				n.wake(TopicEvent, id)
			}
		} else {
			n.wake(c.Kind, c.Name)
		}
		raise |= raisedBy(c.Kind, c.Name)
	}
	n.watcher.Raise(raise)
}

// wake wakes the waiters of an id in this process.
func (n *Notifier) wake(kind Kind, id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	set := n.waiting[kind][id]
	for w := range set {
		w.Wake()
	}
	return len(set)
}

// concerned are the ids of TopicEvent for which the waiters of events stand, whether there
// are any or not.
func (n *Notifier) concerned(events row.Added) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sparse.concerned(events)
}

// sparseIDs returns the ids of TopicEvent with waiters that pass over events.
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

// pageOf returns how many rows of a log one look may read to find the waiters of kind that they concern. To read a row
// costs less than to wake a waiter, which reads for itself. So the page grows with the waiters: a thousand
// messages for one channel must not wake a hundred thousand listeners of others.
func (n *Notifier) pageOf(kind Kind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(tailPage, n.keys[kind])
}

// WakeAt asks for a look at t, a time on the wall; the zero time asks for none.
func (n *Notifier) WakeAt(t time.Time) {
	if !t.IsZero() {
		n.watcher.WakeAt(t)
	}
}

// Err returns why no wait can succeed any more, or nil.
func (n *Notifier) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Close wakes every waiter for good with ErrClosed, and returns when the watcher has ended.
func (n *Notifier) Close() error {
	n.cancel() // first: the watcher's goroutine may be waiting for a connection
	n.end(sqlite.ErrClosed)
	return n.watcher.Close()
}

// end wakes every waiter for good. The first reason stays: a file that was replaced says more
// than the Close that follows.
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

// changed runs in the watcher's goroutine after each commit that it has noticed, and at each
// deadline. It asks each source that has waiters once, however many wait. After a signal
// only the waiters of signals are asked for.
func (n *Notifier) changed(cause watch.Cause, signals watch.Signals) (woken int) {
	// A deadline is a time that a waiter has asked for, and no commit.
	if cause != watch.Deadline {
		woken += n.wake(AnyCommit, "")
	}
	if n.asked(signals) {
		// The wait for a connection ends with Close: an attached pool may have lent all of
		// them. The statements do not: a cancelable ctx costs the driver a goroutine for each.
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

// ask wakes what the sources say is ready. After an error it wakes all of the kind: each
// waiter meets the error itself, where it can be returned.
func (n *Notifier) ask(ctx context.Context, q sqlite.Querier, signals watch.Signals) (woken int) {
	now := time.Now() // one time for all sources, as a transaction has one
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
func (n *Notifier) wakeAll(signals watch.Signals) (woken int) {
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

// asked reports whether there is a waiter of a kind that has a source.
func (n *Notifier) asked(signals watch.Signals) bool {
	for kind := range kinds {
		if n.sources.ask[kind] != nil && n.awaited(kind, signals) {
			return true
		}
	}
	return false
}

// awaited reports whether there may be a waiter of kind for signals, which is cheaper than to
// list its names.
func (n *Notifier) awaited(kind Kind, signals watch.Signals) bool {
	if signals&signalsOfKind(kind) == 0 {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.waiting[kind]) > 0
}

// names are the names of a kind that have waiters for signals. The list is a copy: the store
// is asked without mu, which subscriptions and wakes of every goroutine need.
func (n *Notifier) names(kind Kind, signals watch.Signals) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, 0, len(n.waiting[kind]))
	for name := range n.waiting[kind] {
		// What a log has grown by is read once, for all names.
		if kind.isLog() || signals&signalsOf(kind, name) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Cause says why ctx has ended: by Close, or as its owner wanted.
func Cause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == ctx.Err() || errors.Is(cause, sqlite.ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}
