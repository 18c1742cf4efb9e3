package ui

import (
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type streamPageData struct {
	admin.TopicInfo
	Known   bool
	Rate    string // events a second
	Bytes   int64  // 0 if unknown
	Readers []*readerRow
	Behind  int  // number of readers that fall behind
	Held    bool // a group holds events
	Last    []eventRow
	Form    string // form to open
	Pin     *pin
}

// pin is the reader that has read the least of a topic, whose unread events retention keeps.
type pin struct {
	*readerRow
	Bytes   int64 // 0 if unknown
	Deletes bool  // the topic has a retention that would delete events
}

// membersPerGroup is the maximum number of members shown per group.
const membersPerGroup = 100

// groupRow holds the parts of a group that a consumer does not have.
type groupRow struct {
	admin.GroupState
	Shown      []memberRow // first members, sorted by name
	Living     int         // number of members that have renewed their membership
	DeadEvents []deadEventRow
}

type memberRow struct {
	admin.GroupMember
	Silent bool
}

type deadEventRow struct {
	Offset    int64
	Key       string
	Attempts  int
	LastError string
	DiedAt    time.Time
}

type eventRow struct {
	Offset    int64
	Key       string
	CreatedAt time.Time
	Payload   payload
}

func streamPage(c *call) serve {
	topic := c.params.name("topic")
	before, form := c.params.integer("before", 0, 1<<62, 0), c.params.choice("form", "", "retention")
	return func() error {
		d, err := c.streamData(topic, before)
		if err != nil {
			return err
		}
		d.Form = form
		v := view{name: "stream", nav: "streams", title: "Topic " + cut(80, topic), data: d}
		for _, r := range d.Readers {
			if r.Group == nil {
				continue
			}
			for _, m := range r.Group.Shown {
				if !m.Silent {
					v.next = sooner(v.next, m.Until)
				}
			}
		}
		return c.show(v)
	}
}

func (c *call) streamData(topic string, before int64) (*streamPageData, error) {
	d := &streamPageData{TopicInfo: admin.TopicInfo{Name: topic}}
	topics, err := admin.Topics(c.ctx, c.db)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if t.Name == topic {
			d.TopicInfo, d.Known = t, true
		}
	}
	d.Rate, d.Bytes = perSecond(d.Published), c.sizes().topic(topic)
	if err := c.streamReaders(d, topics); err != nil {
		return nil, err
	}
	d.Pin = d.pinned()
	return d, c.streamEvents(d, before)
}

// streamReaders adds the topic's consumers and groups, readers in trouble first. It omits readers of patterns, which are
// shown on the patterns' own pages.
func (c *call) streamReaders(d *streamPageData, topics []admin.TopicInfo) error {
	all, err := c.readers(topics)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Topic != d.Name {
			continue
		}
		d.Readers = append(d.Readers, r)
		d.Behind += boolean(r.rank >= rankWarn)
		if g := r.Group; g != nil {
			d.Held = d.Held || g.Leased+g.Reclaim > 0
			if g.DeadEvents, err = c.deadEvents(streamOf(c.db, d.Name), g.GroupState); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(d.Readers, func(a, b *readerRow) int { return b.rank - a.rank })
	return nil
}

// pinned returns the reader that has read the least, or nil if all readers have read everything.
func (d *streamPageData) pinned() *pin {
	var last *readerRow
	for _, r := range d.Readers {
		if r.Offset < d.Head && (last == nil || r.Offset < last.Offset) {
			last = r
		}
	}
	if last == nil {
		return nil
	}
	p := &pin{readerRow: last, Deletes: d.Retention != honker.Retention{}}
	if d.Events.N > 0 && !d.Events.More {
		p.Bytes = int64(float64(d.Bytes) * float64(min(last.Lag.N, d.Events.N)) / float64(d.Events.N))
	}
	return p
}

// deadEvents returns a group's first dead events.
func (c *call) deadEvents(s *honker.Stream[rawJSON], g admin.GroupState) (rows []deadEventRow, err error) {
	if g.Dead == 0 {
		return nil, nil
	}
	for e, err := range s.Group(g.Name, nil).Dead(c.ctx) {
		if e == nil {
			if errors.Is(err, honker.ErrNotFound) {
				return nil, nil
			}
			return nil, err
		}
		rows = append(rows, deadEventRow{e.Offset, e.Key, e.Attempts, cut(shortText, e.LastError), e.DiedAt})
		if len(rows) == headRows {
			break
		}
	}
	return rows, nil
}

// streamEvents adds the topic's last events before the given offset. It searches only the last 200 offsets.
// Because all topics share offsets, it may find fewer than headRows events.
func (c *call) streamEvents(d *streamPageData, before int64) error {
	if d.Head == 0 {
		return nil
	}
	to := d.Head
	if before > 0 {
		to = min(to, before-1)
	}
	s := honker.NewStream[rawJSON](c.db, d.Name, &honker.StreamOptions{Batch: 200})
	for e, err := range s.Read(c.ctx, max(d.First-1, to-200)) {
		if e == nil {
			return err
		}
		if e.Offset > to {
			break
		}
		d.Last = append(d.Last, eventRow{e.Offset, e.Key, e.CreatedAt, c.payloadOf(d.Name, e.Payload, shortText)})
	}
	d.Last = d.Last[max(0, len(d.Last)-headRows):]
	slices.Reverse(d.Last)
	return nil
}
