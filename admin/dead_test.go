package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Dead jobs are grouped by queue and kind of error, largest group first.
func TestDeadGroups(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	testkit.Exec(t, db, testkit.Numbers(12)+`INSERT INTO _honker_dead (id, queue, payload, last_error, died_at)
SELECT n, iif(n = 12, 'b', 'a'), '1', iif(n = 1, 'out of paper', 'job ' || n || ': no route to "' || n || '"'), 100 + n FROM some`)
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

// Jobs excluded by the filter, whether in SQL or by fingerprint, don't count toward the window.
func TestDeadGroups_Filter(t *testing.T) {
	testkit.FileOnly(t)
	inBubble(t, testDeadGroupsFilter) // in fake time, so the search never exceeds its budget
}

func testDeadGroupsFilter(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
	ctx := t.Context()
	testkit.Exec(t, db, testkit.Numbers(10500)+`INSERT INTO _honker_dead (id, queue, payload, last_error, died_at)
SELECT n, iif(n % 2, 'a', 'b'), '1', iif(n <= 3, 'out of paper', 'error ' || n), 1 + n / 10 FROM some`)
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
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	now := time.Now().Unix()
	for _, ago := range []time.Duration{-time.Hour, 10 * time.Minute, 90 * time.Minute, 91 * time.Minute, 23*time.Hour + 30*time.Minute, 25 * time.Hour} {
		testkit.Exec(t, db, `INSERT INTO _honker_dead (queue, payload, last_error, died_at) VALUES ('a', '1', 'x', ?)`, now-int64(ago/time.Second))
	}
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Len(t, r.Groups, 1)
	require.Equal(t, [24]int64{0: 1, 22: 2, 23: 2}, r.Groups[0].LastDay)
}

// DeadGroups has a bounded window and sets More if there may be more jobs. A change by fingerprint isn't
// bounded.
func TestDeadGroups_Window(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	testkit.Exec(t, db, testkit.Numbers(10500)+`INSERT INTO _honker_dead (id, queue, payload, last_error, died_at)
SELECT n, 'a', '1', 'error ' || n, n FROM some`)
	r, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 10000, More: true}, r.Looked)
	require.Len(t, r.Groups, 1)
	require.EqualValues(t, 10000, r.Groups[0].N)
	done, err := admin.Discard(ctx, db, admin.JobFilter{Fingerprint: r.Groups[0].Fingerprint}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 10500, done.Changed)
}

// DeadGroupsWithin accepts a smaller window and rejects an invalid size.
func TestDeadGroupsWithin(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	testkit.Exec(t, db, testkit.Numbers(300)+`INSERT INTO _honker_dead (id, queue, payload, last_error, died_at)
SELECT n, iif(n % 2, 'a', 'b'), '1', iif(n = 1, 'out of paper', 'error ' || n), 1000 - n FROM some`)
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
