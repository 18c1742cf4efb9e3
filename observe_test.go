package honker_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// seen collects what an observer was told.
type seen struct {
	mu       sync.Mutex
	enqueued []honker.Enqueued
	claimed  []honker.Claimed
	settled  []honker.Settled
	woke     []honker.Woke
}

// observed is a queue on a DB whose events are collected.
func observed(t testing.TB, opts *honker.QueueOptions) (context.Context, *honker.DB, *honker.Queue[int], *seen) {
	t.Helper()
	s := new(seen)
	db := honkertest.Open(t, &honker.Options{Observer: &honker.Observer{
		Enqueued: func(e honker.Enqueued) { note(s, &s.enqueued, e) },
		Claimed:  func(e honker.Claimed) { note(s, &s.claimed, e) },
		Settled:  func(e honker.Settled) { note(s, &s.settled, e) },
		Woke:     func(e honker.Woke) { note(s, &s.woke, e) },
	}})
	return bounded(t, patient), db, honker.NewQueue[int](db, "jobs", opts), s
}

func note[E any](s *seen, all *[]E, e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*all = append(*all, e)
}

// told returns the events so far.
func told[E any](s *seen, all *[]E) []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]E(nil), *all...)
}

func TestObserverIsToldOfEachEnqueue(t *testing.T) {
	t.Parallel()
	ctx, db, q, s := observed(t, nil)
	_, err := q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	one := add(t, q, 1)
	many, err := q.EnqueueMany(ctx, []int{1, 2})
	require.NoError(t, err)
	var inTx int64
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		inTx, err = q.EnqueueTx(ctx, tx, 1)
		require.NoError(t, err)
		return errCause
	}), errCause)
	_, err = q.Enqueue(ctx, 1, honker.MaxAttempts(0))
	require.Error(t, err)
	require.Equal(t, []honker.Enqueued{
		{Queue: "jobs", IDs: []int64{one}},
		{Queue: "jobs", IDs: many},
		{Queue: "jobs", IDs: []int64{inTx}, Tx: true},
	}, told(s, &s.enqueued))
}

func TestObserverIsToldOfClaimsThatFoundSomething(t *testing.T) {
	t.Parallel()
	ctx, _, q, s := observed(t, nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2, 3})
	require.NoError(t, err)
	hold(t, q, 2)
	hold(t, q, 2)
	hold(t, q, 2)
	got := told(s, &s.claimed)
	require.Len(t, got, 2)
	for i, jobs := range []int{2, 1} {
		require.Positive(t, got[i].Took)
		got[i].Took = 0
		require.Equal(t, honker.Claimed{Queue: "jobs", Worker: "w", Jobs: jobs}, got[i])
	}
}

func TestObserverIsToldHowEachClaimEnded(t *testing.T) {
	t.Parallel()
	for outcome, c := range map[honker.Outcome]struct {
		settle func(context.Context, *honker.DB, *honker.Job[int]) error
		err    error
	}{
		honker.Acked:   {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error { return j.Ack(ctx) }, nil},
		honker.Retried: {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error { return j.Retry(ctx, 0, errCause) }, errCause},
		honker.Died:    {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error { return j.Fail(ctx, errCause) }, errCause},
		honker.Snoozed: {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error { return j.Snooze(ctx, 0) }, nil},
		honker.Lost: {func(ctx context.Context, db *honker.DB, j *honker.Job[int]) error {
			lapse(t, db, j.ID)
			require.ErrorIs(t, j.Ack(ctx), honker.ErrClaimLost)
			return nil
		}, nil},
	} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			ctx, db, q, s := observed(t, nil)
			id := add(t, q, 1)
			require.NoError(t, c.settle(ctx, db, holdOne(t, q)))
			require.Equal(t, []honker.Settled{
				{Queue: "jobs", ID: id, Worker: "w", Attempt: 1, Outcome: outcome, Err: c.err},
			}, told(s, &s.settled))
		})
	}
}

func TestObserverIsToldOfDeathByTheLastRetryAndOfSettlesInATransaction(t *testing.T) {
	t.Parallel()
	ctx, db, q, s := observed(t, &honker.QueueOptions{MaxAttempts: 1})
	add(t, q, 1)
	require.NoError(t, holdOne(t, q).Retry(ctx, 0, errCause))
	add(t, q, 2)
	acked := holdOne(t, q)
	add(t, q, 3)
	failed := holdOne(t, q)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, acked.AckTx(ctx, tx))
		return failed.FailTx(ctx, tx, errCause)
	}))
	var outcomes []honker.Outcome
	for _, e := range told(s, &s.settled) {
		outcomes = append(outcomes, e.Outcome)
	}
	require.Equal(t, []honker.Outcome{honker.Died, honker.Acked, honker.Died}, outcomes)
}

func TestObserverIsToldHowWorkSettled(t *testing.T) {
	t.Parallel()
	ctx, _, q, s := observed(t, &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
	returns := []error{nil, errCause, honker.Snooze(time.Hour), honker.Reject(errCause)}
	for i := range returns {
		add(t, q, i)
	}
	released := add(t, q, len(returns))
	ctx, stop := context.WithCancel(ctx)
	require.NoError(t, q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
		if job.ID == released {
			stop()
			<-ctx.Done() // cancelled at the end of the drain
			return ctx.Err()
		}
		return returns[job.Args]
	}, &honker.WorkOptions{Workers: 1, WorkerID: "crew", DrainTimeout: time.Millisecond}))
	outcomes := make(map[int64]honker.Outcome)
	for _, e := range told(s, &s.settled) {
		require.Equal(t, "crew", e.Worker)
		require.Equal(t, 1, e.Attempt)
		outcomes[e.ID] = e.Outcome
		if e.Outcome == honker.Retried || e.Outcome == honker.Died {
			require.ErrorIs(t, e.Err, errCause)
			require.Positive(t, e.Ran)
		}
	}
	require.Equal(t, map[int64]honker.Outcome{
		1: honker.Acked, 2: honker.Retried, 3: honker.Snoozed, 4: honker.Died, 5: honker.Released,
	}, outcomes)
}

func TestObserverIsToldWhoWasWokenAndWhy(t *testing.T) {
	t.Parallel()
	ctx, db, q, s := observed(t, nil)
	l := listenTo(t, db, "news")
	// A listener that does not sleep yet needs no wake: try until one was told of.
	eventually(t, patient, "woken by a commit", func() bool {
		heard := make(chan error, 1)
		go func() { _, err := l.Next(ctx); heard <- err }()
		time.AfterFunc(5*time.Millisecond, func() {
			_, _ = db.SQL().Exec(`INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '1')`)
		})
		require.NoError(t, <-heard)
		return len(told(s, &s.woke)) > 0
	})
	require.Equal(t, honker.Woke{Cause: "commit", Waiters: 1}, told(s, &s.woke)[0])

	add(t, q, 1, honker.Delay(2*time.Second)) // at least one, from the end of a second
	for job, err := range q.Jobs(ctx, "w") {
		require.NoError(t, err)
		require.NoError(t, job.Ack(ctx))
		break
	}
	woke := told(s, &s.woke)
	require.Equal(t, honker.Woke{Cause: "deadline", Waiters: 1}, woke[len(woke)-1])
}

func TestObserverWithoutFunctionsWatchesNothing(t *testing.T) {
	t.Parallel()
	for _, o := range []*honker.Observer{nil, {}} {
		ctx := bounded(t, patient)
		db := honkertest.Open(t, &honker.Options{Observer: o})
		q := honker.NewQueue[int](db, "jobs", nil)
		l := listenTo(t, db, "news")
		add(t, q, 1)
		require.NoError(t, holdOne(t, q).Ack(ctx))
		hear(t, l, tell(t, db, "news", 1))
	}
}
