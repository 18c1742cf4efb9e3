package admin

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// countedEvents limits the index entries that a look at topics, consumers or groups reads to count events, apart from a
// thousand for each topic. Later looks continue the count.
const countedEvents = 200_000

// recentSpan is the time over which the rate of publishing is measured.
const recentSpan = 10 * time.Minute

// backlogs counts the events above the positions of many readers in a single pass.
type backlogs struct {
	engine *engine.Engine
	q      engine.Querier
	now    time.Time
	topics []row.TopicState
	recent int64 // offset of the last event that is older than recentSpan
	above  []engine.EventsAbove
	counts []engine.Bounds
}

// newBacklogs reads the state of all topics.
func newBacklogs(ctx context.Context, e *engine.Engine, q engine.Querier) (b *backlogs, err error) {
	b = &backlogs{engine: e, q: q, now: e.NowAt(ctx)}
	b.topics, err = e.Stores.Streams.Topics(ctx, q)
	return b, err
}

// findRecent sets recent, which requests for rates need.
func (b *backlogs) findRecent(ctx context.Context) (err error) {
	b.recent, err = b.engine.OffsetBefore(ctx, b.q, b.now.Add(-recentSpan))
	return err
}

// requested is a number of events to be counted: a range of backlogs.above.
type requested struct{ from, to int }

// want requests the number of events above offset in the topics of a selection, ignoring its filter.
func (b *backlogs) want(s row.Selection, offset int64) requested {
	r := requested{from: len(b.above)}
	for i := range b.topics {
		if s.Matches(b.topics[i].Topic) {
			b.above = append(b.above, engine.EventsAbove{Topic: &b.topics[i], Offset: offset})
		}
	}
	r.to = len(b.above)
	return r
}

// topic returns the position of a topic, or -1.
func (b *backlogs) topic(name string) int {
	return slices.IndexFunc(b.topics, func(t row.TopicState) bool { return t.Topic == name })
}

// wantTopic requests the number of events above offset in the topic at position i.
func (b *backlogs) wantTopic(i int, offset int64) requested {
	n := len(b.above)
	b.above = append(b.above, engine.EventsAbove{Topic: &b.topics[i], Offset: offset})
	return requested{n, n + 1}
}

// count counts the requested events, and reads the times of the first unread events of readers.
func (b *backlogs) count(ctx context.Context, most int64, readers ...*reader) (err error) {
	if b.counts, err = b.engine.CountAbove(ctx, b.q, b.above, most); err != nil {
		return err
	}
	var places []row.OffsetIn
	for _, r := range readers {
		if r.filtered {
			continue
		}
		for _, a := range b.above[r.unread.from:r.unread.to] {
			places = append(places, row.OffsetIn{Topic: a.Topic.Topic, Offset: a.Offset})
		}
	}
	if len(places) == 0 {
		return nil
	}
	times, err := b.engine.Stores.Streams.TimesAfter(ctx, b.q, places)
	if err != nil {
		return err
	}
	for _, r := range readers {
		if r.filtered {
			continue
		}
		n := r.unread.to - r.unread.from
		r.ahead.FirstAt, times = earliest(times[:n]), times[n:]
	}
	return nil
}

// earliest returns the earliest time that is not zero.
func earliest(times []time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// of returns the sum of the requested numbers.
func (b *backlogs) of(r requested) (sum engine.Bounds) {
	for _, n := range b.counts[r.from:r.to] {
		sum = sum.Plus(n)
	}
	return sum
}

// head returns the highest offset in the requested topics.
func (b *backlogs) head(r requested) (head int64) {
	for _, a := range b.above[r.from:r.to] {
		head = max(head, a.Topic.Head)
	}
	return head
}

// rate returns the number of events per second in r, a request for the events above recent.
func (b *backlogs) rate(r requested) (perSecond float64) {
	for i := r.from; i < r.to; i++ {
		t, span := b.above[i].Topic, recentSpan
		if t.Gone > b.recent && !t.FirstAt.IsZero() {
			span = max(time.Second, b.now.Sub(t.FirstAt)) // older events of the span were deleted
		}
		perSecond += float64(b.counts[i].Least) / span.Seconds()
	}
	return perSecond
}

// countOf returns the lower of two bounds as a count.
func countOf(b engine.Bounds) honker.Count { return honker.Count{N: b.Least, More: !b.Exact()} }

// reader is a consumer or group whose unread events are to be counted.
type reader struct {
	filtered          bool
	offset            int64
	unread, published requested
	ahead             row.Ahead // the matching events of a filtered selection; otherwise only FirstAt is used
}

// readerLag is the backlog of a reader.
type readerLag struct {
	lag       honker.Count
	most      int64
	behind    time.Time
	published float64 // per second
}

// reader requests the numbers of a consumer or group. Of a filtered selection, it counts the matching events immediately,
// and examines up to most events.
func (b *backlogs) reader(ctx context.Context, s row.Selection, offset, most int64) (r *reader, err error) {
	r = &reader{filtered: s.Filter != nil, offset: offset, unread: b.want(s, offset), published: b.want(s, b.recent)}
	if r.filtered {
		r.ahead, err = b.engine.Stores.Streams.Ahead(ctx, b.q, s, offset, most)
	}
	return r, err
}

// lagOf returns the backlog of a reader after count.
func (b *backlogs) lagOf(r *reader) readerLag {
	unread := b.of(r.unread)
	unread.Most = max(unread.Least, min(unread.Most, b.head(r.unread)-r.offset)) // topics share their offsets
	out := readerLag{lag: countOf(unread), most: unread.Most, behind: r.ahead.FirstAt, published: b.rate(r.published)}
	if r.filtered {
		out.lag = honker.Count(r.ahead.Count)
		out.most = max(out.most, out.lag.N)
	}
	if !out.lag.More {
		out.most = out.lag.N
	}
	return out
}
