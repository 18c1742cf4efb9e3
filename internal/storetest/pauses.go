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

func pauses(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"AsModel":               pausesAsModel,
		"Keys":                  pausesOfKeys,
		"RollbackLeavesNothing": pauseRolledBack,
		"Queue":                 pausedQueue,
		"QueueUntil":            pausedQueueUntil,
		"Key":                   pausedKey,
		"RunningJobsOfKey":      pausedKeyRuns,
		"KeyUntil":              pausedKeyUntil,
		"Replaced":              pauseReplaced,
		"ClaimsAfterRollback":   pausedClaimsRolledBack,
	})
}

func pausesOf(t *testing.T, d *Fixture, now time.Time) (all map[string]*row.Pause) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Pauses.All(ctx, q, now)
		return err
	})
	return all
}

// A random sequence of pauses and resumes has the same results as a map of queues. A pause that is in effect keeps
// its start when it is replaced, and it expires at its end.
func pausesAsModel(t *testing.T, d *Fixture) {
	r := random(t)
	model := map[string]*row.Pause{}
	now := start.Local()
	for step := range 300 {
		now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		for queue, p := range model {
			if !p.Until.IsZero() && !now.Before(p.Until) {
				delete(model, queue)
			}
		}
		queue := fmt.Sprint("q", r.IntN(3))
		is, paused := model[queue]
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			if r.IntN(3) == 0 {
				was, err := d.Stores.Pauses.End(ctx, q, queue, "", now)
				require.Equal(t, paused, was, "step %d", step)
				delete(model, queue)
				return err
			}
			p := row.Pause{Since: now, Reason: fmt.Sprint("reason", r.IntN(2)), By: [...]string{"", "me"}[r.IntN(2)]}
			if r.IntN(2) == 0 {
				p.Until = now.Add(time.Duration(1+r.IntN(5)) * time.Second)
			}
			was, err := d.Stores.Pauses.Set(ctx, q, queue, "", p, now)
			require.Equal(t, paused, was, "step %d", step)
			if paused {
				p.Since = is.Since
			}
			model[queue] = &p
			return err
		})
		require.Equal(t, model, pausesOf(t, d, now), "step %d", step)
	}
}

// A key's pause is independent of the pauses of its queue and of other keys.
func pausesOfKeys(t *testing.T, d *Fixture) {
	set := func(key string, until time.Time) (was bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			was, err = d.Stores.Pauses.Set(ctx, q, "q", key, row.Pause{Since: start, Until: until}, start)
			return err
		})
		return was
	}
	end := func(key string, now time.Time) (was bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			was, err = d.Stores.Pauses.End(ctx, q, "q", key, now)
			return err
		})
		return was
	}
	require.False(t, set("a", time.Time{}))
	require.True(t, set("a", start.Add(10*time.Second)))
	require.False(t, set("b", time.Time{}))
	require.Empty(t, pausesOf(t, d, start), "the queue is not paused")
	require.False(t, end("", start))
	require.False(t, end("c", start))
	require.False(t, end("a", start.Add(10*time.Second)), "it has ended by itself")
	require.True(t, end("b", start))
	require.False(t, end("b", start))
}

func pauseRolledBack(t *testing.T, d *Fixture) {
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Pauses.Set(ctx, q, "q", "", row.Pause{Since: start}, start)
		return err
	})
	require.Empty(t, pausesOf(t, d, start))
}
