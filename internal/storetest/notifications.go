package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func notifications(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("SinceBesideModel", func(t *testing.T) { messagesBesideModel(t, open(t)) })
	t.Run("SinceOfLargeMessages", func(t *testing.T) { largeMessages(t, open(t)) })
	t.Run("Head", func(t *testing.T) { headOfMessages(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { messageRolledBack(t, open(t)) })
}

func (d *Fixture) notify(t *testing.T, channel, payload string) (id int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		id, err = d.Stores.Notifications.Insert(ctx, q, channel, payload, start)
		return err
	})
	return id
}

func (d *Fixture) messages(t *testing.T, channels []string, after int64, limit int) (all []row.Notification) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Notifications.Since(ctx, q, channels, after, limit)
		return err
	})
	return all
}

func (d *Fixture) messageHead(t *testing.T) (head int64) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		head, err = d.Stores.Notifications.Head(ctx, q)
		return err
	})
	return head
}

// Since returns messages on any of the channels in ID order. IDs increase across all channels.
func messagesBesideModel(t *testing.T, d *Fixture) {
	rng := random(t)
	channels := []string{"x", "y", "X", "z"}
	var sent []row.Notification
	for i := range 40 {
		n := row.Notification{Channel: pick(rng, channels...), Payload: fmt.Sprint(i)}
		if n.ID = d.notify(t, n.Channel, n.Payload); i > 0 {
			require.Greater(t, n.ID, sent[i-1].ID)
		}
		sent = append(sent, n)
	}
	for range 60 {
		listened, after, limit := channels[:rng.IntN(len(channels)+1)], pick(rng, 0, sent[rng.IntN(len(sent))].ID), 1+rng.IntN(50)
		var want []row.Notification
		for _, n := range sent {
			if n.ID > after && slices.Contains(listened, n.Channel) && len(want) < limit {
				want = append(want, n)
			}
		}
		got := d.messages(t, listened, after, limit)
		for i := range got {
			require.WithinDuration(t, start, got[i].CreatedAt, time.Second)
			got[i].CreatedAt = time.Time{}
		}
		require.Equal(t, want, got, "%v above %d", listened, after)
	}
}

// A page of large messages is limited by their size, but is never empty.
func largeMessages(t *testing.T, d *Fixture) {
	large := `"` + strings.Repeat("m", 3<<20) + `"`
	first, second := d.notify(t, "x", large), d.notify(t, "x", `1`)
	page := d.messages(t, []string{"x"}, 0, 10)
	require.Len(t, page, 1)
	require.Equal(t, first, page[0].ID)
	require.Equal(t, second, d.messages(t, []string{"x"}, first, 10)[0].ID)
}

// Head is no lower than any visible message, is lower than every later message, and never decreases.
func headOfMessages(t *testing.T, d *Fixture) {
	require.Zero(t, d.messageHead(t))
	id := d.notify(t, "x", `1`)
	head := d.messageHead(t)
	require.GreaterOrEqual(t, head, id)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Notifications.Insert(ctx, q, "x", `2`, start)
		require.Equal(t, head, d.messageHead(t), "others do not see the message")
		return err
	})
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		dropped, err := d.Stores.Sweeps.Surplus(0).Take(ctx, q, row.Part{}, []int64{id}, start, 10)
		require.Equal(t, 1, dropped.N)
		return err
	})
	require.Empty(t, d.messages(t, []string{"x"}, 0, 10))
	require.Equal(t, head, d.messageHead(t))
	require.Greater(t, d.notify(t, "y", `3`), head)
}

// A message that is rolled back is never received.
func messageRolledBack(t *testing.T, d *Fixture) {
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Notifications.Insert(ctx, q, "x", `1`, start)
		return err
	})
	require.Empty(t, d.messages(t, []string{"x"}, 0, 10))
}
