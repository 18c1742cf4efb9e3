package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
)

// All parts of a report describe the same moment. While a writer keeps moving jobs between ready, running
// and scheduled, each report accounts for every job exactly once in its counts, lists, keys and workers.
func TestQueueReport_OneMoment(t *testing.T) {
	db := honkertest.Open(t, nil)
	const jobs = 12
	q := honker.NewQueue[int](db, "mails", nil)
	for i := range jobs {
		_, err := q.Enqueue(t.Context(), i, honker.Key([]string{"a", "b"}[i%2]), honker.MaxAttempts(1_000_000))
		require.NoError(t, err)
	}
	var writer sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer writer.Wait()
	defer stop()
	moves := make(chan struct{}, 1)
	writer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			claimed, err := q.Claim(context.Background(), "w", n%jobs+1)
			for _, j := range claimed {
				if err == nil {
					err = j.Snooze(context.Background(), 0)
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case moves <- struct{}{}:
			default:
			}
		}
	})
	mixed := 0
	for range 100 {
		<-moves // the writer has moved jobs since the last report
		r, err := admin.QueueReport(t.Context(), db, "mails", nil)
		require.NoError(t, err)
		require.EqualValues(t, jobs, r.Ready.N+r.Scheduled.N+r.QueueStats.Running.N, "%+v", r.QueueStats) // a job may be due after the report's time
		require.Len(t, r.Next, int(r.Ready.N))
		require.Len(t, r.Running, int(r.QueueStats.Running.N))
		var keyed, ran int64
		for _, k := range r.Keys {
			keyed, ran = keyed+k.Waiting+k.Running, ran+k.Running
		}
		require.EqualValues(t, jobs, keyed)
		require.Equal(t, r.QueueStats.Running.N, ran)
		held := 0
		for _, w := range r.Workers {
			held += w.Running
		}
		require.EqualValues(t, r.QueueStats.Running.N, held)
		require.Equal(t, r.Ready, r.Why.Ahead)
		if r.Ready.N > 0 && r.QueueStats.Running.N > 0 {
			mixed++
		}
	}
	t.Log(mixed)
	require.NotZero(t, mixed, "no report was made while jobs moved")
}

// Next lists ready jobs in claim order and, with Waiting, also jobs that aren't due. Traffic has the
// requested steps.
func TestQueueReport_Options(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "mails", nil)
	later, err := q.Enqueue(t.Context(), 1, honker.Priority(9), honker.Delay(time.Hour))
	require.NoError(t, err)
	low, err := q.Enqueue(t.Context(), 2)
	require.NoError(t, err)
	high, err := q.Enqueue(t.Context(), 3, honker.Priority(1))
	require.NoError(t, err)
	ids := func(opts *admin.QueueReportOptions) (ids []int64) {
		r, err := admin.QueueReport(t.Context(), db, "mails", opts)
		require.NoError(t, err)
		for _, j := range r.Next {
			ids = append(ids, j.ID)
		}
		return ids
	}
	require.Equal(t, []int64{high, low}, ids(nil))
	require.Equal(t, []int64{later, high, low}, ids(&admin.QueueReportOptions{Waiting: true}))
	require.Equal(t, []int64{high}, ids(&admin.QueueReportOptions{Jobs: 1}))
}

// A report groups the jobs that wait for another attempt by error, and counts them by attempts. If many jobs wait, it
// examines only the jobs that are due next and the jobs that became due last.
func TestQueueReport_Retries(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "mails", nil)
	fail := func(delay time.Duration, text string) {
		claimed, err := q.Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		require.NoError(t, claimed[0].Retry(t.Context(), delay, errors.New(text)))
	}
	report := func() *admin.QueueDetails {
		r, err := admin.QueueReport(t.Context(), db, "mails", nil)
		require.NoError(t, err)
		return r
	}
	r := report()
	require.Empty(t, r.Retries.Groups)
	require.Empty(t, r.Attempts)

	_, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	fail(0, "timeout after 3 s") // the same job is claimed again
	fail(5*time.Hour, "timeout after 4 s")
	_, err = q.EnqueueMany(t.Context(), make([]int, 2))
	require.NoError(t, err)
	fail(5*time.Hour, "no route to host")
	r = report()
	require.Equal(t, honker.Count{N: 2}, r.Retries.Looked, "a job without an error is not a retry")
	require.Equal(t, map[int]int64{1: 1, 2: 1}, r.Attempts)
	require.Len(t, r.Retries.Groups, 2)

	_, err = q.EnqueueMany(t.Context(), make([]int, 300), honker.Delay(time.Hour))
	require.NoError(t, err)
	r = report()
	require.Equal(t, honker.Count{More: true}, r.Retries.Looked, "the retries come after the jobs that are examined")
}

// A report on a queue that was never used is empty. A bad name, a bad option and a missing DB are invalid,
// and a report ends with its ctx.
func TestQueueReport_Errors(t *testing.T) {
	db := honkertest.Open(t, nil)
	r, err := admin.QueueReport(t.Context(), db, "none", nil)
	require.NoError(t, err)
	require.Equal(t, "none", r.Queue)
	require.Empty(t, r.Next)
	for _, opts := range []*admin.QueueReportOptions{{Jobs: -1}, {Jobs: 1001}, {Step: time.Second}} {
		_, err = admin.QueueReport(t.Context(), db, "mails", opts)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err = admin.QueueReport(t.Context(), db, "", nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.QueueReport(t.Context(), nil, "mails", nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	ended, stop := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	stop(gone)
	_, err = admin.QueueReport(ended, db, "mails", nil)
	require.ErrorIs(t, err, gone)
}

// A report read in a transaction includes the transaction's changes.
func TestQueueReport_InTx(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "mails", nil)
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := q.EnqueueTx(ctx, tx, 1); err != nil {
			return err
		}
		r, err := admin.QueueReport(ctx, db, "mails", nil)
		require.NoError(t, err)
		require.Len(t, r.Next, 1)
		return nil
	}))
}
