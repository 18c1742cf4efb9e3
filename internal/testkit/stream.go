package testkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// Double is the function used by most pipes in tests.
func Double(_ context.Context, e *honker.Event[int]) (int, error) { return 2 * e.Data, nil }

// DoublingStreams returns the input and the output of a pipe that uses Double.
func DoublingStreams(db *honker.DB) (from, to *honker.Stream[int]) {
	return honker.NewStream[int](db, "numbers", nil), honker.NewStream[int](db, "doubles", nil)
}

// Doubles returns the first n non-negative integers, doubled.
func Doubles(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 2 * i
	}
	return out
}

// NewStream returns a stream in a new file.
func NewStream[E any](t testing.TB, topic string) (context.Context, *honker.DB, *honker.Stream[E]) {
	t.Helper()
	db := honkertest.Open(t, nil)
	return Context(t, Timeout), db, honker.NewStream[E](db, topic, nil)
}

// Publish publishes an event and returns its offset.
func Publish[E any](t testing.TB, s *honker.Stream[E], data E, opts ...honker.PublishOption) int64 {
	t.Helper()
	offset, err := s.Publish(context.Background(), data, opts...)
	require.NoError(t, err)
	return offset
}

// PublishUpTo publishes the numbers from 0 to n-1 in a single batch and returns their offsets.
func PublishUpTo(t testing.TB, s *honker.Stream[int], n int, opts ...honker.PublishOption) (offsets []int64) {
	t.Helper()
	data := make([]int, n)
	for i := range data {
		data[i] = i
	}
	first, last, err := s.PublishMany(context.Background(), data, opts...)
	require.NoError(t, err)
	for o := first; o <= last; o++ {
		offsets = append(offsets, o)
	}
	require.Len(t, offsets, n)
	return offsets
}

// StreamData returns the data of all stored events.
func StreamData[E any](t testing.TB, s *honker.Stream[E]) (data []E) {
	t.Helper()
	for e, err := range s.Read(Context(t, Timeout), 0) {
		require.NoError(t, err)
		data = append(data, e.Data)
	}
	return data
}

// Take returns a consumer's next n events.
func Take(t testing.TB, s *honker.Stream[int], consumer string, opts *honker.SubscribeOptions, n int) (events []*honker.Event[int]) {
	t.Helper()
	for e, err := range s.Subscribe(Context(t, Timeout), consumer, opts) {
		require.NoError(t, err)
		if events = append(events, e); len(events) == n {
			break
		}
	}
	require.Len(t, events, n)
	return events
}

// EventData returns the data of events.
func EventData(events []*honker.Event[int]) (data []int) {
	for _, e := range events {
		data = append(data, e.Data)
	}
	return data
}

// SavedOffset returns a consumer's saved offset.
func SavedOffset[E any](t testing.TB, s *honker.Stream[E], consumer string) int64 {
	t.Helper()
	offset, err := s.Offset(context.Background(), consumer)
	require.NoError(t, err)
	return offset
}
