package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// ledger checks deliveries: each message of a partition must arrive once, in order and with its
// original payload.
type ledger struct {
	mu     sync.Mutex
	last   []int64 // last number delivered in each partition
	broken error   // first violation
}

const relayProcessed = `SELECT processed FROM _honkerx_relay_partitions WHERE queue = 'bench' ORDER BY partition`

// openLedger returns a ledger that starts at the current progress of the partitions.
func openLedger(ctx context.Context, q Queue) (*ledger, error) {
	last, err := processed(ctx, q)
	return &ledger{last: last}, err
}

func processed(ctx context.Context, q Queue) (all []int64, err error) {
	rows, err := q.SQL().QueryContext(ctx, relayProcessed)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}

// deliver records and checks a delivery.
func (l *ledger) deliver(partition int, seq int64, payload []byte) {
	n, ok := numberOf(payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[partition]++
	if l.broken == nil && (!ok || n != seq || seq != l.last[partition]) {
		l.broken = fmt.Errorf("partition %d: message %d comes as number %d, with the payload %s", partition, l.last[partition], seq, payload)
	}
}

// verify checks that the deliveries agree with the progress in the file, and that all sent messages
// were delivered.
func (l *ledger) verify(ctx context.Context, q Queue, sent int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	finished, err := processed(ctx, q)
	if err != nil {
		return err
	}
	sum := 0
	for i, n := range finished {
		if n != l.last[i] {
			return fmt.Errorf("partition %d: %d messages delivered, %d finished", i, l.last[i], n)
		}
		sum += int(n)
	}
	waiting, err := count(ctx, q.SQL(), "_honkerx_relay_messages")
	if err != nil {
		return err
	}
	dead, err := count(ctx, q.SQL(), "_honkerx_relay_dead")
	if err == nil && (sum+waiting != sent || dead > 0) {
		err = fmt.Errorf("of %d messages %d are finished, %d wait, %d are dead", sent, sum, waiting, dead)
	}
	return err
}

// haulBatch is a batch in the journal of a long haul.
type haulBatch struct {
	epoch, first, count int64
	finished            int64 // -1 if its process was killed before recording it
}

// verifyHaul checks that each of n messages was delivered and that none is left. In each partition,
// a batch must begin where the previous batch finished. It returns the number of repeated
// deliveries.
func verifyHaul(ctx context.Context, q Queue, journal string, n int) (again int, err error) {
	partitions, err := readJournal(journal)
	if err != nil {
		return 0, err
	}
	last := make([]int64, haulPartitions)
	for p, batches := range partitions {
		if last[p], err = verifyBatches(batches); err != nil {
			return 0, fmt.Errorf("partition %d: %w", p, err)
		}
		for _, b := range batches {
			again += int(b.count)
		}
	}
	l := ledger{last: last}
	return again - n, errors.Join(l.verify(ctx, q, n), verifyDrained(ctx, q, delivery{}, n))
}

// verifyBatches checks the batches of a partition and returns the number of its last message.
func verifyBatches(batches []haulBatch) (last int64, err error) {
	before := haulBatch{first: 1}
	for _, b := range batches {
		if b.epoch <= before.epoch || !before.precedes(b.first) {
			return 0, fmt.Errorf("the batch %+v comes after %+v", b, before)
		}
		before = b
	}
	if before.finished < 0 {
		return before.first + before.count - 1, nil
	}
	return before.first + before.finished - 1, nil
}

// precedes reports whether the batch after b may begin with message first. If the process of b was
// killed, either all or none of b was saved.
func (b haulBatch) precedes(first int64) bool {
	if b.finished < 0 {
		return first == b.first || first == b.first+b.count
	}
	return first == b.first+b.finished
}

// readJournal returns the batches of each partition in the order in which they began.
func readJournal(path string) (partitions [haulPartitions][]haulBatch, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return partitions, err
	}
	for r := bytes.NewReader(text); r.Len() > 0; {
		var e haulEntry
		if err := binary.Read(r, binary.LittleEndian, &e); err != nil {
			return partitions, err
		}
		batches := &partitions[e.Partition]
		if e.Kind == deliversEntry {
			*batches = append(*batches, haulBatch{e.Epoch, e.First, e.Count, -1})
			continue
		}
		i, found := slices.BinarySearchFunc(*batches, e.Epoch, func(b haulBatch, epoch int64) int { return cmp.Compare(b.epoch, epoch) })
		if !found {
			return partitions, fmt.Errorf("partition %d: epoch %d has finished and never begun", e.Partition, e.Epoch)
		}
		(*batches)[i].finished = e.Count
	}
	return partitions, nil
}
