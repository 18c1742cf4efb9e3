package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

const outgoing = 100_000 // messages to deliver

// relaySuite measures how fast messages are sent with rows of the application and delivered in
// order. Every turn checks each delivered message and fails on any mistake.
func relaySuite() Suite {
	s := Suite{Name: "relay", Contestants: relayContestants, Cases: []Case{
		sendOrderCase(Normal),
		sendOrderCase(Full),
		deliverCase("1 partition", 1, delivery{Kind: byBatch}),
		deliverCase("1 partition", 1, delivery{Kind: byBatch, Batch: 100}),
		deliverCase("16 partitions", 16, delivery{Kind: byMessage}),
		deliverCase("16 partitions", 16, delivery{Kind: byTx, Processors: 16}),
		deliverCase("16 partitions", 16, delivery{Kind: byTx, Batch: 100, Processors: 16}),
		relayWakeCase(1),
		relayWakeCase(2),
		skewCase(0),
		skewCase(time.Millisecond),
		waitingCase(),
		hangCase(0, false),
		hangCase(4, false),
		hangCase(8, false),
		hangCase(16, true),
		haulCase(),
		mixCase(),
	}}
	return s
}

// relayContestants returns honker, and the bare driver with the statements of honker's relay.
func relayContestants() []Contestant {
	bare := raw()
	bare.About = "modernc.org/sqlite with the relay's statements on the relay's tables, prepared once, one connection, one loop, transactions of the same size; when idle it reads data_version every millisecond"
	return []Contestant{bare, honkers()}
}

const noRelay = "has no relay"

// relayFile creates a file with a relay queue and opens it.
func relayFile(ctx context.Context, t *Turn, partitions int) (q Queue, r Relayer, path string, err error) {
	if path, err = t.path(); err != nil {
		return nil, nil, "", err
	}
	if err := makeRelay(ctx, path, relayQueue{"bench", partitions}); err != nil {
		return nil, nil, "", err
	}
	if q, err = t.Open(ctx, path, t.Durability); err != nil {
		return nil, nil, "", err
	}
	opener, err := as[RelayOpener](q, noRelay)
	if err != nil {
		return nil, nil, "", errors.Join(err, q.Close())
	}
	return q, opener.Relay(partitions), path, nil
}

// relayQueue is a queue of a relay.
type relayQueue struct {
	name       string
	partitions int
}

// makeRelay creates the tables and the queues. It sends a message to each and deletes them.
func makeRelay(ctx context.Context, path string, queues ...relayQueue) error {
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	all := relay.New(db, nil)
	for _, one := range queues {
		_, sent := all.Queue(one.name, one.partitions).Send(ctx, relay.Outgoing{})
		err = errors.Join(err, sent)
	}
	if err == nil {
		_, err = db.SQL().ExecContext(ctx, "DELETE FROM _honkerx_relay_messages")
	}
	return errors.Join(err, db.Close())
}

// fillRelay adds n messages to the partitions of queue in turn. Their numbers continue those of earlier
// messages.
func fillRelay(ctx context.Context, q Queue, queue string, partitions, sent, n int) error {
	const most = 100_000 // per transaction
	for ; n > 0; n -= most {
		first, some := sent, min(n, most)
		sent += some
		_, err := q.SQL().ExecContext(ctx, numbers+`INSERT INTO _honkerx_relay_messages (queue, partition, payload)
SELECT ?6, (?2 + i - 1) % ?3, CAST(?4 || ((?2 + i - 1) / ?3 + 1) || ?5 AS BLOB) FROM n`, some, first, partitions, string(payloadHead), string(payloadTail), queue)
		if err != nil {
			return err
		}
	}
	return nil
}

func sendOrderCase(d Durability) Case {
	return Case{Name: "SendTx, beside an order", Durability: d, Metrics: rate("messages/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, r, _, err := relayFile(ctx, t, 1)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		if err := r.SendOrder(ctx, 1); err != nil { // prepares statements and creates the log
			return nil, err
		}
		n := int64(1)
		perSecond, err := repeat(ctx, 1, t.Length, func(ctx context.Context) error {
			n++
			return r.SendOrder(ctx, n)
		})
		return []float64{perSecond}, errors.Join(err, verifySent(ctx, q, n))
	}}
}

// verifySent checks that the file has n messages in order, and as many orders.
func verifySent(ctx context.Context, q Queue, n int64) error {
	rows, err := q.SQL().QueryContext(ctx, `SELECT payload FROM _honkerx_relay_messages ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	at := int64(0)
	for rows.Next() {
		var payload []byte
		if err := rows.Scan(&payload); err != nil {
			return err
		}
		at++
		if number, ok := numberOf(payload); !ok || number != at {
			return fmt.Errorf("message %d has the payload %s", at, payload)
		}
	}
	orders, err := count(ctx, q.SQL(), "orders")
	if err == nil && (at != n || int64(orders) != n) {
		err = fmt.Errorf("%d messages and %d orders of %d", at, orders, n)
	}
	return errors.Join(err, rows.Err())
}

func deliverCase(where string, partitions int, d delivery) Case {
	name := fmt.Sprintf("%s, %s, batches of %d", where, d.Kind, d.size())
	if d.Processors > 0 {
		name = fmt.Sprintf("%s, %d processors", name, d.Processors)
	}
	return Case{Name: name, Durability: Normal, Metrics: rate("messages/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, r, _, err := relayFile(ctx, t, partitions)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		n := t.scaled(outgoing)
		if err := fillRelay(ctx, q, "bench", partitions, 0, n); err != nil {
			return nil, err
		}
		perSecond, err := deliver(ctx, q, r, d, n)
		if err == nil {
			err = verifyDrained(ctx, q, d, n)
		}
		return []float64{perSecond}, err
	}}
}

// deliver delivers n messages and returns the number per second.
func deliver(ctx context.Context, q Queue, r Relayer, d delivery, n int) (perSecond float64, err error) {
	l, err := openLedger(ctx, q)
	if err != nil {
		return 0, err
	}
	sent, err := sentTo(ctx, q)
	if err != nil {
		return 0, err
	}
	perSecond, err = drain(ctx, n, func(ctx context.Context, handle func(int64)) error {
		return r.Deliver(ctx, d, func(partition int, seq int64, payload []byte) {
			l.deliver(partition, seq, payload)
			handle(seq)
		})
	})
	if err == nil {
		err = l.verify(ctx, q, sent)
	}
	return perSecond, err
}

// sentTo returns the number of messages ever sent to a file.
func sentTo(ctx context.Context, q Queue) (int, error) {
	waiting, err := count(ctx, q.SQL(), "_honkerx_relay_messages")
	if err != nil {
		return 0, err
	}
	finished, err := processed(ctx, q)
	for _, n := range finished {
		waiting += int(n)
	}
	return waiting, err
}

// verifyDrained checks that none of n messages is left and, for handlers that insert receipts, that
// each has a receipt.
func verifyDrained(ctx context.Context, q Queue, d delivery, n int) error {
	waiting, err := count(ctx, q.SQL(), "_honkerx_relay_messages")
	if err == nil && waiting > 0 {
		err = fmt.Errorf("%d messages are left", waiting)
	}
	if err != nil || d.Kind != byTx {
		return err
	}
	all, err := count(ctx, q.SQL(), "receipts")
	if err != nil {
		return err
	}
	distinct, err := count(ctx, q.SQL(), "(SELECT DISTINCT job FROM receipts)")
	if err == nil && (all != n || distinct != n) {
		err = fmt.Errorf("%d receipts for %d of %d messages", all, distinct, n)
	}
	return err
}

const relayWaiting = 1_000_000

// waitingCase measures a batch of a single message while a million messages wait in its partition.
func waitingCase() Case {
	name := fmt.Sprintf("take and progress, %s waiting in 1 partition", thousands(relayWaiting))
	metrics := []Metric{{"growth", "× empty", false}, {"take + progress", "µs/message", false}}
	return Case{Name: name, Durability: Normal, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		var bare, full keptRelay
		err := errors.Join(bare.open(ctx, t, "bare", 0), full.open(ctx, t, "full", t.scaled(relayWaiting)))
		if err != nil {
			return nil, err
		}
		var times [2]time.Duration
		for range 2 * parts {
			for i, one := range []keptRelay{bare, full} {
				took, err := one.takes(ctx, t)
				if err != nil {
					return nil, err
				}
				times[i] += took / (2 * parts)
			}
		}
		return []float64{float64(times[1]) / float64(times[0]), float64(times[1].Nanoseconds()) / 1e3}, nil
	}}
}

// keptRelay is a file with a single partition that is kept for all rounds.
type keptRelay struct {
	Queue
	Relayer
}

func (k *keptRelay) open(ctx context.Context, t *Turn, name string, waiting int) error {
	if t.kept[name] == nil {
		q, _, _, err := relayFile(ctx, t, 1)
		if err != nil {
			return err
		}
		t.kept[name] = q
		if err := fillRelay(ctx, q, "bench", 1, 0, waiting); err != nil {
			return err
		}
	}
	k.Queue = t.kept[name]
	k.Relayer = k.Queue.(RelayOpener).Relay(1)
	return nil
}

// takes adds messages and delivers them in batches of a single message. It returns the time per
// message.
func (k *keptRelay) takes(ctx context.Context, t *Turn) (perMessage time.Duration, err error) {
	const atOnce = 1000
	var spent time.Duration
	done := 0
	for began := time.Now(); done == 0 || time.Since(began) < t.Length/(4*parts); done += atOnce {
		sent, err := sentTo(ctx, k.Queue)
		if err != nil {
			return 0, err
		}
		if err := fillRelay(ctx, k.Queue, "bench", 1, sent, atOnce); err != nil {
			return 0, err
		}
		perSecond, err := deliver(ctx, k.Queue, k.Relayer, delivery{Kind: byMessage, Batch: 1, Processors: 1}, atOnce)
		if err != nil {
			return 0, err
		}
		spent += time.Duration(atOnce / perSecond * float64(time.Second))
	}
	return spent / time.Duration(done), nil
}

// relayWakeCase measures the latency from a send to the handler of an idle relay.
func relayWakeCase(processes int) Case {
	name := "commit to handler, " + where[processes]
	return Case{Name: name, Durability: Normal, Metrics: latencyMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, r, path, err := relayFile(ctx, t, 1)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		l, err := openLedger(ctx, q)
		if err != nil {
			return nil, err
		}
		w, err := startRelay(ctx, t, r, l, path, processes)
		if err != nil {
			return nil, err
		}
		sends := sender{Queue: q, Relayer: r, sent: new(atomic.Int64)}
		took, err := wakes(ctx, t, sends, w)
		if err = errors.Join(err, w.stop()); err != nil {
			return nil, err
		}
		return took.values(), errors.Join(l.verify(ctx, q, int(sends.sent.Load())), verifyDrained(ctx, q, delivery{}, 0))
	}}
}

// sender adapts a relay to Queue: Enqueue sends a message to partition 0.
type sender struct {
	Queue
	Relayer
	sent *atomic.Int64
}

// Enqueue sends job n, counted from 0, as message n + 1.
func (s sender) Enqueue(ctx context.Context, n int64) error {
	s.sent.Add(1)
	return s.Send(ctx, 0, n+1)
}

// startRelay delivers in this process, or in another process that reports its deliveries.
func startRelay(ctx context.Context, t *Turn, r Relayer, l *ledger, path string, processes int) (*waker, error) {
	w := &waker{started: make(chan start, 64)}
	if processes == 1 {
		w.stop = background(ctx, func(ctx context.Context) error {
			return r.Deliver(ctx, delivery{Kind: byMessage}, func(partition int, seq int64, payload []byte) {
				w.started <- start{seq - 1, time.Now()}
				l.deliver(partition, seq, payload)
			})
		})
		return w, nil
	}
	c, err := startChild(ctx, task{Do: "deliver", Contestant: t.Name, Path: path, Durability: t.Durability})
	if err != nil {
		return nil, err
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		w.hearRelay(c, l)
	}()
	w.stop = func() error {
		_ = c.stdin.Close()
		<-heard
		return c.cmd.Wait()
	}
	return w, nil
}

// hearRelay forwards the reports of the child until it exits.
func (w *waker) hearRelay(c *child, l *ledger) {
	for c.out.Scan() {
		var at, seq, n int64
		if _, err := fmt.Sscan(c.out.Text(), &at, &seq, &n); err == nil {
			w.started <- start{seq - 1, time.Unix(0, at)}
			l.deliver(0, seq, []byte(payloadText(n)))
		}
	}
}

// deliver reports the start of each message with its numbers according to the relay and to its
// payload.
func (t task) deliver(ctx context.Context, c Contestant) error {
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	fmt.Println("READY")
	return q.(RelayOpener).Relay(1).Deliver(ctx, delivery{Kind: byMessage}, func(_ int, seq int64, payload []byte) {
		at := time.Now().UnixNano()
		n, _ := numberOf(payload) // 0 is not a valid number
		fmt.Println(at, seq, n)
	})
}
