package ui

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// deadCounter counts all dead letters of a filter in the background and keeps the reports, because a count reads every
// dead letter. Only one count runs at a time.
type deadCounter struct {
	mu      sync.Mutex
	running bool
	kept    map[string]deadCount // by the parameters of the filter
	cleared int                  // number of calls of clear
}

// deadCount is the result of a count.
type deadCount struct {
	*admin.DeadReport
	seen string // newest dead letters before the count
	at   time.Time
	took time.Duration
}

const (
	mostDeadCounts = 16          // maximum number of reports that are kept
	countShare     = 20          // a count is repeated after this multiple of the time it took
	countFor       = time.Minute // minimum time for which a count is valid while the newest dead letters stay the same
)

// report returns the report of the last count, or nil if there is none. It starts another count if that one has become
// too old. recount is the time at which the report becomes too old; it is zero if nothing seems to have changed.
func (k *deadCounter) report(h *Handler, db *honker.DB, key string, f admin.JobFilter, seen string, now time.Time) (c *deadCount, recount time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if last, ok := k.kept[key]; ok {
		c = &last
		end := c.at.Add(max(time.Second, countShare*c.took))
		if c.seen != seen {
			recount = end
		} else if least := c.at.Add(countFor); end.Before(least) {
			end = least
		}
		if now.Before(end) {
			return c, recount
		}
	}
	if !k.running {
		cleared := k.cleared
		k.running = h.spawn(func() { k.count(h, db, key, f, seen, cleared) })
	}
	return c, now.Add(time.Second) // a count ends without a commit
}

// knows reports whether the report of a count is kept.
func (k *deadCounter) knows(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.kept[key]
	return ok
}

// count counts and stores the report, unless clear was called meanwhile.
func (k *deadCounter) count(h *Handler, db *honker.DB, key string, f admin.JobFilter, seen string, cleared int) {
	began := time.Now()
	report, err := admin.DeadGroups(h.ended, db, f)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = false
	if err != nil || k.cleared != cleared {
		return // the next page starts another count
	}
	if k.kept == nil || len(k.kept) >= mostDeadCounts {
		k.kept = map[string]deadCount{}
	}
	k.kept[key] = deadCount{report, seen, began, time.Since(began)}
}

// clear forgets all reports, after a verb has changed dead letters.
func (k *deadCounter) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.cleared = nil, k.cleared+1
}

// signatureOf identifies the last deaths of a report.
func signatureOf(r *admin.DeadReport) string {
	var last time.Time
	var ids []int64 // of groups with a death at that time
	for _, g := range r.Groups {
		if g.Last.After(last) {
			last, ids = g.Last, nil
		}
		if g.Last.Equal(last) {
			ids = append(ids, g.IDs[0])
		}
	}
	slices.Sort(ids)
	return fmt.Sprint(last.Unix(), ids)
}
