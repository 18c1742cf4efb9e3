package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// handleBatches runs handle for n messages in a single partition for an hour. It returns the first
// sequence number and the length of each batch.
func handleBatches(t *testing.T, n int, o *relay.Options, handle func(i int, b *relay.Batch) error) (batches []string, db *honker.DB) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T, opened *honker.DB, _ *testkit.Recorder) {
		db = opened
		r := relay.New(db, o)
		q := r.Queue("orders", 1)
		var seqs []string
		q.HandleBatch(func(_ context.Context, b *relay.Batch) error {
			seqs = append(seqs, fmt.Sprintf("%d+%d", processed(t, q)+1, b.Len()))
			return handle(len(seqs)-1, b)
		})
		sendN(t, q, 0, n)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		batches = seqs
		require.Zero(t, waiting(t, q))
	})
	return batches, db
}

func ackAll(b *relay.Batch) error {
	b.AckChunk(len(b.NextChunk(b.Len())))
	return nil
}

// A batch hands out its messages in order and counts how many are finished.
func TestRelay_Batch(t *testing.T) {
	batches, _ := handleBatches(t, 25, nil, func(_ int, b *relay.Batch) error {
		if b.Remaining() != 28*time.Second {
			t.Errorf("%v remain", b.Remaining())
		}
		m, ok := b.Next()
		if !ok || m.Seq%10 != 1 || b.Processed() != 0 {
			t.Errorf("%v %+v", ok, m)
		}
		b.Ack()
		for {
			chunk := b.NextChunk(4)
			if chunk == nil {
				break
			}
			b.AckChunk(len(chunk))
		}
		if _, ok := b.Next(); ok || b.Processed() != b.Len() {
			t.Errorf("%v, %d of %d", ok, b.Processed(), b.Len())
		}
		return nil
	})
	require.Equal(t, []string{"1+10", "11+10", "21+5"}, batches)
}

// Messages acked before a failure stay finished. The next batch is as large as the number of
// finished messages, and then batches grow again.
func TestRelay_Batch_Prefix(t *testing.T) {
	batches, _ := handleBatches(t, 100, &relay.Options{Batch: 25}, func(i int, b *relay.Batch) error {
		if i == 0 {
			b.NextChunk(20)
			b.AckChunk(10)
			return errDown
		}
		return ackAll(b)
	})
	require.Equal(t, []string{"1+25", "11+1", "12+2", "14+4", "18+8", "26+16", "42+25", "67+25", "92+9"}, batches)
}

// If a handler returns nil, the rest of its batch is delivered again. If it acked nothing, it has
// failed.
func TestRelay_Batch_Partial(t *testing.T) {
	batches, _ := handleBatches(t, 20, nil, func(i int, b *relay.Batch) error {
		switch i {
		case 0:
			b.NextChunk(10)
			b.AckChunk(3)
			return nil
		case 1:
			b.NextChunk(10)
			return nil
		}
		return ackAll(b)
	})
	require.Equal(t, []string{"1+10", "4+10", "4+1", "5+2", "7+4", "11+8", "19+2"}, batches)
}

// A batch fails if more messages are acked than were handed out, or if a message is rejected before
// earlier messages are finished. Earlier valid acks remain.
func TestRelay_Batch_Misuse(t *testing.T) {
	for name, misuse := range map[string]func(b *relay.Batch){
		"ack":           func(b *relay.Batch) { b.Ack() },
		"chunk":         func(b *relay.Batch) { b.NextChunk(2); b.AckChunk(3) },
		"negative":      func(b *relay.Batch) { b.AckChunk(-1) },
		"reject":        func(b *relay.Batch) { b.Reject(errDown) },
		"reject of two": func(b *relay.Batch) { b.NextChunk(2); b.Reject(errDown) },
	} {
		t.Run(name, func(t *testing.T) {
			batches, _ := handleBatches(t, 8, nil, func(i int, b *relay.Batch) error {
				if i > 0 {
					return ackAll(b)
				}
				b.NextChunk(3)
				b.AckChunk(3)
				misuse(b)
				b.NextChunk(1)
				b.Ack() // has no effect after the misuse
				return nil
			})
			require.Equal(t, "1+8", batches[0])
			require.Equal(t, "4+", batches[1][:2], "what was acked before")
		})
	}
}

// Batch.Reject and returning a Reject both turn the last message handed out into a dead letter.
func TestRelay_Batch_Reject(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		q.HandleBatch(func(_ context.Context, b *relay.Batch) error {
			for {
				m, ok := b.Next()
				switch {
				case !ok:
					return nil
				case m.Seq == 3:
					b.Reject(errDown)
				case m.Seq == 5:
					return relay.Reject(errDown)
				default:
					b.Ack()
				}
			}
		})
		sendN(t, q, 0, 9)
		stop := start(t, r)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/3 1 " + errDown.Error() + " 2", "0/5 1 " + errDown.Error() + " 4"}, deadLetters(t, q))
		require.EqualValues(t, 9, processed(t, q))
	})
}

// A message that fails its whole batch is isolated after a few rounds, and the batches grow again.
func TestRelay_Batch_Poison(t *testing.T) {
	rounds, alone := 0, 0
	batches, _ := handleBatches(t, 1000, &relay.Options{Batch: 100}, func(_ int, b *relay.Batch) error {
		all := b.NextChunk(b.Len())
		for _, m := range all {
			if string(m.Payload) != "57" {
				continue
			}
			if rounds++; b.Len() == 1 {
				alone++
				return relay.Reject(errDown)
			}
			return errDown
		}
		b.AckChunk(len(all))
		return nil
	})
	require.Equal(t, 1, alone)
	require.LessOrEqual(t, rounds, 8)
	large := func(b string) bool { return strings.HasSuffix(b, "+100") }
	require.True(t, slices.ContainsFunc(batches[1:], large), "%v", batches)
}

// A batch's methods have no effect once its handler has returned.
func TestRelay_Batch_Late(t *testing.T) {
	var kept *relay.Batch
	var message *relay.Message
	batches, _ := handleBatches(t, 3, nil, func(i int, b *relay.Batch) error {
		if i == 0 {
			kept = b
			message, _ = b.Next()
			return errDown
		}
		message.Seq, message.ID, message.Queue = 99, 99, "other"
		kept.Ack()
		kept.Reject(errDown)
		if m, ok := kept.Next(); ok || kept.NextChunk(3) != nil || kept.Processed() != 0 {
			t.Errorf("handed out %+v", m)
		}
		return ackAll(b)
	})
	require.Equal(t, []string{"1+3", "1+1", "2+2"}, batches)
}

// A batch handler may fail before it takes a message, for example because it has no connection. The
// pause then grows as it does for a failed message.
func TestRelay_Batch_NothingTaken(t *testing.T) {
	var at []time.Time
	handleBatches(t, 3, nil, func(i int, b *relay.Batch) error {
		if at = append(at, time.Now()); i < 6 {
			return errDown
		}
		if m, _ := b.Next(); i == 6 && m.Attempt != 6 {
			t.Errorf("attempt %d", m.Attempt)
		}
		b.Ack()
		return nil
	})
	for i := range 5 {
		pause := at[i+1].Sub(at[i])
		require.GreaterOrEqual(t, pause, time.Second<<i/2, "pause %d", i)
	}
	require.Greater(t, at[6].Sub(at[5]), 10*time.Second)
}
