//go:build unix

package torture

import (
	"errors"
	"sort"

	"github.com/honker-go/honker"
)

// streamModel models a stream as a list of events and an offset per consumer that never decreases.
type streamModel struct {
	*lab
	s       *honker.Stream[int64]
	events  []event
	offsets map[string]int64
	said    int64
}

func newStreamModel(l *lab) (model, error) {
	return &streamModel{lab: l, s: honker.NewStream[int64](l.db, "s", nil), offsets: map[string]int64{}}, nil
}

func (m *streamModel) verbs() []verb {
	return []verb{{"publish", 1, m.publish}, {"read", 1, m.read}, {"save", 1, m.save}, {"offset", 1, m.offset}, {"head", 1, m.head}}
}

func (m *streamModel) publish() error {
	data := make([]int64, 1+m.Rand.IntN(4))
	for i := range data {
		m.said++
		data[i] = m.said
	}
	first, last, err := m.s.PublishMany(m.ctx, data)
	if err != nil {
		return err
	}
	want := first > 0 && last == first+int64(len(data))-1 && (len(m.events) == 0 || first > m.events[len(m.events)-1].offset)
	for i, n := range data {
		m.events = append(m.events, event{first + int64(i), n})
	}
	return m.same("offsets rise", want, true)
}

// read compares some events after a random offset.
func (m *streamModel) read() error {
	after := int64(0)
	if len(m.events) > 0 {
		after = m.events[m.Rand.IntN(len(m.events))].offset - int64(m.Rand.IntN(2))
	}
	got, err := m.some(after, 5)
	if err != nil {
		return err
	}
	from := sort.Search(len(m.events), func(i int) bool { return m.events[i].offset > after })
	return m.same("read", got, m.events[from:min(from+5, len(m.events))])
}

// some reads up to n events.
func (m *streamModel) some(after int64, n int) (got []event, err error) {
	for e, err := range m.s.Read(m.ctx, after) {
		if err != nil {
			return nil, err
		}
		if got = append(got, event{e.Offset, e.Data}); len(got) == n {
			break
		}
	}
	return got, nil
}

// compare compares all events.
func (m *streamModel) compare() error {
	got, err := m.some(0, len(m.events)+1)
	if err != nil {
		return err
	}
	return m.same("all events", got, m.events)
}

func (m *streamModel) consumer() string { return []string{"c", "d", "e"}[m.Rand.IntN(3)] }

// save saves an offset, which may be lower than the current offset.
func (m *streamModel) save() error {
	c := m.consumer()
	to := m.offsets[c] + int64(m.Rand.IntN(6)) - 2
	if to < 0 {
		return nil
	}
	old, known := m.offsets[c]
	moved, err := m.s.SaveOffset(m.ctx, c, to)
	if err != nil {
		return err
	}
	if !known || to > old {
		m.offsets[c] = to
	}
	return m.same("save", moved, !known || to > old)
}

func (m *streamModel) offset() error {
	c := m.consumer()
	got, err := m.s.Offset(m.ctx, c)
	want, known := m.offsets[c]
	if err != nil && !errors.Is(err, honker.ErrNotFound) {
		return err
	}
	if !known {
		want = 0
	}
	return m.same("offset", got, want)
}

func (m *streamModel) head() error {
	got, err := m.s.Head(m.ctx)
	if err != nil {
		return err
	}
	want := int64(0)
	if len(m.events) > 0 {
		want = m.events[len(m.events)-1].offset
	}
	return m.same("head", got, want)
}
