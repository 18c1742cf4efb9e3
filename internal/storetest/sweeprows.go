package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Expired results are swept, unless a job that waited for their job may still read them.
func sweepResults(t *testing.T, d *Fixture) {
	ids := []int64{d.add(t, start), d.add(t, start), d.add(t, start), d.add(t, start)}
	waiter := d.after(t, row.Links{Jobs: ids[3:]})
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		for i, ttl := range []time.Duration{10 * time.Second, time.Hour, 0, 10 * time.Second} {
			if err := d.Stores.Results.Save(ctx, q, ids[i], `1`, ttl, start); err != nil {
				return err
			}
		}
		return nil
	})
	for _, j := range d.claimJobs(t, start, "w", 9) {
		d.end(t, start, j, row.Acked)
	}
	at := start.Add(10 * time.Second)
	s := d.Stores.Sweeps.Results
	require.Equal(t, ids[:1], found(t, d, s, at))
	sweepsOnce(t, d, s, at, 1)
	for i, id := range ids {
		require.Equal(t, i > 0, d.fate(t, id, at).HasResult, "result %d", i)
	}
	j := d.claimJobs(t, at, "w", 9)
	require.Equal(t, []int64{waiter}, jobIDs(j))
	d.end(t, at, j[0], row.Acked)
	require.Equal(t, ids[3:], found(t, d, s, at))
	require.Zero(t, taken(t, d, s, ids[1:3], at).N)
	require.Equal(t, 1, taken(t, d, s, ids, at).N)
}

// A deleted group's claims are swept, some at a time. Other groups' claims stay.
func sweepClaims(t *testing.T, d *Fixture) {
	d.publish(t, "a", nil, `1`, `2`, `3`, `4`, `5`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	kept := d.join(t, row.GroupJoin{Topic: "a", Name: "kept"}, "m")
	for _, m := range []row.Member{m, kept} {
		require.Len(t, d.claim(t, row.GroupClaim{Member: m, N: 5, Expires: start.Add(time.Minute)}, start).Events, 5)
	}
	s := d.Stores.Sweeps.Claims
	require.Empty(t, found(t, d, s, start))
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		n, err := d.Stores.Groups.Drop(ctx, q, m.Group, 1)
		require.Equal(t, 1, n)
		return err
	})
	groups := found(t, d, s, start)
	require.Equal(t, []int64{m.Group}, groups)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, row.Part{}, groups, start, 100)
		require.Equal(t, 4, out.N)
		return err
	})
	require.Equal(t, groups, found(t, d, s, start))
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, row.Part{}, groups, start, 3)
		require.Equal(t, row.Swept{N: 3, More: true}, out)
		return err
	})
	require.Equal(t, groups, found(t, d, s, start))
	require.Equal(t, row.Swept{N: 1}, taken(t, d, s, groups, start))
	require.Empty(t, found(t, d, s, start))
	require.Zero(t, taken(t, d, s, groups, start).N)
	require.EqualValues(t, 5, d.progress(t, kept.Group, start).Leased)
}

// Jobs sent by package dispatch are swept by the time at which they ended. Jobs that are waiting or running stay.
func sweepSent(t *testing.T, f *Fixture) {
	d := &dispatchTest{f, t}
	ended, _ := d.send("work", row.Sent{})
	d.ack(d.claim("work"))
	runs, _ := d.send("work", row.Sent{})
	d.claim("work")
	waits, _ := d.send("work", row.Sent{})
	at := d.status(ended).EndedAt
	require.NotZero(t, at)
	s := f.Stores.Sweeps.Sent
	require.Empty(t, found(t, f, s, at), "it ended at that time, and not before")
	f.sweepsPart(t, s, row.Part{}, at, at.Add(time.Second), 1, func() { d.status(ended) })
	_, known := d.find(ended, start)
	require.False(t, known)
	require.Empty(t, found(t, f, s, at.Add(1000*time.Hour)))
	d.status(runs)
	d.status(waits)
}

// Waiting replies to jobs unknown to package dispatch are swept by the time at which they were sent, for each prefix
// separately. Replies to known jobs stay with the jobs.
func sweepReplies(t *testing.T, f *Fixture) {
	d := &dispatchTest{f, t}
	sent, _ := d.send("p:q:work:x", row.Sent{})
	known := fmt.Sprintf("p:q:reply:%d", sent)
	for _, queue := range []string{"p:q:reply:1000001", "p:reply:1000002", "o:q:reply:1000003", "p:q:reply:x", "p:q:reply:1000004", known} {
		d.do(func(ctx context.Context, q engine.Querier) error {
			d.insert(ctx, q, queue, `"reply"`)
			return nil
		})
	}
	d.claim("p:q:reply:1000004")
	s := f.Stores.Sweeps.Replies
	require.Contains(t, f.partNames(t, s, start), row.DispatchPrefix)
	part := f.partOf(t, s, "p:", start)
	require.NotContains(t, f.partNames(t, s, start), "o:", "no job has that prefix")
	f.sweepsReplies(t, s, part, 2)
	left := func(queue string) int { return len(d.claims(queue)) }
	require.Zero(t, left("p:q:reply:1000001")+left("p:reply:1000002"))
	for _, queue := range []string{"o:q:reply:1000003", "p:q:reply:x", known} {
		require.Equal(t, 1, left(queue), queue)
	}
}

// sweepsReplies tests the sweep of n replies that were sent at start. Take does not check the time again, because an
// old reply stays old.
func (d *Fixture) sweepsReplies(t *testing.T, s engine.Sweep, part row.Part, n int) {
	t.Helper()
	at := start.Add(time.Second)
	require.Empty(t, d.seek(t, s, part, start))
	ids := d.seek(t, s, part, at)
	require.Len(t, ids, n)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, part, ids, at, 100)
		require.Equal(t, n, out.N)
		return err
	})
	require.ElementsMatch(t, ids, d.seek(t, s, part, at))
	require.Equal(t, n, d.take(t, s, part, ids, at).N)
	require.Empty(t, d.seek(t, s, part, at))
	require.Zero(t, d.take(t, s, part, ids, at).N)
}

// Expired actors are swept, and live actors stay.
func sweepActors(t *testing.T, d *Fixture) {
	at := start.Add(time.Minute)
	for key, expires := range map[string]time.Time{"over": at, "over too": at, "live": at.Add(time.Second)} {
		require.True(t, d.enter(t, actor(key, "me", expires), start))
	}
	sweepsOnce(t, d, d.Stores.Sweeps.Actors, at, 2)
	require.Equal(t, []string{"live me"}, keysOf(presencesOf(t, d, "", "", start)))
}

// The IDs of received messages are swept when their retention has ended, some at a time.
func sweepReceived(t *testing.T, d *Fixture) {
	for _, id := range []string{"1", "2", "3"} {
		require.True(t, d.receive(t, "shop", id, start))
	}
	require.True(t, d.receive(t, "shop", "later", start.Add(time.Second)))
	at := start.Add(time.Minute)
	s := d.Stores.Sweeps.Received
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, row.Part{}, found(t, d, s, at), at, 2)
		require.Equal(t, row.Swept{N: 2, More: true}, out)
		return err
	})
	sweepsOnce(t, d, s, at, 3)
	require.False(t, d.receive(t, "shop", "later", at))
	require.True(t, d.receive(t, "shop", "1", at))
}

// Per-minute counts are swept, for all queues, if their minute ended before the given time.
func sweepMinutes(t *testing.T, d *Fixture) {
	minute := start.Truncate(time.Minute)
	at := minute.Add(2 * time.Minute)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		var all []row.Minute
		for _, queue := range []string{"a", row.AllQueues} {
			for i := range 3 {
				all = append(all, row.Minute{Start: minute.Add(time.Duration(1+i) * time.Minute), Queue: queue, Enqueued: 1})
			}
		}
		return d.Stores.Minutes.Add(ctx, q, all)
	})
	sweepsOnce(t, d, d.Stores.Sweeps.Minutes, at, 2)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Minutes.All(ctx, q, minute)
		require.Len(t, all, 4)
		require.True(t, all[0].Start.Equal(at), "a minute that has not ended stays")
		return err
	})
}

// Notifications are swept by the time at which they were sent, regardless of their channel.
func sweepMessages(t *testing.T, d *Fixture) {
	d.notify(t, "x", "1")
	d.notify(t, "y", "2")
	var later int64
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		later, err = d.Stores.Notifications.Insert(ctx, q, "x", "3", start.Add(time.Second))
		return err
	})
	sweepsOnce(t, d, d.Stores.Sweeps.Messages, start.Add(time.Second), 2)
	left := d.messages(t, []string{"x", "y"}, 0, 10)
	require.Len(t, left, 1)
	require.Equal(t, later, left[0].ID)
}

// Surplus finds the oldest notifications, across all channels, beyond the number to keep, no matter the time.
func sweepSurplus(t *testing.T, d *Fixture) {
	var ids []int64
	for i := range 5 {
		ids = append(ids, d.notify(t, []string{"x", "y"}[i%2], `1`))
	}
	left := func() (ids []int64) {
		for _, m := range d.messages(t, []string{"x", "y"}, 0, 10) {
			ids = append(ids, m.ID)
		}
		return ids
	}
	for _, keep := range []int{5, 6} {
		require.Empty(t, found(t, d, d.Stores.Sweeps.Surplus(keep), start))
	}
	s := d.Stores.Sweeps.Surplus(2)
	require.ElementsMatch(t, ids[:3], found(t, d, s, start.Add(-time.Hour)))
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, row.Part{}, ids[:3], start, 100)
		require.Equal(t, 3, out.N)
		return err
	})
	require.Equal(t, ids, left())
	require.Equal(t, 3, taken(t, d, s, ids[:3], start).N)
	require.Empty(t, found(t, d, s, start))
	require.Zero(t, taken(t, d, s, ids[:3], start).N)
	require.Equal(t, ids[3:], left())
	require.ElementsMatch(t, ids[3:], found(t, d, d.Stores.Sweeps.Surplus(0), start))
	require.Equal(t, ids[4], d.messageHead(t), "the deletion does not lower the head")
}
