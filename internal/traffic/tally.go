package traffic

import (
	"sync"

	"github.com/honker-go/honker/internal/row"
)

// tally holds part of the counts. A Meter has several tallies, so that concurrent goroutines rarely
// wait for each other.
type tally struct {
	mu      sync.Mutex
	pending sums
	recent  key     // the last key used, which the next Add often needs again
	counts  *Counts // recent's counts in pending; nil if there are none
}

func (t *tally) add(k key, c Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil || t.recent != k {
		t.recent, t.counts = k, t.at(k)
	}
	t.counts.add(c)
}

func (t *tally) at(k key) *Counts {
	if t.pending == nil {
		t.pending = make(sums)
	}
	if t.pending[k] == nil && len(t.pending) >= mostPending {
		k.queue = row.OtherQueues
	}
	return t.pending.at(k)
}

// take moves the pending counts into all.
func (t *tally) take(all sums) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, c := range t.pending {
		all.at(k).add(*c)
	}
	t.pending, t.counts = nil, nil
}

func (t *tally) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending) == 0
}
