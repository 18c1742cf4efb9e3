package honker_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// legacyMessages returns the messages sent since the last call.
func legacyMessages(t testing.TB, db *honker.DB) []string {
	t.Helper()
	rows, err := testkit.Rows(db.SQL(), `SELECT channel, payload FROM _honker_notifications ORDER BY id`)
	require.NoError(t, err)
	testkit.Exec(t, db, `DELETE FROM _honker_notifications`)
	return rows
}

// useForMessages performs operations on jobs and events, including those for which honker up to 0.2.4 sends
// messages. It returns the messages of each operation.
func useForMessages(t *testing.T, db *honker.DB) map[string][]string {
	ctx, got := testkit.Context(t, testkit.Timeout), map[string][]string{}
	q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 1h"})
	step := func(what string, err error) {
		t.Helper()
		require.NoError(t, err, what)
		got[what] = legacyMessages(t, db)
	}
	inTx := func(end error, f func(ctx context.Context, tx *sql.Tx) error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := f(ctx, tx); err != nil {
				return err
			}
			return end
		})
	}
	enqueue := func(ctx context.Context, tx *sql.Tx) error { _, err := q.EnqueueTx(ctx, tx, 2); return err }
	_, err := q.Enqueue(ctx, 1)
	step("enqueue", err)
	step("enqueue in a transaction", inTx(nil, enqueue))
	require.ErrorIs(t, inTx(testkit.ErrCause, enqueue), testkit.ErrCause)
	step("enqueue rolled back", nil)
	_, err = q.EnqueueMany(ctx, []int{3, 4})
	step("enqueue two", err)
	_, err = db.SQL().ExecContext(ctx, `SELECT honker_enqueue('other', '1', NULL, NULL, 0, 3, NULL)`)
	step("enqueue by SQL", err)
	_, err = db.Scheduler().Trigger(ctx, "tea")
	step("trigger", err)
	jobs := testkit.Claim(t, q, 4)
	step("claim", nil)
	step("retry", jobs[0].Retry(ctx, time.Hour, testkit.ErrCause))
	step("extend", jobs[1].Extend(ctx, time.Hour))
	step("ack", jobs[1].Ack(ctx))
	step("reject", jobs[2].Reject(ctx, testkit.ErrCause))
	_, err = q.Cancel(ctx, jobs[3].ID)
	step("cancel", err)
	slow := honker.NewQueue[int](db, "slow", nil)
	testkit.Enqueue(t, slow, 5)
	lapsing := testkit.ClaimOne(t, slow)
	testkit.ExpireClaim(t, db, lapsing.ID)
	legacyMessages(t, db)
	require.Equal(t, lapsing.ID, testkit.ClaimOne(t, slow).ID)
	step("claim of a lapsed job", nil)
	_, err = s.Publish(ctx, 1)
	step("publish", err)
	_, _, err = s.PublishMany(ctx, []int{2, 3})
	step("publish two", err)
	step("publish in a transaction", inTx(nil, func(ctx context.Context, tx *sql.Tx) error { _, err := s.PublishTx(ctx, tx, 4); return err }))
	return got
}

// With LegacyMessages, each job that is enqueued or retried and each event sends the message that honker up
// to 0.2.4 sent. The message belongs to the same transaction, whichever verb or SQL function is used.
// Without the option none is sent.
func TestNotify_Legacy(t *testing.T) {
	t.Parallel()
	for what, rows := range useForMessages(t, honkertest.Open(t, nil)) {
		require.Empty(t, rows, what)
	}
	job, event := "honker:jobs|new", "honker:stream:orders|new"
	require.Equal(t, map[string][]string{
		"enqueue": {job}, "enqueue in a transaction": {job}, "enqueue rolled back": nil, "enqueue two": {job, job},
		"enqueue by SQL": {"honker:other|new"}, "trigger": {job},
		"claim": nil, "claim of a lapsed job": nil, "retry": {job}, "extend": nil, "ack": nil, "reject": nil, "cancel": nil,
		"publish": {event}, "publish two": {event, event}, "publish in a transaction": {event},
	}, useForMessages(t, honkertest.Open(t, &honker.Options{LegacyMessages: true})))
}

// A listener in another process receives the messages as they are sent.
func TestNotify_Legacy_Heard(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	ctx := testkit.Context(t, testkit.Timeout)
	sender, err := honker.Open(ctx, path, &honker.Options{LegacyMessages: true})
	require.NoError(t, err)
	defer sender.Close()
	for _, reader := range []*honker.DB{sender, testkit.Attach(t, path)} {
		l := testkit.Listen(t, reader, "honker:jobs", "honker:stream:orders")
		testkit.Enqueue(t, honker.NewQueue[int](sender, "jobs", nil), 1)
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "honker:jobs new", n.Channel+" "+string(n.Payload))
		testkit.Publish(t, honker.NewStream[int](sender, "orders", nil), 1)
		n, err = l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "honker:stream:orders new", n.Channel+" "+string(n.Payload))
	}
}

// The connections of a Connector also send the messages. The connections of an attached pool belong to the
// application, so Attach refuses the option.
func TestNotify_Legacy_Pools(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	o := &honker.Options{LegacyMessages: true}
	c, err := honker.Connector(path, o)
	require.NoError(t, err)
	pool := sql.OpenDB(c)
	defer pool.Close()
	for range 2 {
		_, err = pool.Exec(`SELECT honker_enqueue('jobs', '1', NULL, NULL, 0, 3, NULL)`)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, testkit.QueryInt(t, pool, `SELECT count(*) FROM _honker_notifications WHERE channel = 'honker:jobs'`))

	_, err = honker.Attach(t.Context(), testkit.OpenPool(t, path), o)
	require.ErrorIs(t, err, honker.ErrUnsupported)
	require.ErrorContains(t, err, "LegacyMessages")
}
