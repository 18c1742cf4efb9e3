package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Renew and Extend save the starts of attempts. A start counts only for the attempt that it was saved for.
func starts(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads = []string{`1`, `2`}
	ids := d.insert(t, start, in).IDs
	all := d.claimJobs(t, start, "w", 2)
	began := []time.Time{start.Add(20 * time.Millisecond), start.Add(10 * time.Millisecond)}
	started := func(queue string, now time.Time) (all []row.Started) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Jobs.Started(ctx, q, queue, now)
			return err
		})
		return all
	}
	startOf := func(id int64) time.Time {
		j, _ := d.find(t, id)
		return j.StartedAt
	}
	require.Empty(t, started("", start))
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Renew(ctx, q, row.Renewal{Worker: "w", IDs: ids, Lease: jobLease,
			Starts:   []row.StartOf{{ID: ids[0], Attempt: 1, At: began[0]}, {ID: ids[1], Attempt: 2, At: began[1]}},
			Progress: []row.ProgressOf{{ID: ids[0], Attempt: 1, Progress: row.Progress{Done: 7, At: start}}}}, start.Add(time.Second))
		return err
	})
	require.True(t, startOf(ids[0]).Equal(began[0]), startOf(ids[0]))
	j, _ := d.find(t, ids[0])
	require.Contains(t, j.Progress, "7")
	require.Zero(t, startOf(ids[1]), "of another attempt")
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		held, err := d.Stores.Jobs.Extend(ctx, q, row.Extension{Claim: claimOf(all[1]), Lease: jobLease, Start: began[1]}, start.Add(time.Second))
		require.True(t, held)
		return err
	})
	require.True(t, startOf(ids[1]).Equal(began[1]))
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error { // a later renewal keeps both
		_, err := d.Stores.Jobs.Renew(ctx, q, row.Renewal{Worker: "w", IDs: ids, Lease: jobLease,
			Progress: []row.ProgressOf{{ID: ids[0], Attempt: 1, Progress: row.Progress{Done: 8, At: start}}}}, start.Add(time.Second))
		return err
	})

	var order []int64
	for _, s := range started("a", start.Add(time.Second)) {
		require.Equal(t, "a", s.Queue)
		require.Equal(t, "w", s.Worker)
		require.EqualValues(t, 1, s.Attempt)
		order = append(order, s.ID)
	}
	require.Equal(t, []int64{ids[1], ids[0]}, order, "the longest running first")
	require.Len(t, started("", start.Add(time.Second)), 2)
	require.Empty(t, started("b", start.Add(time.Second)))
	require.Empty(t, started("", start.Add(jobLease+5*time.Second)), "the claims have lapsed")

	later := start.Add(3 * time.Second)
	d.settleJobs(t, later, &row.Settlement{Claim: claimOf(all[0]), Queue: "a", Outcome: row.Released, Delay: 0})
	d.settleJobs(t, later, &row.Settlement{Claim: claimOf(all[1]), Queue: "a", Outcome: row.Snoozed, Delay: time.Second})
	require.Zero(t, startOf(ids[0]), "no longer claimed")
	require.Empty(t, started("", later))
	again := d.claimJobs(t, later.Add(2*time.Second), "w", 2)
	require.Len(t, again, 2)
	require.Zero(t, startOf(ids[1]), "the attempt was given back, and its number taken again")
}
