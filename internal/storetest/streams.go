package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func streams(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("Publish", func(t *testing.T) { published(t, open(t)) })
	t.Run("PublishOfWrongKeys", func(t *testing.T) { publishedWithWrongKeys(t, open(t)) })
	t.Run("ReadBesideModel", func(t *testing.T) { readBesideModel(t, open(t)) })
	t.Run("ReadOfLargeEvents", func(t *testing.T) { readLarge(t, open(t)) })
	t.Run("Start", func(t *testing.T) { started(t, open(t)) })
	t.Run("Head", func(t *testing.T) { headOfStream(t, open(t)) })
	t.Run("Topics", func(t *testing.T) { topicStates(t, open(t)) })
	t.Run("CountDown", func(t *testing.T) { countedDown(t, open(t)) })
	t.Run("Times", func(t *testing.T) { eventTimes(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { publishRolledBack(t, open(t)) })
}

// publish commits a publication at start.
func (d *Fixture) publish(t *testing.T, topic string, keys []string, payloads ...string) (first, last int64) {
	t.Helper()
	return d.publishAt(t, start, topic, keys, payloads...)
}

func (d *Fixture) publishAt(t *testing.T, now time.Time, topic string, keys []string, payloads ...string) (first, last int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		first, last, err = d.Stores.Streams.Publish(ctx, q, row.Publication{Topic: topic, Keys: keys, Payloads: payloads}, now)
		return err
	})
	return first, last
}

// events reads all of a selection's events above after, in pages of up to limit events.
func (d *Fixture) events(t *testing.T, s row.Selection, after int64, limit int) (all []row.Event) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		ended := false
		for r := (row.EventRead{Selection: s, After: after, Through: row.Unbounded, Limit: limit}); ; {
			page, err := d.Stores.Streams.Read(ctx, q, r, nil)
			if err != nil {
				return err
			}
			require.LessOrEqual(t, len(page.Events), limit)
			all = append(all, page.Events...)
			if page.Next == r.After {
				require.Empty(t, page.Events, "the next page would repeat them")
				return nil
			}
			require.Greater(t, page.Next, r.After)
			require.False(t, ended, "a page after the end has events")
			ended = page.End
			r.After, r.Scanned = page.Next, page.Scanned
		}
	})
	return all
}

func offsetsOf(events []row.Event) []int64 {
	out := make([]int64, len(events))
	for i, e := range events {
		out[i] = e.Offset
	}
	return out
}

// Events are read as they were published, in commit order, and their offsets increase across all topics.
func published(t *testing.T, d *Fixture) {
	now := start.Add(700 * time.Millisecond)
	one, last := d.publishAt(t, now, "a", nil, `1`)
	require.Positive(t, one)
	require.Equal(t, one, last)
	two, four := d.publishAt(t, now, "b", []string{"k"}, `2`, `3`, `4`)
	require.Greater(t, two, one)
	require.Equal(t, two+2, four)
	five, six := d.publishAt(t, now, "a", []string{"x", "y"}, `5`, `6`)
	require.Greater(t, five, four)

	created := start.Truncate(time.Second)
	want := []row.Event{
		{Offset: one, Topic: "a", Payload: `1`},
		{Offset: two, Topic: "b", Key: "k", Payload: `2`},
		{Offset: two + 1, Topic: "b", Key: "k", Payload: `3`},
		{Offset: four, Topic: "b", Key: "k", Payload: `4`},
		{Offset: five, Topic: "a", Key: "x", Payload: `5`},
		{Offset: six, Topic: "a", Key: "y", Payload: `6`},
	}
	got := d.events(t, row.Selection{Topic: "*"}, 0, 100)
	for i := range got {
		require.WithinRange(t, got[i].CreatedAt, created, now)
		got[i].CreatedAt = time.Time{}
	}
	require.Equal(t, want, got)

	many := make([]string, 700)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	first, last := d.publish(t, "many", nil, many...)
	got = d.events(t, row.Selection{Topic: "many"}, 0, 1000)
	require.Len(t, got, len(many))
	require.Equal(t, []int64{first, last}, []int64{got[0].Offset, got[len(got)-1].Offset})
	for i, e := range got {
		require.Equal(t, many[i], string(e.Payload))
	}
}

// A publication with the wrong number of keys fails and writes nothing.
func publishedWithWrongKeys(t *testing.T, d *Fixture) {
	for _, n := range []int{1, 3} {
		err := d.write(t, func(ctx context.Context, q engine.Querier) error {
			_, _, err := d.Stores.Streams.Publish(ctx, q, row.Publication{Topic: "a", Keys: []string{"x", "y"}, Payloads: make([]string, n)}, start)
			return err
		})
		require.Error(t, err, "%d events", n)
	}
	require.Empty(t, d.events(t, row.Selection{Topic: "*"}, 0, 10))
}

// random returns a source of randomness, and logs its seed.
func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

var (
	someTopics = []string{"a", "a:b", "a:c", "b", "a_b", "A", "é"}
	someKeys   = []string{"", "k", "kk", "K", "k%", "é", "\U0010ffff"}
)

// randomFilter returns a filter or nil. depth limits how deeply it is nested.
func randomFilter(rng *rand.Rand, depth int) *row.Filter {
	f := &row.Filter{Op: pick(rng, row.KeyIs, row.KeyPrefix, row.And, row.Or)}
	if f.Op == row.KeyIs || f.Op == row.KeyPrefix || depth == 0 {
		f.Op, f.Key = pick(rng, row.KeyIs, row.KeyPrefix), pick(rng, someKeys...)
		return f
	}
	for range rng.IntN(4) {
		f.Of = append(f.Of, *randomFilter(rng, depth-1))
	}
	return f
}

func randomSelection(rng *rand.Rand) row.Selection {
	s := row.Selection{Topic: pick(rng, append([]string{"*", "a*", "a:*", "none", "none*"}, someTopics...)...)}
	if rng.IntN(2) == 0 {
		s.Filter = randomFilter(rng, 2)
	}
	return s
}

// Read and Ahead select exactly the events that Selection.Matches and Filter.Passes select.
func readBesideModel(t *testing.T, d *Fixture) {
	rng := random(t)
	for range 60 {
		n := 1 + rng.IntN(5)
		payloads, keys := make([]string, n), make([]string, n)
		for i := range n {
			payloads[i], keys[i] = fmt.Sprint(i), pick(rng, someKeys...)
		}
		at := start.Add(time.Duration(rng.IntN(5)) * time.Second) // the clock may go back
		d.publishAt(t, at, pick(rng, someTopics...), keys, payloads...)
	}
	all := d.events(t, row.Selection{Topic: "*"}, 0, 1000)
	for range 150 {
		s, after := randomSelection(rng), pick(rng, 0, all[rng.IntN(len(all))].Offset)
		var want, topic []row.Event
		for _, e := range all {
			if e.Offset > after && s.Matches(e.Topic) && (s.Filter == nil || s.Filter.Passes(e.Key)) {
				want = append(want, e)
			}
			if s.Matches(e.Topic) {
				topic = append(topic, e)
			}
		}
		name := fmt.Sprintf("%q with filter %s above %d", s.Topic, s.Filter.Text(), after)
		require.Equal(t, want, d.events(t, s, after, pick(rng, 1, 3, 1000)), name)
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			ahead, err := d.Stores.Streams.Ahead(ctx, q, s, after, row.Unbounded)
			require.NoError(t, err)
			require.EqualValues(t, len(want), ahead.N, name)
			require.False(t, ahead.More, name)
			if len(want) > 0 {
				require.True(t, ahead.FirstAt.Equal(want[0].CreatedAt), name)
			} else {
				require.Zero(t, ahead.FirstAt, name)
			}
			bounded, err := d.Stores.Streams.Ahead(ctx, q, s, after, 5)
			require.NoError(t, err)
			require.LessOrEqual(t, bounded.N, min(5, ahead.N), name)
			require.True(t, bounded.N == ahead.N || bounded.More, name)

			last, err := d.Stores.Streams.Last(ctx, q, s)
			require.NoError(t, err)
			if len(topic) == 0 {
				require.Zero(t, last, name)
			} else {
				require.Equal(t, topic[len(topic)-1].Offset, last, name)
			}
			through := pick(rng, all[rng.IntN(len(all))].Offset, row.Unbounded)
			page, err := d.Stores.Streams.Read(ctx, q, row.EventRead{Selection: s, After: after, Through: through, Limit: 1000}, nil)
			for _, e := range page.Events {
				require.LessOrEqual(t, e.Offset, through, name)
			}
			return err
		})
	}
}

// A page of large events is limited by their size, and the next page continues after it.
func readLarge(t *testing.T, d *Fixture) {
	large := `"` + strings.Repeat("m", 3<<20) + `"`
	first, last := d.publish(t, "a", nil, large, `1`, large)
	require.Equal(t, []int64{first, first + 1, last}, offsetsOf(d.events(t, row.Selection{Topic: "a"}, 0, 100)))
	var read []row.Event
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		page, err := d.Stores.Streams.Read(ctx, q, row.EventRead{Selection: row.Selection{Topic: "a"}, Through: row.Unbounded, Limit: 100}, nil)
		read = page.Events
		require.False(t, page.End)
		return err
	})
	require.Len(t, read, 1)
}

// A position is resolved to the offset before the first event that the reader sees.
func started(t *testing.T, d *Fixture) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	resolve := func(topic string, p row.Position) (s row.Start) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			filter := &row.Filter{Op: row.Or} // ignored
			s, err = d.Stores.Streams.Start(ctx, q, row.Selection{Topic: topic, Filter: filter}, p)
			return err
		})
		return s
	}
	for _, p := range []row.Position{{}, {End: true}, {Since: start}} {
		require.Zero(t, resolve("a", p), "an empty stream")
	}
	one, _ := d.publishAt(t, at(0), "a", nil, `1`)
	two, _ := d.publishAt(t, at(5), "b", nil, `2`)
	three, _ := d.publishAt(t, at(9), "a", nil, `3`)
	four, _ := d.publishAt(t, at(9), "c", nil, `4`)
	for _, c := range []struct {
		topic string
		p     row.Position
		first int64 // that the reader sees; 0 for none
	}{
		{"a", row.Position{}, one},
		{"a", row.Position{After: one}, three},
		{"a", row.Position{After: four + 9}, 0},
		{"a", row.Position{End: true}, 0},
		{"*", row.Position{End: true}, 0},
		{"a", row.Position{Since: at(-1)}, one},
		{"a", row.Position{Since: at(0).Add(time.Millisecond)}, one}, // to the second
		{"a", row.Position{Since: at(1)}, three},
		{"*", row.Position{Since: at(1)}, two},
		{"a", row.Position{Since: at(9)}, three},
		{"a", row.Position{Since: at(10)}, 0},
		{"none", row.Position{Since: at(0)}, 0},
	} {
		s := resolve(c.topic, c.p)
		seen := d.events(t, row.Selection{Topic: c.topic}, s.Offset, 10)
		require.Zero(t, s.Gone)
		if c.first == 0 {
			require.Empty(t, seen, "%s %+v", c.topic, c.p)
			continue
		}
		require.NotEmpty(t, seen, "%s %+v", c.topic, c.p)
		require.Equal(t, c.first, seen[0].Offset, "%s %+v", c.topic, c.p)
	}
	require.Equal(t, four+9, resolve("a", row.Position{After: four + 9}).Offset)
}

func (d *Fixture) streamHead(t *testing.T) (head int64) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		head, err = d.Stores.Streams.Head(ctx, q)
		return err
	})
	return head
}

// Head is no lower than any visible event, is lower than every later event, and doesn't decrease when events are
// deleted. An uncommitted event doesn't raise it.
func headOfStream(t *testing.T, d *Fixture) {
	require.Zero(t, d.streamHead(t))
	_, last := d.publish(t, "a", nil, `1`, `2`)
	head := d.streamHead(t)
	require.GreaterOrEqual(t, head, last)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, _, err := d.Stores.Streams.Publish(ctx, q, row.Publication{Topic: "a", Payloads: []string{`3`}}, start)
		require.Equal(t, head, d.streamHead(t), "others do not see the event")
		return err
	})
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		done, err := d.Stores.Retentions.Compact(ctx, q, row.Compaction{Topic: "a", Policy: last, Limit: 10})
		require.Equal(t, 2, done.Deleted)
		return err
	})
	require.Empty(t, d.events(t, row.Selection{Topic: "*"}, 0, 10))
	require.Equal(t, head, d.streamHead(t))
	next, _ := d.publish(t, "b", nil, `4`)
	require.Greater(t, next, head)
	require.GreaterOrEqual(t, d.streamHead(t), next)
}

// Topics lists the topics with events or a retention.
func topicStates(t *testing.T, d *Fixture) {
	first, last := d.publishAt(t, start, "b", nil, `1`, `2`)
	other, _ := d.publishAt(t, start.Add(5*time.Second), "a", nil, `3`)
	kept := row.Retention{Topic: "c", MaxCount: 7, MaxAge: time.Minute}
	d.setRetention(t, kept)
	var all []row.TopicState
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Streams.Topics(ctx, q)
		return err
	})
	for i := range all {
		if all[i].Topic != "c" {
			require.WithinDuration(t, start, all[i].FirstAt, 5*time.Second)
			require.WithinDuration(t, start, all[i].LastAt, 5*time.Second)
			all[i].FirstAt, all[i].LastAt = time.Time{}, time.Time{}
		}
	}
	require.Equal(t, []row.TopicState{
		{Retention: row.Retention{Topic: "a"}, First: other, Head: other},
		{Retention: row.Retention{Topic: "b"}, First: first, Head: last},
		{Retention: kept},
	}, all)
}

// A count begins at the highest offset, and tells how far it has come.
func countedDown(t *testing.T, d *Fixture) {
	first, _ := d.publish(t, "a", nil, `1`, `2`)
	d.publish(t, "b", nil, `3`, `4`)
	_, last := d.publish(t, "a", nil, `5`, `6`)
	for _, c := range []struct {
		topic                string
		after, through, most int64
		want                 row.CountedDown
	}{
		{"a", 0, last, 10, row.CountedDown{N: 4}},
		{"a", first, last - 1, 10, row.CountedDown{N: 2, Reached: first}},
		{"a", 0, last, 3, row.CountedDown{N: 3, Reached: first}},
		{"a", 0, last, 4, row.CountedDown{N: 4, Reached: first - 1}},
		{"a", 0, last, 0, row.CountedDown{N: 0, Reached: last}},
		{"b", last - 2, last, 10, row.CountedDown{N: 0, Reached: last - 2}},
		{"c", 0, last, 10, row.CountedDown{}},
	} {
		var got row.CountedDown
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			got, err = d.Stores.Streams.CountDown(ctx, q, c.topic, c.after, c.through, c.most)
			return err
		})
		require.Equal(t, c.want, got, "%+v", c)
	}
}

// The next event is found in all topics, and the time of the next event in each.
func eventTimes(t *testing.T, d *Fixture) {
	one, _ := d.publishAt(t, start, "a", nil, `1`)
	two, _ := d.publishAt(t, start.Add(time.Minute), "b", nil, `2`)
	three, _ := d.publishAt(t, start.Add(2*time.Minute), "a", nil, `3`)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		offset, at, found, err := d.Stores.Streams.Following(ctx, q, one)
		require.True(t, found)
		require.Equal(t, two, offset)
		require.WithinDuration(t, start.Add(time.Minute), at, time.Second)
		if err != nil {
			return err
		}
		if _, _, found, err = d.Stores.Streams.Following(ctx, q, three); err != nil {
			return err
		}
		require.False(t, found)
		times, err := d.Stores.Streams.TimesAfter(ctx, q, []row.OffsetIn{{Topic: "a", Offset: one}, {Topic: "b", Offset: two}, {Topic: "b"}, {Topic: "none"}})
		if err != nil {
			return err
		}
		require.Len(t, times, 4)
		require.WithinDuration(t, start.Add(2*time.Minute), times[0], time.Second)
		require.True(t, times[1].IsZero() && times[3].IsZero())
		require.WithinDuration(t, start.Add(time.Minute), times[2], time.Second)
		return nil
	})
}

// A publication that is rolled back is never seen, and later events have larger offsets than earlier
// events.
func publishRolledBack(t *testing.T, d *Fixture) {
	one, _ := d.publish(t, "a", nil, `1`)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, _, err := d.Stores.Streams.Publish(ctx, q, row.Publication{Topic: "a", Payloads: []string{`2`, `3`}}, start)
		return err
	})
	require.Equal(t, []int64{one}, offsetsOf(d.events(t, row.Selection{Topic: "a"}, 0, 10)))
	two, _ := d.publish(t, "a", nil, `4`)
	require.True(t, slices.IsSorted([]int64{one, two}) && one < two)
}
