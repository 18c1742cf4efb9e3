package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

func infoOf(t testing.TB, q *relay.Queue) relay.QueueInfo {
	t.Helper()
	info, err := q.Info(t.Context())
	require.NoError(t, err)
	return info
}

// For an unused queue, Info lists all partitions and does not change the database.
func TestQueue_Info_Unused(t *testing.T) {
	q := relay.New(honkertest.Open(t, nil), nil).Queue("hooks", 4)
	require.Equal(t, relay.QueueInfo{
		Name:       "hooks",
		Partitions: []relay.PartitionInfo{{Partition: 0}, {Partition: 1}, {Partition: 2}, {Partition: 3}},
	}, infoOf(t, q))
}

// Info returns the finished and waiting messages and the state of each partition.
func TestQueue_Info_Partitions(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := relay.New(db, nil).Queue("hooks", 4)
		sent := time.Now().Truncate(time.Millisecond)
		_, err := q.Send(t.Context(), relay.Outgoing{Partition: 1}, relay.Outgoing{Partition: 1}, relay.Outgoing{Partition: 3})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		ids, err := q.Send(t.Context(), relay.Outgoing{Partition: 1}, relay.Outgoing{Partition: 2})
		require.NoError(t, err)
		_, err = relay.New(db, nil).Queue("other", 4).Send(t.Context(), relay.Outgoing{Partition: 1})
		require.NoError(t, err)

		now := time.Now().Truncate(time.Millisecond)
		testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET processed = 2, cursor = ?1 WHERE queue = 'hooks' AND partition = 2`, ids[1])
		testkit.Exec(t, db, `DELETE FROM _honkerx_relay_messages WHERE id = ?1`, ids[1])
		testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET attempts = 3, last_error = 'down', retry_at_ms = ?1
			WHERE queue = 'hooks' AND partition = 1`, now.Add(time.Second).UnixMilli())
		testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET owner = 'me', epoch = 7, lease_until_ms = ?1
			WHERE queue = 'hooks' AND partition = 3`, now.Add(time.Minute).UnixMilli())

		info := infoOf(t, q)
		require.Zero(t, info.Dead)
		require.Zero(t, info.Misplaced)
		want := []relay.PartitionInfo{
			{Partition: 0},
			{Partition: 1, Seq: 3, Waiting: 3, Oldest: sent, Attempt: 3, LastError: "down", RetryAt: now.Add(time.Second)},
			{Partition: 2, Seq: 2, Processed: 2},
			{Partition: 3, Seq: 1, Waiting: 1, Oldest: sent, Owner: "me", Epoch: 7, LeaseUntil: now.Add(time.Minute)},
		}
		require.Len(t, info.Partitions, len(want))
		for i, p := range info.Partitions {
			p.Oldest, p.RetryAt, p.LeaseUntil = local(p.Oldest), local(p.RetryAt), local(p.LeaseUntil)
			w := want[i]
			w.Oldest, w.RetryAt, w.LeaseUntil = local(w.Oldest), local(w.RetryAt), local(w.LeaseUntil)
			require.Equal(t, w, p)
		}
		time.Sleep(time.Second)
		require.Zero(t, infoOf(t, q).Partitions[1].RetryAt, "its time has come")
	})
}

// While a relay runs, Info shows the lease, the last error and the time of the next attempt.
func TestQueue_Info_Running(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{RetryBase: time.Minute})
		q := r.Queue("hooks", 1)
		q.Handle(func(_ context.Context, m *relay.Message) error {
			time.Sleep(time.Second)
			if m.Seq == 2 && m.Attempt < 2 {
				return errDown
			}
			return nil
		})
		sendN(t, q, 0, 3)
		stop := start(t, r)
		time.Sleep(1500 * time.Millisecond)
		busy := infoOf(t, q).Partitions[0]
		require.Regexp(t, "^[0-9a-f]{32}$", busy.Owner)
		require.False(t, busy.LeaseUntil.IsZero())
		require.EqualValues(t, 3, busy.Waiting, "progress is saved with the batch")
		require.Empty(t, busy.LastError)

		time.Sleep(time.Second)
		failed := infoOf(t, q).Partitions[0]
		require.Empty(t, failed.Owner)
		require.Equal(t, []int64{1, 2, 3}, []int64{failed.Processed, failed.Waiting, failed.Seq})
		require.Equal(t, 1, failed.Attempt)
		require.Equal(t, errDown.Error(), failed.LastError)
		require.InDelta(t, time.Minute, time.Until(failed.RetryAt), float64(13*time.Second))

		time.Sleep(time.Hour)
		require.NoError(t, stop())
		done := infoOf(t, q).Partitions[0]
		require.Equal(t, relay.PartitionInfo{Seq: 3, Processed: 3, Epoch: done.Epoch}, done)
	})
}

// local returns t in the local time zone, for comparisons; the zero time is unchanged.
func local(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli())
}

// Dead counts the dead letters that are neither resolved nor discarded, whether held or not.
func TestQueue_Info_Dead(t *testing.T) {
	_, q := deadQueue(t, 6)
	require.EqualValues(t, 6, infoOf(t, q).Dead)
	held := replay(t, q, 2, time.Hour)
	require.EqualValues(t, 6, infoOf(t, q).Dead)
	require.NoError(t, held[0].Resolve(t.Context()))
	_, err := q.Discard(t.Context(), 5)
	require.NoError(t, err)
	require.EqualValues(t, 4, infoOf(t, q).Dead)

}

// Info counts messages that another program has inserted into partitions that do not exist.
func TestQueue_Info_Misplaced(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("hooks", 2)
	_, err := q.Send(t.Context(), relay.Outgoing{})
	require.NoError(t, err)
	for _, partition := range []any{-1, 2, int64(1 << 40), "one"} {
		testkit.Exec(t, db, `INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('hooks', ?1, '')`, partition)
	}
	info := infoOf(t, q)
	require.EqualValues(t, 4, info.Misplaced)
	require.EqualValues(t, 1, info.Partitions[0].Waiting)
	require.ErrorContains(t, db.Check(t.Context()), "never delivered: 1 in hooks/-1")
	testkit.Exec(t, db, `DELETE FROM _honkerx_relay_messages WHERE partition <> 0`)
}

// Info doesn't count messages in other families.
func TestQueue_Info_Family(t *testing.T) {
	db := honkertest.Open(t, nil)
	family := relay.New(db, &relay.Options{Family: "billing"}).Queue("hooks", 4)
	_, err := family.Send(t.Context(), relay.Outgoing{}, relay.Outgoing{})
	require.NoError(t, err)
	require.EqualValues(t, 2, infoOf(t, family).Partitions[0].Waiting)
	require.Zero(t, infoOf(t, relay.New(db, nil).Queue("hooks", 2)).Partitions[0].Waiting)
}
