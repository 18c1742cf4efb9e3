//go:build unix

package move_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/move"
)

func stream(db *honker.DB) *honker.Stream[int] { return honker.NewStream[int](db, "s", nil) }

// publish publishes the numbers from first to last and returns the offset of the last.
func publish(t *testing.T, s *honker.Stream[int], first, last int) (offset int64) {
	t.Helper()
	for n := first; n <= last; n++ {
		var err error
		offset, err = s.Publish(t.Context(), n, honker.EventKey("k"))
		require.NoError(t, err)
	}
	return offset
}

// next reads n events of a consumer, acks the last of them, and returns all.
func next(t *testing.T, s *honker.Stream[int], consumer string, n int) (all []int) {
	t.Helper()
	for e, err := range s.Subscribe(t.Context(), consumer, nil) {
		require.NoError(t, err)
		if all = append(all, e.Data); len(all) == n {
			require.NoError(t, e.Ack(t.Context()))
			break
		}
	}
	return all
}

// Events keep their offsets, and a consumer continues in the target after the last event that it has acked in the file,
// even if it has read on between two passes.
func TestRun_Topics(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	last := publish(t, stream(from), 1, 10)
	require.Equal(t, []int{1, 2, 3}, next(t, stream(from), "c", 3))
	r := run(t, from, to, &move.Options{Once: true})
	require.EqualValues(t, 10, r.Events)

	require.Equal(t, []int{4, 5}, next(t, stream(from), "c", 2))
	publish(t, stream(from), 11, 12)
	r = run(t, from, to, nil)
	require.EqualValues(t, 2, r.Events)
	require.Zero(t, r.Late)
	var offsets []int64
	for e, err := range stream(to).Read(t.Context(), 0) {
		require.NoError(t, err)
		require.Equal(t, "k", e.Key)
		offsets = append(offsets, e.Offset)
	}
	require.Len(t, offsets, 12)
	require.Equal(t, last, offsets[9])
	publish(t, stream(to), 13, 13)
	require.Equal(t, []int{6, 7, 8, 9, 10, 11, 12, 13}, next(t, stream(to), "c", 8))
}

// A consumer that has begun in the target is its own from then on, and events that are published in the file after the
// first of the target come last, so that it sees them.
func TestRun_Late(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	publish(t, stream(from), 1, 3)
	next(t, stream(from), "c", 1)
	run(t, from, to, nil)
	publish(t, stream(to), 10, 10)
	require.Equal(t, []int{2, 3, 10}, next(t, stream(to), "c", 3))

	publish(t, stream(from), 4, 5)
	require.Equal(t, []int{2, 3, 4}, next(t, stream(from), "c", 3)) // a process of the file that was not stopped
	r := run(t, from, to, nil)
	require.EqualValues(t, 2, r.Late)
	require.Equal(t, []string{"topic s: events of the file came after events of the target, and have new offsets",
		"consumer c of s has moved on in the target, so its place in the file is not copied any more"}, r.Notes[:2])
	require.Equal(t, []int{4, 5}, next(t, stream(to), "c", 2))
	require.Zero(t, run(t, from, to, nil).Events)
}

// A group keeps its place and the events that have come back. Leased events come back to the group in the target after
// their leases, unless they are acked in the file before it begins there.
func TestRun_Groups(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	publish(t, stream(from), 1, 6)
	group := func(db *honker.DB) *honker.Group[int] {
		return stream(db).Group("g", &honker.GroupOptions{MaxAttempts: 3})
	}
	m, err := group(from).Join(t.Context(), "m")
	require.NoError(t, err)
	got, err := m.Claim(t.Context(), 4)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.NoError(t, got[0].Ack(t.Context()))
	require.NoError(t, got[1].Nack(t.Context(), nil))
	run(t, from, to, nil)
	require.NoError(t, got[2].Ack(t.Context()))
	require.NoError(t, got[3].Nack(t.Context(), nil))
	run(t, from, to, nil)

	m, err = group(to).Join(t.Context(), "m")
	require.NoError(t, err)
	seen := map[int]int{}
	for len(seen) < 4 {
		got, err := m.Claim(t.Context(), 9)
		require.NoError(t, err)
		for _, d := range got {
			seen[d.Data] = d.Attempts
			require.NoError(t, d.Ack(t.Context()))
		}
	}
	require.Equal(t, map[int]int{2: 2, 4: 2, 5: 1, 6: 1}, seen)
	require.Contains(t, run(t, from, to, nil).Notes, "group g of s has moved on in the target, so its place in the file is not copied any more")
}
