package wake

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// Statements are the questions that the sources ask the store. Each reads only what an index
// gives it, since it runs after every commit while there is a waiter of its kind.
type Statements struct {
	Jobs interface {
		StatesAt(ctx context.Context, q sqlite.Querier, queues []string, nowMS int64) ([]row.QueueState, error)
	}
	Results interface {
		Decided(ctx context.Context, q sqlite.Querier, ids []int64) ([]int64, error)
	}
	Notifications interface {
		Last(ctx context.Context, q sqlite.Querier) (int64, error)
		ChannelsSince(ctx context.Context, q sqlite.Querier, after int64, limit int) (row.Added, int, int64, error)
	}
	Streams interface {
		Last(ctx context.Context, q sqlite.Querier) (int64, error)
		TopicsSince(ctx context.Context, q sqlite.Querier, after int64, limit int) (row.Added, int, int64, error)
	}
	Groups interface {
		States(ctx context.Context, q sqlite.Querier, ids []int64, nowMS int64) ([]row.GroupState, error)
	}
	Locks interface {
		States(ctx context.Context, q sqlite.Querier, names []string, now int64) (map[string]int64, error)
	}
	Schedules interface {
		Soonest(ctx context.Context, q sqlite.Querier) (int64, error)
	}
	// Relays are those of a family.
	Relays func(family string) RelayStates
}

// RelayStates is the question for the queues of one family of a relay.
type RelayStates interface {
	States(ctx context.Context, q sqlite.Querier, w row.RelayWanted, nowMS int64) ([]row.RelayState, error)
}

// names returns what is waited for at the time of the call.
type names func() []string

// source answers which of the names of one kind are ready; it may name some that are not
// awaited. It also asks for a look at the time at which another one will be.
type source func(ctx context.Context, q sqlite.Querier, awaited names, now time.Time) (ready []string, err error)

// sources is one question per kind of key, however many wait: a thousand listeners on one
// channel are one row in the question and one wake each. Only the watcher's goroutine asks, so
// what a source remembers needs no lock.
type sources struct {
	Statements
	ask      [kinds]source
	notifier *Notifier

	messages, events logTail
	passed           int // events since the waiters that pass over some were last woken
}

func newSources(s Statements, n *Notifier) *sources {
	all := &sources{Statements: s, notifier: n}
	all.messages = logTail{last: s.Notifications.Last, since: s.Notifications.ChannelsSince}
	all.events = logTail{last: s.Streams.Last, since: s.Streams.TopicsSince}
	all.ask = [kinds]source{
		QueueReady:     all.queues,
		ChannelMessage: all.channels,
		JobDone:        all.jobs,
		TopicEvent:     all.topics,
		GroupReturn:    all.groups,
		LockFree:       all.locks,
		ScheduleDue:    all.schedules,
		RelayReady:     all.relays,
		// AnyCommit is answered by the commit itself, Closing by none.
	}
	return all
}

// wakeAt asks for a look at t; the zero time asks for none.
func (s *sources) wakeAt(t time.Time) { s.notifier.WakeAt(t) }

// wakeAtSecond is wakeAt for a stored second; 0 is none.
func (s *sources) wakeAtSecond(unix int64) { s.wakeAt(store.Instant(unix)) }

// queues returns those with something to claim. A worker that is woken claims without another
// look, so this answer has to be that of a claim: due, not expired, an attempt left, or lapsed.
func (s *sources) queues(ctx context.Context, q sqlite.Querier, awaited names, now time.Time) (ready []string, err error) {
	states, err := s.Jobs.StatesAt(ctx, q, awaited(), now.UnixMilli())
	for _, state := range states {
		if state.Ready {
			ready = append(ready, state.Queue)
			continue
		}
		s.wakeAtSecond(state.Next)
		s.wakeAt(store.InstantMS(state.StartMS))
	}
	return ready, err
}

// channels returns those of the messages since the last look. A listener reads by the index of its channels,
// so it need not be woken for messages of others.
func (s *sources) channels(ctx context.Context, q sqlite.Querier, awaited names, _ time.Time) ([]string, error) {
	added, _, err := s.messages.gained(ctx, q, s.notifier.pageOf(ChannelMessage))
	if err != nil || added == nil {
		return awaited(), err
	}
	return slices.Collect(maps.Keys(added)), nil
}

// topics returns the selections that contain one of the events since the last look. Those that pass over events
// are woken from time to time too. It bounds how far a consumer falls behind events that it does not select: they
// stay in the file until it has read them.
func (s *sources) topics(ctx context.Context, q sqlite.Querier, awaited names, _ time.Time) ([]string, error) {
	page := s.notifier.pageOf(TopicEvent)
	added, n, err := s.events.gained(ctx, q, page)
	if err != nil || added == nil {
		s.passed = 0
		return awaited(), err
	}
	ready := s.notifier.concerned(added)
	if s.passed += n; s.passed >= page {
		s.passed = 0
		ready = append(ready, s.notifier.sparseIDs()...)
		slices.Sort(ready)
		ready = slices.Compact(ready)
	}
	return ready, nil
}

// jobs returns those that have a result or are over. Which of the two it is, and the result
// itself, the waiter reads: another commit may have changed it until then.
func (s *sources) jobs(ctx context.Context, q sqlite.Querier, awaited names, _ time.Time) ([]string, error) {
	decided, err := s.Results.Decided(ctx, q, numbers(awaited()))
	ready := make([]string, len(decided))
	for i, id := range decided {
		ready[i] = strconv.FormatInt(id, 10)
	}
	return ready, err
}

// groups returns those to which an event has come back. New events are the matter of topics.
func (s *sources) groups(ctx context.Context, q sqlite.Querier, awaited names, now time.Time) (ready []string, err error) {
	states, err := s.Groups.States(ctx, q, numbers(awaited()), now.UnixMilli())
	for _, state := range states {
		if state.Ready {
			ready = append(ready, strconv.FormatInt(state.ID, 10))
			continue
		}
		s.wakeAt(store.InstantMS(state.NextMS))
	}
	return ready, err
}

// locks returns those that are free. Of several waiters one will get it, and the others find it
// held again: those of one process stand in line before they wait, see KeyedMutex.
func (s *sources) locks(ctx context.Context, q sqlite.Querier, awaited names, now time.Time) (ready []string, err error) {
	states, err := s.Locks.States(ctx, q, awaited(), now.Unix())
	for name, expires := range states {
		if expires == 0 {
			ready = append(ready, name)
			continue
		}
		s.wakeAtSecond(expires)
	}
	return ready, err
}

// schedules returns the one key there is when a schedule is due. A commit may have made the
// next fire sooner, so the time is asked for after each.
func (s *sources) schedules(ctx context.Context, q sqlite.Querier, awaited names, now time.Time) ([]string, error) {
	soonest, err := s.Schedules.Soonest(ctx, q)
	if err != nil || soonest != 0 && soonest <= now.Unix() {
		return awaited(), err
	}
	s.wakeAtSecond(soonest)
	return nil, nil
}

// RelayName is the name of a queue of a relay. A family is an identifier, without a slash.
func RelayName(family, queue string) string { return family + "/" + queue }

// relays returns the queues with a partition that can be taken. A processor that is woken takes
// without another look.
func (s *sources) relays(ctx context.Context, q sqlite.Querier, awaited names, now time.Time) (ready []string, err error) {
	families := make(map[string][]row.RelayQueue, 1)
	for _, name := range awaited() {
		family, queue, _ := strings.Cut(name, "/")
		families[family] = append(families[family], row.RelayQueue{Name: queue})
	}
	for family, queues := range families {
		states, err := s.Relays(family).States(ctx, q, row.RelayWanted{Queues: queues}, now.UnixMilli())
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			if state.Ready {
				ready = append(ready, RelayName(family, state.Queue))
				continue
			}
			s.wakeAt(store.InstantMS(state.NextMS))
		}
	}
	return ready, nil
}

// numbers reads names made by strconv.FormatInt.
func numbers(names []string) []int64 {
	ids := make([]int64, len(names))
	for i, name := range names {
		ids[i], _ = strconv.ParseInt(name, 10, 64)
	}
	return ids
}

// logTail knows of a table that only grows what was added since the last look.
type logTail struct {
	last  func(context.Context, sqlite.Querier) (int64, error)
	since func(ctx context.Context, q sqlite.Querier, after int64, limit int) (added row.Added, n int, last int64, err error)
	seen  int64
	known bool // seen was read once
}

// tailPage is the least number of rows that one look reads, see [Notifier.pageOf].
const tailPage = 1000

// gained returns the names and keys of the n rows that were added since the last look. It returns nil if any name may have
// gained rows: at the first look, where a page or more was added, and where the log has gone back, because a backup was
// restored over it. It reports a row once, so the caller asks for the waiting names after it: a waiter
// that subscribed in between looks for itself, and would miss a row that came after that look and before the read.
func (t *logTail) gained(ctx context.Context, q sqlite.Querier, page int) (added row.Added, n int, err error) {
	if t.known {
		added, n, last, err := t.since(ctx, q, t.seen, page)
		if err != nil {
			return nil, 0, err
		}
		if n < page && last >= t.seen {
			t.seen = last
			return added, n, nil
		}
	}
	last, err := t.last(ctx, q)
	t.seen, t.known = last, err == nil
	return nil, 0, err
}
