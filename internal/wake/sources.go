package wake

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Statements holds the notifier's queries. Each query runs after every commit while its kind has waiters, so it must
// read only indexes.
type Statements struct {
	// Queues returns, for each of queues, whether a claim would find work. If not, and if next is set, it also
	// returns when a claim would.
	Queues func(ctx context.Context, q row.Querier, queues []string, next bool, now time.Time) ([]row.QueueState, error)
	// Results returns the IDs of the jobs that have a result or have ended.
	Results func(ctx context.Context, q row.Querier, ids []int64) ([]int64, error)
	// Messages and Events query the logs of notifications and events.
	Messages, Events Log
	// Groups returns, for each of the groups in ids, whether an event has been returned to the group and, if not,
	// when the next event will be.
	Groups func(ctx context.Context, q row.Querier, ids []int64, now time.Time) ([]row.GroupState, error)
	// Locks returns the locks among names, each with the time at which it becomes free, or the zero time if
	// it is free.
	Locks func(ctx context.Context, q row.Querier, names []string, now time.Time) (map[string]time.Time, error)
	// Soonest returns the time at which the next schedule is due, or the zero time if there is none.
	Soonest func(ctx context.Context, q row.Querier) (time.Time, error)
	// Relays returns the state of each queue in w, in the relay family.
	Relays func(ctx context.Context, q row.Querier, family string, w row.RelayWanted, now time.Time) ([]row.RelayState, error)
}

// Log holds the queries on a log, whose rows have increasing IDs.
type Log struct {
	// Head returns an ID such that all rows up to it are visible or deleted, and all rows that become visible later
	// have larger IDs. It decreases only when a backup is restored over the database.
	Head func(ctx context.Context, q row.Querier) (int64, error)
	// Since returns the names and keys of up to limit rows with IDs above after, in the order of their IDs, the
	// number of these rows, and the last ID among them. If there are no rows, last is after, or less if the head has
	// decreased below after.
	Since func(ctx context.Context, q row.Querier, after int64, limit int) (added row.Added, n int, last int64, err error)
}

// names returns the names that are awaited at the time of the call.
type names func() []string

// source returns the names of a kind that are ready, possibly including names that nothing is waiting for. It also
// requests a check at the time when the next name becomes ready.
type source func(ctx context.Context, q row.Querier, awaited names, now time.Time) (ready []string, err error)

// sources runs a single query for each kind of key, regardless of how many waiters there are. A
// thousand listeners on the same channel add a single row to the query. Only the watcher's
// goroutine calls the sources, so their state needs no lock.
type sources struct {
	Statements
	ask      [kinds]source
	notifier *Notifier

	messages, events logTail
	passed           int // number of events since waiters that skip events were last woken
}

func newSources(s Statements, n *Notifier) *sources {
	all := &sources{Statements: s, notifier: n, messages: logTail{Log: s.Messages}, events: logTail{Log: s.Events}}
	all.ask = [kinds]source{
		QueueReady:     all.queues,
		ChannelMessage: all.channels,
		JobDone:        all.jobs,
		TopicEvent:     all.topics,
		GroupReturn:    all.groups,
		LockFree:       all.locks,
		ScheduleDue:    all.schedules,
		RelayReady:     all.relays,
		// Every commit wakes AnyCommit. Closing is woken only when the notifier ends.
	}
	return all
}

// wakeAt requests a check at t. The zero time is ignored.
func (s *sources) wakeAt(t time.Time) { s.notifier.WakeAt(t) }

// queues returns the queues with something to claim. A worker that is woken claims without checking again, so the
// conditions must be those of a claim: a due job that has not expired and has an attempt left, or a job whose claim
// has lapsed.
func (s *sources) queues(ctx context.Context, q row.Querier, awaited names, now time.Time) (ready []string, err error) {
	states, err := s.Queues(ctx, q, awaited(), true, now)
	for _, state := range states {
		if state.Ready {
			ready = append(ready, state.Queue)
			continue
		}
		s.wakeAt(state.Next)
		s.wakeAt(state.Start)
	}
	return ready, err
}

// channels returns the channels of the messages added since the last check. A listener reads its channels by index,
// so messages on other channels need not wake it.
func (s *sources) channels(ctx context.Context, q row.Querier, awaited names, _ time.Time) ([]string, error) {
	added, _, err := s.messages.gained(ctx, q, s.notifier.pageOf(ChannelMessage))
	if err != nil || added == nil {
		return awaited(), err
	}
	return slices.Collect(maps.Keys(added)), nil
}

// topics returns the IDs of the selections that contain an event added since the last check. Occasionally it also
// returns the selections that skip events. This limits how far such a consumer falls behind: events stay in the file
// until every consumer has moved past them.
func (s *sources) topics(ctx context.Context, q row.Querier, awaited names, _ time.Time) ([]string, error) {
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

// jobs returns the jobs that have a result or have ended. The waiter itself determines which, and reads the result,
// because another commit may change it first.
func (s *sources) jobs(ctx context.Context, q row.Querier, awaited names, _ time.Time) ([]string, error) {
	decided, err := s.Results(ctx, q, numbers(awaited()))
	ready := make([]string, len(decided))
	for i, id := range decided {
		ready[i] = strconv.FormatInt(id, 10)
	}
	return ready, err
}

// groups returns the groups to which an event has been returned. The topics method handles new
// events.
func (s *sources) groups(ctx context.Context, q row.Querier, awaited names, now time.Time) (ready []string, err error) {
	states, err := s.Groups(ctx, q, numbers(awaited()), now)
	for _, state := range states {
		if state.Ready {
			ready = append(ready, strconv.FormatInt(state.ID, 10))
			continue
		}
		s.wakeAt(state.Next)
	}
	return ready, err
}

// locks returns the free locks. Only the first waiter gets a free lock; the others find it held again. Waiters in the
// same process queue up before they wait; see KeyedMutex.
func (s *sources) locks(ctx context.Context, q row.Querier, awaited names, now time.Time) (ready []string, err error) {
	states, err := s.Locks(ctx, q, awaited(), now)
	for name, expires := range states {
		if expires.IsZero() {
			ready = append(ready, name)
			continue
		}
		s.wakeAt(expires)
	}
	return ready, err
}

// schedules returns the awaited key if a schedule is due. A commit may have moved the next fire time to an earlier
// time, so schedules reads it after each commit.
func (s *sources) schedules(ctx context.Context, q row.Querier, awaited names, now time.Time) ([]string, error) {
	soonest, err := s.Soonest(ctx, q)
	if err != nil || !soonest.IsZero() && !soonest.After(now) {
		return awaited(), err
	}
	s.wakeAt(soonest)
	return nil, nil
}

// RelayName returns the key name for a relay's queue. family must be an identifier, without a
// slash.
func RelayName(family, queue string) string { return family + "/" + queue }

// relays returns the queues with a partition that can be taken. A processor that is woken takes a partition without
// checking again.
func (s *sources) relays(ctx context.Context, q row.Querier, awaited names, now time.Time) (ready []string, err error) {
	families := make(map[string][]row.RelayQueue, 1)
	for _, name := range awaited() {
		family, queue, _ := strings.Cut(name, "/")
		families[family] = append(families[family], row.RelayQueue{Name: queue})
	}
	for family, queues := range families {
		states, err := s.Relays(ctx, q, family, row.RelayWanted{Queues: queues}, now)
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			if state.Ready {
				ready = append(ready, RelayName(family, state.Queue))
				continue
			}
			s.wakeAt(state.Next)
		}
	}
	return ready, nil
}

// numbers parses names that were formatted with strconv.FormatInt.
func numbers(names []string) []int64 {
	ids := make([]int64, len(names))
	for i, name := range names {
		ids[i], _ = strconv.ParseInt(name, 10, 64)
	}
	return ids
}

// logTail tracks the rows added to an append-only table.
type logTail struct {
	Log
	seen  int64
	known bool // seen has been read
}

// tailPage is the minimum number of rows that a check may read; see [Notifier.pageOf].
const tailPage = 1000

// gained returns the names and keys of the n rows that were added since the last check. It returns nil if any name
// may have gained rows. This is the case on the first check, after page or more new rows, and when a restored backup
// has moved the head of the log back.
//
// gained reports each row only once, so the caller must list the waiting names after it returns. A waiter that
// subscribes in between checks for itself. If the names were listed first, the waiter would miss a row that is
// committed after its own check and before the read.
func (t *logTail) gained(ctx context.Context, q row.Querier, page int) (added row.Added, n int, err error) {
	if t.known {
		added, n, last, err := t.Since(ctx, q, t.seen, page)
		if err != nil {
			return nil, 0, err
		}
		if n < page && last >= t.seen {
			t.seen = last
			return added, n, nil
		}
	}
	head, err := t.Head(ctx, q)
	t.seen, t.known = head, err == nil
	return nil, 0, err
}
