package relay_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// The observer sees each message that dies, whether it was rejected or its last attempt failed or
// crashed.
func TestRelay_Observer_Dead(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		var died events[relay.Died]
		r := relay.New(db, &relay.Options{Observer: &relay.Observer{Dead: died.add}})
		q := r.Queue("orders", 1)
		q.Handle(func(_ context.Context, m *relay.Message) error {
			if m.Seq == 2 {
				return relay.Reject(errDown)
			}
			return errDown
		}, relay.MaxAttempts(2))
		sendN(t, q, 0, 3)
		dies(t, db, "orders", 2, time.Minute)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []relay.Died{
			{Queue: "orders", Seq: 1, ID: 1, Reason: "max attempts exceeded"},
			{Queue: "orders", Seq: 2, ID: 2, Rejected: true, Reason: errDown.Error()},
			{Queue: "orders", Seq: 3, ID: 3, Reason: errDown.Error()},
		}, died.list())
	})
}

// The observer sees sent, taken and finished messages, and its panics have no effect.
func TestRelay_Observer(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		var sent events[relay.Sent]
		var taken events[relay.Taken]
		var finished events[relay.Finished]
		var retried events[relay.Retried]
		r := relay.New(db, &relay.Options{RetryBase: time.Minute, RetryMax: time.Minute, Observer: &relay.Observer{
			Sent: sent.add, Taken: taken.add, Retried: retried.add,
			Finished: func(e relay.Finished) { finished.add(e); panic("observer") },
		}})
		q := r.Queue("orders", 2)
		q.Handle(func(_ context.Context, m *relay.Message) error {
			time.Sleep(time.Second)
			if m.Seq == 3 && m.Attempt == 0 {
				return errDown
			}
			return nil
		})
		send(t, q, relay.Outgoing{Partition: 1}, relay.Outgoing{Partition: 1})
		require.NoError(t, db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.SendTx(ctx, tx, relay.Outgoing{Partition: 1})
			return err
		}))
		time.Sleep(10 * time.Second)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []relay.Sent{{Queue: "orders", IDs: []int64{1, 2}}, {Queue: "orders", IDs: []int64{3}, Tx: true}}, sent.list())
		first := taken.list()[0]
		require.Equal(t, relay.Taken{Queue: "orders", Partition: 1, Epoch: 1, Messages: 3, Wait: first.Wait}, first)
		require.InDelta(t, 10*time.Second, first.Wait, float64(time.Second))
		require.Equal(t, []relay.Finished{
			{Queue: "orders", Partition: 1, Epoch: 1, Processed: 2, Took: 3 * time.Second},
			{Queue: "orders", Partition: 1, Epoch: 2, Processed: 1, Took: time.Second},
		}, finished.list())
		require.Len(t, retried.list(), 1)
		require.Equal(t, 1, retried.list()[0].Attempt)
		require.Equal(t, 1, taken.list()[1].Attempt)
		require.Equal(t, 2, log.Times("Observer.Finished panicked"))
	})
}
