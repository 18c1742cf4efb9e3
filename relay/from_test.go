package relay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// sent handles all messages in the queue "hooks" and returns them in ID order.
func sent(t testing.TB, db *honker.DB, partitions int) []relay.Message {
	t.Helper()
	r := relay.New(db, nil)
	q := r.Queue("hooks", partitions)
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	stop := start(t, r)
	drained(t, q)
	require.NoError(t, stop())
	return slices.SortedFunc(slices.Values(got.list()), func(a, b relay.Message) int { return cmp.Compare(a.ID, b.ID) })
}

// sentTexts handles all messages in the queue "hooks" and returns their payloads in ID order.
func sentTexts(t testing.TB, db *honker.DB, partitions int) (texts []string) {
	t.Helper()
	for _, m := range sent(t, db, partitions) {
		texts = append(texts, string(m.Payload))
	}
	return texts
}

// numbers returns the strings "0" through n-1.
func numbers(n int) (texts []string) {
	for i := range n {
		texts = append(texts, strconv.Itoa(i))
	}
	return texts
}

// number returns a function that sends each event's number, reusing the same buffer.
func number() func(context.Context, *honker.Event[int]) ([]relay.Outgoing, error) {
	buffer := make([]byte, 0, 20)
	return func(_ context.Context, e *honker.Event[int]) ([]relay.Outgoing, error) {
		buffer = strconv.AppendInt(buffer[:0], int64(e.Data), 10)
		return []relay.Outgoing{{Key: e.Key, Payload: buffer}}, nil
	}
}

// untilSent waits until the queue has n messages.
func untilSent(t testing.TB, q *relay.Queue, n int64) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "messages sent", func() bool { return waiting(t, q) == n })
}

// From sends the messages returned by fn in event order, whether fn returns none, one or several.
func TestFrom(t *testing.T) {
	_, db, events := testkit.NewStream[int](t, "orders")
	q := relay.New(db, nil).Queue("hooks", 4)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return relay.From(ctx, events, "relay", q, func(_ context.Context, e *honker.Event[int]) ([]relay.Outgoing, error) {
			if e.Data == 3 {
				return nil, honker.ErrSkip
			}
			var out []relay.Outgoing
			for i := range e.Data {
				out = append(out, relay.Outgoing{Key: e.Key, Type: "text/plain", Payload: fmt.Appendf(nil, "%d.%d", e.Data, i)})
			}
			return out, nil
		})
	})
	for _, n := range []int{2, 0, 3} {
		testkit.Publish(t, events, n, honker.EventKey("a"))
	}
	untilSent(t, q, 2)
	testkit.Publish(t, events, 1, honker.EventKey("b"))
	untilSent(t, q, 3)
	require.NoError(t, stop())
	var got []string
	for _, m := range sent(t, db, 4) {
		got = append(got, fmt.Sprintf("%d|%s|%s", m.Partition, m.Type, m.Payload))
	}
	a, b := q.Partition("a"), q.Partition("b")
	require.Equal(t, []string{fmt.Sprintf("%d|text/plain|2.0", a), fmt.Sprintf("%d|text/plain|2.1", a), fmt.Sprintf("%d|text/plain|1.0", b)}, got)
	at, err := events.Offset(t.Context(), "relay")
	require.NoError(t, err)
	head, err := events.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, head, at, "what has no messages is passed too")
}

// Each event is sent once and in order, even if From is stopped and restarted many times.
func TestFrom_Restarts(t *testing.T) {
	const n = 3000
	_, db, events := testkit.NewStream[int](t, "orders")
	q := relay.New(db, nil).Queue("hooks", 1)
	testkit.PublishUpTo(t, events, n)
	for calls := 0; calls < n; {
		ctx, cancel := context.WithCancel(t.Context())
		send := number()
		until := calls + 170
		require.NoError(t, relay.From(ctx, events, "relay", q, func(ctx context.Context, e *honker.Event[int]) ([]relay.Outgoing, error) {
			if calls++; calls == until {
				cancel()
			}
			if calls == n {
				cancel()
			}
			return send(ctx, e)
		}))
		cancel()
	}
	require.Equal(t, numbers(n), sentTexts(t, db, 1))
}

// Several concurrent calls to From for one consumer send each event once and in order.
func TestFrom_SeveralForOneConsumer(t *testing.T) {
	const n = 2000
	_, db, events := testkit.NewStream[int](t, "orders")
	q := relay.New(db, nil).Queue("hooks", 1)
	var stops []func() error
	for range 3 {
		stops = append(stops, testkit.Background(t, func(ctx context.Context) error {
			return relay.From(ctx, events, "relay", q, number())
		}))
	}
	for i := range n / 100 {
		data := make([]int, 100)
		for j := range data {
			data[j] = 100*i + j
		}
		_, _, err := events.PublishMany(t.Context(), data)
		require.NoError(t, err)
	}
	untilSent(t, q, n)
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	require.Equal(t, numbers(n), sentTexts(t, db, 1))
}

// An error ends From. Earlier events are not processed again, and the next From starts with the
// failed event.
func TestFrom_Error(t *testing.T) {
	_, db, events := testkit.NewStream[int](t, "orders")
	q := relay.New(db, &relay.Options{MaxPayload: 10}).Queue("hooks", 1)
	testkit.PublishUpTo(t, events, 10)
	broken := errors.New("broken")
	send := number()
	for _, c := range []struct {
		bad  relay.Outgoing
		err  error
		want error
	}{
		{err: broken, want: broken},
		{bad: relay.Outgoing{Payload: make([]byte, 11)}, want: honker.ErrInvalid},
		{bad: relay.Outgoing{Type: "\n"}, want: honker.ErrInvalid},
		{bad: relay.Outgoing{Partition: 1}, want: honker.ErrInvalid},
	} {
		err := relay.From(t.Context(), events, "relay", q, func(ctx context.Context, e *honker.Event[int]) ([]relay.Outgoing, error) {
			if e.Data < 4 {
				return send(ctx, e)
			}
			return []relay.Outgoing{{}, c.bad}, c.err
		})
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, `relay from "orders": event 5: `)
		require.EqualValues(t, 4, waiting(t, q))
	}
	stop := testkit.Background(t, func(ctx context.Context) error { return relay.From(ctx, events, "relay", q, send) })
	untilSent(t, q, 10)
	require.NoError(t, stop())
	require.Equal(t, numbers(10), sentTexts(t, db, 1))
}

// The offset and the messages are saved together or not at all.
func TestFrom_NothingIsHalf(t *testing.T) {
	_, db, events := testkit.NewStream[int](t, "orders")
	_, err := relay.New(db, nil).Queue("hooks", 4).Send(t.Context(), text("first"))
	require.NoError(t, err)
	testkit.PublishUpTo(t, events, 10)
	err = relay.From(t.Context(), events, "relay", relay.New(db, nil).Queue("hooks", 8), number())
	require.ErrorIs(t, err, relay.ErrPartitions)
	at, err := events.Offset(t.Context(), "relay")
	require.NoError(t, err)
	require.Zero(t, at)
	require.Equal(t, []string{"first"}, sentTexts(t, db, 4))
}

func TestFrom_BadArguments(t *testing.T) {
	_, db, events := testkit.NewStream[int](t, "orders")
	r := relay.New(db, nil)
	require.ErrorIs(t, relay.From(t.Context(), events, "relay", r.Queue("hooks", 1), nil), honker.ErrInvalid)
	require.ErrorIs(t, relay.From(t.Context(), events, "relay", r.Queue("hooks", 3), number()), honker.ErrInvalid)
	require.ErrorIs(t, relay.From(t.Context(), events, "", r.Queue("hooks", 1), number()), honker.ErrInvalid)
	require.ErrorIs(t, relay.From(t.Context(), honker.NewStream[int](db, "", nil), "relay", r.Queue("hooks", 1), number()), honker.ErrInvalid)
	other := relay.New(honkertest.Open(t, nil), nil).Queue("hooks", 1)
	require.ErrorIs(t, relay.From(t.Context(), events, "relay", other, number()), honker.ErrInvalid)
	consumers, err := events.Consumers(t.Context())
	require.NoError(t, err)
	require.Empty(t, consumers, "nothing was changed")
}

// DB.Close ends From.
func TestFrom_Close(t *testing.T) {
	db, err := honker.Open(t.Context(), filepath.Join(t.TempDir(), "app.db"), nil)
	require.NoError(t, err)
	events := honker.NewStream[int](db, "orders", nil)
	q := relay.New(db, nil).Queue("hooks", 1)
	ended := make(chan error)
	go func() { ended <- relay.From(t.Context(), events, "relay", q, number()) }()
	testkit.PublishUpTo(t, events, 1)
	untilSent(t, q, 1)
	require.NoError(t, db.Close())
	require.ErrorIs(t, <-ended, honker.ErrClosed)
}

// Messages sent by From wake a waiting relay.
func TestFrom_WakesHandlers(t *testing.T) {
	_, db, events := testkit.NewStream[int](t, "orders")
	r := relay.New(db, nil)
	q := r.Queue("hooks", 1)
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	stopRun := start(t, r)
	stop := testkit.Background(t, func(ctx context.Context) error { return relay.From(ctx, events, "relay", q, number()) })
	for i := range 20 {
		testkit.Publish(t, events, i)
		testkit.Eventually(t, testkit.Timeout, "message handled", func() bool { return got.len() == i+1 })
	}
	require.NoError(t, stop())
	require.NoError(t, stopRun())
	require.Equal(t, numbers(20), got.payloads())
}
