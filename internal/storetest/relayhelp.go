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

// relayTest calls a family's store, each method in a separate transaction.
type relayTest struct {
	*Fixture
	t      *testing.T
	family string
	s      engine.RelayStore
}

func newRelayTest(t *testing.T, d *Fixture, family string) *relayTest {
	return &relayTest{Fixture: d, t: t, family: family, s: d.Stores.Relays.Family(family)}
}

// lease is the duration of leases in these tests.
const lease = 10 * time.Second

func (d *relayTest) do(f func(ctx context.Context, q engine.Querier) error) {
	d.t.Helper()
	d.mustWrite(d.t, f)
}

func (d *relayTest) register(queue string, partitions int) (found int, changed bool) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		found, changed, err = d.s.Register(ctx, q, queue, partitions, start)
		return err
	})
	return found, changed
}

func (d *relayTest) partitions(queue string) (n int) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		n, _, err = d.s.Partitions(ctx, q, queue)
		return err
	})
	return n
}

// send sends a message to a partition for each payload.
func (d *relayTest) send(queue string, partition int64, payloads ...string) (ids []int64) {
	d.t.Helper()
	messages := make([]row.RelayMessage, len(payloads))
	for i, p := range payloads {
		messages[i] = row.RelayMessage{Partition: partition, Type: "text/plain", Payload: []byte(p)}
	}
	return d.sendAll(queue, messages...)
}

func (d *relayTest) sendAll(queue string, messages ...row.RelayMessage) (ids []int64) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		ids, err = d.s.Send(ctx, q, queue, messages, start)
		return err
	})
	require.Len(d.t, ids, len(messages))
	return ids
}

// wanted selects all partitions of the given queues.
func wanted(queues ...string) (w row.RelayWanted) {
	for _, q := range queues {
		w.Queues = append(w.Queues, row.RelayQueue{Name: q, Lease: lease, Batch: 10})
	}
	return w
}

func (d *relayTest) take(w row.RelayWanted, owner string, now time.Time) (b row.RelayBatch, found bool) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		b, found, err = d.s.Take(ctx, q, w, owner, now)
		return err
	})
	return b, found
}

func (d *relayTest) mustTake(w row.RelayWanted, owner string, now time.Time) row.RelayBatch {
	d.t.Helper()
	b, found := d.take(w, owner, now)
	require.True(d.t, found)
	return b
}

func (d *relayTest) noTake(w row.RelayWanted, owner string, now time.Time) {
	d.t.Helper()
	b, found := d.take(w, owner, now)
	require.False(d.t, found, "took %v", b)
}

func (d *relayTest) save(l row.RelayLease, p row.RelayProgress, now time.Time) (held bool) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		held, err = d.s.Save(ctx, q, l, p, now)
		return err
	})
	return held
}

// finish returns the progress of a batch whose first n messages are finished.
func finish(b row.RelayBatch, n int) row.RelayProgress {
	p := row.RelayProgress{Finished: int64(n), After: b.Cursor}
	if n > 0 {
		p.Cursor = b.Messages[n-1].ID
	}
	return p
}

// kill sends a message for each payload and turns all of them into dead letters.
func (d *relayTest) kill(queue string, partition int64, now time.Time, payloads ...string) []int64 {
	d.t.Helper()
	ids := d.send(queue, partition, payloads...)
	d.killAll(queue, now)
	return ids
}

// killAll turns all of a queue's messages into dead letters, with the payload as the reason.
func (d *relayTest) killAll(queue string, now time.Time) {
	d.t.Helper()
	for {
		b, found := d.take(wanted(queue), "killer", now)
		if !found {
			return
		}
		p := finish(b, len(b.Messages))
		for i, m := range b.Messages {
			p.Dead = append(p.Dead, row.RelayDeath{ID: m.ID, Seq: b.Processed + 1 + int64(i), Attempts: 3, Reason: string(m.Payload)})
		}
		require.True(d.t, d.save(b.RelayLease, p, now))
	}
}

func (d *relayTest) info(queue string, partitions int) (info row.RelayInfo) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		info, err = d.s.Info(ctx, q, queue, partitions)
		return err
	})
	return info
}

func (d *relayTest) states(w row.RelayWanted, now time.Time) (all []row.RelayState) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.s.States(ctx, q, w, now)
		return err
	})
	return all
}

func (d *relayTest) dead(f row.RelayDeadFilter) (all []row.RelayDead) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.s.Dead(ctx, q, f, 0, 100)
		if err != nil {
			return err
		}
		n, err := d.s.CountDead(ctx, q, f)
		require.EqualValues(d.t, len(all), n, "CountDead %+v", f)
		return err
	})
	return all
}

func (d *relayTest) deadIDs(f row.RelayDeadFilter) []int64 { return idsOf(d.dead(f)) }

func idsOf(all []row.RelayDead) []int64 {
	ids := make([]int64, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids
}

func (d *relayTest) replay(p row.RelayReplay, now time.Time) (all []row.RelayDead) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.s.Replay(ctx, q, p, now)
		return err
	})
	return all
}

// hold requests up to n of queue a's dead letters for a holder.
func hold(n int, holder string, until time.Time) row.RelayReplay {
	return row.RelayReplay{RelayDeadFilter: row.RelayDeadFilter{Queue: "a"}, Limit: n, Holder: holder, Until: until}
}

func (d *relayTest) settle(id int64, queue, holder string, v row.RelayVerdict, now time.Time) (held bool) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		held, err = d.s.SettleDead(ctx, q, row.RelayHold{ID: id, Queue: queue, Holder: holder}, v, now)
		return err
	})
	return held
}

func (d *relayTest) requeue(queue string, ids []int64, now time.Time) (sent []int64) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		sent, err = d.s.Requeue(ctx, q, queue, ids, now)
		return err
	})
	return sent
}

func (d *relayTest) discard(queue string, ids []int64, now time.Time) (n int) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		n, err = d.s.Discard(ctx, q, queue, ids, now)
		return err
	})
	return n
}

func (d *relayTest) blocked(now time.Time) (all []row.RelayBlocked) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Relays.Blocked(ctx, q, now)
		return err
	})
	return all
}

func (d *relayTest) breaks(p row.RelayPartition, epoch int64, now time.Time) (broken bool) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		broken, err = d.Stores.Relays.Break(ctx, q, d.family, p, epoch, now)
		return err
	})
	return broken
}

// view returns everything that can be read about queue a, which has the given number of partitions.
func (d *relayTest) view(partitions int, now time.Time) string {
	d.t.Helper()
	return fmt.Sprintf("%d %+v %+v %+v %+v", d.partitions("a"), d.info("a", partitions), d.dead(row.RelayDeadFilter{Queue: "a"}),
		d.blocked(now), d.states(wanted("a"), now))
}
