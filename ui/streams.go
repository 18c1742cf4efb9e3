package ui

import (
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func streamOf(db *honker.DB, topic string) *honker.Stream[rawJSON] {
	return honker.NewStream[rawJSON](db, topic, nil)
}

func streamsPage(c *call) serve {
	return func() error {
		topics, err := admin.Topics(c.ctx, c.db)
		if err != nil {
			return err
		}
		return c.show(view{name: "streams", nav: "streams", title: "Streams", data: topics})
	}
}

type streamPageData struct {
	admin.TopicInfo
	Known     bool
	Consumers []consumerRow
	Groups    []groupRow
	Last      []eventRow
	PinnedBy  string // the reader that is furthest behind
}

// consumerRow is a consumer with its lag in time.
type consumerRow struct {
	honker.ConsumerInfo
	Behind time.Time // when the next event was published that it has yet to see; zero: it has seen all
}

type groupRow struct {
	honker.GroupInfo
	Behind     time.Time
	DeadEvents []deadEventRow
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
	before := c.params.integer("before", 0, 1<<62, 0)
	return func() error {
		d, err := c.streamData(topic, before)
		if err != nil {
			return err
		}
		return c.show(view{name: "stream", nav: "streams", title: "Topic " + cut(80, topic), data: d})
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
	if err := c.streamReaders(d); err != nil {
		return nil, err
	}
	return d, c.streamEvents(d, before)
}

func (c *call) streamReaders(d *streamPageData) error {
	s := streamOf(c.db, d.Name)
	consumers, err := s.Consumers(c.ctx)
	if err != nil {
		return err
	}
	lowest := d.Head
	for _, r := range consumers {
		row := consumerRow{ConsumerInfo: r}
		if row.Behind, err = c.nextEvent(s, r.Offset, r.Lag); err != nil {
			return err
		}
		if r.Offset < lowest {
			lowest, d.PinnedBy = r.Offset, "consumer “"+r.Name+"”"
		}
		d.Consumers = append(d.Consumers, row)
	}
	groups, err := s.Groups(c.ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		row := groupRow{GroupInfo: g}
		if row.Behind, err = c.nextEvent(s, g.Cursor, g.Lag); err != nil {
			return err
		}
		if row.DeadEvents, err = c.deadEvents(s, g); err != nil {
			return err
		}
		if g.LowWater < lowest {
			lowest, d.PinnedBy = g.LowWater, "group “"+g.Name+"”"
		}
		d.Groups = append(d.Groups, row)
	}
	return nil
}

// nextEvent is when the event was published that a reader is to see next.
func (c *call) nextEvent(s *honker.Stream[rawJSON], offset, lag int64) (time.Time, error) {
	if lag == 0 {
		return time.Time{}, nil
	}
	for e, err := range honker.NewStream[rawJSON](c.db, s.Name(), &honker.StreamOptions{Batch: 1}).Read(c.ctx, offset) {
		if e == nil {
			return time.Time{}, err
		}
		return e.CreatedAt, nil
	}
	return time.Time{}, nil
}

// deadEvents are the first dead events of a group.
func (c *call) deadEvents(s *honker.Stream[rawJSON], g honker.GroupInfo) (rows []deadEventRow, err error) {
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

// streamEvents are the last events of the topic, as far as a short read finds them.
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
	for i, j := 0, len(d.Last)-1; i < j; i, j = i+1, j-1 {
		d.Last[i], d.Last[j] = d.Last[j], d.Last[i]
	}
	return nil
}
