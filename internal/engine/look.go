package engine

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// StatsStore are the statements of Stats.
type StatsStore interface {
	Counts(ctx context.Context, q Querier, s row.JobSelect, limit int64) (counts map[string]row.QueueCounts, cost int64, err error)
	Heads(ctx context.Context, q Querier, s row.JobSelect) ([]row.QueueHead, error)
	NextClaimAt(ctx context.Context, q Querier, queue string, nowMS int64) (int64, error)
}

// WaitStore are those about how long jobs have waited.
type WaitStore interface {
	Waits(ctx context.Context, q Querier, queue string, since, before int64) (wait, claimed int64, err error)
}

// PauseStore are those about pauses.
type PauseStore interface {
	All(ctx context.Context, q Querier, now int64) (map[string]*row.Pause, error)
}

// LimitStore are those about limits.
type LimitStore interface {
	All(ctx context.Context, q Querier) (map[string]row.QueueLimits, error)
	Places(ctx context.Context, q Querier, queue string, now int64) (int64, error)
}

// Search runs f after all other searches of this DB that were begun before: one that reads many rows for
// an operator is to take no more than one connection and one processor from the jobs. The wait for
// them ends with ctx, and with Close. In a transaction of [Engine.Tx] it does not wait: those before may
// wait for its connection.
func (e *Engine) Search(ctx context.Context, f func(ctx context.Context) error) error {
	s, err := e.liveScope(ctx)
	if err != nil {
		return err
	}
	if s != nil {
		return f(ctx)
	}
	unlock, err := e.inTurn(ctx, "search")
	if err != nil {
		return err
	}
	defer unlock()
	return f(ctx)
}

// inTurn waits until no other look with this name runs.
func (e *Engine) inTurn(ctx context.Context, name string) (unlock func(), err error) {
	wait, cancel := e.UntilClose(ctx)
	defer cancel()
	return e.looks.Lock(wait, name)
}

// QueueStats is what lies in a queue, and when that was counted.
type QueueStats struct {
	row.QueueStats
	AsOf time.Time
}

// Stats returns what lies in a queue, or by name in all that have something where queue is "". The times,
// the pause and the limits are as they are now; the times of hundreds of queues, which take milliseconds, as they were
// a moment before. Counts that took long are kept for longer, so that they take no more than a hundredth of one
// processor, however often they are asked for.
func (e *Engine) Stats(ctx context.Context, queue string) (all []QueueStats, err error) {
	counted, err := e.counts(ctx, queue)
	if err != nil {
		return nil, err
	}
	heads, err := e.heads(ctx, queue)
	if err != nil {
		return nil, err
	}
	err = e.Read(ctx, func(ctx context.Context, q Querier) error {
		pauses, err := e.Pauses.All(ctx, q, time.Now().Unix())
		if err != nil {
			return err
		}
		heads, err := e.withLimits(ctx, q, withPaused(heads, pauses, queue))
		all = make([]QueueStats, len(heads))
		for i, h := range heads {
			all[i] = QueueStats{h.Stats(counted.counts[h.Queue]), counted.at}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// withLimits gives those of heads the limits that have some.
func (e *Engine) withLimits(ctx context.Context, q Querier, heads []row.QueueHead) ([]row.QueueHead, error) {
	limits, err := e.Limits.All(ctx, q)
	if err != nil || len(limits) == 0 {
		return heads, err
	}
	for i, h := range heads {
		l, limited := limits[h.Queue]
		if !limited {
			continue
		}
		now := time.Now()
		next, err := e.Config.Stats.NextClaimAt(ctx, q, h.Queue, now.UnixMilli())
		if err != nil {
			return nil, err
		}
		places, err := e.Limits.Places(ctx, q, h.Queue, now.Unix())
		if err != nil {
			return nil, err
		}
		heads[i] = h.Limited(l, next, places)
	}
	return heads, nil
}

// withPaused are the heads with the pauses, and those of the queues that have nothing else. heads stay as
// they are: others have them too.
func withPaused(heads []row.QueueHead, pauses map[string]*row.Pause, queue string) []row.QueueHead {
	known := make(map[string]bool, len(heads))
	for _, h := range heads {
		known[h.Queue] = true
	}
	out := slices.Clone(heads)
	for name := range pauses {
		if !known[name] && queue == "" {
			out = append(out, row.QueueHead{Queue: name})
		}
	}
	if queue != "" && len(out) == 0 {
		out = append(out, row.QueueHead{Queue: queue})
	}
	for i, h := range out {
		if p := pauses[h.Queue]; p != nil {
			out[i] = h.Paused(p)
		}
	}
	slices.SortFunc(out, func(a, b row.QueueHead) int { return strings.Compare(a.Queue, b.Queue) })
	return out
}

const (
	// fewQueues are those of which the times are looked up whenever they are asked for.
	fewQueues = 100
	// headShare is how many times as long as the times of many took they are kept: half a second for
	// 500 queues. Times in the file are whole seconds.
	headShare = 50
)

// heads returns the times of a queue, or of all.
func (e *Engine) heads(ctx context.Context, queue string) (heads []row.QueueHead, err error) {
	read := func(ctx context.Context, q Querier) (err error) {
		heads, err = e.Config.Stats.Heads(ctx, q, ofQueue(queue))
		return err
	}
	if s, err := e.liveScope(ctx); err != nil || s != nil || queue != "" {
		if err == nil {
			err = e.Read(ctx, read)
		}
		return heads, err
	}
	unlock, err := e.inTurn(ctx, "heads")
	if err != nil {
		return nil, err
	}
	defer unlock()
	began := time.Now()
	if last := e.lastHeads; began.Before(last.until) {
		return last.heads, nil
	}
	if err := e.Read(ctx, read); err != nil {
		return nil, err
	}
	if len(heads) > fewQueues {
		now := time.Now()
		e.lastHeads = keptHeads{heads, now.Add(headShare * now.Sub(began))}
	}
	return heads, nil
}

// keptHeads are those of all queues.
type keptHeads struct {
	heads []row.QueueHead
	until time.Time
}

// pastSpan are minutes of a queue, from one until before another.
type pastSpan struct {
	queue         string
	since, before int64
}

// pastWaits are how long jobs have waited in such spans, and how many were claimed.
type pastWaits struct {
	mu sync.Mutex
	of map[pastSpan][2]int64
}

// mostWaits bounds what is kept of them.
const mostWaits = 100

func (p *pastWaits) get(span pastSpan) (sums [2]int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums, known = p.of[span]
	return sums, known
}

func (p *pastWaits) put(span pastSpan, sums [2]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= mostWaits {
		p.of = make(map[pastSpan][2]int64)
	}
	p.of[span] = sums
}

// Waits returns how long jobs of queue have waited, in milliseconds, and how many were claimed, in a span of minutes
// that is over. It is read once, by a seek for each minute: what has been counted in it stays, and an open page
// asks again and again.
func (e *Engine) Waits(ctx context.Context, q Querier, from WaitStore, queue string, since, before int64) (wait, claimed int64, err error) {
	span := pastSpan{queue, since, before}
	if sums, known := e.lastWaits.get(span); known {
		return sums[0], sums[1], nil
	}
	wait, claimed, err = from.Waits(ctx, q, queue, since, before)
	if err == nil {
		e.lastWaits.put(span, [2]int64{wait, claimed})
	}
	return wait, claimed, err
}

// Disk returns how many bytes are free on the disk of the file, and how many it has.
func (e *Engine) Disk() (free, size int64, err error) {
	return sqlite.Disk(filepath.Dir(e.Backend.Name()))
}

// Counts returns those of all queues, as Stats has them.
func (e *Engine) Counts(ctx context.Context) (map[string]row.QueueCounts, error) {
	c, err := e.counts(ctx, "")
	return c.counts, err
}

func ofQueue(queue string) row.JobSelect {
	s := row.JobSelect{Phases: store.StatsPhases, Now: time.Now().Unix()}
	if queue != "" {
		s.Queues = []string{queue}
	}
	return s
}

// counted are counts that were taken at a time.
type counted struct {
	counts map[string]row.QueueCounts
	at     time.Time
	until  time.Time // they are not to be taken again before
}

const (
	// freshCost is what may be counted whenever it is asked for, in entries of indexes: half a
	// millisecond. It is no time, so that a machine with much to do does not make small counts old.
	freshCost = 10_000
	// countShare is how many times as long as a count took there is none after it.
	countShare = 100
)

// counts returns the last counts of a queue, or takes them. In a transaction they are its own.
func (e *Engine) counts(ctx context.Context, queue string) (c counted, err error) {
	if s, err := e.liveScope(ctx); err != nil || s != nil {
		if err == nil {
			c, _, err = e.count(ctx, queue)
		}
		return c, err
	}
	unlock, err := e.inTurn(ctx, "counts "+queue)
	if err != nil {
		return c, err
	}
	defer unlock()
	if last, known := e.lastCounts.Load(queue); known && time.Now().Before(last.(counted).until) {
		return last.(counted), e.Usable(ctx, "")
	}
	c, cost, err := e.count(ctx, queue)
	if err == nil && cost >= freshCost {
		c.until = time.Now().Add(countShare * time.Since(c.at))
		e.lastCounts.Store(queue, c)
	}
	return c, err
}

func (e *Engine) count(ctx context.Context, queue string) (c counted, cost int64, err error) {
	err = e.Read(ctx, func(ctx context.Context, q Querier) (err error) {
		c.at = time.Now()
		c.counts, cost, err = e.Config.Stats.Counts(ctx, q, ofQueue(queue), int64(e.CountLimit))
		return err
	})
	return c, cost, err
}
