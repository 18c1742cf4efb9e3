package honker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// takers are the claims of this DB that wait for a job, by queue. An enqueue calls one and
// inserts its job as claimed by it: one statement and one commit lie between the call and
// the handler, where a wake and a claim would add another commit.
//
// It is a shortcut and no promise. Whoever waits is woken by commits all the same.
type takers struct {
	mu      sync.Mutex
	waiting map[string][]*taker
}

// taker is a claim that waits. Whoever has called it fills rows, and wakes it.
type taker struct {
	*claiming
	of    *takers
	woken chan struct{} // closed: rows are committed, or there are none
}

// wait has c be called. It needs a leave.
func (t *takers) wait(c *claiming) *taker {
	k := &taker{c, t, make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = make(map[string][]*taker)
	}
	t.waiting[c.q.name] = append(t.waiting[c.q.name], k)
	return k
}

// leave returns when nobody will fill rows any more.
func (k *taker) leave() {
	if !k.of.remove(k) {
		<-k.woken // its transaction has begun
	}
}

func (t *takers) remove(k *taker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[k.q.name], k)
	if i >= 0 {
		t.removeLocked(k.q.name, i)
	}
	return i >= 0
}

func (t *takers) removeLocked(queue string, i int) {
	t.waiting[queue] = slices.Delete(t.waiting[queue], i, i+1)
	if len(t.waiting[queue]) == 0 {
		delete(t.waiting, queue)
	}
}

// any tells whether somebody waits for jobs of queue.
func (t *takers) any(queue string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting[queue]) > 0
}

// call returns who has waited longest for jobs of queue, or nil. It needs a wake.
func (t *takers) call(queue string, now time.Time) *taker {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting[queue]) == 0 {
		return nil
	}
	k := t.waiting[queue][0]
	t.removeLocked(queue, 0)
	k.began = now
	return k
}

// insert adds a job that k has claimed. 0: there are others to claim, and it does not.
func (k *taker) insert(ctx context.Context, tx store.Querier, job store.NewJob, text string, now time.Time) (id int64, err error) {
	row, inserted, err := store.Jobs{}.InsertClaimed(ctx, tx, job, text, k.worker, now.Unix()+seconds(k.hold))
	if inserted {
		k.rows = append(k.rows, row)
	}
	return row.ID, err
}

// wake ends a call, by the outcome of its commit, and returns how many jobs k has got.
func (k *taker) wake(err error) int {
	if err != nil {
		k.rows = nil
	}
	n := len(k.rows)
	close(k.woken)
	return n
}
