package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
)

func addMessage(t *testing.T, q row.Querier, channel, payload string, now int64) int64 {
	t.Helper()
	id, err := notify.Notifications{}.Insert(ctx, q, channel, payload, time.Unix(now, 0))
	require.NoError(t, err)
	return id
}

func notificationID(n row.Notification) int64 { return n.ID }

func since(t *testing.T, q row.Querier, channels []string, after int64, limit int) []row.Notification {
	t.Helper()
	got, err := notify.Notifications{}.Since(ctx, q, channels, after, limit)
	require.NoError(t, err)
	return got
}

// Messages on several channels are returned in id order.
func TestNotifyRows_OrderOfIDs(t *testing.T) {
	tx := begin(t, openFresh(t))
	last, err := notify.Notifications{}.Head(ctx, tx)
	require.NoError(t, err)
	require.Zero(t, last)
	for i, channel := range []string{"x", "y", "z", "y", "x"} {
		require.EqualValues(t, i+1, addMessage(t, tx, channel, `"m"`, 10))
	}
	require.Equal(t, []int64{1, 2, 4, 5}, idsOf(since(t, tx, []string{"y", "x"}, 0, 10), notificationID))
	require.Equal(t, []int64{4, 5}, idsOf(since(t, tx, []string{"x", "y"}, 2, 10), notificationID))
	require.Equal(t, []int64{1, 2, 4}, idsOf(since(t, tx, []string{"x", "y"}, 0, 3), notificationID), "the oldest first")
	require.Equal(t, []row.Notification{{ID: 3, Channel: "z", Payload: `"m"`, CreatedAt: time.Unix(10, 0)}}, since(t, tx, []string{"z"}, 0, 10))
	require.Empty(t, since(t, tx, nil, 0, 10))
	require.Empty(t, since(t, tx, []string{"X"}, 0, 10))
	last, err = notify.Notifications{}.Head(ctx, tx)
	require.NoError(t, err)
	require.EqualValues(t, 5, last)
}

// A page of large messages is limited by its bytes, and the next page continues after it.
func TestNotifyRows_Since_Bytes(t *testing.T) {
	tx := begin(t, openFresh(t))
	large := `"` + strings.Repeat("m", 300<<10) + `"`
	for i := range 6 {
		addMessage(t, tx, []string{"x", "y"}[i%2], large, 10)
	}
	channels := []string{"y", "x"}
	require.Equal(t, []int64{1, 2, 3, 4}, idsOf(since(t, tx, channels, 0, 256), notificationID))
	require.Equal(t, []int64{5, 6}, idsOf(since(t, tx, channels, 4, 256), notificationID))
	require.Equal(t, []int64{1, 2}, idsOf(since(t, tx, channels, 0, 2), notificationID))
}

// ChannelsSince reports the channels with new messages and the last id it has seen.
func TestNotifyRows_ChannelsSince(t *testing.T) {
	tx := begin(t, openFresh(t))
	for _, channel := range []string{"x", "y", "x"} {
		addMessage(t, tx, channel, "1", 10)
	}
	for _, c := range []struct {
		after    int64
		limit, n int
		last     int64
		channels row.Added
	}{
		{0, 10, 3, 3, row.Added{"x": {"": true}, "y": {"": true}}},
		{0, 1, 1, 1, row.Added{"x": {"": true}}},
		{1, 10, 2, 3, row.Added{"x": {"": true}, "y": {"": true}}},
		{3, 10, 0, 3, row.Added{}},
		{9, 10, 0, 3, row.Added{}}, // less than 9, because the IDs have decreased
	} {
		channels, n, last, err := notify.Notifications{}.ChannelsSince(ctx, tx, c.after, c.limit)
		require.NoError(t, err)
		require.Equal(t, c.channels, channels)
		require.Equal(t, c.n, n)
		require.Equal(t, c.last, last)
	}
}

// prune deletes all but the newest keep messages, and messages before the second before. A negative keep means no
// count limit, and a zero before means no age limit.
func prune(tx row.Querier, before int64, keep int) (int, error) {
	var ids, old []int64
	var err error
	if keep >= 0 {
		ids, err = notify.Notifications{}.Surplus(ctx, tx, keep, 100)
	}
	if err != nil {
		return 0, err
	}
	if before > 0 {
		old, err = notify.SweepMessages.Find(ctx, tx, row.Part{}, time.Unix(before, 0), 100)
	}
	if err != nil {
		return 0, err
	}
	return notify.Notifications{}.Drop(ctx, tx, append(ids, old...))
}

// Pruning by count keeps the newest messages by rank, because IDs have gaps.
func TestNotifyRows_Prune_Rank(t *testing.T) {
	db := openFresh(t)
	for _, c := range []struct {
		keep, gone int
		left       []string
	}{
		{5, 0, []string{"90", "100"}},
		{2, 0, []string{"90", "100"}},
		{1, 1, []string{"100"}},
		{0, 2, []string{}},
		{-1, 0, []string{"90", "100"}},
	} {
		tx := begin(t, db)
		exec(t, tx, `INSERT INTO _honker_notifications (id, channel, payload, created_at) VALUES (90, 'x', '1', 5), (100, 'y', '1', 5)`)
		n, err := prune(tx, 0, c.keep)
		require.NoError(t, err)
		require.Equal(t, c.gone, n, "keep %d", c.keep)
		require.Equal(t, c.left, lines(t, tx, `SELECT id FROM _honker_notifications`), "keep %d", c.keep)
		require.NoError(t, tx.Rollback())
	}
}

// Pruning with decreasing counts deletes one more message each time, and new IDs continue the sequence.
func TestNotifyRows_Prune_InTurn(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `INSERT INTO _honker_notifications (id, channel, payload) VALUES (90, 'x', '1'), (100, 'x', '1')`)
	for _, step := range []struct{ keep, gone int }{{5, 0}, {2, 0}, {1, 1}, {0, 1}, {0, 0}} {
		n, err := prune(tx, 0, step.keep)
		require.NoError(t, err)
		require.Equal(t, step.gone, n)
	}
	require.EqualValues(t, 101, addMessage(t, tx, "x", "1", 5), "ids go on: a listener waits for larger ones")
}

// Pruning by age and by count deletes the union of both.
func TestNotifyRows_Prune_Union(t *testing.T) {
	db := openFresh(t)
	for _, c := range []struct {
		before int64
		keep   int
		left   []string
	}{
		{20, -1, []string{"1", "3", "4", "5"}}, // 20 is not before 20
		{0, 3, []string{"3", "4", "5"}},
		{20, 3, []string{"3", "4", "5"}},
		{25, 3, []string{"3", "5"}}, // an old message is among the newest
		{25, 0, []string{}},
		{99, 5, []string{}},
	} {
		tx := begin(t, db)
		exec(t, tx, `INSERT INTO _honker_notifications (id, channel, payload, created_at)
VALUES (1, 'x', '1', 30), (2, 'x', '1', 10), (3, 'y', '1', 30), (4, 'x', '1', 20), (5, 'y', '1', 30)`)
		n, err := prune(tx, c.before, c.keep)
		require.NoError(t, err)
		require.Equal(t, c.left, lines(t, tx, `SELECT id FROM _honker_notifications ORDER BY id`), "%+v", c)
		require.Equal(t, 5-len(c.left), n)
		require.NoError(t, tx.Rollback())
	}
}
