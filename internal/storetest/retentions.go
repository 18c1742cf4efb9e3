package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func retentions(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("OfTopics", func(t *testing.T) { retentionsOfTopics(t, open(t)) })
	t.Run("OfQueues", func(t *testing.T) { retentionsOfQueues(t, open(t)) })
	t.Run("Cutoff", func(t *testing.T) { retentionCutoff(t, open(t)) })
	t.Run("Compact", func(t *testing.T) { compactSteps(t, open(t)) })
	t.Run("CompactKeepsWhatIsUnread", func(t *testing.T) { compactPinned(t, open(t)) })
	t.Run("CompactKeepsDeadEvents", func(t *testing.T) { compactDead(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { compactRolledBack(t, open(t)) })
}

func (d *Fixture) setRetention(t *testing.T, r row.Retention) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error { return d.Stores.Retentions.Set(ctx, q, r) })
}

func (d *Fixture) cutoff(t *testing.T, topic string, now time.Time) (cutoff int64) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		cutoff, err = d.Stores.Retentions.Cutoff(ctx, q, topic, now)
		return err
	})
	return cutoff
}

func (d *Fixture) compact(t *testing.T, c row.Compaction) (done row.Compacted) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		done, err = d.Stores.Retentions.Compact(ctx, q, c)
		return err
	})
	return done
}

// A retention is stored with its age rounded up to seconds. A retention without limits is deleted.
func retentionsOfTopics(t *testing.T, d *Fixture) {
	list := func(topic string) (all []row.Retention) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Retentions.List(ctx, q, topic)
			return err
		})
		return all
	}
	require.Empty(t, list(""))
	b, a := row.Retention{Topic: "b", MaxCount: 3}, row.Retention{Topic: "a", MaxAge: time.Minute, MaxCount: 1}
	d.setRetention(t, b)
	d.setRetention(t, row.Retention{Topic: "a", MaxCount: 9})
	d.setRetention(t, row.Retention{Topic: "a", MaxCount: 1, MaxAge: time.Minute - time.Nanosecond})
	require.Equal(t, []row.Retention{a, b}, list(""))
	require.Equal(t, []row.Retention{b}, list("b"))
	require.Empty(t, list("c"))
	d.setRetention(t, row.Retention{Topic: "b"})
	require.Equal(t, []row.Retention{a}, list(""))
	require.Empty(t, list("b"))
}

// Setting a queue's retention reports whether it changed.
func retentionsOfQueues(t *testing.T, d *Fixture) {
	set := func(r row.QueueRetention) (changed bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			changed, err = d.Stores.Retentions.SetQueue(ctx, q, r)
			return err
		})
		return changed
	}
	list := func(queue string) (all []row.QueueRetention) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Retentions.Queues(ctx, q, queue)
			return err
		})
		return all
	}
	require.Empty(t, list("a"))
	r := row.QueueRetention{Queue: "a", Done: row.Retention{MaxCount: 2}, Dead: row.Retention{MaxAge: time.Hour}}
	require.True(t, set(r))
	require.False(t, set(r))
	require.Equal(t, []row.QueueRetention{r}, list("a"))
	require.Equal(t, []row.QueueRetention{r}, list(""), "it has a bound on dead jobs")
	r.Dead = row.Retention{}
	require.True(t, set(r))
	require.Equal(t, []row.QueueRetention{r}, list("a"))
	require.Empty(t, list(""), "it has no finished jobs")
	require.Empty(t, list("b"))
}

// Cutoff is the last event that is beyond either limit. An event's age counts from the second in which it was
// created.
func retentionCutoff(t *testing.T, d *Fixture) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var offsets []int64
	for i := range 5 {
		offset, _ := d.publishAt(t, at(10*i), "a", nil, `1`)
		offsets = append(offsets, offset)
		d.publishAt(t, at(10*i), "b", nil, `1`)
	}
	require.Zero(t, d.cutoff(t, "a", at(1000)), "no retention")
	for _, c := range []struct {
		r    row.Retention
		now  int
		gone int // number of events up to the cutoff
	}{
		{row.Retention{MaxCount: 5}, 40, 0},
		{row.Retention{MaxCount: 9}, 40, 0},
		{row.Retention{MaxCount: 2}, 40, 3},
		{row.Retention{MaxAge: 20 * time.Second}, 40, 2},
		{row.Retention{MaxAge: 20 * time.Second}, 41, 3},
		{row.Retention{MaxAge: 19*time.Second + 1}, 40, 2},
		{row.Retention{MaxAge: time.Second}, 999, 5},
		{row.Retention{MaxAge: time.Hour}, 40, 0},
		{row.Retention{MaxAge: 20 * time.Second, MaxCount: 4}, 40, 2},
		{row.Retention{MaxAge: 20 * time.Second, MaxCount: 1}, 40, 4},
	} {
		c.r.Topic = "a"
		d.setRetention(t, c.r)
		want := int64(0)
		if c.gone > 0 {
			want = offsets[c.gone-1]
		}
		require.Equal(t, want, d.cutoff(t, "a", at(c.now)), "%+v at %d", c.r, c.now)
		require.Zero(t, d.cutoff(t, "b", at(c.now)), "it has no retention")
	}
}

// Compact deletes a topic's events in steps, and lets readers know how far it has progressed.
func compactSteps(t *testing.T, d *Fixture) {
	var offsets []int64
	for range 5 {
		offset, _ := d.publish(t, "a", nil, `1`)
		offsets = append(offsets, offset)
		d.publish(t, "ab", nil, `1`)
	}
	policy := offsets[3]
	first := d.compact(t, row.Compaction{Topic: "a", Policy: policy, Limit: 3})
	require.Equal(t, row.Compacted{Deleted: 3, Last: offsets[2], Cutoff: policy}, first)
	second := d.compact(t, row.Compaction{Topic: "a", Policy: policy, After: first.Last, Limit: 3})
	require.Equal(t, row.Compacted{Deleted: 1, Last: policy, Cutoff: policy}, second)
	third := d.compact(t, row.Compaction{Topic: "a", Policy: policy, Limit: 3})
	require.Equal(t, row.Compacted{Cutoff: policy}, third)
	require.Equal(t, offsets[4:], offsetsOf(d.events(t, row.Selection{Topic: "a"}, 0, 10)))
	require.Len(t, d.events(t, row.Selection{Topic: "ab"}, 0, 10), 5)
	for topic, gone := range map[string]int64{"a": policy, "a*": policy, "*": policy, "ab": 0, "ab*": 0} {
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			s, err := d.Stores.Streams.Start(ctx, q, row.Selection{Topic: topic}, row.Position{})
			require.Equal(t, row.Start{Gone: gone}, s, topic)
			return err
		})
	}
	d.compact(t, row.Compaction{Topic: "a", Policy: offsets[4], Limit: 3})
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		s, err := d.Stores.Streams.Start(ctx, q, row.Selection{Topic: "a"}, row.Position{End: true})
		require.Equal(t, row.Start{Offset: offsets[4], Gone: offsets[4]}, s, "the end is after deleted events")
		return err
	})
}

// Compact keeps events that any of the topic's consumers or groups has yet to see, and names the reader.
func compactPinned(t *testing.T, d *Fixture) {
	var offsets []int64
	for range 6 {
		offset, _ := d.publish(t, "a", nil, `1`)
		offsets = append(offsets, offset)
	}
	d.addConsumer(t, row.NewConsumer{Topic: "b", Name: "elsewhere"}, start)
	d.addConsumer(t, row.NewConsumer{Topic: "b*", Name: "elsewhere too"}, start)
	d.addConsumer(t, row.NewConsumer{Topic: "a", Name: "ahead", From: row.Position{After: offsets[5]}}, start)
	m := d.join(t, row.GroupJoin{Topic: "a*", Name: "g", From: row.Position{After: offsets[0]}}, "m")
	d.addConsumer(t, row.NewConsumer{Topic: "*", Name: "behind"}, start)
	policy := row.Compaction{Topic: "a", Policy: offsets[4], Limit: 10}

	require.Equal(t, row.Compacted{Pinned: true, Pin: row.Pin{Kind: "consumer", Name: "behind", Topic: "*"}}, d.compact(t, policy))
	d.saveOffset(t, "behind", "*", offsets[5], start)
	require.Equal(t, row.Compacted{Deleted: 1, Last: offsets[0], Cutoff: offsets[0], Pinned: true,
		Pin: row.Pin{Kind: "group", Name: "g", Topic: "a*", Offset: offsets[0]}}, d.compact(t, policy))

	// A lease keeps its event and later events from being deleted, even though they were delivered to the group.
	claimed := d.claim(t, row.GroupClaim{Member: m, N: 6, Expires: start.Add(time.Minute)}, start).Events
	require.Equal(t, offsets[1:], deliveredOffsets(claimed))
	d.settle(t, row.GroupSettlement{Holding: holding(m, claimed[0])}, start)
	d.settle(t, row.GroupSettlement{Holding: holding(m, claimed[2])}, start)
	done := d.compact(t, policy)
	require.Equal(t, []int64{offsets[1], offsets[1]}, []int64{done.Last, done.Cutoff})
	require.Equal(t, offsets[2:], offsetsOf(d.events(t, row.Selection{Topic: "a"}, 0, 10)))
	for _, i := range []int{1, 3, 4} {
		d.settle(t, row.GroupSettlement{Holding: holding(m, claimed[i])}, start)
	}
	require.Equal(t, row.Compacted{Deleted: 3, Last: offsets[4], Cutoff: offsets[4]}, d.compact(t, policy))
}

// Compact keeps a group's dead events until they are discarded.
func compactDead(t *testing.T, d *Fixture) {
	first, last := d.publish(t, "a", nil, `1`, `2`, `3`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	for _, e := range d.claim(t, row.GroupClaim{Member: m, N: 3, Expires: start.Add(time.Minute)}, start).Events {
		d.settle(t, row.GroupSettlement{Holding: holding(m, e), Back: e.Offset == first+1, MaxAttempts: 1}, start)
	}
	require.Equal(t, 2, d.compact(t, row.Compaction{Topic: "a", Policy: last, Limit: 10}).Deleted)
	require.Equal(t, []int64{first + 1}, offsetsOf(d.events(t, row.Selection{Topic: "a"}, 0, 10)))
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		found, err := d.Stores.Groups.Discard(ctx, q, m.Group, first+1)
		require.True(t, found)
		return err
	})
	require.Equal(t, 1, d.compact(t, row.Compaction{Topic: "a", Policy: last, Limit: 10}).Deleted)
}

// A compaction that is rolled back deletes nothing and isn't reported to readers.
func compactRolledBack(t *testing.T, d *Fixture) {
	_, last := d.publish(t, "a", nil, `1`, `2`)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		done, err := d.Stores.Retentions.Compact(ctx, q, row.Compaction{Topic: "a", Policy: last, Limit: 10})
		require.Equal(t, 2, done.Deleted)
		return err
	})
	require.Len(t, d.events(t, row.Selection{Topic: "a"}, 0, 10), 2)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		s, err := d.Stores.Streams.Start(ctx, q, row.Selection{Topic: "a"}, row.Position{})
		require.Zero(t, s)
		return err
	})
}
