package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// RetentionPreview tells the effect of a retention on the events of a topic.
type RetentionPreview struct {
	Events  int64 // events of the topic
	Deletes int64 // events that the next maintenance will delete, including a group's dead events, which it keeps
	Kept    int64 // events beyond the retention that are kept until PinnedBy has read them
	// PinnedBy is the reader that has read the least of the topic, such as `consumer "mail"`. It is empty if Kept is 0.
	PinnedBy string
	// Actions lists the steps that let the Kept events be deleted.
	Actions []Action
}

// PreviewRetention returns the effect that r would have on a topic. It changes nothing. It counts all events of the topic
// in an index, which takes about 300 ms for a million, and stops when ctx ends. For the age of events it relies on times
// that rise with offsets, and reads only a few events.
//
// PreviewRetention never waits for the writer. It returns [honker.ErrInvalid] if db is nil or r has a negative limit.
func PreviewRetention(ctx context.Context, db *honker.DB, topic string, r honker.Retention) (*RetentionPreview, error) {
	p, err := previewRetention(ctx, db, topic, r)
	if err != nil {
		return nil, engine.Wrap("preview retention", topic, err)
	}
	return p, nil
}

func previewRetention(ctx context.Context, db *honker.DB, topic string, r honker.Retention) (*RetentionPreview, error) {
	if r.MaxCount < 0 || r.MaxAge < 0 {
		return nil, fmt.Errorf("%w: negative limit of a retention", honker.ErrInvalid)
	}
	out := new(RetentionPreview)
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, _ *engine.Stores) error {
		b, err := newBacklogs(ctx, engine.Of(db), q)
		if err != nil {
			return err
		}
		i := b.topic(topic)
		if i < 0 {
			return nil
		}
		p, err := b.pinOf(ctx, i, row.Retention{Topic: topic, MaxCount: r.MaxCount, MaxAge: r.MaxAge})
		if err != nil {
			return err
		}
		if err := b.count(ctx, row.Unbounded); err != nil {
			return err
		}
		out.Events = b.of(p.total).Least
		beyond := b.beyond(p, p.total).N
		if kept, _, err := b.keptFor(ctx, p); err != nil {
			return err
		} else if kept.N > 0 {
			out.Kept, out.PinnedBy, out.Actions = kept.N, fmt.Sprintf("%s %q", p.pin.Kind, p.pin.Name), releases(p.pin)
		}
		out.Deletes = beyond - out.Kept
		return nil
	})
	return out, err
}

// pinnedTopic is a topic with a retention, the reader that has read the least of it, and requests for its events.
type pinnedTopic struct {
	retention    row.Retention
	pin          row.Pin
	found        bool      // there is a reader
	total        requested // all events
	unread       requested // events that the reader has yet to see
	youngerThan  requested // events that are younger than MaxAge
	hasYoungerOf bool
}

// pinOf requests the numbers about a retention of the topic at position i.
func (b *backlogs) pinOf(ctx context.Context, i int, r row.Retention) (p *pinnedTopic, err error) {
	t := &b.topics[i]
	p = &pinnedTopic{retention: r, total: b.wantTopic(i, t.First-1)}
	if p.pin, p.found, err = b.engine.Stores.Retentions.Pin(ctx, b.q, t.Topic); err != nil {
		return nil, err
	}
	p.unread = b.wantTopic(i, p.pin.Offset)
	if r.MaxAge == 0 {
		return p, nil
	}
	p.hasYoungerOf = true
	// Times are stored in seconds, so the age is rounded up.
	oldest := time.Unix(b.now.Unix()-engine.Seconds(r.MaxAge), 0)
	before, err := b.engine.OffsetBefore(ctx, b.q, oldest)
	p.youngerThan = b.wantTopic(i, before)
	return p, err
}

// beyond returns how many of the events in r, which are the newest of the topic, exceed its retention.
func (b *backlogs) beyond(p *pinnedTopic, r requested) (n honker.Count) {
	all := b.of(r)
	if most := p.retention.MaxCount; most > 0 && all.Least > most {
		n = honker.Count{N: all.Least - most, More: !all.Exact()}
	}
	if !p.hasYoungerOf {
		return n
	}
	if old := all.Least - b.of(p.youngerThan).Most; old > n.N {
		n = honker.Count{N: old, More: !all.Exact()}
	}
	return n
}

// keptFor returns the number of events beyond the retention that the reader has yet to see, and the time of the first.
func (b *backlogs) keptFor(ctx context.Context, p *pinnedTopic) (n honker.Count, first time.Time, err error) {
	if !p.found {
		return n, first, nil
	}
	if n = b.beyond(p, p.unread); n.N == 0 {
		return honker.Count{}, first, nil
	}
	times, err := b.engine.Stores.Streams.TimesAfter(ctx, b.q, []row.OffsetIn{{Topic: p.retention.Topic, Offset: p.pin.Offset}})
	if err != nil {
		return n, first, err
	}
	return n, times[0], nil
}
