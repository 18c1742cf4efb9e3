package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

// relayModel is a partition's state as expected by a random walk.
type relayModel struct {
	waiting   []int64 // IDs, in order
	processed int64
	dead      int64
	lease     row.RelayLease
	attempts  int64
	failed    bool
	until     time.Time // end of the lease
	retryAt   time.Time
}

// ready reports whether the partition can be taken.
func (m *relayModel) ready(now time.Time) bool {
	return len(m.waiting) > 0 && !m.until.After(now) && !m.retryAt.After(now)
}

// A random walk of sends, takes and saves by several owners, in which leases expire, matches a model: each partition
// has a single owner at a time, and each message is finished only once and in order.
func relayRandomWalk(d *relayTest) {
	seed := rand.Uint64()
	d.t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const partitions = 4
	d.register("a", partitions)
	model := make([]relayModel, partitions)
	var batches []row.RelayBatch // the last batches taken, by any owner
	now := start
	for step := range 300 {
		switch r.IntN(5) {
		case 0:
			p := r.Int64N(partitions)
			payloads := make([]string, 1+r.IntN(3))
			model[p].waiting = append(model[p].waiting, d.send("a", p, payloads...)...)
		case 1, 2:
			if b, found := d.walkTake(r, model, now); found {
				batches = append(batches, b)
			}
		case 3:
			if len(batches) > 0 {
				i := r.IntN(len(batches))
				d.walkSave(r, &model[batches[i].Partition], batches[i], now)
			}
		case 4:
			now = now.Add(time.Duration(r.IntN(6)) * time.Second)
		}
		d.walkCheck(model, now, step)
	}
}

// walkTake takes a partition, which must be ready in the model.
func (d *relayTest) walkTake(r *rand.Rand, model []relayModel, now time.Time) (row.RelayBatch, bool) {
	d.t.Helper()
	w := wanted("a")
	w.Queues[0].Batch = 1 + r.IntN(3)
	some := false
	for i := range model {
		some = some || model[i].ready(now)
	}
	owner := fmt.Sprint("owner", r.IntN(3))
	b, found := d.take(w, owner, now)
	require.Equal(d.t, some, found)
	if !found {
		return b, false
	}
	m := &model[b.Partition]
	require.True(d.t, m.ready(now))
	require.Equal(d.t, m.lease.Epoch+1, b.Epoch)
	require.Equal(d.t, m.attempts+1, b.Attempts)
	require.Equal(d.t, m.processed, b.Processed)
	require.Equal(d.t, m.attempts > 0 || m.failed, b.Failing)
	m.attempts, m.lease, m.until = b.Attempts, b.RelayLease, now.Add(lease)
	size := min(len(m.waiting), w.Queues[0].Batch)
	if b.Attempts > 1 {
		size = 1
	}
	var ids []int64
	for _, message := range b.Messages {
		ids = append(ids, message.ID)
	}
	require.Equal(d.t, m.waiting[:size], ids)
	return b, true
}

// walkSave saves a random outcome of b. It has an effect only if there is no later lease and this lease hasn't
// already been saved.
func (d *relayTest) walkSave(r *rand.Rand, m *relayModel, b row.RelayBatch, now time.Time) {
	d.t.Helper()
	n := r.IntN(len(b.Messages) + 1)
	p := finish(b, n)
	for i := range n {
		if r.IntN(4) == 0 {
			p.Dead = append(p.Dead, row.RelayDeath{ID: b.Messages[i].ID, Seq: b.Processed + 1 + int64(i), Attempts: 1})
		}
	}
	if n < len(b.Messages) {
		p.Attempts, p.LastError, p.RetryAt = 1, "failed", now.Add(time.Duration(r.IntN(4))*time.Second)
	}
	held := b.RelayLease == m.lease && !m.until.IsZero()
	require.Equal(d.t, held, d.save(b.RelayLease, p, now))
	if !held {
		return
	}
	m.waiting, m.processed, m.dead = m.waiting[n:], m.processed+int64(n), m.dead+int64(len(p.Dead))
	m.attempts, m.failed, m.retryAt, m.until = p.Attempts, p.LastError != "", p.RetryAt, time.Time{}
}

// walkCheck compares the state of all partitions with the model.
func (d *relayTest) walkCheck(model []relayModel, now time.Time, step int) {
	d.t.Helper()
	info, dead, ready := d.info("a", len(model)), int64(0), false
	for i := range model {
		m, p := &model[i], info.Partitions[i]
		require.Equal(d.t, m.processed, p.Processed, "step %d", step)
		require.EqualValues(d.t, len(m.waiting), p.Waiting, "step %d", step)
		require.Equal(d.t, m.attempts, p.Attempts, "step %d", step)
		require.Equal(d.t, m.lease.Epoch, p.Epoch, "step %d", step)
		require.True(d.t, m.until.Equal(p.LeaseUntil), "step %d", step)
		dead, ready = dead+m.dead, ready || m.ready(now)
	}
	require.Equal(d.t, dead, info.OpenDead, "step %d", step)
	some := false
	for _, s := range d.states(wanted("a"), now) {
		some = some || s.Ready
	}
	require.Equal(d.t, ready, some, "step %d", step)
}
