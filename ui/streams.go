package ui

import (
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func streamOf(db *honker.DB, topic string) *honker.Stream[rawJSON] {
	return honker.NewStream[rawJSON](db, topic, nil)
}

// streamsPageData holds the topics and their readers.
type streamsPageData struct {
	Topics    []admin.TopicInfo
	Consumers []admin.ConsumerState
	Groups    []admin.GroupState
}

func streamsPage(c *call) serve {
	return func() (err error) {
		d := &streamsPageData{}
		if d.Topics, err = admin.Topics(c.ctx, c.db); err != nil {
			return err
		}
		if d.Consumers, err = admin.Consumers(c.ctx, c.db); err != nil {
			return err
		}
		if d.Groups, err = admin.Groups(c.ctx, c.db); err != nil {
			return err
		}
		return c.show(view{name: "streams", nav: "streams", title: "Streams", data: d})
	}
}

type streamPageData struct {
	admin.TopicInfo
	Known     bool
	Consumers []admin.ConsumerState
	Groups    []groupRow
	Last      []eventRow
	PinnedBy  string // reader with the largest lag
}

// membersPerGroup is the maximum number of members shown per group.
const membersPerGroup = 100

type groupRow struct {
	admin.GroupState
	Members    []memberRow // first members, sorted by name
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
	before := c.params.integer("before", 0, 1<<62, 0)
	return func() error {
		d, err := c.streamData(topic, before)
		if err != nil {
			return err
		}
		v := view{name: "stream", nav: "streams", title: "Topic " + cut(80, topic), data: d}
		for _, g := range d.Groups {
			for _, m := range g.Members {
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
	if err := c.streamReaders(d); err != nil {
		return nil, err
	}
	return d, c.streamEvents(d, before)
}

// streamReaders adds the topic's consumers and groups. It omits readers of patterns, which are shown on the
// patterns' own pages.
func (c *call) streamReaders(d *streamPageData) error {
	consumers, err := admin.Consumers(c.ctx, c.db)
	if err != nil {
		return err
	}
	groups, err := admin.Groups(c.ctx, c.db)
	if err != nil {
		return err
	}
	lowest := d.Head
	behind := func(offset int64, what, name string) {
		if offset < lowest {
			lowest, d.PinnedBy = offset, what+" "+quoted(name)
		}
	}
	for _, r := range consumers {
		if r.Topic == d.Name {
			behind(r.Offset, "consumer", r.Name)
			d.Consumers = append(d.Consumers, r)
		}
	}
	for _, g := range groups {
		if g.Topic != d.Name {
			continue
		}
		behind(g.Cursor, "group", g.Name)
		row := groupRow{GroupState: g}
		for _, m := range g.Members[:min(len(g.Members), membersPerGroup)] {
			row.Members = append(row.Members, memberRow{m, m.Until.Before(c.now)})
		}
		if row.DeadEvents, err = c.deadEvents(streamOf(c.db, d.Name), g); err != nil {
			return err
		}
		d.Groups = append(d.Groups, row)
	}
	return nil
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
