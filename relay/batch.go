package relay

import (
	"fmt"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Batch is a batch of messages from a single partition, in order, for [Queue.HandleBatch].
//
// Next and NextChunk hand messages out. Ack, AckChunk and Reject finish them in the same order, so
// the finished messages are always a prefix of the batch. Batch's methods have no effect once the
// handler has returned, or once Run has given up on a handler that ignored its canceled ctx.
type Batch struct {
	deadline time.Time

	mu       sync.Mutex
	messages []Message
	handed   int
	finished int
	rejected []rejection // finished messages that were rejected, in order
	misused  error       // set when more messages were finished than handed out
	closed   bool
}

// rejection records a message that will be moved to the dead letters.
type rejection struct {
	index int
	cause error
}

// Len returns the number of messages in the batch.
func (b *Batch) Len() int { return len(b.messages) }

// Processed returns the number of finished messages, including rejected messages.
func (b *Batch) Processed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.finished
}

// Remaining returns the time left until the handler's ctx ends, or 0 if it has already ended.
func (b *Batch) Remaining() time.Duration { return max(0, time.Until(b.deadline)) }

// Next returns the next message. It returns false if there are no more messages.
func (b *Batch) Next() (*Message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.handed == len(b.messages) {
		return nil, false
	}
	b.handed++
	return &b.messages[b.handed-1], true
}

// NextChunk returns up to n more messages. It returns nil if there are no more messages.
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

// Ack finishes the oldest message that was handed out and is not finished yet.
func (b *Batch) Ack() { b.AckChunk(1) }

// AckChunk finishes the n oldest messages that were handed out and are not finished yet. If there
// are fewer than n, AckChunk finishes none of them and the batch fails, whatever the handler
// returns.
func (b *Batch) AckChunk(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.misused != nil {
		return
	}
	if open := b.handed - b.finished; n < 0 || n > open {
		b.misused = fmt.Errorf("%w: cannot ack %d messages: %d are handed out and unfinished", engine.ErrInvalid, n, open)
		return
	}
	b.finished += n
}

// Reject moves the most recently handed-out message to the dead letters and records err's text as
// the reason. All earlier messages must already be finished; otherwise the batch fails, whatever
// the handler returns.
func (b *Batch) Reject(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.misused != nil {
		return
	}
	if open := b.handed - b.finished; open != 1 {
		b.misused = fmt.Errorf("%w: cannot reject the last message: %d are handed out and unfinished, not 1", engine.ErrInvalid, open)
		return
	}
	b.rejected = append(b.rejected, rejection{b.finished, err})
	b.finished++
}

// close disables the batch, so a handler that still holds it can no longer change its progress.
func (b *Batch) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// undo resets the progress of the batch after its transaction was rolled back.
func (b *Batch) undo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished, b.rejected = 0, nil
}
