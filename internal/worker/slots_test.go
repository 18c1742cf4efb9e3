package worker

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlots_Random checks that no slot is lost or used twice, that no slot is free while a loop
// waits, and that waiting loops get slots in order of arrival.
func TestSlots_Random(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 3
	slots := NewSlots(n)
	loops := make([]*Reservation, 6)
	started := make(map[*Reservation]int)
	for i := range loops {
		loops[i] = slots.Reserve()
	}
	for range 20_000 {
		r, before := loops[random.IntN(len(loops))], slices.Clone(slots.waiting)
		switch random.IntN(5) {
		case 0:
			has := r.Ask()
			require.Equal(t, r.reserved > 0, has)
			require.NotEqual(t, has, slices.Contains(slots.waiting, r))
		case 1:
			want := random.IntN(4)
			require.LessOrEqual(t, r.Fill(want), want)
		case 2:
			if r.reserved > 0 {
				r.Start(1)
				started[r]++
			}
		case 3:
			if started[r] > 0 {
				started[r]--
				r.End()
			}
		case 4:
			r.Release()
			require.Zero(t, r.reserved)
			require.NotContains(t, slots.waiting, r)
		}
		used := slots.free
		for _, r := range loops {
			used += r.reserved + started[r]
		}
		require.Equal(t, n, used)
		require.True(t, slots.free == 0 || len(slots.waiting) == 0)
		// The loops that got a slot were ahead of all others. r may have left, or joined at the
		// end.
		isR := func(w *Reservation) bool { return w == r }
		rest, left := slices.DeleteFunc(before, isR), slices.DeleteFunc(slices.Clone(slots.waiting), isR)
		require.True(t, len(left) <= len(rest) && slices.Equal(left, rest[len(rest)-len(left):]))
	}
}
