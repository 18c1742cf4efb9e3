package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

const (
	maxPartitions = 64
	maxType       = 1024
	defaultType   = "application/json"
)

// Queue is a handle to a relay queue. It is cheap to create and safe for concurrent use.
type Queue struct {
	relay      *Relay
	name       string
	partitions int
	err        error // invalid name or number of partitions, returned by every method that accesses the database
}

// Queue returns a handle to the queue with the given name and number of partitions, which must be 1, 2,
// 4, 8, 16, 32 or 64. It does not access the database. The first write in any process stores the number
// of partitions, which cannot change after that. A handle with a different number returns
// [ErrPartitions] from its methods. Names follow the same rules as for [honker.NewQueue]. If the name
// or the number is invalid, the first method called returns [honker.ErrInvalid].
func (r *Relay) Queue(name string, partitions int) *Queue {
	err := errors.Join(r.err, engine.CheckName("queue", name))
	if partitions < 1 || partitions > maxPartitions || partitions&(partitions-1) != 0 {
		err = errors.Join(err, fmt.Errorf("%w: the number of partitions must be 1, 2, 4, 8, 16, 32 or 64, got %d", engine.ErrInvalid, partitions))
	}
	return &Queue{relay: r, name: name, partitions: partitions, err: err}
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// Partition returns key's partition, which is its 32-bit FNV-1a hash modulo the number of partitions.
// With 64 partitions, "" is in partition 5, "a" in 44 and "foobar" in 40.
func (q *Queue) Partition(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() & uint32(q.partitions-1))
}

// Outgoing is a message to be sent.
type Outgoing struct {
	Key       string // messages with the same key stay in order; UTF-8 of up to 1024 bytes without NUL; if empty, Partition is used
	Partition int    // used without a Key; must be less than the queue's number of partitions
	Type      string // 1 to 1024 printable ASCII characters; default application/json
	Payload   []byte // any bytes, up to Options.MaxPayload; nil is empty
}

// Send appends either all of the messages, in the given order, or none of them. It returns their IDs
// after the commit. It waits for the writer until ctx ends or BusyTimeout has passed
// ([honker.ErrBusy]). If a payload is too large, or a Key, Type or Partition is invalid, Send returns
// [honker.ErrInvalid] and writes nothing. If there are no messages, it does nothing. With a ctx from
// [honker.DB.Tx], Send returns [honker.ErrInTx]; use SendTx instead.
func (q *Queue) Send(ctx context.Context, m ...Outgoing) (ids []int64, err error) {
	op, err := q.newSendOp(m)
	if err == nil && len(m) > 0 {
		err = q.relay.engine.Write(ctx, "SendTx", op)
	}
	if err != nil || len(m) == 0 {
		return nil, q.fail("send", err)
	}
	q.relay.learn(q.name, q.partitions)
	q.relay.engine.Notifier.Wake(q.change())
	q.relay.opts.Observer.Sent(Sent{Queue: q.name, IDs: op.ids})
	return op.ids, nil
}

// SendTx is like [Queue.Send] but joins the caller's transaction. After an error the caller must roll
// tx back. SendTx does not wait. Handlers receive the messages after tx has committed, in commit order.
// In PostgreSQL, messages get their IDs after the commit: SendTx returns 0 for each, and of transactions
// that overlap, either may come first.
func (q *Queue) SendTx(ctx context.Context, tx honker.Tx, m ...Outgoing) (ids []int64, err error) {
	op, err := q.newSendOp(m)
	if err != nil || len(m) == 0 {
		return nil, q.fail("send", err)
	}
	var committed func()
	if !op.known {
		committed = func() { q.relay.noteSent(q.name) }
	}
	joined, _, err := q.relay.engine.JoinThen(ctx, tx, committed, q.change())
	if err == nil {
		err = op.Run(ctx, joined, q.relay.engine.Now())
	}
	if err != nil {
		return nil, q.fail("send", err)
	}
	if !op.known {
		q.relay.found(q.name, q.partitions, op.added)
	}
	q.relay.opts.Observer.Sent(Sent{Queue: q.name, IDs: op.ids, Tx: true})
	return op.ids, nil
}

// sendOp inserts the messages of one call.
type sendOp struct {
	queue    *Queue
	messages []row.RelayMessage
	known    bool // the queue is registered
	added    bool // this call registered the queue or created missing tables
	ids      []int64
}

// newSendOp validates all messages before any of them is written.
func (q *Queue) newSendOp(all []Outgoing) (*sendOp, error) {
	if q.err != nil {
		return nil, q.err
	}
	op := &sendOp{queue: q, messages: make([]row.RelayMessage, len(all))}
	for i := range all {
		m, err := q.encode(&all[i])
		if err != nil && len(all) > 1 {
			err = fmt.Errorf("message %d of %d: %w", i+1, len(all), err)
		}
		if err != nil {
			return nil, err
		}
		op.messages[i] = m
	}
	var err error
	op.known, err = q.known()
	return op, err
}

func (q *Queue) encode(m *Outgoing) (row.RelayMessage, error) {
	out := row.RelayMessage{Partition: int64(m.Partition), Key: m.Key, Type: cmp.Or(m.Type, defaultType), Payload: m.Payload}
	if m.Key != "" {
		if err := engine.CheckName("key", m.Key); err != nil {
			return out, err
		}
		out.Partition = int64(q.Partition(m.Key))
	}
	if out.Payload == nil {
		out.Payload = []byte{} // nil would be NULL
	}
	switch limit := q.relay.opts.MaxPayload; {
	case out.Partition < 0 || out.Partition >= int64(q.partitions):
		return out, fmt.Errorf("%w: Partition must be between 0 and %d, got %d", engine.ErrInvalid, q.partitions-1, out.Partition)
	case len(out.Payload) > limit:
		return out, fmt.Errorf("%w: the payload has %d bytes; the maximum is %d (Options.MaxPayload)", engine.ErrInvalid, len(out.Payload), limit)
	}
	return out, checkType(out.Type)
}

func checkType(text string) error {
	if len(text) > maxType {
		return fmt.Errorf("%w: Type has %d bytes; the maximum is %d", engine.ErrInvalid, len(text), maxType)
	}
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("%w: Type contains the byte %#02x; use printable ASCII", engine.ErrInvalid, c)
		}
	}
	return nil
}

// Run implements engine.Op.
func (op *sendOp) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	queue := op.queue
	if !op.known {
		if op.added, err = queue.register(ctx, q, now); err != nil {
			return err
		}
	}
	op.ids, err = queue.relay.store.Send(ctx, q, queue.name, op.messages, now)
	return err
}

// Single implements engine.Op.
func (op *sendOp) Single() bool { return op.known && len(op.messages) == 1 }

// register registers the queue. It reports whether it changed anything.
func (q *Queue) register(ctx context.Context, tx engine.Querier, now time.Time) (changed bool, err error) {
	found, changed, err := q.relay.store.Register(ctx, tx, q.name, q.partitions, now)
	if err != nil {
		return false, err
	}
	return changed, q.compare(found)
}

func (q *Queue) compare(found int) error {
	if found != q.partitions {
		return fmt.Errorf("%w: the handle has %d, the file has %d", ErrPartitions, q.partitions, found)
	}
	return nil
}

// known reports whether this Relay knows that the queue's registration is committed.
func (q *Queue) known() (bool, error) {
	q.relay.mu.Lock()
	found, ok := q.relay.known[q.name]
	q.relay.mu.Unlock()
	if !ok {
		return false, nil
	}
	return true, q.compare(found)
}

// learn records that the queue is registered.
func (r *Relay) learn(queue string, partitions int) {
	r.mu.Lock()
	r.known[queue] = partitions
	r.mu.Unlock()
}

// noteSent records that a transaction containing a SendTx to queue has committed. The queue may still
// be missing, because the SendTx may have run in a savepoint that was rolled back.
func (r *Relay) noteSent(queue string) {
	r.mu.Lock()
	r.sent[queue] = true
	r.mu.Unlock()
}

// found records that a SendTx has seen the queue, in a transaction that may still be rolled back. If
// an earlier SendTx has committed and this transaction did not add the queue, the queue is committed.
func (r *Relay) found(queue string, partitions int, added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent[queue] && !added {
		r.known[queue] = partitions
	}
	delete(r.sent, queue)
}

// key returns the wake key for new messages in the queue.
func (q *Queue) key() wake.Key {
	return wake.Key{Kind: wake.RelayReady, Name: wake.RelayName(q.relay.opts.Family, q.name)}
}

func (q *Queue) change() wake.Change {
	k := q.key()
	return wake.Change{Kind: k.Kind, Name: k.Name}
}

func (q *Queue) fail(op string, err error) error { return engine.Wrap("relay "+op, q.name, err) }
