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

func TestASubscriberSeesHistoryThenEachNewEvent(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := bounded(t, 5*time.Second)
	first, last, err := s.PublishMany(ctx, []int{0, 1, 2})
	require.NoError(t, err)
	require.EqualValues(t, 2, last-first)
	var got []int
	for e, err := range s.Subscribe(ctx, "c", nil) {
		require.NoError(t, err)
		got = append(got, e.Data)
		if len(got) == 3 {
			go func() { _, _ = s.Publish(context.Background(), 3) }()
		}
		if len(got) == 4 {
			break
		}
	}
	require.Equal(t, []int{0, 1, 2, 3}, got)
	offset, err := s.Offset(ctx, "c")
	require.NoError(t, err)
	require.EqualValues(t, last+1, offset)
}

func TestTheEndOfCtxEndsASubscriptionWithItsError(t *testing.T) {
	s := honker.NewStream[int](honkertest.Open(t, nil), "orders", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := lastError(s.Subscribe(ctx, "c", nil))
	require.True(t, errors.Is(err, context.DeadlineExceeded))
}
