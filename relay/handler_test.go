package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// events collects an observer's events.
type events[E any] struct {
	mu  sync.Mutex
	all []E
}

func (e *events[E]) add(x E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
}

func (e *events[E]) list() []E {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]E(nil), e.all...)
}

// deadLetters returns "partition/seq attempts reason payload" for each dead letter, in ID order.
func deadLetters(t testing.TB, q *relay.Queue) (all []string) {
	t.Helper()
	for d, err := range q.Dead(context.Background(), &relay.DeadFilter{State: relay.DeadPending}) {
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%d/%d %d %s %s", d.Partition, d.Seq, d.Attempt, d.LastError, d.Payload))
	}
	return all
}

// A failed message is retried before later messages, with pauses that double up to RetryMax. New
// messages do not shorten the pauses, and other partitions are not affected.
func TestRelay_Handle_Backoff(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{RetryBase: time.Second, RetryMax: 10 * time.Second})
		q := r.Queue("orders", 2)
		var got seen
		var at []time.Time
		q.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			if m.Partition == 1 {
				return nil
			}
			at = append(at, time.Now())
			if m.Seq == 1 && m.Attempt < 6 {
				return errDown
			}
			return nil
		})
		stop := start(t, r)
		send(t, q, text("a"), text("b"))
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			send(t, q, relay.Outgoing{Partition: 1})
		}
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Len(t, at, 8)
		for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
			require.InDelta(t, want*time.Second, at[i+1].Sub(at[i]), float64(want*time.Second)/5+float64(5*time.Millisecond))
		}
		var first []string
		others := 0
		for i, s := range got.seqs() {
			if got.list()[i].Partition == 0 {
				first = append(first, s)
			} else {
				others++
			}
		}
		require.Equal(t, []string{"0/1/0", "0/1/1", "0/1/2", "0/1/3", "0/1/4", "0/1/5", "0/1/6", "0/2/0"}, first)
		require.Equal(t, 40, others)
	})
}

// The pause is stored in the database, so it also applies to a later Run.
func TestRelay_Handle_Backoff_Stored(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		var at []time.Time
		run := func() (stop func() error) {
			r := relay.New(db, nil)
			r.Queue("orders", 1).Handle(func(context.Context, *relay.Message) error {
				if at = append(at, time.Now()); len(at) == 1 {
					return relay.RetryAfter(time.Hour, errDown)
				}
				return nil
			})
			return start(t, r)
		}
		stop := run()
		send(t, relay.New(db, nil).Queue("orders", 1), text("a"))
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		stop = run()
		time.Sleep(2 * time.Hour)
		require.NoError(t, stop())
		require.Len(t, at, 2)
		require.InDelta(t, time.Hour, at[1].Sub(at[0]), float64(5*time.Millisecond))
	})
}

// Messages handled before a failure stay finished, and attempts are counted per message.
func TestRelay_Handle_Prefix(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		var retried events[relay.Retried]
		r := relay.New(db, &relay.Options{Observer: &relay.Observer{Retried: retried.add}})
		q := r.Queue("orders", 1)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			if m.Seq == 4 && m.Attempt < 2 {
				return errDown
			}
			return nil
		})
		sendN(t, q, 0, 6)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/0", "0/2/0", "0/3/0", "0/4/0", "0/4/1", "0/4/2", "0/5/0", "0/6/0"}, got.seqs())
		require.Len(t, retried.list(), 2)
		require.ErrorIs(t, retried.list()[0].Err, errDown)
	})
}

// Reject turns only its own message into a dead letter, and the partition continues immediately.
func TestRelay_Handle_Reject(t *testing.T) {
	testkit.FileOnly(t)
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		var died events[relay.Died]
		r := relay.New(db, &relay.Options{Observer: &relay.Observer{Dead: died.add}})
		q := r.Queue("orders", 2)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			switch m.Seq {
			case 2:
				return fmt.Errorf("order %d: %w", m.Seq, relay.Reject(errors.New("malformed")))
			case 4:
				return relay.Reject(nil)
			}
			return nil
		})
		sendN(t, q, 1, 5)
		began := time.Now()
		stop := start(t, r)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		require.Equal(t, []string{"1/1/0", "1/2/0", "1/3/0", "1/4/0", "1/5/0"}, got.seqs())
		require.Equal(t, []string{"1/2 1 malformed 1", "1/4 1 no reason given 3"}, deadLetters(t, q))
		rows, err := testkit.Rows(db.SQL(), `SELECT id, queue, type, created_ms, died_ms FROM _honkerx_relay_dead WHERE id = 2`)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("2|orders|application/json|%d|%[1]d", began.UnixMilli())}, rows)
		require.Len(t, died.list(), 2)
		require.Equal(t, relay.Died{Queue: "orders", Partition: 1, Seq: 2, ID: 2, Rejected: true, Reason: "malformed"}, died.list()[0])
		require.Equal(t, 2, log.Times("message dead-lettered"))
	})
}

// After MaxAttempts failures a message becomes a dead letter, and the next message is handled.
func TestRelay_MaxAttempts(t *testing.T) {
	for name, handle := range map[string]func(q *relay.Queue, got *seen){
		"handle": func(q *relay.Queue, got *seen) {
			q.Handle(func(_ context.Context, m *relay.Message) error {
				got.add(m)
				if string(m.Payload) == "2" {
					return errDown
				}
				return nil
			}, relay.MaxAttempts(3))
		},
		"tx": func(q *relay.Queue, got *seen) {
			q.HandleTx(func(_ context.Context, _ *sql.Tx, m *relay.Message) error {
				got.add(m)
				if string(m.Payload) == "2" {
					return errDown
				}
				return nil
			}, relay.MaxAttempts(3))
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				r := relay.New(db, nil)
				q := r.Queue("orders", 1)
				var got seen
				handle(q, &got)
				sendN(t, q, 0, 5)
				stop := start(t, r)
				time.Sleep(time.Minute)
				require.NoError(t, stop())
				require.Equal(t, []string{"0/1/0", "0/2/0", "0/3/0", "0/3/1", "0/3/2", "0/4/0", "0/5/0"}, got.seqs())
				require.Equal(t, []string{"0/3 3 " + errDown.Error() + " 2"}, deadLetters(t, q))
			})
		})
	}
}

// A panic or a runtime.Goexit in a handler is a failure, and the relay continues.
func TestRelay_Handle_Panic(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			switch {
			case m.Seq == 1 && m.Attempt == 0:
				panic("boom")
			case m.Seq == 2 && m.Attempt == 0:
				runtime.Goexit()
			}
			return nil
		})
		sendN(t, q, 0, 3)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/0", "0/1/1", "0/2/0", "0/2/1", "0/3/0"}, got.seqs())
		require.Equal(t, 1, log.Times("handler panicked"))
		require.Equal(t, 1, log.Times("handler_test.go"), "the stack")
		require.Equal(t, 2, log.Times("batch failed, its partition pauses"))
	})
}

// The attempt count increases when a batch is taken, so it includes crashed processes. It does not
// increase while a message waits, and progress resets it to 0.
func TestRelay_Attempts(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
		sendN(t, q, 0, 3)
		dies(t, db, "orders", 2, time.Hour)
		stop := start(t, r)
		time.Sleep(59 * time.Minute)
		require.Zero(t, got.len(), "the lease of the process that died")
		time.Sleep(time.Hour)
		send(t, q, text("later"))
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/2", "0/2/0", "0/3/0", "0/4/0"}, got.seqs())
		require.Zero(t, partition(t, q, 0).Attempt)
	})
}

// dies simulates processes that took partition 0 the given number of times and crashed without
// progress.
func dies(t testing.TB, db *honker.DB, queue string, attempts int, lease time.Duration) {
	t.Helper()
	testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET owner = 'dead', epoch = epoch + ?2, attempts = ?2, lease_until_ms = ?3 WHERE queue = ?1 AND partition = 0`,
		queue, attempts, time.Now().Add(lease).UnixMilli())
}

// A message that has crashed MaxAttempts processes becomes a dead letter without another attempt.
func TestRelay_MaxAttempts_Crashes(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil }, relay.MaxAttempts(3))
		sendN(t, q, 0, 3)
		dies(t, db, "orders", 3, time.Minute)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/2/0", "0/3/0"}, got.seqs())
		require.Equal(t, []string{"0/1 3 max attempts exceeded 0"}, deadLetters(t, q))
	})
}

// A handler's changes to its message do not affect the database.
func TestRelay_Handle_MessageChanged(t *testing.T) {
	for name, change := range map[string]func(m *relay.Message){
		"cleared": func(m *relay.Message) { *m = relay.Message{} },
		"later":   func(m *relay.Message) { m.ID, m.Seq, m.Partition, m.Queue = 1<<40, 1<<40, 1, "other" },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				r := relay.New(db, nil)
				q := r.Queue("orders", 2)
				var got seen
				q.Handle(func(_ context.Context, m *relay.Message) error {
					got.add(m)
					defer change(m)
					switch m.Seq {
					case 2:
						return relay.Reject(errDown)
					case 12:
						return errDown
					}
					return nil
				}, relay.MaxAttempts(1))
				sendN(t, q, 0, 15)
				stop := start(t, r)
				time.Sleep(time.Hour)
				require.NoError(t, stop())
				require.Len(t, got.list(), 15)
				require.Equal(t, []string{"0/2 1 " + errDown.Error() + " 1", "0/12 1 " + errDown.Error() + " 11"}, deadLetters(t, q))
				require.NoError(t, db.Check(context.Background()))
			})
		})
	}
}

// badError is an error whose methods all panic.
type badError struct{}

func (badError) Error() string { panic("Error") }
func (badError) Is(error) bool { panic("Is") }
func (badError) As(any) bool   { panic("As") }
func (badError) Unwrap() error { panic("Unwrap") }

// An error whose methods panic is an ordinary failure.
func TestRelay_Handle_ErrorPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		handle := func(m *relay.Message) error {
			if m.Attempt == 0 {
				return badError{}
			}
			return nil
		}
		one, batch, tx := r.Queue("one", 1), r.Queue("batch", 1), r.Queue("tx", 1)
		one.Handle(func(_ context.Context, m *relay.Message) error { return handle(m) })
		tx.HandleTx(func(_ context.Context, _ *sql.Tx, m *relay.Message) error { return handle(m) })
		batch.HandleBatch(func(_ context.Context, b *relay.Batch) error {
			m, _ := b.Next()
			if err := handle(m); err != nil {
				return err
			}
			b.Ack()
			return nil
		})
		for _, q := range []*relay.Queue{one, batch, tx} {
			sendN(t, q, 0, 2)
		}
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Zero(t, waiting(t, one, batch, tx))
	})
}
