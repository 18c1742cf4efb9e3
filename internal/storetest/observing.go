package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func observing(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("Workers", func(t *testing.T) { workerRows(t, open(t)) })
	t.Run("Holders", func(t *testing.T) { workerHolders(t, open(t)) })
	t.Run("MinutesAddUp", func(t *testing.T) { minutesAddUp(t, open(t)) })
	t.Run("Audit", func(t *testing.T) { auditEntries(t, open(t)) })
	t.Run("Problems", func(t *testing.T) { problemsOfAges(t, open(t)) })
	t.Run("Errors", func(t *testing.T) { errorsOfQueue(t, open(t)) })
}

// A row is identified by its worker and queue, and is dropped only by a loop with the same start.
func workerRows(t *testing.T, d *Fixture) {
	w := row.Worker{ID: "w", Queue: "mails", Process: row.Process{Host: "h", Boot: "b", Space: "s", PID: 7, Start: 8}, Version: "v1", Slots: 3,
		Since: start.Add(5 * time.Millisecond), Seen: start.Add(time.Minute)}
	other := w
	other.Queue = "other"
	put := func(all ...row.Worker) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error { return d.Stores.Workers.Put(ctx, q, all) })
	}
	list := func(queue string) (all []row.Worker) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Workers.List(ctx, q, queue)
			return err
		})
		for i := range all {
			all[i].Since, all[i].Seen = all[i].Since.UTC(), all[i].Seen.UTC()
		}
		return all
	}
	put(other, w)
	require.Equal(t, []row.Worker{w, other}, list(""), "by worker and queue")
	require.Equal(t, []row.Worker{w}, list("mails"))
	w.Seen, w.Slots = w.Seen.Add(time.Hour), 4
	put(w)
	require.Equal(t, []row.Worker{w}, list("mails"), "replaced")
	drop := func(w row.Worker) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			return d.Stores.Workers.Drop(ctx, q, []row.Worker{w})
		})
	}
	twin := w
	twin.Since = w.Since.Add(time.Millisecond)
	drop(twin)
	require.Equal(t, []row.Worker{w, other}, list(""), "another loop with the same name")
	drop(w)
	require.Equal(t, []row.Worker{other}, list(""))
}

// Workers hold jobs until their claims lapse.
func workerHolders(t *testing.T, d *Fixture) {
	first := d.opsAdd(t, opsJob{})
	d.opsAdd(t, opsJob{})
	d.opsAdd(t, opsJob{queue: "other"})
	d.opsTake(t, "mails", 2, start)
	d.opsTake(t, "other", 1, start.Add(time.Minute))
	holders := func(queue string, now time.Time) (all []row.Holder) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Workers.Holders(ctx, q, queue, now)
			return err
		})
		return all
	}
	require.Len(t, holders("", start), 2)
	require.Equal(t, []row.Holder{{Worker: "w", Queue: "mails", Jobs: 2, Oldest: first}}, holders("mails", start.Add(time.Minute)))
	require.Empty(t, holders("mails", start.Add(time.Minute+time.Second)), "the claims have lapsed")
}

// Counts added to a minute accumulate, and a longer step is the sum of its minutes.
func minutesAddUp(t *testing.T, d *Fixture) {
	hour := start.Truncate(time.Hour)
	one := row.Minute{Enqueued: 1, Claimed: 2, Acked: 3, Retried: 4, Died: 5, Snoozed: 6, Wait: 7 * time.Millisecond, Ran: 8 * time.Millisecond, MaxWait: time.Millisecond}
	add := func(queue string, minute int) row.Minute {
		m := one
		m.Queue, m.Start = queue, hour.Add(time.Duration(minute)*time.Minute)
		return m
	}
	for range 2 {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			var all []row.Minute
			for minute := range 10 {
				m := add("mails", minute)
				m.MaxWait += time.Duration(minute) * time.Millisecond
				all = append(all, m, add(row.AllQueues, minute))
			}
			return d.Stores.Minutes.Add(ctx, q, append(all, add("other", 3)))
		})
	}
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		minutes, err := d.Stores.Minutes.List(ctx, q, "mails", hour.Add(4*time.Minute+59*time.Second), time.Minute)
		require.NoError(t, err)
		require.Len(t, minutes, 6, "from the minute that contains the time")
		for i, m := range minutes {
			require.Equal(t, hour.Add(time.Duration(4+i)*time.Minute).Unix(), m.Start.Unix())
			require.Equal(t, row.Minute{Start: m.Start, Queue: "mails", Enqueued: 2, Claimed: 4, Acked: 6, Retried: 8, Died: 10, Snoozed: 12,
				Wait: 14 * time.Millisecond, Ran: 16 * time.Millisecond, MaxWait: time.Duration(5+i) * time.Millisecond}, m, "a maximum does not add up")
		}
		steps, err := d.Stores.Minutes.List(ctx, q, "mails", hour.Add(7*time.Minute), 5*time.Minute)
		require.NoError(t, err)
		require.Len(t, steps, 1, "the step that contains the time is complete")
		require.Equal(t, hour.Add(5*time.Minute).Unix(), steps[0].Start.Unix())
		require.EqualValues(t, 10, steps[0].Enqueued)
		require.Equal(t, 80*time.Millisecond, steps[0].Ran)
		require.Equal(t, 10*time.Millisecond, steps[0].MaxWait)
		steps, err = d.Stores.Minutes.List(ctx, q, "mails", hour.Add(15*time.Minute), 20*time.Minute)
		require.NoError(t, err)
		require.Len(t, steps, 1, "also if its minutes come before the time")
		sums, err := d.Stores.Minutes.Sums(ctx, q, "mails", hour.Add(2*time.Minute), hour.Add(4*time.Minute))
		require.NoError(t, err)
		require.Equal(t, row.Minute{Claimed: 8, Acked: 12, Retried: 16, Died: 20, Wait: 28 * time.Millisecond, Ran: 32 * time.Millisecond}, sums)
		names, err := d.Stores.Minutes.Queues(ctx, q, hour.Add(4*time.Minute))
		require.NoError(t, err)
		require.Equal(t, []string{"mails"}, names)
		all, err := d.Stores.Minutes.All(ctx, q, hour)
		require.Len(t, all, 21)
		return err
	})
}

// Entries have increasing IDs, are listed newest first, and accumulate counts for the same operation.
func auditEntries(t *testing.T, d *Fixture) {
	note := func(r row.AuditRow) (id int64) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			id, err = d.Stores.Audits.Note(ctx, q, r)
			return err
		})
		return id
	}
	var ids []int64
	for i := range 5 {
		ids = append(ids, note(row.AuditRow{At: start, Who: "ann", Verb: fmt.Sprint("verb", i), Filter: `{"queue":"mails"}`, N: 1}))
	}
	require.Equal(t, ids[4], note(row.AuditRow{ID: ids[4], At: start.Add(time.Hour), Verb: "verb4", N: 2}))
	require.IsIncreasing(t, ids)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Audits.List(ctx, q, ids[4]+1, 2)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, ids[4], all[0].ID)
		require.EqualValues(t, 3, all[0].N)
		require.Equal(t, start.Unix(), all[0].At.Unix(), "the time of its first transaction")
		require.Equal(t, row.AuditRow{ID: ids[3], At: all[1].At, Who: "ann", Verb: "verb3", Filter: `{"queue":"mails"}`, N: 1}, all[1])
		rest, err := d.Stores.Audits.List(ctx, q, ids[3], 10)
		require.Len(t, rest, 3)
		return err
	})
}

// A state becomes a problem when it reaches the given age, and not earlier. A job that is waiting for a dead job is a
// problem immediately.
func problemsOfAges(t *testing.T, d *Fixture) {
	awaited := d.opsAdd(t, opsJob{})
	waiter := d.opsAdd(t, opsJob{after: []int64{awaited}})
	require.Equal(t, awaited, d.opsDie(t, "mails", start))
	d.opsAdd(t, opsJob{queue: "lapsed"})
	d.opsTake(t, "lapsed", 1, start)
	ages := row.ProblemAges{Late: time.Minute, Unseen: time.Hour, Death: time.Hour, Pause: time.Hour}
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Pauses.Set(ctx, q, "mails", "k", row.Pause{Since: start, By: "ann"}, start)
		return err
	})
	at := func(now time.Time) (found row.Troubles) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			found, err = d.Stores.Problems.Problems(ctx, q, ages, now)
			return err
		})
		return found
	}
	now := at(start.Add(time.Hour - time.Second))
	require.Len(t, now.DeadMembers, 1)
	require.Equal(t, row.DeadMembers{Queue: "mails", N: 1, Waiter: waiter, Member: awaited, Since: now.DeadMembers[0].Since}, now.DeadMembers[0])
	require.Equal(t, start.Unix(), now.DeadMembers[0].Since.Unix())
	require.Len(t, now.Deaths, 1)
	require.Equal(t, row.Count{N: 1}, now.Deaths[0].N)
	require.Empty(t, now.KeyPauses)
	require.Empty(t, now.HeldFree)
	require.Equal(t, start.Unix(), now.Newest.Unix())
	later := at(start.Add(time.Hour))
	require.Empty(t, later.Deaths, "it is not young any more")
	require.Len(t, later.KeyPauses, 1)
	require.Equal(t, "k", later.KeyPauses[0].Key)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		lapsed, err := d.Stores.Problems.LapsedSince(ctx, q, "lapsed", start.Add(time.Minute))
		require.NoError(t, err)
		require.True(t, lapsed.IsZero(), "its claim is valid to the end of that second")
		lapsed, err = d.Stores.Problems.LapsedSince(ctx, q, "lapsed", start.Add(time.Minute+time.Second))
		require.Equal(t, start.Add(time.Minute).Unix(), lapsed.Unix())
		return err
	})
}

// Errors returns the errors of young deaths and of waiting jobs of all priorities, but no more than limit of each.
func errorsOfQueue(t *testing.T, d *Fixture) {
	fail := func(priority int64, outcome row.Outcome, text string, until time.Duration) {
		id := d.opsAdd(t, opsJob{priority: priority})
		require.Equal(t, []int64{id}, d.opsTake(t, "mails", 1, start))
		j, _ := d.find(t, id)
		d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: "mails", Outcome: outcome, Error: text, Delay: until})
	}
	fail(0, row.Died, "died first", 0)
	fail(0, row.Died, "died last", 0)
	fail(7, row.Retried, "due", 30*time.Minute)
	fail(0, row.Retried, "later", 2*time.Hour)
	fail(0, row.Retried, "last", 3*time.Hour)
	d.opsAdd(t, opsJob{delay: 90 * time.Minute})
	d.opsAdd(t, opsJob{queue: "other"})
	errors := func(since time.Time, limit int) (all []string) {
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			found, err := d.Stores.Problems.Errors(ctx, q, "mails", since, limit, start.Add(time.Hour))
			for _, f := range found {
				require.EqualValues(t, 1, f.Attempts)
				require.NotZero(t, f.ID)
				require.Equal(t, strings.HasPrefix(f.Error, "died"), f.Dead)
				all = append(all, f.Error)
			}
			return err
		})
		return all
	}
	all := errors(start.Add(-time.Second), 10)
	require.Equal(t, []string{"died first", "died last"}, slices.Sorted(slices.Values(all[:2])))
	require.ElementsMatch(t, []string{"due", "last", "later"}, all[2:])
	require.ElementsMatch(t, []string{"due", "last", "later"}, errors(start, 10), "the deaths are too old")
	require.Equal(t, []string{"due"}, errors(start, 1), "the next job of the lower priority has no error")
}
