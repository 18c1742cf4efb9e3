package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// pauseStart is the time at which tests of pauses with an end begin. It is in the past, because a database may also
// compare a pause's end with its own clock.
var pauseStart = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// claimAll claims up to 9 jobs of queue "a".
func (d *Fixture) claimAll(t *testing.T, now time.Time) row.Claimed {
	t.Helper()
	return d.step(t, now, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("a"), Worker: "w", N: 9, Lease: jobLease}})
}

// keyPause returns the pause that Keys reports for a key of queue "a", or nil.
func (d *Fixture) keyPause(t *testing.T, now time.Time, key string) (p *row.Pause) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Jobs.Keys(ctx, q, "a", 10, now)
		for _, k := range all {
			if k.Key == key {
				p = k.Pause
			}
		}
		return err
	})
	return p
}

// No job in a paused queue starts, and a claim reports the pause. Running jobs keep their claims and can be settled.
// Other queues aren't affected. When the pause ends, the queue is ready.
func pausedQueue(t *testing.T, d *Fixture) {
	ids := d.addKeys(t, start, "", "", "k")
	first := d.claimJobs(t, start, "w", 1)[0]
	d.pause(t, start, "", time.Time{})
	require.False(t, d.queueReady(t, start))
	c := d.claimAll(t, start.Add(time.Second))
	require.Empty(t, c.Jobs)
	require.True(t, c.Paused)
	in := plain()
	in.Queue = "b"
	other := d.insert(t, start, in).IDs
	c = d.step(t, start, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("a", "b"), Worker: "w", N: 9, Lease: jobLease}})
	require.Equal(t, other, jobIDs(c.Jobs))
	require.Equal(t, row.Retried, d.end(t, start, first, row.Retried).Became)
	in = plain()
	in.Offer = &row.Offer{Worker: "w", N: 1, Lease: jobLease}
	offered := d.insert(t, start, in)
	require.Empty(t, offered.Claimed, "an offer to a paused queue is ignored")
	require.True(t, d.resume(t, start, ""))
	require.False(t, d.resume(t, start, ""))
	require.True(t, d.queueReady(t, start))
	c = d.claimAll(t, start)
	require.Equal(t, append(ids, offered.IDs...), jobIDs(c.Jobs))
	require.False(t, c.Paused)
}

// A queue's pause that has an end is over at that second, without any call. States reports the time.
func pausedQueueUntil(t *testing.T, d *Fixture) {
	start := pauseStart
	until := start.Add(10 * time.Second)
	id := d.add(t, start)
	d.pause(t, start, "", until)
	require.Empty(t, d.claimIDs(t, until.Add(-time.Second), 9))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Jobs.States(ctx, q, []string{"a"}, true, start)
		require.False(t, all[0].Ready)
		require.True(t, all[0].Next.Equal(until), "%v", all[0].Next)
		return err
	})
	require.True(t, d.queueReady(t, until))
	require.Equal(t, []int64{id}, d.claimIDs(t, until, 9))
	require.False(t, d.resume(t, until, ""))
}

// No job with a paused key starts, but other jobs in the queue do. The key's running jobs keep their claims. When the
// pause ends, the key's jobs run in order.
func pausedKey(t *testing.T, d *Fixture) {
	ids := d.addKeys(t, start, "k", "k", "l", "", "k")
	running := d.claimJobs(t, start, "w", 1)[0]
	d.pause(t, start, "k", time.Time{})
	require.NotNil(t, d.keyPause(t, start, "k"))
	require.Nil(t, d.keyPause(t, start, "l"))
	c := d.claimAll(t, start)
	require.Equal(t, ids[2:4], jobIDs(c.Jobs))
	late := d.addKeys(t, start, "k", "l")
	now := start.Add(time.Minute)
	require.Equal(t, []int64{ids[2], ids[3], late[1]}, d.claimIDs(t, now, 9), "the claims of the others have lapsed")
	require.Equal(t, row.Lost, d.end(t, now, running, row.Acked).Became)
	require.False(t, d.queueReady(t, now))
	require.True(t, d.resume(t, now, "k"))
	require.Nil(t, d.keyPause(t, now, "k"))
	require.True(t, d.queueReady(t, now))
	require.Equal(t, []int64{ids[0], ids[1], ids[4], late[0]}, d.claimIDs(t, now, 9))
}

// Pausing a key doesn't end the claims on its running jobs. A job that returns to its queue waits until the pause
// ends.
func pausedKeyRuns(t *testing.T, d *Fixture) {
	ids := d.addKeys(t, start, "k", "k")
	running := d.claimJobs(t, start, "w", 2)
	d.pause(t, start, "k", time.Time{})
	require.Equal(t, row.Acked, d.end(t, start, running[0], row.Acked).Became)
	require.Equal(t, row.Released, d.end(t, start, running[1], row.Released).Became)
	require.Empty(t, d.claimIDs(t, start, 9))
	d.resume(t, start, "k")
	require.Equal(t, ids[1:], d.claimIDs(t, start, 9))
}

// A key's pause that has an end is over at that second, without any call. It doesn't delay any other jobs, and can be
// ended earlier.
func pausedKeyUntil(t *testing.T, d *Fixture) {
	until := start.Add(10 * time.Second)
	ids := d.addKeys(t, start, "k", "l", "k")
	d.pause(t, start, "k", until)
	p := d.keyPause(t, start, "k")
	require.NotNil(t, p)
	require.True(t, p.Until.Equal(until))
	require.Equal(t, ids[1:2], d.claimIDs(t, start, 9))
	require.Empty(t, d.claimIDs(t, until.Add(-time.Second), 9))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Jobs.States(ctx, q, []string{"a"}, true, start.Add(time.Second))
		require.False(t, all[0].Ready)
		require.False(t, all[0].Next.After(until), "%v", all[0].Next)
		require.False(t, all[0].Next.IsZero())
		return err
	})
	require.Nil(t, d.keyPause(t, until, "k"))
	got := d.claimJobs(t, until, "v", 9)
	require.Equal(t, []int64{ids[0], ids[2]}, jobIDs(got))

	d.end(t, until, got[0], row.Retried)
	d.pause(t, until, "k", until.Add(time.Hour))
	require.Empty(t, d.claimIDs(t, until, 9))
	require.True(t, d.resume(t, until, "k"))
	require.Equal(t, ids[:1], d.claimIDs(t, until, 9))
}

// A pause that replaces another may end earlier, later or never.
func pauseReplaced(t *testing.T, d *Fixture) {
	start := pauseStart
	for _, key := range []string{"", "k"} {
		ids := d.addKeys(t, start, "k")
		at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
		d.pause(t, start, key, at(5))
		require.Empty(t, d.claimIDs(t, start, 9))
		d.pause(t, start, key, at(20))
		require.Empty(t, d.claimIDs(t, at(5), 9))
		d.pause(t, at(5), key, time.Time{})
		require.Empty(t, d.claimIDs(t, at(1000), 9))
		d.pause(t, at(5), key, at(10))
		require.Empty(t, d.claimIDs(t, at(9), 9))
		got := d.claimJobs(t, at(10), "w", 9)
		require.Equal(t, ids, jobIDs(got), "key %q", key)
		d.end(t, at(10), got[0], row.Acked)
	}
}

// A pause that is rolled back doesn't keep jobs from starting. If ending a pause is rolled back, no job starts.
func pausedClaimsRolledBack(t *testing.T, d *Fixture) {
	for _, key := range []string{"", "k"} {
		ids := d.addKeys(t, start, "k")
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			_, err := d.Stores.Pauses.Set(ctx, q, "a", key, row.Pause{Since: start}, start)
			return err
		})
		got := d.claimJobs(t, start, "w", 9)
		require.Equal(t, ids, jobIDs(got))
		d.pause(t, start, key, time.Time{})
		d.end(t, start, got[0], row.Released)
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			was, err := d.Stores.Pauses.End(ctx, q, "a", key, start)
			require.True(t, was)
			return err
		})
		require.Empty(t, d.claimIDs(t, start, 9))
		d.resume(t, start, key)
		d.cancelJob(t, start, ids[0])
	}
}
