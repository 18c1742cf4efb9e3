package testkit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// PublishRange publishes the numbers from first to last.
func PublishRange(t testing.TB, s *honker.Stream[int], first, last int, opts ...honker.PublishOption) {
	t.Helper()
	var data []int
	for n := first; n <= last; n++ {
		data = append(data, n)
	}
	_, _, err := s.PublishMany(context.Background(), data, opts...)
	require.NoError(t, err)
}

// GroupInfo returns information about a group. It returns the zero value if no member has joined yet.
func GroupInfo[E any](t testing.TB, g *honker.Group[E]) honker.GroupInfo {
	t.Helper()
	info, err := g.Info(context.Background())
	if !errors.Is(err, honker.ErrNotFound) {
		require.NoError(t, err)
	}
	return info
}

// MemberGroup returns the group that child processes join.
func MemberGroup(db *honker.DB, lease time.Duration) *honker.Group[int] {
	return honker.NewStream[int](db, "orders", nil).Group("members", &honker.GroupOptions{Lease: lease})
}

// Deliveries runs Member.All in the background and returns a channel of its deliveries.
func Deliveries[E any](t testing.TB, ctx context.Context, m *honker.Member[E]) <-chan *honker.Delivery[E] {
	t.Helper()
	out := make(chan *honker.Delivery[E], 1000)
	stop := Background(t, func(context.Context) error {
		for d, err := range m.All(ctx) {
			if err != nil {
				return err
			}
			out <- d
		}
		return nil
	})
	t.Cleanup(func() { _ = stop() })
	return out
}
