//go:build unix

package torture

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

// retentionModel models two topics and their readers:
//
//   - A topic releases all events but its newest MaxCount, including dead ones, and events older
//     than MaxAge.
//   - A released event is deleted when all consumers and groups of the topic, including those of
//     patterns, have seen it, unless it is dead in a group.
//   - A group has seen the events below its cursor and below all events that it holds.
type retentionModel struct {
	*lab
	events    []keptEvent // of both topics, in order
	kept      map[string]honker.Retention
	consumers map[string]*reader
	groups    map[string]*reader
}

type keptEvent struct {
	offset  int64
	topic   string
	created int64
}

// reader is a consumer or a group of one or both topics. It has the name of its topic or pattern.
type reader struct {
	name   string
	at     int64 // everything up to this offset has been read or delivered
	open   []*honker.Delivery[int64]
	dead   map[int64]bool
	member *honker.Member[int64]
}

func (r *reader) reads(topic string) bool { return r.name == topic || r.name == "k:*" }

func (r *reader) seen() int64 {
	seen := r.at
	for _, d := range r.open {
		seen = min(seen, d.Offset-1)
	}
	return seen
}

func newRetentionModel(l *lab) (model, error) {
	return &retentionModel{lab: l, kept: map[string]honker.Retention{}, consumers: map[string]*reader{}, groups: map[string]*reader{}}, nil
}

func (m *retentionModel) verbs() []verb {
	return []verb{
		{"publish", 4, m.publish}, {"save", 4, m.save}, {"seek", 1, m.seek}, {"delete consumer", 1, m.deleteConsumer},
		{"claim", 4, m.claim}, {"settle", 4, m.settle}, {"delete group", 1, m.deleteGroup}, {"retain", 1, m.retain},
		{"compact", 4, m.compact}, {"advance", 1, m.advance},
	}
}

func (m *retentionModel) advance() error {
	return m.pass(`UPDATE _honker_stream SET created_at = created_at - ?1`)
}

func (m *retentionModel) topic() string { return []string{"k:a", "k:b"}[m.Rand.IntN(2)] }

// selected returns a topic, or the pattern of both.
func (m *retentionModel) selected() string { return []string{"k:a", "k:b", "k:*"}[m.Rand.IntN(3)] }

func (m *retentionModel) stream(topic string) *honker.Stream[int64] {
	return honker.NewStream[int64](m.db, topic, nil)
}

func (m *retentionModel) publish() error {
	topic := m.topic()
	first, last, err := m.stream(topic).PublishMany(m.ctx, make([]int64, 1+m.Rand.IntN(8)))
	for o := first; o <= last && err == nil; o++ {
		m.events = append(m.events, keptEvent{o, topic, m.second()})
	}
	return err
}

// reader returns the reader with a name, creating it if necessary.
func (m *retentionModel) reader(of map[string]*reader, name string) *reader {
	if of[name] == nil {
		of[name] = &reader{name: name, dead: map[int64]bool{}}
	}
	return of[name]
}

func (m *retentionModel) save() error {
	if len(m.events) == 0 {
		return nil
	}
	c, to := m.reader(m.consumers, m.selected()), anyOf(m.lab, m.events, 5).offset
	moved, err := m.stream(c.name).SaveOffset(m.ctx, c.name, to)
	if err != nil {
		return err
	}
	want := to > c.at
	c.at = max(c.at, to)
	return m.same("save", moved, want)
}

func (m *retentionModel) seek() error {
	c := m.consumers[m.selected()]
	if c == nil || len(m.events) == 0 {
		return nil
	}
	c.at = anyOf(m.lab, m.events, 20).offset
	return m.stream(c.name).Seek(m.ctx, c.name, honker.Offset(c.at))
}

func (m *retentionModel) deleteConsumer() error {
	name := m.selected()
	deleted, err := m.stream(name).DeleteConsumer(m.ctx, name)
	if err != nil {
		return err
	}
	was := m.consumers[name] != nil
	delete(m.consumers, name)
	return m.same("consumer is deleted", deleted, was)
}

func (m *retentionModel) group(name string) *honker.Group[int64] {
	return m.stream(name).Group(name, &honker.GroupOptions{Lease: 1000 * time.Hour, MaxAttempts: 1})
}

func (m *retentionModel) claim() (err error) {
	g := m.reader(m.groups, m.selected())
	if g.member == nil {
		if g.member, err = m.group(g.name).Join(m.ctx, "m"); err != nil {
			return err
		}
	}
	n := 1 + m.Rand.IntN(15)
	ds, err := g.member.Claim(m.ctx, n)
	if err != nil {
		return err
	}
	var got, want []int64
	for _, d := range ds {
		got = append(got, d.Offset)
	}
	for _, e := range m.events {
		if e.offset > g.at && g.reads(e.topic) && len(want) < n {
			want = append(want, e.offset)
		}
	}
	if len(want) > 0 {
		g.at = want[len(want)-1]
	}
	g.open = append(g.open, ds...)
	info, err := m.group(g.name).Info(m.ctx) // the cursor may have moved past events of other topics
	if err != nil {
		return err
	}
	far := info.Cursor >= g.at
	g.at = info.Cursor
	return errors.Join(m.same("claim", got, want), m.same("cursor is not back", far, true))
}

// settle acknowledges most events that a group holds. Some become dead and some stay.
func (m *retentionModel) settle() error {
	g := m.groups[m.selected()]
	if g == nil {
		return nil
	}
	var still []*honker.Delivery[int64]
	for _, d := range g.open {
		var err error
		switch m.Rand.IntN(10) {
		case 0:
			still = append(still, d)
		case 1:
			g.dead[d.Offset] = true
			err = d.Nack(m.ctx, errOnPurpose)
		default:
			err = d.Ack(m.ctx)
		}
		if err := m.same(fmt.Sprint("settled ", d.Offset), err, nil); err != nil {
			return err
		}
	}
	g.open = still
	return nil
}

func (m *retentionModel) deleteGroup() error {
	name := m.selected()
	if m.groups[name] == nil || m.oneIn(2) {
		return nil
	}
	delete(m.groups, name)
	deleted, err := m.group(name).Delete(m.ctx)
	if err != nil {
		return err
	}
	return m.same("group is deleted", deleted, true)
}

func (m *retentionModel) retain() error {
	topic, r := m.topic(), honker.Retention{MaxCount: m.Rand.Int64N(20), MaxAge: m.perhaps() * time.Duration(1+2*m.Rand.IntN(2))}
	m.kept[topic] = r
	return m.stream(topic).SetRetention(m.ctx, r)
}

// givenUp returns the events released by the retention of topic.
func (m *retentionModel) givenUp(topic string) map[int64]bool {
	r, up, younger := m.kept[topic], map[int64]bool{}, int64(0)
	for _, e := range slices.Backward(m.events) {
		if e.topic != topic {
			continue
		}
		tooMany := r.MaxCount > 0 && younger >= r.MaxCount
		tooOld := r.MaxAge > 0 && e.created < m.in(-r.MaxAge)
		up[e.offset] = tooMany || tooOld
		younger++
	}
	return up
}

// lowest returns the lowest position of all readers of topic, and the readers at that position.
func (m *retentionModel) lowest(topic string) (seen int64, who []string) {
	seen = 1 << 60
	for kind, readers := range map[string]map[string]*reader{"consumer": m.consumers, "group": m.groups} {
		for _, r := range readers {
			if !r.reads(topic) || r.seen() > seen {
				continue
			}
			if r.seen() < seen {
				seen, who = r.seen(), nil
			}
			who = append(who, fmt.Sprintf("%s %q", kind, r.name))
		}
	}
	return seen, who
}

func (m *retentionModel) dead(offset int64) bool {
	for _, g := range m.groups {
		if g.dead[offset] {
			return true
		}
	}
	return false
}

func (m *retentionModel) compact() error {
	topic := m.topic()
	stats, err := m.stream(topic).Compact(m.ctx)
	if err != nil {
		return err
	}
	up, before, pinned := m.givenUp(topic), len(m.events), false
	seen, who := m.lowest(topic)
	m.events = slices.DeleteFunc(m.events, func(e keptEvent) bool {
		pinned = pinned || up[e.offset] && e.offset > seen
		return up[e.offset] && e.offset <= seen && !m.dead(e.offset)
	})
	named := slices.Contains(who, stats.PinnedBy)
	return errors.Join(m.same("deleted", stats.Deleted, before-len(m.events)), m.same("pinned", named, pinned), m.read(topic))
}

// read compares all events of a topic.
func (m *retentionModel) read(topic string) error {
	var got, want []int64
	for e, err := range m.stream(topic).Read(m.ctx, 0) {
		if err != nil {
			return err
		}
		got = append(got, e.Offset)
	}
	for _, e := range m.events {
		if e.topic == topic {
			want = append(want, e.offset)
		}
	}
	return m.same("events of "+topic, got, want)
}

func (m *retentionModel) compare() error {
	for _, topic := range []string{"k:a", "k:b"} {
		r, err := m.stream(topic).Retention(m.ctx)
		if err := errors.Join(err, m.same("retention", r, m.kept[topic]), m.read(topic)); err != nil {
			return err
		}
	}
	return nil
}
