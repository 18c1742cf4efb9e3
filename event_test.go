package honker_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// eventNames are event keys and filter operands, with and without the topic orders.
var eventNames = []string{"", "created", "created:eu", "orders", "orders:", "orders:created", "orders:orders:created", "order", "c", "é\U0010ffff", "other:created"}

// drawFilter returns a random filter and an equivalent Go predicate on the key of an event in orders.
func drawFilter(r *rand.Rand, depth int) (honker.Filter, func(key string) bool) {
	kind := r.IntN(4)
	if kind < 2 || depth == 0 {
		name := eventNames[r.IntN(len(eventNames))]
		if kind%2 == 0 {
			return honker.KeyIs(name), func(key string) bool { return key == name || "orders:"+key == name }
		}
		return honker.KeyPrefix(name), func(key string) bool {
			return strings.HasPrefix(key, name) || strings.HasPrefix(name, "orders:") && strings.HasPrefix("orders:"+key, name)
		}
	}
	var parts []honker.Filter
	var passes []func(string) bool
	for range r.IntN(4) {
		f, p := drawFilter(r, depth-1)
		parts, passes = append(parts, f), append(passes, p)
	}
	all := kind == 2
	in := func(key string) bool {
		for _, p := range passes {
			if p(key) != all {
				return !all
			}
		}
		return all
	}
	if all {
		return honker.And(parts...), in
	}
	return honker.Or(parts...), in
}

// A filter may match an event by its key, or by its topic and key.
func TestFilter_WithTopic(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	s := honker.NewStream[string](db, "orders", nil)
	ctx := t.Context()
	keys := []string{"", "created", "created:eu", "orders", "orders:created", "order", "paid", "é\U0010ffff"}
	for _, key := range keys {
		testkit.Publish(t, s, key, honker.EventKey(key))
	}
	testkit.Publish(t, s, "the last one", honker.EventKey("end"))
	r := testkit.Rand(testkit.Seed(t), 0)
	for range 500 {
		f, passes := drawFilter(r, 2)
		var got, want []string
		for e, err := range s.Tail(ctx, honker.Beginning, honker.Or(f, honker.KeyIs("end"))) {
			require.NoError(t, err)
			if e.Key == "end" {
				break
			}
			got = append(got, e.Data)
		}
		for _, key := range keys {
			if passes(key) {
				want = append(want, key)
			}
		}
		require.Equal(t, want, got)
	}
}

// Consumers and groups with a topic filter are woken by matching events, count their lag with the filter,
// and keep it.
func TestFilter_WithTopic_Wakes(t *testing.T) {
	t.Parallel()
	for _, f := range []honker.Filter{honker.KeyIs("orders:created"), honker.KeyPrefix("orders:cr")} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			s := honker.NewStream[int](db, "orders", nil)
			var consumed, shared []int
			stop := testkit.Background(t, func(ctx context.Context) error {
				return s.Consume(ctx, "c", func(_ context.Context, e *honker.Event[int]) error {
					consumed = append(consumed, e.Data)
					return nil
				}, &honker.SubscribeOptions{Filter: f})
			})
			stopGroup := testkit.Background(t, func(ctx context.Context) error {
				return s.Group("g", &honker.GroupOptions{Filter: f}).Work(ctx, func(_ context.Context, d *honker.Delivery[int]) error {
					shared = append(shared, d.Data)
					return nil
				}, nil)
			})
			synctest.Wait()
			for i, key := range []string{"created", "paid", "orders:created", ""} {
				testkit.Publish(t, s, i, honker.EventKey(key))
				synctest.Wait()
			}
			require.Equal(t, []int{0, 2}, consumed)
			require.ElementsMatch(t, []int{0, 2}, shared)
			require.NoError(t, stop())
			require.NoError(t, stopGroup())
			testkit.Publish(t, s, 4, honker.EventKey("created"))
			testkit.Publish(t, s, 5, honker.EventKey("paid"))
			require.EqualValues(t, 1, consumerInfo(t, s, "c").Lag)
			require.EqualValues(t, 1, testkit.GroupInfo(t, s.Group("g", nil)).Lag)
		})
	}
}

// A pattern has no single topic, so its filters apply to keys only.
func TestFilter_WithTopic_Pattern(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders:eu")
	testkit.Publish(t, s, 1, honker.EventKey("created"))
	testkit.Publish(t, s, 2, honker.EventKey("orders:eu:created"))
	for e, err := range honker.NewStream[int](db, "orders:*", nil).Tail(ctx, honker.Beginning, honker.KeyPrefix("orders:eu:")) {
		require.NoError(t, err)
		require.Equal(t, 2, e.Data)
		break
	}
}
