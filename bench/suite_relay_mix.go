package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/honker-go/honker/relay"
)

// slowQueue is the index in mixed of the queue whose handler takes a millisecond.
const slowQueue = 3

// The limits of the process that delivers a mix of queues.
const (
	mixProcessors = 1        // GOMAXPROCS
	mixMemory     = 64 << 20 // bytes, GOMEMLIMIT
)

// mixed are the queues of the mix.
var mixed = []relayQueue{
	{"orders", 1},    // batches
	{"mails", 16},    // single messages
	{"receipts", 4},  // a receipt in the transaction of each message
	{"webhooks", 64}, // single messages, each takes a millisecond
}

// mixedMessages are the messages of each queue of the mix.
var mixedMessages = []int{40_000, 20_000, 20_000, 20_000}

var mixMetrics = []Metric{
	{"three fast queues", "messages/s", true}, {"the same beside the slow queue", "messages/s", true},
	{"all four", "messages/s", true}, {"peak RSS", "MiB", false},
}

// mixCase delivers the messages of four queues in a process with a processor and little memory, first without and then
// with the slow queue.
func mixCase() Case {
	name := fmt.Sprintf("four queues, one processor, a memory limit of %d MiB", mixMemory>>20)
	return Case{Name: name, Durability: Normal, Metrics: mixMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if t.Name != honkerName {
			return nil, fmt.Errorf("%w: has one loop for one queue", errNA)
		}
		alone, err := runMix(ctx, t, slowQueue)
		if err != nil {
			return nil, err
		}
		all, err := runMix(ctx, t, len(mixed))
		return []float64{alone.fast, all.fast, all.all, max(alone.memory, all.memory)}, err
	}}
}

// mix is a measurement.
type mix struct {
	q         Queue
	fast, all float64 // messages per second of the fast queues, and of all
	memory    float64 // MiB
}

// runMix delivers the messages of the first queues of mixed.
func runMix(ctx context.Context, t *Turn, queues int) (m mix, err error) {
	path, err := t.path()
	if err == nil {
		err = makeRelay(ctx, path, mixed...)
	}
	if err != nil {
		return m, err
	}
	if m.q, err = t.Open(ctx, path, t.Durability); err != nil {
		return m, err
	}
	defer m.q.Close()
	fast, all := 0, 0
	for i, one := range mixed[:queues] {
		n := t.scaled(mixedMessages[i])
		if err := fillRelay(ctx, m.q, one.name, one.partitions, 0, n); err != nil {
			return m, err
		}
		if all += n; i != slowQueue {
			fast += n
		}
	}
	c, err := startChild(ctx, task{Do: "mix", Contestant: t.Name, Path: path, Durability: t.Durability})
	if err != nil {
		return m, err
	}
	err = m.watch(ctx, c.cmd.Process.Pid, fast, all)
	if err = errors.Join(err, c.end()); err != nil {
		return m, err
	}
	return m, verifyDrained(ctx, m.q, delivery{Kind: byTx}, t.scaled(mixedMessages[2]))
}

// watch waits until the messages are delivered and measures the memory of the process that delivers them.
func (m *mix) watch(ctx context.Context, pid, fast, all int) error {
	const delivered = `SELECT coalesce(sum(processed) FILTER (WHERE queue <> ?1), 0), coalesce(sum(processed), 0) FROM _honkerx_relay_partitions`
	for began := time.Now(); m.all == 0; time.Sleep(10 * time.Millisecond) {
		var doneFast, done int
		if err := m.q.SQL().QueryRowContext(ctx, delivered, mixed[slowQueue].name).Scan(&doneFast, &done); err != nil {
			return err
		}
		m.memory = max(m.memory, memoryOf(pid))
		spent := time.Since(began)
		if m.fast == 0 && doneFast >= fast {
			m.fast = float64(fast) / spent.Seconds()
		}
		if done >= all {
			m.all = float64(all) / spent.Seconds()
		}
		if spent > patience {
			return fmt.Errorf("%d of %d messages after %v", done, all, patience)
		}
	}
	return nil
}

// mix delivers the messages of all queues until it is stopped.
func (t task) mix(ctx context.Context, c Contestant) error {
	runtime.GOMAXPROCS(mixProcessors)
	debug.SetMemoryLimit(mixMemory)
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	all := relay.New(q.(*honkerQueue).db, nil)
	queue := func(i int) *relay.Queue { return all.Queue(mixed[i].name, mixed[i].partitions) }
	queue(0).HandleBatch(func(_ context.Context, b *relay.Batch) error {
		for _, m := range b.NextChunk(b.Len()) {
			if err := inOrder(m); err != nil {
				return err
			}
		}
		b.AckChunk(b.Len())
		return nil
	})
	queue(1).Handle(func(_ context.Context, m *relay.Message) error { return inOrder(m) })
	queue(2).HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		_, err := tx.ExecContext(ctx, insertReceipt, m.ID)
		return errors.Join(err, inOrder(m))
	})
	queue(slowQueue).Handle(func(_ context.Context, m *relay.Message) error {
		time.Sleep(time.Millisecond)
		return inOrder(m)
	})
	fmt.Println("READY")
	return all.Run(ctx)
}

// inOrder checks that the payload of m is that of its number in the partition.
func inOrder(m *relay.Message) error {
	if n, ok := numberOf(m.Payload); !ok || n != m.Seq {
		return fmt.Errorf("message %s has the payload %s", m.IdempotencyKey(), m.Payload)
	}
	return nil
}
