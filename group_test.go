package honker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

func TestFreshEventsComeFirstAndReturnedOnesLastInFirstOut(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := bounded(t, 5*time.Second)
	_, _, err := s.PublishMany(ctx, []int{1, 2, 3, 4, 5})
	require.NoError(t, err)
	m, err := s.Group("workers", nil).Join(ctx, "worker-1")
	require.NoError(t, err)
	var order []int
	nacked := map[int]bool{}
	for {
		ds, err := m.Claim(ctx, 1)
		require.NoError(t, err)
		if len(ds) == 0 {
			break
		}
		d := ds[0]
		order = append(order, d.Data)
		if d.Data <= 2 && !nacked[d.Data] {
			nacked[d.Data] = true
			require.NoError(t, d.Nack(ctx, errors.New("not now")))
			continue
		}
		require.NoError(t, d.Ack(ctx))
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 2, 1}, order)
}

func TestAPipePublishesASuccessorForEachEvent(t *testing.T) {
	db := honkertest.Open(t, nil)
	numbers, doubled := honker.NewStream[int](db, "numbers", nil), honker.NewStream[int](db, "doubled", nil)
	ctx := bounded(t, 5*time.Second)
	_, _, err := numbers.PublishMany(ctx, []int{1, 2, 3}, honker.EventKey("k"))
	require.NoError(t, err)
	stop := errors.New("stop")
	err = honker.Pipe(ctx, numbers, "doubler", doubled, func(_ context.Context, e *honker.Event[int]) (int, error) {
		switch e.Data {
		case 2:
			return 0, honker.ErrSkip
		case 3:
			return 0, stop
		}
		return 2 * e.Data, nil
	})
	require.ErrorIs(t, err, stop)
	var got []int
	for e, err := range doubled.Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, "k", e.Key)
		got = append(got, e.Data)
	}
	require.Equal(t, []int{2}, got)
	offset, err := numbers.Offset(ctx, "doubler")
	require.NoError(t, err)
	require.EqualValues(t, 2, offset)
}

func TestCompactKeepsWhatAConsumerHasStillToSee(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := bounded(t, 5*time.Second)
	_, _, err := s.PublishMany(ctx, make([]int, 1000))
	require.NoError(t, err)
	require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxCount: 10}))
	_, err = s.SaveOffset(ctx, "slow", 400)
	require.NoError(t, err)
	stats, err := s.Compact(ctx)
	require.NoError(t, err)
	require.Equal(t, honker.CompactStats{Deleted: 400, Policy: 990, Cutoff: 400, PinnedBy: `consumer "slow"`}, stats)
	_, err = s.DeleteConsumer(ctx, "slow")
	require.NoError(t, err)
	stats, err = s.Compact(ctx)
	require.NoError(t, err)
	require.Equal(t, honker.CompactStats{Deleted: 590, Policy: 990, Cutoff: 990}, stats)
}
