package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Dead jobs are grouped by queue and kind of error, largest group first.
func TestDeadGroups(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreDead(t, db, 12, func(n int64) testkit.StoredJob {
		j := testkit.StoredJob{Queue: "a", Error: fmt.Sprintf(`job %d: no route to "%d"`, n, n), DiedAt: 100 + n}
		switch n {
		case 1:
			j.Error = "out of paper"
		case 12:
			j.Queue = "b"
		}
		return j
	})
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 12}, r.Looked)
	require.Len(t, r.Groups, 3)
	g := r.Groups[0]
	require.Equal(t, `job 11: no route to "11"`, g.Sample)
	require.EqualValues(t, 10, g.N)
	require.Equal(t, []int64{11, 10, 9, 8, 7, 6, 5, 4, 3, 2}, g.IDs)
	require.Equal(t, [2]time.Time{time.Unix(102, 0), time.Unix(111, 0)}, [2]time.Time{g.First, g.Last})
	require.Equal(t, g.Fingerprint, r.Groups[1].Fingerprint, "of another queue")
	require.Equal(t, "b", r.Groups[1].Queue)
	require.Equal(t, "out of paper", r.Groups[2].Sample)
	var none context.Context
	_, err = admin.DeadGroups(none, db, admin.JobFilter{})
	require.Error(t, err)
}

// paperJam is a dead job, of queue a if n is odd and of b otherwise.
func paperJam(n int64, noPaper bool, diedAt int64) testkit.StoredJob {
	j := testkit.StoredJob{Queue: []string{"b", "a"}[n%2], Error: fmt.Sprint("error ", n), DiedAt: diedAt}
	if noPaper {
		j.Error = "out of paper"
	}
	return j
}

// Jobs excluded by the filter, whether in SQL or by fingerprint, don't count toward the window.
func TestDeadGroups_Filter(t *testing.T) {
	inBubble(t, testDeadGroupsFilter) // in fake time, so the search never exceeds its budget
}

func testDeadGroupsFilter(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
	ctx := t.Context()
	testkit.StoreDead(t, db, 10_500, func(n int64) testkit.StoredJob { return paperJam(n, n <= 3, 1+n/10) })
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{IDs: []int64{3, 1, 99_999}})
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 2}, r.Looked)
	require.Len(t, r.Groups, 1)
	require.Equal(t, []int64{3, 1}, r.Groups[0].IDs)
	paper := admin.JobFilter{Fingerprint: r.Groups[0].Fingerprint}
	for _, f := range []admin.JobFilter{paper, {Error: "paper"}, {DiedBefore: time.Unix(2, 0), Contains: "1", Error: "paper"}} {
		r, err := admin.DeadGroups(ctx, db, f)
		require.NoError(t, err)
		require.Equal(t, honker.Count{N: 3}, r.Looked, f)
		require.Len(t, r.Groups, 2)
		require.Equal(t, []int64{3, 1}, r.Groups[0].IDs, "of queue a, the newest first")
	}
	r, err = admin.DeadGroups(ctx, db, admin.JobFilter{Queues: []string{"b"}, DiedSince: time.Unix(1000, 0)})
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 256}, r.Looked)
	require.EqualValues(t, 10500, r.Groups[0].IDs[0])
}

// Deaths are counted per hour for the last day. A clock that's behind doesn't produce hours in the future.
func TestDeadGroups_LastDay(t *testing.T) {
	ctx, db, _, _ := open(t)
	now := time.Now().Unix()
	ago := []time.Duration{-time.Hour, 10 * time.Minute, 90 * time.Minute, 91 * time.Minute, 23*time.Hour + 30*time.Minute, 25 * time.Hour}
	testkit.StoreDead(t, db, len(ago), func(n int64) testkit.StoredJob {
		return testkit.StoredJob{Error: "x", DiedAt: now - int64(ago[n-1]/time.Second)}
	})
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Len(t, r.Groups, 1)
	require.Equal(t, [24]int64{0: 1, 22: 2, 23: 2}, r.Groups[0].LastDay)
}

// DeadGroups counts all dead jobs of a kind, so that it agrees with an action on that kind.
func TestDeadGroups_Exact(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreDead(t, db, 10_500, func(n int64) testkit.StoredJob { return testkit.StoredJob{Error: fmt.Sprint("error ", n), DiedAt: n} })
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 10_500}, r.Looked)
	require.Len(t, r.Groups, 1)
	require.EqualValues(t, 10_500, r.Groups[0].N)
	require.Equal(t, time.Unix(1, 0), r.Groups[0].First)
	done, err := admin.Discard(ctx, db, admin.JobFilter{Fingerprint: r.Groups[0].Fingerprint}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 10_500, done.Changed)
}

// A group tells how many of its jobs died lately, and how many with attempts left.
func TestDeadGroups_LeftAndRecent(t *testing.T) {
	ctx, db, q, _ := open(t)
	_, err := q.EnqueueMany(ctx, []int{1, 2, 3}, honker.MaxAttempts(2))
	require.NoError(t, err)
	for range 2 {
		_, err = q.WorkDue(ctx, func(_ context.Context, j *honker.Job[int]) error {
			if j.Args == 1 {
				return honker.Reject(errors.New("no"))
			}
			return honker.RetryAfter(0, errors.New("no"))
		}, nil)
		require.NoError(t, err)
	}
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Len(t, r.Groups, 1)
	require.Equal(t, [3]int64{3, 1, 3}, [3]int64{r.Groups[0].N, r.Groups[0].Left, r.Groups[0].Recent})
}

// DeadGroupsWithin accepts a smaller window and rejects an invalid size.
func TestDeadGroupsWithin(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreDead(t, db, 300, func(n int64) testkit.StoredJob { return paperJam(n, n == 1, 1000-n) })
	r, err := admin.DeadGroupsWithin(ctx, db, admin.JobFilter{}, 299, 0)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 299, More: true}, r.Looked)
	r, err = admin.DeadGroupsWithin(ctx, db, admin.JobFilter{}, 1, 0)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 1, More: true}, r.Looked)
	require.Equal(t, []int64{1}, r.Groups[0].IDs, "the last that died")
	r, err = admin.DeadGroupsWithin(ctx, db, admin.JobFilter{}, 300, 0)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 300}, r.Looked)
	r, err = admin.DeadGroupsWithin(ctx, db, admin.JobFilter{Error: "error 300"}, 100, 0)
	require.NoError(t, err)
	require.Equal(t, honker.Count{More: true}, r.Looked, "without a budget it looks no further")
	r, err = admin.DeadGroupsWithin(ctx, db, admin.JobFilter{Error: "error 300"}, 100, time.Hour)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 1}, r.Looked)
	for _, newest := range []int{-1, 0, 10_001} {
		_, err = admin.DeadGroupsWithin(ctx, db, admin.JobFilter{}, newest, 0)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err = admin.DeadGroupsWithin(ctx, db, admin.JobFilter{}, 1, -1)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
