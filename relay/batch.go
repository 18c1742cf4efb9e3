package relay

import (
	"fmt"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Batch is a batch of messages of one partition, in order, for a [Queue.HandleBatch].
//
// Next and NextChunk hand messages out, Ack, AckChunk and Reject finish them, in the same order.
// So what is finished is always a prefix of the batch. Once the handler has returned, and once its
// ctx has ended and it was left behind, a Batch hands out nothing and finishes nothing.
type Batch struct {
	deadline time.Time

	mu       sync.Mutex
	messages []Message
	handed   int
	finished int
	rejected []rejection // of the finished ones, in order
	misused  error       // finished more than was handed out
	closed   bool
}

// rejection is a message that becomes a dead letter.
type rejection struct {
	index int
	cause error
}

// Len is the number of messages.
func (b *Batch) Len() int { return len(b.messages) }

// Processed is how many are finished, rejected ones included.
func (b *Batch) Processed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.finished
}

// Remaining is the time until the handler's ctx ends with the lease; 0 once it has.
func (b *Batch) Remaining() time.Duration { return max(0, time.Until(b.deadline)) }

// Next hands out the next message; false when there is none left.
func (b *Batch) Next() (*Message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.handed == len(b.messages) {
		return nil, false
	}
	b.handed++
	return &b.messages[b.handed-1], true
}

// NextChunk hands out up to n more messages; nil when there are none left.
func (b *Batch) NextChunk(n int) []*Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, len(b.messages)-b.handed)
	if n <= 0 || b.closed {
		return nil
	}
	chunk := make([]*Message, n)
	for i := range chunk {
		chunk[i] = &b.messages[b.handed+i]
	}
	b.handed += n
	return chunk
}

// Ack finishes the first message that was handed out and is not finished.
func (b *Batch) Ack() { b.AckChunk(1) }

// AckChunk finishes the first n messages that were handed out and are not finished. If there are
// not so many it finishes none, and the batch has failed, whatever the handler returns.
func (b *Batch) AckChunk(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.misused != nil {
		return
	}
	if open := b.handed - b.finished; n < 0 || n > open {
		b.misused = fmt.Errorf("%w: ack of %d messages, %d are handed out and not finished", engine.ErrInvalid, n, open)
		return
	}
	b.finished += n
}

// Reject makes the message that was handed out last a dead letter, with err's text as the reason.
// Those before it must be finished; otherwise the batch has failed, whatever the handler returns.
func (b *Batch) Reject(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.misused != nil {
		return
	}
	if open := b.handed - b.finished; open != 1 {
		b.misused = fmt.Errorf("%w: reject of the last message, %d are handed out and not finished", engine.ErrInvalid, open)
		return
	}
	b.rejected = append(b.rejected, rejection{b.finished, err})
	b.finished++
}

// close ends the use of the batch by its handler.
func (b *Batch) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// undo forgets what was finished, after a transaction that was rolled back.
func (b *Batch) undo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished, b.rejected = 0, nil
}
