package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func compactedTo[E any](t testing.TB, s *honker.Stream[E]) int64 {
	t.Helper()
	gone, err := s.Compacted(context.Background())
	require.NoError(t, err)
	return gone
}

// consumerInfo returns the entry of Consumers for a consumer.
func consumerInfo[E any](t testing.TB, s *honker.Stream[E], name string) honker.ConsumerInfo {
	t.Helper()
	infos, err := s.Consumers(context.Background())
	require.NoError(t, err)
	for _, info := range infos {
		if info.Name == name {
			return info
		}
	}
	t.Fatalf("no consumer %q", name)
	return honker.ConsumerInfo{}
}

// The file records the last event of a topic that retention has deleted, whichever topics share the
// offsets. The record remains when all events of the topic are gone and when the file is opened again.
func TestStream_Compacted(t *testing.T) {
	t.Parallel()
	ctx, path := testkit.Context(t, testkit.Timeout), filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(ctx, path, nil)
	require.NoError(t, err)
	a, b, c := honker.NewStream[int](db, "orders:a", nil), honker.NewStream[int](db, "orders:b", nil), honker.NewStream[int](db, "zebra", nil)
	all := honker.NewStream[int](db, "orders:*", nil)
	testkit.PublishUpTo(t, c, 5) // offsets 1 to 5
	testkit.PublishUpTo(t, a, 5) // offsets 6 to 10
	testkit.PublishUpTo(t, b, 5) // offsets 11 to 15
	require.Zero(t, compactedTo(t, a), "a topic that begins at 6 has lost nothing")
	require.Zero(t, compactedTo(t, all))
	retain(t, a, honker.Retention{MaxCount: 5})
	compacted(t, a)
	require.Zero(t, compactedTo(t, a), "nothing was deleted")
	retain(t, a, honker.Retention{MaxCount: 2})
	compacted(t, a)
	require.EqualValues(t, 8, compactedTo(t, a))
	require.EqualValues(t, 8, compactedTo(t, all))
	require.Zero(t, compactedTo(t, b))
	require.Zero(t, compactedTo(t, c))
	retain(t, b, honker.Retention{MaxAge: time.Second})
	testkit.Exec(t, db, `UPDATE _honker_stream SET created_at = created_at - 100`)
	compacted(t, b)
	require.Empty(t, stored(t, b))
	retain(t, b, honker.Retention{})
	require.NoError(t, db.Close())

	db, err = honker.Open(ctx, path, nil)
	require.NoError(t, err)
	defer db.Close()
	b, all = honker.NewStream[int](db, "orders:b", nil), honker.NewStream[int](db, "orders:*", nil)
	require.EqualValues(t, 15, compactedTo(t, b))
	require.EqualValues(t, 15, compactedTo(t, all))
	_, err = honker.NewStream[int](db, "", nil).Compacted(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// If a consumer starts before events that retention has deleted, a warning is logged, and Consumers reports
// it until the consumer has passed them. The seek itself succeeds because the remaining events can be read.
func TestConsumer_Seek_BehindRetention(t *testing.T) {
	t.Parallel()
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		ctx, s := context.Background(), honker.NewStream[int](db, "orders", nil)
		const line = "starts before events that retention has deleted"
		testkit.PublishUpTo(t, s, 10)
		require.Equal(t, 10, len(drained(t, s, "view", nil)))
		retain(t, s, honker.Retention{MaxCount: 3})
		compacted(t, s)
		require.Zero(t, consumerInfo(t, s, "view").Gone, "it has seen all of them")
		require.NoError(t, s.Seek(ctx, "view", honker.Offset(7)))
		require.Zero(t, consumerInfo(t, s, "view").Gone)
		require.Zero(t, log.Times(line))

		require.NoError(t, s.Seek(ctx, "view", honker.Beginning))
		require.Equal(t, 1, log.Times(line))
		require.Equal(t, 1, log.Times("gone=7"))
		require.EqualValues(t, 7, consumerInfo(t, s, "view").Gone)
		require.EqualValues(t, 3, consumerInfo(t, s, "view").Lag)
		require.Equal(t, []int{7, 8, 9}, drained(t, s, "view", nil))
		require.Zero(t, consumerInfo(t, s, "view").Gone, "it is past them")

		require.Equal(t, []int{7, 8, 9}, drained(t, s, "view 2", nil), "a new one, at the beginning")
		require.Equal(t, 2, log.Times(line))
		for i, from := range []honker.From{honker.End, honker.Since(time.Now().Add(time.Hour)), honker.Offset(7)} {
			drained(t, s, fmt.Sprint("later ", i), &honker.SubscribeOptions{From: from})
		}
		require.Equal(t, 2, log.Times(line))
		_, err := s.Group("g", nil).Join(ctx, "m")
		require.NoError(t, err)
		require.Equal(t, 3, log.Times(line))
		_, err = s.Group("g", nil).Join(ctx, "n")
		require.NoError(t, err)
		require.Equal(t, 3, log.Times(line), "the group is there")
	})
}

// The end of a topic whose events are all deleted is behind the deleted events.
func TestConsumer_End_OfCompacted(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, s := context.Background(), honker.NewStream[int](db, "orders", nil)
		testkit.PublishUpTo(t, s, 4)
		retain(t, s, honker.Retention{MaxAge: time.Second})
		time.Sleep(time.Minute)
		compacted(t, s)
		for _, from := range []honker.From{honker.End, honker.Since(time.Now())} {
			testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "c", 1))
			require.NoError(t, s.Seek(ctx, "c", from))
			require.EqualValues(t, 4, testkit.SavedOffset(t, s, "c"))
			require.Zero(t, consumerInfo(t, s, "c").Gone)
			testkit.RequireChanged(t, true)(s.DeleteConsumer(ctx, "c"))
		}
	})
}

// A rebuild can check for deleted events and give up in the same transaction, which then changes nothing.
func TestStream_Compacted_InTx(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 5)
	retain(t, s, honker.Retention{MaxCount: 2})
	compacted(t, s)
	testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "view", 5))
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.SeekTx(ctx, tx, "view", honker.Beginning); err != nil {
			return err
		}
		if gone, err := s.Compacted(ctx); gone > 0 || err != nil {
			return fmt.Errorf("events up to %d are gone: %w", gone, testkit.ErrCause)
		}
		return nil
	})
	require.ErrorIs(t, err, testkit.ErrCause)
	require.ErrorContains(t, err, "up to 3")
	require.EqualValues(t, 5, testkit.SavedOffset(t, s, "view"))
}
