package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Stats agrees with a full count after every kind of job change.
func TestStats_BruteForce(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Prios: 2, Legacy: dispatch.LegacyDualPush})
	ctx := context.Background()
	r := testkit.Rand(testkit.Seed(t), 2)
	targets := []dispatch.Target{{Type: "a"}, {Type: "a", Group: "g"}, {Type: "a", Group: "g", Instance: "1"}, {Type: "b", Prio: 1}}
	var sent []int64
	for range 400 {
		at := targets[r.IntN(len(targets))]
		queue := honker.NewQueue[args](db, d.Keys().Work(at), &honker.QueueOptions{Lease: time.Hour})
		switch r.IntN(5) {
		case 0, 1:
			sent = append(sent, send(t, d, at, 1))
		case 2:
			sent = append(sent, send(t, d, at, 1, dispatch.With(honker.Delay(time.Hour))))
		case 3:
			_, err := queue.Claim(ctx, "w", 1+r.IntN(3))
			require.NoError(t, err)
		case 4:
			if len(sent) > 0 {
				_, err := d.StopJob(ctx, sent[r.IntN(len(sent))])
				require.NoError(t, err)
			}
		}
	}
	var want []dispatch.QueueStats
	rows, err := db.SQL().Query(`SELECT queue, sum(state = 'pending'), sum(state = 'processing'), ifnull(min(iif(state = 'pending', created_at, NULL)), 0)
FROM _honker_live WHERE queue GLOB 'hero:q:work:*' GROUP BY queue ORDER BY queue`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var s dispatch.QueueStats
		var oldest int64
		require.NoError(t, rows.Scan(&s.Queue, &s.Depth, &s.InFlight, &oldest))
		if oldest != 0 {
			s.Oldest = time.Unix(oldest, 0)
		}
		key, err := d.Keys().Parse(s.Queue)
		require.NoError(t, err)
		s.Target = key.Target
		want = append(want, s)
	}
	require.NoError(t, rows.Err())
	got, err := d.Stats(ctx)
	require.NoError(t, err)
	for i := range got {
		if !got[i].Oldest.IsZero() {
			got[i].Oldest = time.Unix(got[i].Oldest.Unix(), 0)
		}
	}
	require.Equal(t, want, got)
	require.NoError(t, db.Check(ctx))
}
