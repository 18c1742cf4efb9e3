package testkit

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// UseAll uses jobs, messages, events and transactions through db. It also writes through other,
// which must be a separate pool on the same file.
func UseAll(t *testing.T, db *honker.DB, other *sql.DB) {
	ctx := Context(t, Timeout)
	q := honker.NewQueue[int](db, "jobs", nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2})
	require.NoError(t, err)
	require.NoError(t, ClaimOneAs(t, q, "w").Ack(ctx))
	require.NoError(t, ClaimOneAs(t, q, "w").Retry(ctx, 0, errors.New("again")))
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()

	work, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(work, func(_ context.Context, j *honker.Job[int]) error { return j.SetResult(-j.Args) }, nil)
	}()
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	id, err := q.EnqueueTx(ctx, tx, 3)
	require.NoError(t, err)
	_, err = db.NotifyTx(ctx, tx, "news", "from a transaction")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	ExecAll(t, other, `INSERT INTO _honker_live (queue, payload) VALUES ('jobs', '4')`,
		`INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '"from elsewhere"')`)
	for n := range int64(2) {
		got, err := honker.WaitResult[int](ctx, db, id+n)
		require.NoError(t, err)
		require.EqualValues(t, -3-n, got)
	}
	for _, want := range []string{"from a transaction", "from elsewhere"} {
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.JSONEq(t, `"`+want+`"`, string(n.Payload))
	}
	Eventually(t, Timeout, "all jobs handled", func() bool { return QueryInt(t, other, CountJobs) == 0 })
	stop()
	require.NoError(t, <-worked)
}

// LastError returns the last error of a sequence.
func LastError[V any](values iter.Seq2[V, error]) (last error) {
	for _, err := range values {
		last = err
	}
	return last
}
