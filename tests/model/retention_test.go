package model_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// keptModel models two topics and their readers:
//
//   - A topic releases all events but its newest MaxCount, including dead ones, and all events from
//     before the second MaxAge ago.
//   - A released event is deleted when all consumers and groups of the topic, including those of
//     patterns, have seen it, unless it is dead in a group.
//   - A group has seen the events below its cursor and below all events that it holds.
type keptModel struct {
	events    []keptEvent // of both topics, in order
	retention map[string]honker.Retention
	consumers map[string]*reader
	groups    map[string]*reader
}

type keptEvent struct {
	offset  int64
	topic   string
	created time.Time
}

// reader is a consumer or a group of one or both topics.
type reader struct {
	topics []string
	at     int64          // everything up to this offset has been read or delivered
	held   map[int64]bool // events delivered by a group; false: dead
}

func (r *reader) seen() int64 {
	seen := r.at
	for offset, held := range r.held {
		if held {
			seen = min(seen, offset-1)
		}
	}
	return seen
}

func (m *keptModel) of(topic string) (all []keptEvent) {
	for _, e := range m.events {
		if e.topic == topic {
			all = append(all, e)
		}
	}
	return all
}

// givenUp returns the events released by the retention of topic, in order.
func (m *keptModel) givenUp(topic string) (up []int64) {
	r, all := m.retention[topic], m.of(topic)
	old := round(time.Now(), time.Second, 0).Add(-r.MaxAge)
	for i, e := range all {
		tooMany := r.MaxCount > 0 && int64(len(all)-i) > r.MaxCount
		if tooMany || r.MaxAge > 0 && e.created.Before(old) {
			up = append(up, e.offset)
		}
	}
	return up
}

// pins returns the readers that are furthest behind in topic, and their position.
func (m *keptModel) pins(topic string) (names []string, seen int64) {
	seen = 1 << 60
	for kind, readers := range map[string]map[string]*reader{"consumer": m.consumers, "group": m.groups} {
		for name, r := range readers {
			if !slices.Contains(r.topics, topic) || r.seen() > seen {
				continue
			}
			if r.seen() < seen {
				names, seen = nil, r.seen()
			}
			names = append(names, fmt.Sprintf("%s %q", kind, name))
		}
	}
	return names, seen
}

func (m *keptModel) dead(offset int64) bool {
	for _, g := range m.groups {
		if held, is := g.held[offset]; is && !held {
			return true
		}
	}
	return false
}

// keptMachine drives a file and its model.
type keptMachine struct {
	keptModel
	ctx     context.Context
	db      *honker.DB
	prefix  string
	members map[string]*honker.Member[int]
	claims  map[string][]*honker.Delivery[int]
	met     map[string]int
}

var (
	keptTopics  = rapid.SampledFrom([]string{"a", "b"})
	keptReaders = rapid.SampledFrom([]string{"a", "b", "*"}) // each reader has the name of the topic that it reads; "*" reads both
)

func (m *keptMachine) stream(topic string) *honker.Stream[int] {
	return honker.NewStream[int](m.db, m.prefix+topic, nil)
}

func (m *keptMachine) reader(of map[string]*reader, topic string) *reader {
	if of[topic] == nil {
		of[topic] = &reader{topics: []string{topic}, held: map[int64]bool{}}
		if topic == "*" {
			of[topic].topics = []string{"a", "b"}
		}
	}
	return of[topic]
}

func (m *keptMachine) Publish(t *rapid.T) {
	topic, n := keptTopics.Draw(t, "topic"), rapid.IntRange(1, 12).Draw(t, "n")
	first, last, err := m.stream(topic).PublishMany(m.ctx, make([]int, n))
	require.NoError(t, err)
	for o := first; o <= last; o++ {
		m.events = append(m.events, keptEvent{o, topic, now()})
	}
}

// offset draws an existing offset.
func (m *keptMachine) offset(t *rapid.T, what string) int64 {
	if len(m.events) == 0 {
		t.Skip("no event")
	}
	return rapid.SampledFrom(m.events).Draw(t, what).offset
}

func (m *keptMachine) Consume(t *rapid.T) {
	topic := keptReaders.Draw(t, "consumer")
	to := m.offset(t, "offset")
	saved, err := m.stream(topic).SaveOffset(m.ctx, topic, to)
	require.NoError(t, err)
	c := m.reader(m.consumers, topic)
	require.Equal(t, to > c.at, saved)
	c.at = max(c.at, to)
}

func (m *keptMachine) SeekOrDelete(t *rapid.T) {
	topic := keptReaders.Draw(t, "consumer")
	if m.consumers[topic] == nil {
		t.Skip("no such consumer")
	}
	if rapid.Bool().Draw(t, "delete") {
		deleted, err := m.stream(topic).DeleteConsumer(m.ctx, topic)
		require.True(t, deleted && err == nil, err)
		delete(m.consumers, topic)
		return
	}
	to := m.offset(t, "offset")
	require.NoError(t, m.stream(topic).Seek(m.ctx, topic, honker.Offset(to)))
	m.consumers[topic].at = to
}

func (m *keptMachine) ClaimAndSettle(t *rapid.T) {
	topic := keptReaders.Draw(t, "group")
	g := m.stream(topic).Group(topic, &honker.GroupOptions{Lease: 1000 * time.Hour, MaxAttempts: 1})
	model := m.reader(m.groups, topic)
	if m.members[topic] == nil {
		member, err := g.Join(m.ctx, "m")
		require.NoError(t, err)
		m.members[topic] = member
	}
	ds, err := m.members[topic].Claim(m.ctx, rapid.IntRange(1, 15).Draw(t, "n"))
	require.NoError(t, err)
	for _, d := range ds {
		require.Greater(t, d.Offset, model.at)
		model.at, model.held[d.Offset] = d.Offset, true
	}
	if info, err := g.Info(m.ctx); model.at != info.Cursor { // the cursor has moved past events of other streams
		require.NoError(t, err)
		require.Greater(t, info.Cursor, model.at)
		model.at = info.Cursor
	}
	m.claims[topic] = append(m.claims[topic], ds...)
	m.claims[topic] = slices.DeleteFunc(m.claims[topic], func(d *honker.Delivery[int]) bool {
		switch rapid.IntRange(0, 9).Draw(t, "settle") {
		case 0, 1: // keep it for now
			return false
		case 2:
			require.NoError(t, d.Nack(m.ctx, nil))
			model.held[d.Offset] = false
		default:
			require.NoError(t, d.Ack(m.ctx))
			delete(model.held, d.Offset)
		}
		return true
	})
}

func (m *keptMachine) DeleteGroup(t *rapid.T) {
	topic := keptReaders.Draw(t, "group")
	if m.members[topic] == nil || rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip("no such group")
	}
	deleted, err := m.stream(topic).Group(topic, nil).Delete(m.ctx)
	require.True(t, deleted && err == nil, err)
	delete(m.groups, topic)
	delete(m.members, topic)
	delete(m.claims, topic)
}

func (m *keptMachine) Retain(t *rapid.T) {
	topic := keptTopics.Draw(t, "topic")
	r := honker.Retention{
		MaxCount: rapid.Int64Range(0, 20).Draw(t, "max count"),
		MaxAge:   rapid.SampledFrom([]time.Duration{0, 0, time.Second, 5 * time.Second, time.Minute}).Draw(t, "max age"),
	}
	require.NoError(t, m.stream(topic).SetRetention(m.ctx, r))
	m.retention[topic] = r
}

func (m *keptMachine) Compact(t *rapid.T) {
	topic := keptTopics.Draw(t, "topic")
	stats, err := m.stream(topic).Compact(m.ctx)
	require.NoError(t, err)
	up := m.givenUp(topic)
	names, seen := m.pins(topic)
	gone, pinned := map[int64]bool{}, false
	for _, offset := range up {
		require.LessOrEqual(t, offset, stats.Policy)
		pinned = pinned || offset > seen
		gone[offset] = offset <= seen && !m.dead(offset)
		if gone[offset] {
			require.LessOrEqual(t, offset, stats.Cutoff)
			m.met["gone"]++
		} else if offset <= seen {
			m.met["dead"]++
		}
	}
	before := len(m.events)
	m.events = slices.DeleteFunc(m.events, func(e keptEvent) bool { return gone[e.offset] })
	require.EqualValues(t, before-len(m.events), stats.Deleted)
	for _, e := range m.of(topic) {
		require.True(t, e.offset > stats.Policy || slices.Contains(up, e.offset))
	}
	if pinned {
		m.met["pinned"]++
		require.Contains(t, names, stats.PinnedBy)
		require.Equal(t, seen, stats.Cutoff)
	}
}

func (m *keptMachine) Advance(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{300 * time.Millisecond, time.Second, 7 * time.Second}).Draw(t, "for"))
}

// Check compares the stored events.
func (m *keptMachine) Check(t *rapid.T) {
	for _, topic := range []string{"a", "b"} {
		var got, want []int64
		for e, err := range m.stream(topic).Read(m.ctx, 0) {
			require.NoError(t, err)
			got = append(got, e.Offset)
		}
		for _, e := range m.of(topic) {
			want = append(want, e.offset)
		}
		require.Equal(t, want, got, topic)
		r, err := m.stream(topic).Retention(m.ctx)
		require.NoError(t, err)
		require.Equal(t, m.retention[topic], r)
	}
}

// TestRetention_Model compares random operations on retained topics with the model.
func TestRetention_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++ // all checks start with the same offsets
			clearEvents(t, db)
			startSecond()
			m := &keptMachine{ctx: context.Background(), db: db, met: met, prefix: fmt.Sprint("topics", checks, ":"),
				keptModel: keptModel{retention: map[string]honker.Retention{}, consumers: map[string]*reader{}, groups: map[string]*reader{}},
				members:   map[string]*honker.Member[int]{}, claims: map[string][]*honker.Delivery[int]{}}
			actions := rapid.StateMachineActions(m)
			actions["Publish more"], actions["Compact more"], actions["Consume more"] = m.Publish, m.Compact, m.Consume
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
		})
	})
	requireMet(t, met, "gone", "pinned", "dead")
}
