//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

const diskPartitions = 2

var diskQueues = []string{"one", "tx"}

// diskRelay sends and handles messages in this process, on a faulty disk. The messages of a
// partition carry 1, 2, 3, … in the order in which they are sent.
type diskRelay struct {
	db     *honker.DB
	relay  *relay.Relay
	queues map[string]*relay.Queue

	mu       sync.Mutex
	parts    map[string]*diskPart
	disorder error
	again    int64
}

// diskPart is the expected state of a partition.
type diskPart struct {
	sent  int64 // the last number sent, whether or not the send succeeded
	acked []int64
	given []int64
	saved int64 // number of messages finished by batches that were saved
}

const diskTable = `CREATE TABLE IF NOT EXISTS relay_effects (partition INTEGER, number INTEGER)`

func partName(queue string, partition int) string { return queue + "/" + strconv.Itoa(partition) }

func newDiskRelay(ctx context.Context, db *honker.DB) (*diskRelay, error) {
	d := &diskRelay{db: db, queues: map[string]*relay.Queue{}, parts: map[string]*diskPart{}}
	d.relay = relay.New(db, &relay.Options{
		Batch: 4, Processors: 2, RetryBase: time.Millisecond, RetryMax: 5 * time.Millisecond, Observer: &relay.Observer{Finished: d.finished},
	})
	for _, name := range diskQueues {
		d.queues[name] = d.relay.Queue(name, diskPartitions)
		for p := range diskPartitions {
			d.parts[partName(name, p)] = &diskPart{}
		}
	}
	lease := relay.Lease(200*time.Millisecond, 50*time.Millisecond)
	d.queues["one"].Handle(func(_ context.Context, m *relay.Message) error { return d.handle(m) }, lease)
	d.queues["tx"].HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO relay_effects VALUES (?, ?)`, m.Partition, string(m.Payload))
		if handled := d.handle(m); err == nil {
			err = handled
		}
		return err
	}, lease)
	_, err := db.SQL().ExecContext(ctx, diskTable)
	return d, err
}

func (d *diskRelay) finished(e relay.Finished) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts[partName(e.Queue, e.Partition)].saved += int64(e.Processed)
}

// A few messages fail at first or are rejected.
func failsAtFirst(seq int64) bool { return seq%7 == 3 }
func isRefused(seq int64) bool    { return seq%11 == 5 }

// handle records a message. It must be the next of its partition, or a repeated delivery.
func (d *diskRelay) handle(m *relay.Message) error {
	n, err := strconv.ParseInt(string(m.Payload), 10, 64)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.parts[partName(m.Queue, m.Partition)]
	switch known := int64(len(p.given)); {
	case m.Seq == known+1 && (known == 0 || n > p.given[known-1]):
		p.given = append(p.given, n)
	case m.Seq >= 1 && m.Seq <= known && p.given[m.Seq-1] == n && m.Seq > p.saved:
		d.again++
	default:
		d.disorder = errors.Join(d.disorder, fmt.Errorf("%s carries %d after %v, with %d saved", m.IdempotencyKey(), n, p.given, p.saved))
	}
	switch {
	case isRefused(m.Seq):
		return relay.Reject(errOnPurpose)
	case failsAtFirst(m.Seq) && m.Attempt == 0:
		return errOnPurpose
	}
	return nil
}

// send sends n messages to a partition, optionally in a transaction.
func (d *diskRelay) send(ctx context.Context, queue string, partition, n int, inTx bool) error {
	p := d.parts[partName(queue, partition)]
	d.mu.Lock()
	all := make([]relay.Outgoing, n)
	for i := range all {
		p.sent++
		all[i] = relay.Outgoing{Partition: partition, Payload: strconv.AppendInt(nil, p.sent, 10)}
	}
	first, last := p.sent-int64(n)+1, p.sent
	d.mu.Unlock()
	var err error
	if inTx {
		err = d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := d.queues[queue].SendTx(ctx, tx, all...)
			return err
		})
	} else {
		_, err = d.queues[queue].Send(ctx, all...)
	}
	if err == nil {
		d.mu.Lock()
		for ; first <= last; first++ {
			p.acked = append(p.acked, first)
		}
		d.mu.Unlock()
	}
	return err
}

// start runs the relay. stop ends it and returns its error.
func (d *diskRelay) start() (stop func() error, ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.relay.Run(ctx) }()
	return func() error { cancel(); return <-done }, done
}

// drained waits until no message is left.
func (d *diskRelay) drained(ended <-chan error) error {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(hangs); ; <-look.C {
		left, err := one[int](context.Background(), d.db.SQL(), `SELECT count(*) FROM _honkerx_relay_messages`)
		if err != nil || left == 0 {
			return err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("Run has ended with %d messages left: %w", left, err)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %d messages are left", errHung, left)
		}
	}
}

// result checks that the messages were handled correctly, and that the file is intact.
func (d *diskRelay) result(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.disorder
	for name, p := range d.parts {
		for _, n := range p.acked {
			if !slices.Contains(p.given, n) {
				err = errors.Join(err, fmt.Errorf("%s: message %d was acknowledged, but only %v were handled", name, n, p.given))
			}
		}
		err = errors.Join(err, d.compareEffects(ctx, name, p))
	}
	return errors.Join(err, d.db.Check(ctx))
}

// compareEffects checks that each message that was not rejected has its effect exactly once, and
// that rejected messages are dead letters.
func (d *diskRelay) compareEffects(ctx context.Context, name string, p *diskPart) error {
	kept, err := d.rows(ctx, name)
	if err != nil {
		return err
	}
	var want []int64
	for i, n := range p.given {
		if strings.HasPrefix(name, "tx/") || isRefused(int64(i+1)) {
			want = append(want, n)
		}
	}
	if fmt.Sprint(kept) != fmt.Sprint(want) {
		return fmt.Errorf("%s: the effects and dead letters belong to %v rather than %v", name, kept, want)
	}
	return nil
}

// rows returns the messages of a partition that have an effect or are dead letters.
func (d *diskRelay) rows(ctx context.Context, name string) ([]int64, error) {
	return column[int64](ctx, d.db.SQL(), `SELECT number FROM relay_effects WHERE 'tx/' || partition = ?1
UNION ALL SELECT CAST(payload AS INTEGER) FROM _honkerx_relay_dead WHERE queue || '/' || partition = ?1 ORDER BY 1`, name)
}
