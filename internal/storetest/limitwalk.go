package storetest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// limitsModel is the model of queue "a" with limits.
type limitsModel struct {
	jobs   map[int64]*modelJob
	limits row.QueueLimits
	paused map[string]bool           // by key; "" is the queue
	places map[row.Claim]placeOfWalk // slots of cancelled jobs
}

// placeOfWalk is a cancelled job's slot.
type placeOfWalk struct {
	key   string
	until int64 // last Unix second
}

// running returns the number of slots in use, in total and by key.
func (m *limitsModel) running(now int64) (all int64, of map[string]int64) {
	of = make(map[string]int64)
	for _, j := range m.jobs {
		if j.held && j.heldUntil >= now {
			all++
			of[j.key]++
		}
	}
	for _, p := range m.places {
		if p.until >= now {
			all++
			of[p.key]++
		}
	}
	return all, of
}

// startable returns the jobs that may start, in claim order.
func (m *limitsModel) startable(now int64) (start []*modelJob) {
	if m.paused[""] {
		return nil
	}
	all, running := m.running(now)
	first := make(map[string]int64)
	var due []*modelJob
	for _, j := range m.jobs {
		runs := j.held && j.heldUntil >= now
		if !runs && (j.attempts >= j.most || j.expiresAt != 0 && j.expiresAt <= now) {
			continue // it can never run again
		}
		if first[j.key] == 0 || j.id < first[j.key] {
			first[j.key] = j.id
		}
		if !runs && j.runAt <= now {
			due = append(due, j)
		}
	}
	slices.SortFunc(due, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
	})
	l := m.limits
	for _, j := range due {
		if l.Running > 0 && all >= l.Running {
			break
		}
		if j.key != "" && (m.paused[j.key] || l.PerKey > 0 && running[j.key] >= l.PerKey ||
			l.InOrder && (running[j.key] > 0 || first[j.key] != j.id)) {
			continue
		}
		start = append(start, j)
		running[j.key]++
		all++
	}
	return start
}

// cancel deletes a job, which keeps its slot as long as its claim is valid and a limit applies to it.
func (m *limitsModel) cancel(j *modelJob, c row.Claim, now int64) {
	delete(m.jobs, j.id)
	l := m.limits
	if j.held && j.heldUntil >= now && (l.Running > 0 || j.key != "" && (l.PerKey > 0 || l.InOrder)) {
		m.places[c] = placeOfWalk{j.key, j.heldUntil}
	}
}

// setLimits sets the limits of queue "a".
func (d *Fixture) setLimits(t *testing.T, l row.QueueLimits) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Limits.Set(ctx, q, "a", l)
		return err
	})
}

// fit adjusts jobs to changed limits, a few in each transaction, until there are no more.
func (d *Fixture) fit(t *testing.T, now time.Time) {
	t.Helper()
	s := d.Stores.Sweeps.Fits
	for range 1000 {
		parts := d.parts(t, s, now)
		if len(parts) == 0 {
			return
		}
		for _, p := range parts {
			d.take(t, s, p, d.seek(t, s, p, now), now)
		}
	}
	require.Fail(t, "the sweep does not end")
}

// pause pauses queue "a", or a key of it if key is not empty, until the given time. The zero time means no end.
func (d *Fixture) pause(t *testing.T, now time.Time, key string, until time.Time) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Pauses.Set(ctx, q, "a", key, row.Pause{Since: now, Until: until}, now)
		return err
	})
}

// resume ends a pause and reports whether there was one.
func (d *Fixture) resume(t *testing.T, now time.Time, key string) (was bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		was, err = d.Stores.Pauses.End(ctx, q, "a", key, now)
		return err
	})
	return was
}

// cancelJob cancels a job of queue "a" at a time.
func (d *Fixture) cancelJob(t *testing.T, now time.Time, id int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		done, err := d.Stores.Jobs.Cancel(ctx, q, "a", id, now)
		require.True(t, done)
		return err
	})
}

// queueReady reports whether queue "a" is ready.
func (d *Fixture) queueReady(t *testing.T, now time.Time) (ready bool) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Jobs.States(ctx, q, []string{"a"}, false, now)
		ready = all[0].Ready
		return err
	})
	return ready
}

// Claims in a queue with limits match a model, for random jobs, limits, pauses, cancels, settles and times. A claim
// takes the first jobs, in claim order, that may start. The queue and the key must have room and must not be paused
// and, with InOrder, the job must be the first with its key. The claim skips other jobs. A cancelled job keeps its
// slot until its worker settles it or its claim would have ended.
func limitedClaimsOfModel(t *testing.T, d *Fixture) {
	rng := random(t)
	now := start
	m := &limitsModel{jobs: make(map[int64]*modelJob), paused: make(map[string]bool), places: make(map[row.Claim]placeOfWalk)}
	var claims []*row.Job
	met := make(map[string]int)
	for step := range 600 {
		switch rng.IntN(10) {
		case 0, 1:
			in := plain()
			in.Payloads = make([]string, 1+rng.IntN(3))
			in.Key, in.Priority, in.MaxAttempts = pick(rng, "", "k", "k", "l"), rng.Int64N(3)-1, 1+rng.Int64N(3)
			in.Delay = time.Duration(max(0, rng.IntN(6)-3)) * time.Second
			expires := int64(0)
			if rng.IntN(5) == 0 {
				in.ExpiresIn = time.Duration(1+rng.IntN(15)) * time.Second
				expires = now.Add(in.ExpiresIn).Unix()
			}
			for i := range in.Payloads {
				in.Payloads[i] = `{}`
			}
			for _, id := range d.insert(t, now, in).IDs {
				m.jobs[id] = &modelJob{id: id, key: in.Key, priority: in.Priority, runAt: now.Add(in.Delay).Unix(), most: in.MaxAttempts, expiresAt: expires}
			}
		case 2:
			now = now.Add(time.Duration(rng.IntN(5)) * time.Second)
		case 3, 4:
			want := m.startable(now.Unix())
			if len(want) > 0 {
				require.True(t, d.queueReady(t, now), "step %d: %d jobs may start", step, len(want))
			}
			n := pick(rng, 1, 2, 3, 100)
			ids := []int64{}
			for _, j := range want[:min(n, len(want))] {
				j.held, j.heldUntil = true, now.Add(jobLease).Unix()
				j.attempts++
				ids = append(ids, j.id)
			}
			got := d.claimJobs(t, now, pick(rng, "w", "v"), n)
			require.Equal(t, ids, jobIDs(got), "step %d: %+v, paused %v", step, m.limits, m.paused)
			claims, met["claimed"] = append(claims, got...), met["claimed"]+len(got)
		case 5, 6:
			if len(claims) == 0 {
				continue
			}
			i := rng.IntN(len(claims))
			c := claims[i]
			claims = slices.Delete(claims, i, i+1)
			j, live := m.jobs[c.ID]
			held := live && j.held && j.attempts == c.Attempts && j.heldUntil >= now.Unix()
			s := &row.Settlement{Claim: claimOf(c), Queue: "a", Outcome: pick(rng, row.Acked, row.Retried, row.Died, row.Released, row.Snoozed),
				Delay: time.Duration(rng.IntN(3)) * time.Second}
			d.settleJobs(t, now, s)
			require.Equal(t, held, s.Became != row.Lost, "step %d", step)
			if _, kept := m.places[s.Claim]; kept {
				delete(m.places, s.Claim)
				met["freed"]++
			}
			if held {
				modelSettle(m.jobs, j, s, now)
				met["settled"]++
			}
		case 7:
			l := row.QueueLimits{Running: pick[int64](rng, 0, 1, 3), PerKey: pick[int64](rng, 0, 1, 2), InOrder: rng.IntN(4) == 0}
			d.setLimits(t, l)
			d.fit(t, now)
			m.limits = l
		case 8:
			key := pick(rng, "", "k", "l")
			if rng.IntN(3) == 0 {
				d.pause(t, now, key, time.Time{})
				m.paused[key] = true
				continue
			}
			require.Equal(t, m.paused[key], d.resume(t, now, key), "step %d", step)
			delete(m.paused, key)
		case 9:
			if len(claims) == 0 {
				continue
			}
			c := claims[rng.IntN(len(claims))]
			j, live := m.jobs[c.ID]
			if !live || !j.held || j.heldUntil < now.Unix() || j.attempts != c.Attempts {
				continue
			}
			d.cancelJob(t, now, c.ID)
			m.cancel(j, claimOf(c), now.Unix())
			met["cancelled"]++
		}
		limited := m.limits.Running > 0 || m.limits.PerKey > 0 || m.limits.InOrder
		if limited {
			met["limited"]++
		}
	}
	for _, kind := range []string{"claimed", "settled", "cancelled", "limited"} {
		require.NotZero(t, met[kind], "%s: %v", kind, met)
	}
	limitedClaimsEnd(t, d, m, now)
}

// limitedClaimsEnd ends all pauses and claims until all jobs have ended.
func limitedClaimsEnd(t *testing.T, d *Fixture, m *limitsModel, now time.Time) {
	t.Helper()
	for _, key := range slices.Collect(maps.Keys(m.paused)) {
		d.resume(t, now, key)
	}
	for range 300 {
		now = now.Add(time.Second)
		for _, j := range d.claimJobs(t, now, "last", 3) {
			require.Equal(t, row.Acked, d.end(t, now, j, row.Acked).Became)
			delete(m.jobs, j.ID)
		}
	}
	for id := range m.jobs {
		require.NotContains(t, []string{"processing", row.Held}, d.stateOf(t, id), "job %d is stuck", id)
	}
}
