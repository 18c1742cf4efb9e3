//go:build unix

package torture

import (
	"errors"

	"github.com/honker-go/honker"
)

func (m *models) publish() error {
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

// read compares some events after any offset.
func (m *models) read() error {
	after := int64(0)
	if len(m.events) > 0 {
		after = m.events[m.Rand.IntN(len(m.events))].offset - int64(m.Rand.IntN(2))
	}
	var got, want []event
	for e, err := range m.s.Read(m.ctx, after) {
		if err != nil {
			return err
		}
		if got = append(got, event{e.Offset, e.Data}); len(got) == 5 {
			break
		}
	}
	for _, e := range m.events {
		if e.offset > after && len(want) < 5 {
			want = append(want, e)
		}
	}
	return m.same("read", got, want)
}

func (m *models) consumer() string { return []string{"c", "d", "e"}[m.Rand.IntN(3)] }

// save never goes back.
func (m *models) save() error {
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

func (m *models) offset() error {
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

func (m *models) head() error {
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
