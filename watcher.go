package honker

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/watch"
)

// topic is what somebody waits for.
type topic struct {
	kind kind
	name string
}

type kind int

const (
	anyCommit      kind = iota
	queueWork           // name: the queue
	channelMessage      // name: the channel
	jobResult           // name: the job's id
	streamTopic         // name: the topic or pattern
	groupReturn         // name: the group's id
	lockFree            // name: the lock
	rateWindow          // name: the rate limit; woken at the end only
	scheduleDue         // no name
	kinds
)

// hub wakes only those whom a commit concerns. A look of the watcher becomes one
// question per kind to the store, whoever waits: a thousand listeners on other
// channels sleep on.
//
// Whoever waits subscribes first and then looks for itself, so that nothing is
// missed between; a wake carries no data and may come for nothing.
type hub struct {
	db      *DB
	watcher *watch.Watcher

	mu      sync.Mutex
	waiting [kinds]map[string]map[*sleeper]struct{}
	err     error // closed or replaced: nobody waits any more

	messages, events feed
}

// sleeper is somebody who waits; its slot holds one wake.
type sleeper struct {
	hub    *hub
	topics []topic
	slot   chan struct{}
}

func newHub(db *DB, identity func() error, commits func() int64) *hub {
	h := &hub{
		db:       db,
		messages: feed{last: store.Notifications{}.Last, since: store.Notifications{}.ChannelsSince},
		events:   feed{last: store.Streams{}.Last, since: store.Streams{}.TopicsSince},
	}
	for k := range h.waiting {
		h.waiting[k] = make(map[string]map[*sleeper]struct{})
	}
	h.watcher = watch.New(watch.Config{
		Path:      db.path,
		Version:   sqlite.NewChange(db.looks),
		Identity:  identity,
		Commits:   commits,
		Poll:      db.opts.PollInterval,
		Notices:   !db.opts.NoFileNotices,
		Untrusted: db.opts.AnyFilesystem,
		Changed:   h.look,
		Lost:      h.end,
		Logger:    db.opts.Logger,
	})
	return h
}

func (h *hub) nudge() { h.watcher.Committed() }

// hint wakes those who wait for what this process has just committed: they need not
// sleep until the watcher has looked, which it does all the same.
func (h *hub) hint(k kind, name string) { h.wakeName(k, name) }

// subscribe starts to collect wakes. Look for yourself after it, then wait.
func (h *hub) subscribe(topics ...topic) *sleeper {
	s := &sleeper{hub: h, topics: topics, slot: make(chan struct{}, 1)}
	h.mu.Lock()
	for _, t := range topics {
		set := h.waiting[t.kind][t.name]
		if set == nil {
			set = make(map[*sleeper]struct{}, 1)
			h.waiting[t.kind][t.name] = set
		}
		set[s] = struct{}{}
	}
	if h.err != nil {
		s.wake()
	}
	h.mu.Unlock()
	h.watcher.AddWaiter()
	return s
}

// leave ends the subscription.
func (s *sleeper) leave() {
	h := s.hub
	h.mu.Lock()
	for _, t := range s.topics {
		set := h.waiting[t.kind][t.name]
		delete(set, s)
		if len(set) == 0 {
			delete(h.waiting[t.kind], t.name)
		}
	}
	h.mu.Unlock()
	h.watcher.RemoveWaiter()
}

// wait returns nil when there may be something new, and an error when ctx has ended,
// the DB is closed or the file was replaced.
func (s *sleeper) wait(ctx context.Context) error {
	select {
	case <-s.slot:
		return s.hub.state()
	case <-ctx.Done():
		return ended(ctx)
	}
}

// waitFor is wait that also returns nil after d.
func (s *sleeper) waitFor(ctx context.Context, d time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := s.wait(limited); err != nil && limited.Err() == nil {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

func (s *sleeper) wake() {
	select {
	case s.slot <- struct{}{}:
	default:
	}
}

func (h *hub) state() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// look runs in the watcher's goroutine after each change, and at deadlines.
func (h *hub) look(why watch.Cause) {
	ctx, now := context.Background(), time.Now()
	if h.db.home == nil {
		ctx = h.db.ctx // an attached pool may have lent all its connections when Close comes
	}
	woken := 0
	if why != watch.Deadline {
		woken += h.wakeAll(anyCommit)
	}
	for k, ask := range h.questions() {
		if h.awaited(k) {
			woken += h.wakeHot(ctx, k, ask, now)
		}
	}
	if woken > 0 {
		h.db.opts.Observer.woke(Woke{Cause: string(why), Waiters: woken})
	}
}

func (h *hub) wakeHot(ctx context.Context, k kind, ask question, now time.Time) (woken int) {
	hot, err := ask(ctx, now)
	if err != nil {
		// Those who wait will meet the error themselves, where it can be returned.
		hot = h.names(k)
	}
	for _, name := range hot {
		woken += h.wakeName(k, name)
	}
	return woken
}

func (h *hub) awaited(k kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting[k]) > 0
}

func (h *hub) names(k kind) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.waiting[k]))
	for name := range h.waiting[k] {
		names = append(names, name)
	}
	return names
}

func (h *hub) wakeName(k kind, name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.waiting[k][name]
	for s := range set {
		s.wake()
	}
	return len(set)
}

func (h *hub) wakeAll(k kind) int {
	woken := 0
	for _, name := range h.names(k) {
		woken += h.wakeName(k, name)
	}
	return woken
}

// end wakes everybody for good.
func (h *hub) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
	for _, names := range h.waiting {
		for _, set := range names {
			for s := range set {
				s.wake()
			}
		}
	}
}

func (h *hub) close() error {
	h.end(ErrClosed)
	return h.watcher.Close()
}

// Updates yields one tick after each observed commit to the file, by any process;
// commits in quick succession may share one. The first tick comes at once, so that a
// body that looks at the file misses nothing. It waits without polling and ends when ctx
// ends. An error, [ErrClosed] or [ErrDatabaseReplaced], is yielded once and is
// the last.
func (db *DB) Updates(ctx context.Context) iter.Seq2[struct{}, error] {
	return func(yield func(struct{}, error) bool) {
		s := db.hub.subscribe(topic{anyCommit, ""})
		defer s.leave()
		s.wake() // whoever looked before may have missed one
		for {
			err := s.wait(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(struct{}{}, fail("updates", "", err))
				return
			}
			if !yield(struct{}{}, nil) {
				return
			}
		}
	}
}
