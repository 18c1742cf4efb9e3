package honker

import (
	"context"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// What the hub asks the store after a change: one question per kind of wait, whoever
// waits. Each answers who has something new.
type question func(context.Context, time.Time) (hot []string, err error)

func (h *hub) questions() map[kind]question {
	return map[kind]question{
		queueWork:      h.askQueues,
		channelMessage: h.askChannels,
		jobResult:      h.askResults,
		streamTopic:    h.askTopics,
		groupReturn:    h.askGroups,
		lockFree:       h.askLocks,
		scheduleDue:    h.askSchedules,
	}
}

// askQueues returns the queues with something to claim, and has the watcher look
// again when another will have.
func (h *hub) askQueues(ctx context.Context, now time.Time) ([]string, error) {
	states, err := store.Jobs{}.States(ctx, h.db.own, h.names(queueWork), now.Unix())
	var hot []string
	for _, s := range states {
		if s.Ready {
			hot = append(hot, s.Queue)
		} else {
			h.expect(s.Next)
		}
	}
	return hot, err
}

// expect asks for a look at a unix second, 0 for none.
func (h *hub) expect(unix int64) {
	if unix != 0 {
		h.watcher.WakeAt(time.Unix(unix, 0))
	}
}

// feed knows of a log that only grows which names have something new in it. What it has
// told it does not tell again: ask who waits after it, not before. Whoever comes later
// looks for himself.
type feed struct {
	last  func(context.Context, store.Querier) (int64, error)
	since func(ctx context.Context, q store.Querier, after int64, limit int) (names map[string]bool, n int, last int64, err error)
	seen  int64
	known bool // seen was read once
}

const feedPage = 1000

// news returns the names in what was added since the last question. unknown: there may
// be any. The first time it does not know since when, and after a page full it does not
// care.
func (f *feed) news(ctx context.Context, q store.Querier) (names map[string]bool, unknown bool, err error) {
	if f.known {
		names, n, last, err := f.since(ctx, q, f.seen, feedPage)
		if err != nil {
			return nil, true, err
		}
		if n < feedPage {
			f.seen = last
			return names, false, nil
		}
	}
	f.seen, err = f.last(ctx, q)
	f.known = err == nil
	return nil, true, err
}

// askChannels returns the channels of the messages since the last question.
func (h *hub) askChannels(ctx context.Context, _ time.Time) ([]string, error) {
	hot, unknown, err := h.messages.news(ctx, h.db.own)
	channels := h.names(channelMessage)
	if unknown {
		return channels, err
	}
	return pick(channels, hot), err
}

func pick(names []string, from map[string]bool) []string {
	var out []string
	for _, name := range names {
		if from[name] {
			out = append(out, name)
		}
	}
	return out
}

// askTopics returns the topics and patterns of the events since the last question.
func (h *hub) askTopics(ctx context.Context, _ time.Time) ([]string, error) {
	hot, unknown, err := h.events.news(ctx, h.db.own)
	names := h.names(streamTopic)
	if unknown {
		return names, err
	}
	var out []string
	for _, name := range names {
		s := store.Selection{Topic: name}
		if hot[name] || s.Pattern() && matchesAny(s, hot) {
			out = append(out, name)
		}
	}
	return out, err
}

// hintTopic is hint for a topic, which patterns may match.
func (h *hub) hintTopic(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other, set := range h.waiting[streamTopic] {
		if (store.Selection{Topic: other}).Matches(name) {
			for s := range set {
				s.wake()
			}
		}
	}
}

func matchesAny(s store.Selection, topics map[string]bool) bool {
	for t := range topics {
		if s.Matches(t) {
			return true
		}
	}
	return false
}

// askGroups returns the groups to which events have come back, and has the watcher look
// again when others will have.
func (h *hub) askGroups(ctx context.Context, now time.Time) ([]string, error) {
	states, err := store.Groups{}.States(ctx, h.db.own, numbers(h.names(groupReturn)), now.UnixMilli())
	var hot []string
	for _, s := range states {
		if s.Ready {
			hot = append(hot, strconv.FormatInt(s.ID, 10))
		} else if s.NextMS != 0 {
			h.watcher.WakeAt(time.UnixMilli(s.NextMS))
		}
	}
	return hot, err
}

// numbers reads names made by FormatInt.
func numbers(names []string) []int64 {
	ids := make([]int64, len(names))
	for i, name := range names {
		ids[i], _ = strconv.ParseInt(name, 10, 64)
	}
	return ids
}

// askResults returns the jobs that have a result or are over.
func (h *hub) askResults(ctx context.Context, _ time.Time) ([]string, error) {
	decided, err := store.Results{}.Decided(ctx, h.db.own, numbers(h.names(jobResult)))
	hot := make([]string, len(decided))
	for i, id := range decided {
		hot[i] = strconv.FormatInt(id, 10)
	}
	return hot, err
}

// askLocks returns the locks that are free, and has the watcher look again when another
// expires.
func (h *hub) askLocks(ctx context.Context, now time.Time) ([]string, error) {
	states, err := store.Locks{}.States(ctx, h.db.own, h.names(lockFree), now.Unix())
	var free []string
	for name, expires := range states {
		if expires == 0 {
			free = append(free, name)
		} else {
			h.expect(expires)
		}
	}
	return free, err
}

// askSchedules says whether a schedule is due, and has the watcher look again when one
// will be: a change may have made it sooner.
func (h *hub) askSchedules(ctx context.Context, now time.Time) ([]string, error) {
	soonest, err := store.Schedules{}.Soonest(ctx, h.db.own)
	if err != nil || soonest != 0 && soonest <= now.Unix() {
		return h.names(scheduleDue), err
	}
	h.expect(soonest)
	return nil, nil
}
