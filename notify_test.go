package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// listenTo attaches a listener that is closed with the test.
func listenTo(t testing.TB, db *honker.DB, channels ...string) *honker.Listener {
	t.Helper()
	l, err := db.Listen(context.Background(), channels...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// tell sends a message and returns its id.
func tell(t testing.TB, db *honker.DB, channel string, payload any) int64 {
	t.Helper()
	id, err := db.Notify(context.Background(), channel, payload)
	require.NoError(t, err)
	return id
}

// hear asserts that the next messages are those with ids.
func hear(t testing.TB, l *honker.Listener, ids ...int64) {
	t.Helper()
	ctx := bounded(t, patient)
	got := make([]int64, len(ids))
	for i := range ids {
		n, err := l.Next(ctx)
		require.NoError(t, err)
		got[i] = n.ID
	}
	require.Equal(t, ids, got)
}

func TestListenerHearsWhatIsSentAfterItAttachedInOrder(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	began := time.Now()
	tell(t, db, "news", "history")
	l := listenTo(t, db, "news")
	var ids []int64
	for i := range 600 { // more than two pages
		if i%3 == 0 {
			tell(t, db, "elsewhere", i)
		}
		ids = append(ids, tell(t, db, "news", i))
	}
	require.IsIncreasing(t, ids)
	n, err := l.Next(bounded(t, patient))
	require.NoError(t, err)
	require.Equal(t, honker.Notification{ID: ids[0], Channel: "news", Payload: json.RawMessage(`0`), CreatedAt: n.CreatedAt}, *n)
	after(t, began, 0, n.CreatedAt)
	hear(t, l, ids[1:]...)
}

func TestListenerOfSeveralChannelsHearsThemInOneOrder(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := listenTo(t, db, "a", "b", "a")
	a := tell(t, db, "a", 1)
	tell(t, db, "c", 2)
	b := tell(t, db, "b", 3)
	hear(t, l, a, b, tell(t, db, "a", 4))
}

func TestEachListenerHearsAllMessages(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	first, second := listenTo(t, db, "news"), listenTo(t, db, "news")
	ids := []int64{tell(t, db, "news", 1), tell(t, db, "news", 2)}
	hear(t, first, ids...)
	hear(t, second, ids...)
}

func TestMessageOfATransactionIsHeardWithItsCommitAndNeverWithoutOne(t *testing.T) {
	t.Parallel()
	ctx := bounded(t, patient)
	db := honkertest.Open(t, nil)
	l := listenTo(t, db, "news")
	notify := func(end error) (id int64) {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			var err error
			id, err = db.NotifyTx(ctx, tx, "news", "tx")
			require.NoError(t, err)
			short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_, err = l.Next(short)
			require.ErrorIs(t, err, context.DeadlineExceeded, "not committed yet")
			return end
		})
		require.Equal(t, end, err)
		return id
	}
	notify(errCause)
	hear(t, l, notify(nil))
	hear(t, l, tell(t, db, "news", "after"))
}

func TestNoMessageIsLostBetweenListenAndNext(t *testing.T) {
	t.Parallel()
	ctx := bounded(t, patient)
	db := honkertest.Open(t, nil)
	const goroutines, pairs = 4, 250
	ended := make(chan error, goroutines)
	pair := func(channel string) error {
		if _, err := db.Notify(ctx, channel, "before"); err != nil {
			return err
		}
		l, err := db.Listen(ctx, channel)
		if err != nil {
			return err
		}
		defer l.Close()
		sent := make(chan error, 1)
		go func() { _, err := db.Notify(ctx, channel, "after"); sent <- err }()
		n, err := l.Next(ctx)
		if err == nil && string(n.Payload) != `"after"` {
			err = fmt.Errorf("heard %s", n.Payload)
		}
		return errors.Join(err, <-sent)
	}
	for g := range goroutines {
		go func() {
			var err error
			for i := 0; i < pairs && err == nil; i++ {
				err = pair(fmt.Sprint("channel ", g, i%7))
			}
			ended <- err
		}()
	}
	for range goroutines {
		require.NoError(t, <-ended)
	}
}

func TestListenersThatComeAndGoDisturbNobody(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	for i := range 100 {
		l, err := db.Listen(context.Background(), "news")
		require.NoError(t, err)
		if i%2 == 0 {
			hear(t, l, tell(t, db, "news", i))
		}
		require.NoError(t, l.Close())
	}
}

func TestClosedListenerEndsItsNextAndAll(t *testing.T) {
	t.Parallel()
	ctx := bounded(t, patient)
	db := honkertest.Open(t, nil)
	for name, wait := range map[string]func(*honker.Listener) error{
		"Next": func(l *honker.Listener) error { _, err := l.Next(ctx); return err },
		"All":  func(l *honker.Listener) error { return lastError(l.All(ctx)) },
	} {
		l := listenTo(t, db, "news")
		ended := make(chan error, 1)
		go func() { ended <- wait(l) }()
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-ended, honker.ErrClosed, name)
		tell(t, db, "news", 1)
		require.ErrorIs(t, wait(l), honker.ErrClosed, name)
	}
	hearing := listenTo(t, db, "news")
	hear(t, hearing, tell(t, db, "news", 2))
}

func TestAllYieldsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	for name, end := range map[string]func(context.Context) (context.Context, func()){
		"cancel": func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) },
		"cancel with a cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errCause) }
		},
		"deadline with a cause": func(ctx context.Context) (context.Context, func()) {
			return context.WithTimeoutCause(ctx, 50*time.Millisecond, errCause)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listenTo(t, db, "news")
			tell(t, db, "news", 1)
			tell(t, db, "news", 2)
			for n, err := range l.All(bounded(t, patient)) {
				require.NoError(t, err)
				require.Equal(t, `1`, string(n.Payload))
				break
			}
			ctx, stop := end(bounded(t, patient))
			defer stop()
			steps := 0
			for n, err := range l.All(ctx) {
				steps++
				require.NoError(t, err, "the end of ctx is no error")
				require.Equal(t, `2`, string(n.Payload), "goes on after a break")
				if name != "deadline with a cause" {
					time.AfterFunc(time.Millisecond, stop)
				}
			}
			require.Equal(t, 1, steps)
		})
	}
}

func TestNextEndsWithItsContextAndLosesNothing(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := listenTo(t, db, "news")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err := l.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	id := tell(t, db, "news", 1)
	_, err = l.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	hear(t, l, id)
}

func TestPayloadOfAMessageComesBackAsItWent(t *testing.T) {
	t.Parallel()
	ctx := bounded(t, patient)
	db := honkertest.Open(t, nil)
	l := listenTo(t, db, "news")
	for _, v := range []any{
		map[string]any{"a": []any{1.5, "x"}}, []any{}, "", "ü \x00 \u2028 <>", -1.0, 0.1, true, nil,
	} {
		tell(t, db, "news", v)
		n, err := l.Next(ctx)
		require.NoError(t, err)
		var got any
		require.NoError(t, n.Decode(&got))
		require.Equal(t, v, got)
	}
	tell(t, db, "news", json.RawMessage(` {"b" : 1.0} `))
	n, err := l.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, ` {"b" : 1.0} `, string(n.Payload))
	var wrong int
	require.ErrorContains(t, n.Decode(&wrong), fmt.Sprintf("honker: decode notification %d: ", n.ID))
}

func TestPruneDeletesTheUnionOfOldAndSurplus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		olderThan time.Duration
		keep      int
		left      []int64
	}{
		"no bound":              {0, -1, []int64{10, 20, 30, 90, 100}},
		"as many as there are":  {0, 5, []int64{10, 20, 30, 90, 100}},
		"more than there are":   {0, 1 << 62, []int64{10, 20, 30, 90, 100}},
		"by rank, not by id":    {0, 2, []int64{90, 100}},
		"none":                  {0, 0, nil},
		"by age":                {30 * time.Minute, -1, []int64{10, 30, 100}},
		"by age, rounded up":    {time.Hour - time.Nanosecond, -1, []int64{10, 20, 30, 90, 100}},
		"by age and by number":  {30 * time.Minute, 3, []int64{30, 100}},
		"age of any length":     {1<<63 - 1, -1, []int64{10, 20, 30, 90, 100}},
		"age 0 bounds by count": {0, 4, []int64{20, 30, 90, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db := bounded(t, patient), honkertest.Open(t, nil)
			// Some are nearly an hour old; ids have gaps, and tell nothing of the age.
			alter(t, db, `INSERT INTO _honker_notifications (id, channel, payload, created_at)
				VALUES (10, 'a', '1', unixepoch()), (20, 'b', '1', unixepoch() - 3500), (30, 'a', '1', unixepoch()),
				(90, 'b', '1', unixepoch() - 3500), (100, 'a', '1', unixepoch())`)
			pruned, err := db.PruneNotifications(ctx, c.olderThan, c.keep)
			require.NoError(t, err)
			var left []int64
			rows, err := db.SQL().QueryContext(ctx, `SELECT id FROM _honker_notifications ORDER BY id`)
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				var id int64
				require.NoError(t, rows.Scan(&id))
				left = append(left, id)
			}
			require.NoError(t, rows.Err())
			require.Equal(t, c.left, left)
			require.Equal(t, 5-len(left), pruned)
		})
	}
}

func TestListenerGoesOnAfterWhatWasPruned(t *testing.T) {
	t.Parallel()
	ctx := bounded(t, patient)
	db := honkertest.Open(t, nil)
	l := listenTo(t, db, "news")
	tell(t, db, "news", "unread")
	pruned, err := db.PruneNotifications(ctx, 0, 0)
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
	fromNothing := listenTo(t, db, "news") // attaches to an empty table
	id := tell(t, db, "news", "next")
	hear(t, l, id)
	hear(t, fromNothing, id)
}
