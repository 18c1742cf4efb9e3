package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Search runs f after all earlier searches on this DB have ended. Searches read many rows for operators, and must not
// take more than a single connection and processor away from the jobs. The wait ends when ctx ends or Close is
// called. Inside [Engine.Tx] and [Engine.AtOnce], Search does not wait, because earlier searches may be waiting for
// the connection that it holds.
func (e *Engine) Search(ctx context.Context, f func(ctx context.Context) error) error {
	s, err := e.liveScope(ctx)
	if err != nil {
		return err
	}
	if s != nil || e.moment(ctx) != nil {
		return f(ctx)
	}
	unlock, err := e.inTurn(ctx, "search")
	if err != nil {
		return err
	}
	defer unlock()
	return f(ctx)
}

// inTurn waits for the lock called name. The caller must call unlock.
func (e *Engine) inTurn(ctx context.Context, name string) (unlock func(), err error) {
	wait, cancel := e.UntilClose(ctx)
	defer cancel()
	return e.looks.Lock(wait, name)
}

// QueueStats holds a queue's statistics and the time of its counts.
type QueueStats struct {
	row.QueueStats
	OldestStart time.Time // earliest stored start of a running job; zero if there is none
	AsOf        time.Time
}

// Stats returns a queue's statistics. If queue is "", it returns the statistics of all queues in
// use, sorted by name.
//
// Pauses and limits are always current. Times are current too, except that they are cached briefly if there are more
// than fewQueues queues. Counts that took a long time are cached for longer, so that counting uses at most 1% of a
// processor, no matter how often Stats is called.
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
		pauses, err := e.Stores.Pauses.All(ctx, q, e.NowAt(ctx))
		if err != nil {
			return err
		}
		heads, err := e.withLimits(ctx, q, withPaused(heads, pauses, queue))
		if err != nil {
			return err
		}
		started, err := e.Stores.Jobs.Started(ctx, q, queue, e.NowAt(ctx))
		oldest := make(map[string]time.Time)
		for _, s := range slices.Backward(started) { // the longest running is first
			oldest[s.Queue] = s.At
		}
		all = make([]QueueStats, len(heads))
		for i, h := range heads {
			all[i] = QueueStats{h.Stats(counted.counts[h.Queue]), oldest[h.Queue], counted.at}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// withLimits adds limits to the heads of queues that have them.
func (e *Engine) withLimits(ctx context.Context, q Querier, heads []row.QueueHead) ([]row.QueueHead, error) {
	limits, err := e.Stores.Limits.All(ctx, q)
	if err != nil || len(limits) == 0 {
		return heads, err
	}
	for i, h := range heads {
		l, limited := limits[h.Queue]
		if !limited {
			continue
		}
		now := e.NowAt(ctx)
		next, err := e.Stores.Jobs.NextClaim(ctx, q, h.Queue, now)
		if err != nil {
			return nil, err
		}
		places, err := e.Stores.Limits.Places(ctx, q, h.Queue, now)
		if err != nil {
			return nil, err
		}
		heads[i] = h.Limited(l, next, places)
	}
	return heads, nil
}

// withPaused returns heads with pauses filled in, adding heads for queues that have only a pause. It does not modify
// heads, which is shared with other callers.
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
			out[i] = h.WithPause(p)
		}
	}
	slices.SortFunc(out, func(a, b row.QueueHead) int { return strings.Compare(a.Queue, b.Queue) })
	return out
}

const (
	// fewQueues is the maximum number of queues whose times are read on every call.
	fewQueues = 100
	// headShare is how long the times of many queues are cached, as a multiple of how long they took to read. For 500
	// queues this is half a second. Times in the file are whole seconds anyway.
	headShare = 50
)

// heads returns a queue's times, or all queues' times if queue is "".
func (e *Engine) heads(ctx context.Context, queue string) (heads []row.QueueHead, err error) {
	read := func(ctx context.Context, q Querier) (err error) {
		heads, err = e.Stores.Operators.Heads(ctx, q, queuesOf(queue), e.NowAt(ctx))
		return err
	}
	if s, err := e.liveScope(ctx); err != nil || s != nil || e.moment(ctx) != nil || queue != "" {
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

// keptHeads caches the times of all queues.
type keptHeads struct {
	heads []row.QueueHead
	until time.Time
}

// pastSpan identifies a queue and a range of past minutes. The range includes since but not before.
type pastSpan struct {
	queue         string
	since, before int64
}

// pastSums caches sums by range.
type pastSums struct {
	mu sync.Mutex
	of map[pastSpan]row.Minute
}

// mostSums is the maximum number of cached ranges.
const mostSums = 100

func (p *pastSums) get(span pastSpan) (sums row.Minute, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums, known = p.of[span]
	return sums, known
}

func (p *pastSums) put(span pastSpan, sums row.Minute) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Dropping everything is good enough: an open page soon fills the cache again.
	if p.of == nil || len(p.of) >= mostSums {
		p.of = make(map[pastSpan]row.Minute)
	}
	p.of[span] = sums
}

// Sums returns the sums of queue's traffic in a range of past minutes (see MinuteStore). The range starts with the minute
// of since and ends before the minute of before. Sums caches the result, because the sums for a past range no longer
// change, reading them takes a seek per minute, and an open page requests them repeatedly.
func (e *Engine) Sums(ctx context.Context, q Querier, queue string, since, before time.Time) (sums row.Minute, err error) {
	span := pastSpan{queue, since.Unix() / 60, before.Unix() / 60}
	if sums, known := e.lastSums.get(span); known {
		return sums, nil
	}
	sums, err = e.Stores.Minutes.Sums(ctx, q, queue, since, before)
	if err == nil {
		e.lastSums.put(span, sums)
	}
	return sums, err
}

// Counts returns all queues' counts, cached as in Stats.
func (e *Engine) Counts(ctx context.Context) (map[string]row.QueueCounts, error) {
	c, err := e.counts(ctx, "")
	return c.counts, err
}

// queuesOf returns a slice that contains queue, or nil to select all queues if queue is "".
func queuesOf(queue string) []string {
	if queue == "" {
		return nil
	}
	return []string{queue}
}

// counted holds counts and the time at which they were taken.
type counted struct {
	counts map[string]row.QueueCounts
	at     time.Time // by the clock of the backend
	began  time.Time // by the clock of the process, as is until
	until  time.Time // the counts may be used until then
}

const (
	// freshCost is the cost below which counts are never cached, in index entries. It corresponds to half a
	// millisecond. It is not a time, because a busy machine would then return old counts for small queues.
	freshCost = 10_000
	// countShare is how long a count is cached, as a multiple of how long it took.
	countShare = 100
)

// counts returns the cached counts of a queue, or counts again. In a transaction it always counts again.
func (e *Engine) counts(ctx context.Context, queue string) (c counted, err error) {
	if s, err := e.liveScope(ctx); err != nil || s != nil {
		if err == nil {
			c, _, err = e.count(ctx, queue)
		}
		return c, err
	}
	if e.moment(ctx) == nil { // otherwise the holder of the lock may be waiting for this call's connection
		unlock, err := e.inTurn(ctx, "counts "+queue)
		if err != nil {
			return c, err
		}
		defer unlock()
	}
	if last, known := e.lastCounts.Load(queue); known && time.Now().Before(last.(counted).until) {
		return last.(counted), e.Usable(ctx, "")
	}
	c, cost, err := e.count(ctx, queue)
	if err == nil && cost >= freshCost {
		c.until = time.Now().Add(countShare * time.Since(c.began))
		e.lastCounts.Store(queue, c)
	}
	return c, err
}

// count counts a queue's jobs again. cost is the number of index entries read.
func (e *Engine) count(ctx context.Context, queue string) (c counted, cost int64, err error) {
	err = e.Read(ctx, func(ctx context.Context, q Querier) (err error) {
		c.at, c.began = e.NowAt(ctx), time.Now()
		c.counts, cost, err = e.Stores.Operators.Counts(ctx, q, row.JobSelect{Queues: queuesOf(queue), Phases: row.StatsPhases}, int64(e.CountLimit), c.at)
		return err
	})
	return c, cost, err
}
