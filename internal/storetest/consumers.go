package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func consumers(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("Add", func(t *testing.T) { consumerAdded(t, open(t)) })
	t.Run("OffsetsBesideModel", func(t *testing.T) { offsetsBesideModel(t, open(t)) })
	t.Run("Advance", func(t *testing.T) { consumerAdvanced(t, open(t)) })
	t.Run("List", func(t *testing.T) { consumersListed(t, open(t)) })
	t.Run("Marks", func(t *testing.T) { consumerMarks(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { consumerRolledBack(t, open(t)) })
}

func (d *Fixture) addConsumer(t *testing.T, c row.NewConsumer, now time.Time) (a row.AddedConsumer) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		a, err = d.Stores.Consumers.Add(ctx, q, c, now)
		return err
	})
	return a
}

func (d *Fixture) saveOffset(t *testing.T, name, topic string, offset int64, now time.Time) (saved bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		saved, err = d.Stores.Consumers.SaveOffset(ctx, q, name, topic, offset, now)
		return err
	})
	return saved
}

func (d *Fixture) consumer(t *testing.T, name, topic string) (c row.Consumer, found bool) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		c, found, err = d.Stores.Consumers.Get(ctx, q, name, topic)
		return err
	})
	return c, found
}

// A new consumer begins at its position. An existing consumer keeps its offset and gets the new filter.
func consumerAdded(t *testing.T, d *Fixture) {
	one, _ := d.publish(t, "a", nil, `1`)
	d.publish(t, "b", nil, `2`)
	filter := &row.Filter{Op: row.And, Of: []row.Filter{{Op: row.KeyPrefix, Key: "é%"}, {Op: row.Or}}}
	a := d.addConsumer(t, row.NewConsumer{Topic: "a", Name: "c", Filter: filter, From: row.Position{End: true}}, start)
	require.Equal(t, row.AddedConsumer{Start: row.Start{Offset: one}}, a)
	c, found := d.consumer(t, "c", "a")
	require.True(t, found)
	require.Equal(t, filter, c.Filter)
	require.True(t, c.CreatedAt.Equal(start), "created at %v", c.CreatedAt)
	require.Zero(t, c.LastAck)

	a = d.addConsumer(t, row.NewConsumer{Topic: "a", Name: "c"}, start.Add(time.Hour))
	require.Equal(t, row.AddedConsumer{Start: row.Start{Offset: one}, Found: true}, a)
	c, _ = d.consumer(t, "c", "a")
	require.Nil(t, c.Filter)
	require.True(t, c.CreatedAt.Equal(start), "it was created before")
	require.True(t, d.saveOffset(t, "c", "a", one+5, start.Add(time.Minute)))
	c, _ = d.consumer(t, "c", "a")
	require.True(t, c.LastAck.Equal(start.Add(time.Minute)))
}

// Only Seek moves an offset back. Consumers with other names or topics aren't affected.
func offsetsBesideModel(t *testing.T, d *Fixture) {
	rng := random(t)
	type id struct{ name, topic string }
	model := map[id]int64{}
	for range 400 {
		c := id{pick(rng, "c", "d"), pick(rng, "a", "b", "a*")}
		offset := rng.Int64N(20)
		was, found := model[c]
		switch rng.IntN(5) {
		case 0:
			a := d.addConsumer(t, row.NewConsumer{Topic: c.topic, Name: c.name, From: row.Position{After: offset}}, start)
			if !found {
				was = offset
			}
			require.Equal(t, row.AddedConsumer{Start: row.Start{Offset: was}, Found: found}, a)
			model[c] = was
		case 1, 2:
			saves := !found || offset > was
			require.Equal(t, saves, d.saveOffset(t, c.name, c.topic, offset, start), "%d after %d", offset, was)
			if saves {
				model[c] = offset
			}
		case 3:
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				at, moved, err := d.Stores.Consumers.Seek(ctx, q, c.name, c.topic, row.Position{After: offset})
				require.Equal(t, found, moved)
				require.Equal(t, offset, at.Offset)
				return err
			})
			if found {
				model[c] = offset
			}
		case 4:
			if rng.IntN(3) > 0 {
				continue
			}
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				dropped, err := d.Stores.Consumers.Drop(ctx, q, c.name, c.topic)
				require.Equal(t, found, dropped)
				return err
			})
			delete(model, c)
		}
		for _, c := range []id{{"c", "a"}, {"c", "b"}, {"c", "a*"}, {"d", "a"}, {"d", "b"}, {"d", "a*"}} {
			want, exists := model[c]
			got, found := d.consumer(t, c.name, c.topic)
			require.Equal(t, exists, found, "%v", c)
			require.Equal(t, want, got.Offset, "%v", c)
		}
	}
}

// List returns a topic's consumers by name, or all consumers by topic and name.
func consumersListed(t *testing.T, d *Fixture) {
	for _, c := range []row.NewConsumer{{Topic: "b", Name: "y"}, {Topic: "b", Name: "x"}, {Topic: "a*", Name: "z"}} {
		d.addConsumer(t, c, start)
	}
	d.saveOffset(t, "w", "b", 3, start) // creates it
	names := func(topic string) (all []string) {
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			rows, err := d.Stores.Consumers.List(ctx, q, topic)
			for _, c := range rows {
				require.NoError(t, c.Unreadable)
				all = append(all, c.Topic+" "+c.Name)
			}
			return err
		})
		return all
	}
	require.Equal(t, []string{"b w", "b x", "b y"}, names("b"))
	require.Equal(t, []string{"a* z", "b w", "b x", "b y"}, names(""))
	require.Equal(t, []string{"a* z"}, names("a*"), "not a pattern of patterns")
	require.Empty(t, names("a"))
}

// Advance moves a consumer only from the offset where it is. A consumer that does not exist is at 0.
func consumerAdvanced(t *testing.T, d *Fixture) {
	d.addConsumer(t, row.NewConsumer{Topic: "a", Name: "c", From: row.Position{After: 5}}, start)
	for _, c := range []struct {
		name           string
		from, to, want int64
		moves          bool
	}{
		{"c", 4, 9, 5, false}, {"c", 0, 9, 5, false}, {"c", 5, 9, 9, true}, {"c", 5, 9, 9, false}, {"c", 5, 12, 9, false},
		{"d", 3, 9, 0, false}, {"d", 0, 7, 7, true}, {"d", 0, 7, 7, false},
	} {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			at, moved, err := d.Stores.Consumers.Advance(ctx, q, c.name, "a", c.from, c.to, start)
			require.Equal(t, c.want, at, c)
			require.Equal(t, c.moves, moved, c)
			return err
		})
	}
	c, _ := d.consumer(t, "c", "a")
	require.EqualValues(t, 9, c.Offset)
	require.True(t, start.Equal(c.LastAck))
}

// A consumer, an offset and a seek that are rolled back leave nothing behind.
func consumerRolledBack(t *testing.T, d *Fixture) {
	d.addConsumer(t, row.NewConsumer{Topic: "a", Name: "c", From: row.Position{After: 5}}, start)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Consumers.Add(ctx, q, row.NewConsumer{Topic: "a", Name: "d"}, start)
		require.NoError(t, err)
		_, _, err = d.Stores.Consumers.Seek(ctx, q, "c", "a", row.Position{After: 1})
		require.NoError(t, err)
		saved, err := d.Stores.Consumers.SaveOffset(ctx, q, "c", "a", 9, start)
		require.True(t, saved)
		return err
	})
	_, found := d.consumer(t, "d", "a")
	require.False(t, found)
	c, _ := d.consumer(t, "c", "a")
	require.EqualValues(t, 5, c.Offset)
	require.Zero(t, c.LastAck)
}

// A save takes a mark of the consumer's position and lag if the last mark is ten minutes old, and keeps the mark before.
func consumerMarks(t *testing.T, d *Fixture) {
	first, _ := d.publish(t, "a", nil, `1`, `2`, `3`, `4`, `5`)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	saved := func(minutes int, offset int64) row.Consumer {
		require.True(t, d.saveOffset(t, "c", "a", offset, at(minutes)))
		c, _ := d.consumer(t, "c", "a")
		for _, m := range []*row.Mark{&c.Mark, &c.PastMark} {
			if !m.At.IsZero() {
				m.At = m.At.UTC().Truncate(time.Second)
			}
			m.Behind = m.Behind.Round(time.Minute)
		}
		return c
	}
	mark := func(minutes int, offset int64, behind time.Duration) row.Mark {
		return row.Mark{At: at(minutes).UTC().Truncate(time.Second), Offset: offset, Behind: behind}
	}
	c := saved(0, first)
	require.Zero(t, c.Mark)
	c = saved(1, first+1)
	require.Equal(t, mark(1, first+1, time.Minute), c.Mark)
	_, known := c.Baseline(at(2))
	require.False(t, known)
	c = saved(10, first+2)
	require.Equal(t, mark(1, first+1, time.Minute), c.Mark, "not yet")
	c = saved(12, first+3)
	require.Equal(t, mark(12, first+3, 12*time.Minute), c.Mark)
	require.Equal(t, mark(1, first+1, time.Minute), c.PastMark)
	m, known := c.Baseline(at(13))
	require.True(t, known)
	require.Equal(t, c.PastMark, m)
	m, _ = c.Baseline(at(23))
	require.Equal(t, c.Mark, m)
	c = saved(30, first+4)
	require.Equal(t, mark(30, first+4, 0), c.Mark, "nothing is unread")
	require.Equal(t, int64(12), int64(c.PastMark.At.Sub(start).Minutes()))

	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, moved, err := d.Stores.Consumers.Advance(ctx, q, "c", "a", first+4, first+5, at(45))
		require.True(t, moved)
		return err
	})
	c, _ = d.consumer(t, "c", "a")
	require.EqualValues(t, first+5, c.Mark.Offset)
	require.EqualValues(t, first+4, c.PastMark.Offset)
	c.Offset = first
	_, known = c.Baseline(at(60))
	require.False(t, known, "it was moved back")
}
