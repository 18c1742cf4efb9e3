package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func sweeps(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"OldWindows":  sweepWindows,
		"Windows":     sweepWindowsOver,
		"Batches":     sweepBatches,
		"Pauses":      sweepPauses,
		"Empty":       sweepsOfNothing,
		"Overdue":     sweepOverdue,
		"Expired":     sweepExpired,
		"Keys":        sweepKeys,
		"Places":      sweepPlaces,
		"Fits":        sweepFits,
		"Ended":       sweepEnded,
		"DeadAwaited": sweepDeadAwaited,
		"Results":     sweepResults,
		"Claims":      sweepClaims,
		"Sent":        sweepSent,
		"Replies":     sweepReplies,
		"Actors":      sweepActors,
		"Received":    sweepReceived,
		"Minutes":     sweepMinutes,
		"Messages":    sweepMessages,
		"Surplus":     sweepSurplus,
	})
}

func found(t *testing.T, d *Fixture, s engine.Sweep, at time.Time) (ids []int64) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		ids, err = s.Find(ctx, q, row.Part{}, at, 100)
		return err
	})
	return ids
}

func taken(t *testing.T, d *Fixture, s engine.Sweep, ids []int64, at time.Time) (out row.Swept) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = s.Take(ctx, q, row.Part{}, ids, at, 100)
		return err
	})
	return out
}

// sweepsOnce tests a sweep of n rows that are due at the time at and not a second earlier. The sweep must find and
// take them only once, check them again when it takes them, and leave them if it is rolled back.
func sweepsOnce(t *testing.T, d *Fixture, s engine.Sweep, at time.Time, n int) {
	t.Helper()
	require.Empty(t, found(t, d, s, at.Add(-time.Second)))
	ids := found(t, d, s, at)
	require.NotEmpty(t, ids)
	require.Zero(t, taken(t, d, s, ids, at.Add(-time.Second)).N, "they are not due yet")
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, row.Part{}, ids, at, 100)
		require.Equal(t, n, out.N)
		return err
	})
	require.Equal(t, ids, found(t, d, s, at))
	require.Equal(t, n, taken(t, d, s, ids, at).N)
	require.Empty(t, found(t, d, s, at))
	require.Zero(t, taken(t, d, s, ids, at).N)
}

func call(t *testing.T, d *Fixture, name string, window time.Time) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.RateLimits.Take(ctx, q, name, window, 10)
		return err
	})
}

// Windows are swept by their start. Find returns no more than it is asked for.
func sweepWindows(t *testing.T, d *Fixture) {
	for _, name := range []string{"a", "b", "c"} {
		call(t, d, name, start)
	}
	call(t, d, "a", start.Add(time.Second))
	s := d.Stores.Sweeps.OldWindows
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		ids, err := s.Find(ctx, q, row.Part{}, start.Add(time.Second), 2)
		require.Len(t, ids, 2)
		return err
	})
	sweepsOnce(t, d, s, start.Add(time.Second), 3)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		n, err := d.Stores.RateLimits.Count(ctx, q, "a", start.Add(time.Second))
		require.Equal(t, 1, n, "a later window stays")
		return err
	})
}

// A limit's last window stays, no matter how old it is.
func sweepWindowsOver(t *testing.T, d *Fixture) {
	call(t, d, "a", start)
	call(t, d, "b", start)
	call(t, d, "b", start.Add(time.Hour))
	sweepsOnce(t, d, d.Stores.Sweeps.Windows, start.Add(time.Second), 1)
	require.Empty(t, found(t, d, d.Stores.Sweeps.Windows, start.Add(24*time.Hour)))
}

// A sealed batch without members is swept by the time at which it was done. An open batch is not.
func sweepBatches(t *testing.T, d *Fixture) {
	var open, sealed int64
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		if open, err = d.Stores.Batches.Insert(ctx, q, "open", "", start); err != nil {
			return err
		}
		sealed, err = d.Stores.Batches.Insert(ctx, q, "sealed", "", start)
		require.Greater(t, sealed, open, "ids rise")
		return err
	})
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		ok, err := d.Stores.Batches.Seal(ctx, q, sealed)
		require.True(t, ok)
		require.NoError(t, err)
		ok, err = d.Stores.Batches.Seal(ctx, q, sealed+1)
		require.False(t, ok, "there is no such batch")
		return err
	})
	var done time.Time
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		for _, newest := range []bool{false, true} {
			all, err := d.Stores.Batches.List(ctx, q, newest, 0, 10, start)
			require.NoError(t, err)
			require.Len(t, all, 2)
			require.Equal(t, newest, all[0].ID == sealed)
			rest, err := d.Stores.Batches.List(ctx, q, newest, all[0].ID, 10, start)
			require.NoError(t, err)
			require.Equal(t, all[1:], rest)
		}
		b, ok, err := d.Stores.Batches.Get(ctx, q, sealed, start)
		require.True(t, ok)
		require.False(t, b.Open)
		require.Equal(t, start.Local(), b.Created)
		require.NotZero(t, b.Done, "it has no members")
		done = b.Done
		return err
	})
	s := d.Stores.Sweeps.Batches
	ids := found(t, d, s, done.Add(2*time.Second))
	require.Equal(t, []int64{sealed}, ids)
	require.Empty(t, found(t, d, s, done.Add(-time.Second)))
	require.Zero(t, taken(t, d, s, ids, done.Add(-time.Second)).N)
	require.Equal(t, 1, taken(t, d, s, ids, done.Add(2*time.Second)).N)
	require.Empty(t, found(t, d, s, done.Add(2*time.Second)))
}

// Expired pauses are swept, and the others stay.
func sweepPauses(t *testing.T, d *Fixture) {
	end := start.Add(10 * time.Second)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		for queue, until := range map[string]time.Time{"over": end, "later": end.Add(time.Hour), "endless": {}} {
			if _, err := d.Stores.Pauses.Set(ctx, q, queue, "", row.Pause{Since: start, Until: until}, start); err != nil {
				return err
			}
		}
		_, err := d.Stores.Pauses.Set(ctx, q, "key", "k", row.Pause{Since: start, Until: end}, start)
		return err
	})
	sweepsOnce(t, d, d.Stores.Sweeps.Pauses, end, 2)
	require.Len(t, pausesOf(t, d, end), 2)
}

// A sweep of an empty database has nothing to do, even if a package's tables are missing.
func sweepsOfNothing(t *testing.T, d *Fixture) {
	all := &d.Stores.Sweeps
	for name, s := range map[string]engine.Sweep{
		"Overdue": all.Overdue, "Expired": all.Expired, "Keys": all.Keys, "Pauses": all.Pauses, "Places": all.Places, "Fits": all.Fits,
		"Claims": all.Claims, "Done": all.Done, "Dead": all.Dead, "Results": all.Results, "Batches": all.Batches, "Sent": all.Sent,
		"Replies": all.Replies, "Actors": all.Actors, "Received": all.Received, "Minutes": all.Minutes, "Windows": all.Windows,
		"OldWindows": all.OldWindows, "Messages": all.Messages, "Surplus": all.Surplus(0),
	} {
		require.Equal(t, s.Parts != nil, s.Of != "", "%s names its parts", name)
		if s.Parts == nil {
			require.Empty(t, found(t, d, s, start), name)
			continue
		}
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			parts, err := s.Parts(ctx, q, start)
			require.Empty(t, parts, name)
			return err
		})
	}
}

// parts returns a sweep's parts.
func (d *Fixture) parts(t *testing.T, s engine.Sweep, at time.Time) (parts []row.Part) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		parts, err = s.Parts(ctx, q, at)
		return err
	})
	return parts
}

// seek returns the rows that a sweep finds in a part.
func (d *Fixture) seek(t *testing.T, s engine.Sweep, p row.Part, at time.Time) (ids []int64) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		ids, err = s.Find(ctx, q, p, at, 100)
		return err
	})
	return ids
}

// take takes rows in a part.
func (d *Fixture) take(t *testing.T, s engine.Sweep, p row.Part, ids []int64, at time.Time) (out row.Swept) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = s.Take(ctx, q, p, ids, at, 100)
		return err
	})
	return out
}
