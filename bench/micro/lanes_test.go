package micro_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// What jobs cost that are claimed, run and acked by a Work with a hundred thousand more of them in
// each queue: of one queue, and of lanes.
func BenchmarkLanes(b *testing.B) {
	const waiting = 100_000
	for _, lanes := range []int{1, 3, 9} {
		db, err := honker.Open(context.Background(), filepath.Join(b.TempDir(), "lanes.db"), nil)
		require.NoError(b, err)
		defer db.Close()
		names := make([]string, lanes)
		for i := range names {
			names[i] = fmt.Sprint("q", i)
			args := make([]int, waiting)
			_, err := honker.NewQueue[int](db, names[i], nil).EnqueueMany(context.Background(), args)
			require.NoError(b, err)
		}
		if lanes == 1 {
			b.Run("plain", func(b *testing.B) {
				q := honker.NewQueue[int](db, names[0], nil)
				takeAll(b, db, q.Work, waiting)
			})
		}
		for kind, opts := range map[string]*honker.LaneOptions{"strict": {Strict: true}, "fair": nil} {
			b.Run(fmt.Sprintf("%s/%d", kind, lanes), func(b *testing.B) {
				takeAll(b, db, honker.NewLanes[int](db, names, opts).Work, waiting)
			})
		}
	}
}

// takeAll runs work until b.N jobs have been run.
func takeAll(b *testing.B, db *honker.DB, work func(context.Context, func(context.Context, *honker.Job[int]) error, *honker.WorkOptions) error, most int) {
	b.Helper()
	if b.N > most/8 {
		b.Skip("more than are waiting")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := 0
	require.NoError(b, work(ctx, func(context.Context, *honker.Job[int]) error {
		if n++; n == b.N {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Workers: 1}))
	require.GreaterOrEqual(b, n, b.N)
}
