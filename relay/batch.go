package relay

import (
	"fmt"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Batch is a batch of messages of a single partition, in order, for [Queue.HandleBatch].
//
// Next and NextChunk hand messages out. Ack, AckChunk and Reject finish them, in the same order, so
// the finished messages are always a prefix of the batch. After the handler has returned, or has
// been abandoned because it ignored the end of its ctx, the methods of Batch have no effect.
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

// rejection is a message that will become a dead letter.
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

// Remaining returns the time until the handler's ctx ends; 0 once it has ended.
func (b *Batch) Remaining() time.Duration { return max(0, time.Until(b.deadline)) }

// Next returns the next message. It returns false if all messages were handed out.
func (b *Batch) Next() (*Message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.handed == len(b.messages) {
		return nil, false
	}
	b.handed++
	return &b.messages[b.handed-1], true
}

// NextChunk returns up to n further messages. It returns nil if all messages were handed out.
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

// Ack finishes the earliest unfinished message that was handed out.
func (b *Batch) Ack() { b.AckChunk(1) }

// AckChunk finishes the earliest n unfinished messages that were handed out. If there are fewer, it
// finishes none and the batch fails, regardless of the result of the handler.
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

// Reject turns the message that was handed out last into a dead letter, with the text of err as the
// reason. All earlier messages must be finished. Otherwise the batch fails, regardless of the
// result of the handler.
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

// close makes the batch unusable for its handler.
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
