package pgbackend

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/honker-go/honker/internal/engine"
)

// lanes is the number of merged statements that may be under way. More were not faster, because a statement that waits
// for its commit lets the next collect more ops.
const lanes = 2

// mostMerged bounds the ops in a merged statement.
const mostMerged = 512

// merger writes the ops of concurrent callers in shared statements and commits. The caller that finds a free lane leads:
// it writes its op together with all that wait, and then passes the lane on. A caller alone waits for nobody.
type merger struct {
	backend *Backend

	mu      sync.Mutex
	waiting []*mergeable
	leaders int
}

// mergeable is an op that waits for a merged statement.
type mergeable struct {
	op   engine.Merges
	done chan error    // receives the outcome; errAlone if the caller must write the op itself
	lead chan struct{} // receives a lane
}

// errAlone reports that a merged statement has failed and was undone, so that the failing op must fail alone.
var errAlone = errors.New("must be written alone")

// write writes op. ctx limits the wait for a lane.
func (m *merger) write(ctx context.Context, op engine.Merges) error {
	r := &mergeable{op: op, done: make(chan error, 1), lead: make(chan struct{}, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, r)
	if m.leaders < lanes {
		m.leaders++
		r.lead <- struct{}{}
	}
	m.mu.Unlock()
	for {
		select {
		case <-r.lead:
			m.lead(ctx, r)
		case err := <-r.done:
			return err
		case <-ctx.Done():
			if m.withdraw(r) {
				return ctx.Err()
			}
			return <-r.done // a leader has taken it along
		}
	}
}

// withdraw removes r from the waiting ops. It returns false if a leader has taken it.
func (m *merger) withdraw(r *mergeable) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.waiting, r)
	if i < 0 {
		return false
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	select {
	case <-r.lead:
		m.passOn()
	default:
	}
	return true
}

// lead writes own together with the waiting ops that can share its statement, and passes the lane on. ctx only limits how
// long own waits for a lane, so the statement runs to its end.
func (m *merger) lead(ctx context.Context, own *mergeable) {
	batch := m.take(own)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.passOn()
	}()
	if batch == nil {
		return
	}
	err := errAlone // also if an op panics
	defer func() {
		for _, r := range batch {
			r.done <- err
		}
	}()
	if len(batch) == 1 {
		err = m.backend.writeAlone(ctx, own.op)
		return
	}
	ops := make([]engine.Op, len(batch))
	for i, r := range batch {
		ops[i] = r.op
	}
	if err = m.backend.writeMerged(ctx, own.op, ops); err != nil && !errors.Is(err, engine.ErrUncertain) {
		err = errAlone
	}
}

// take removes and returns a batch: own and the ops with its key. It returns nil if another leader has taken own along.
func (m *merger) take(own *mergeable) (batch []*mergeable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.waiting, own) {
		return nil
	}
	key := own.op.MergeKey()
	left := m.waiting[:0]
	batch = append(batch, own)
	for _, r := range m.waiting {
		switch {
		case r == own:
		case len(batch) < mostMerged && r.op.MergeKey() == key:
			batch = append(batch, r)
		default:
			left = append(left, r)
		}
	}
	clear(m.waiting[len(left):])
	m.waiting = left
	return batch
}

// passOn gives a lane to a waiting op, or frees it. The caller holds mu.
func (m *merger) passOn() {
	for _, r := range m.waiting {
		select {
		case r.lead <- struct{}{}:
			return
		default: // has a lane already
		}
	}
	m.leaders--
}

// writeMerged writes ops, which share a key, in one statement that commits by itself.
func (b *Backend) writeMerged(ctx context.Context, by engine.Merges, ops []engine.Op) error {
	conn, err := b.pool.Conn(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = context.WithoutCancel(ctx)
	if err := b.refresh(ctx, conn); err != nil {
		return err
	}
	now := b.clock.now()
	s := &session{Querier: conn}
	if err := s.lost(conn, by.RunMerged(ctx, s, ops, now)); err != nil {
		return err
	}
	b.catchUp(ctx, conn, s.left, now)
	return nil
}
