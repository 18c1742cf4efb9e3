package main

import (
	"bytes"
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/honker-go/honker/relay"
)

type (
	// RelayOpener opens a relay queue with the given number of partitions.
	RelayOpener interface {
		Relay(partitions int) Relayer
	}
	// Relayer is a relay queue. The payload of a message has its number in the partition.
	Relayer interface {
		// Send commits message n of a partition.
		Send(ctx context.Context, partition int, n int64) error
		// SendOrder adds an order and message n of partition 0 in a transaction of the caller.
		SendOrder(ctx context.Context, n int64) error
		// Deliver delivers messages until ctx is done.
		Deliver(ctx context.Context, d delivery, handle handleFunc) error
	}
)

// delivery has the settings of a delivery.
type delivery struct {
	Kind       deliveryKind
	Batch      int // maximum size of a batch; 0 for the default
	Processors int // number of concurrent batches; 0 for the default
}

type deliveryKind string

// Kinds of handlers.
const (
	byMessage deliveryKind = "Handle"
	byBatch   deliveryKind = "HandleBatch"
	byTx      deliveryKind = "HandleTx" // inserts a receipt
)

// defaultBatch is the default batch size of the relay.
const defaultBatch = 10

// handleFunc is called with the number of a message in its partition and its payload.
type handleFunc func(partition int, seq int64, payload []byte)

type honkerRelay struct {
	h          *honkerQueue
	partitions int
	queue      *relay.Queue
}

func (h *honkerQueue) Relay(partitions int) Relayer {
	return &honkerRelay{h, partitions, relay.New(h.db, nil).Queue("bench", partitions)}
}

func (r *honkerRelay) Send(ctx context.Context, partition int, n int64) error {
	_, err := r.queue.Send(ctx, relay.Outgoing{Partition: partition, Payload: []byte(payloadText(n))})
	return err
}

func (r *honkerRelay) SendOrder(ctx context.Context, n int64) error {
	return r.h.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
			return err
		}
		_, err := r.queue.SendTx(ctx, tx, relay.Outgoing{Payload: []byte(payloadText(n))})
		return err
	})
}

func (r *honkerRelay) Deliver(ctx context.Context, d delivery, handle handleFunc) error {
	all := relay.New(r.h.db, &relay.Options{Batch: d.Batch, Processors: d.Processors})
	q := all.Queue("bench", r.partitions)
	switch d.Kind {
	case byMessage:
		q.Handle(func(_ context.Context, m *relay.Message) error {
			handle(m.Partition, m.Seq, m.Payload)
			return nil
		})
	case byBatch:
		q.HandleBatch(func(_ context.Context, b *relay.Batch) error {
			for _, m := range b.NextChunk(b.Len()) {
				handle(m.Partition, m.Seq, m.Payload)
			}
			b.AckChunk(b.Len())
			return nil
		})
	case byTx:
		q.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
			_, err := tx.ExecContext(ctx, insertReceipt, m.ID)
			handle(m.Partition, m.Seq, m.Payload)
			return err
		})
	}
	return all.Run(ctx)
}

// The parts of a payload before and after its number.
var payloadHead, payloadTail = func() ([]byte, []byte) {
	head, tail, _ := strings.Cut(payloadText(7777), "7777")
	return []byte(head), []byte(tail)
}()

// numberOf returns the number in a payload, or false if the payload was altered.
func numberOf(payload []byte) (n int64, ok bool) {
	rest, head := bytes.CutPrefix(payload, payloadHead)
	rest, tail := bytes.CutSuffix(rest, payloadTail)
	n, err := strconv.ParseInt(string(rest), 10, 64)
	return n, head && tail && err == nil
}
