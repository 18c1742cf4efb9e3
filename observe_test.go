package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// observed returns a queue on a DB and the record of its observer's calls.
func observed(t testing.TB, opts *honker.QueueOptions) (context.Context, *honker.DB, *honker.Queue[int], *testkit.Recorder) {
	t.Helper()
	s := new(testkit.Recorder)
	db := honkertest.Open(t, &honker.Options{Observer: &honker.Observer{
		Enqueued: func(e honker.Enqueued) { testkit.Record(s, &s.Enqueued, e) },
		Claimed:  func(e honker.Claimed) { testkit.Record(s, &s.Claimed, e) },
		Settled:  func(e honker.Settled) { testkit.Record(s, &s.Settled, e) },
		Woke:     func(e honker.Woke) { testkit.Record(s, &s.Woke, e) },
	}})
	return testkit.Context(t, testkit.Timeout), db, honker.NewQueue[int](db, "jobs", opts), s
}

// The observer hears of each enqueue.
func TestObserver_Enqueue(t *testing.T) {
	t.Parallel()
	ctx, db, q, s := observed(t, nil)
	_, err := q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	one := testkit.Enqueue(t, q, 1)
	many, err := q.EnqueueMany(ctx, []int{1, 2})
	require.NoError(t, err)
	var inTx int64
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		inTx, err = q.EnqueueTx(ctx, tx, 1)
		require.NoError(t, err)
		return testkit.ErrCause
	}), testkit.ErrCause)
	_, err = q.Enqueue(ctx, 1, honker.MaxAttempts(0))
	require.Error(t, err)
	require.Equal(t, []honker.Enqueued{
		{Queue: "jobs", IDs: []int64{one}},
		{Queue: "jobs", IDs: many},
		{Queue: "jobs", IDs: []int64{inTx}, Tx: true},
	}, testkit.Recorded(s, &s.Enqueued))
}

// The observer hears of claims that returned jobs.
func TestObserver_Claim(t *testing.T) {
	t.Parallel()
	ctx, _, q, s := observed(t, nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2, 3})
	require.NoError(t, err)
	testkit.Claim(t, q, 2)
	testkit.Claim(t, q, 2)
	testkit.Claim(t, q, 2)
	got := testkit.Recorded(s, &s.Claimed)
	require.Len(t, got, 2)
	for i, jobs := range []int{2, 1} {
		require.Positive(t, got[i].Took)
		got[i].Took = 0
		require.Equal(t, honker.Claimed{Queue: "jobs", Worker: "w", Jobs: jobs}, got[i])
	}
}

// The observer hears how each claim ended.
func TestObserver_Settle(t *testing.T) {
	t.Parallel()
	for outcome, c := range map[honker.Outcome]struct {
		settle func(context.Context, *honker.DB, *honker.Job[int]) error
		err    error
	}{
		honker.OutcomeAcked: {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error { return j.Ack(ctx) }, nil},
		honker.OutcomeRetried: {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error {
			return j.Retry(ctx, 0, testkit.ErrCause)
		}, testkit.ErrCause},
		honker.OutcomeDied: {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error {
			return j.Reject(ctx, testkit.ErrCause)
		}, testkit.ErrCause},
		honker.OutcomeSnoozed: {func(ctx context.Context, _ *honker.DB, j *honker.Job[int]) error { return j.Snooze(ctx, 0) }, nil},
		honker.OutcomeLost: {func(ctx context.Context, db *honker.DB, j *honker.Job[int]) error {
			testkit.ExpireClaim(t, db, j.ID)
			require.ErrorIs(t, j.Ack(ctx), honker.ErrClaimLost)
			return nil
		}, nil},
	} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			ctx, db, q, s := observed(t, nil)
			id := testkit.Enqueue(t, q, 1)
			require.NoError(t, c.settle(ctx, db, testkit.ClaimOne(t, q)))
			got := testkit.Recorded(s, &s.Settled)
			got[0].At = time.Time{}
			require.Equal(t, []honker.Settled{
				{Queue: "jobs", ID: id, Worker: "w", Attempt: 1, Outcome: outcome, Err: c.err},
			}, got)
		})
	}
}

// The observer hears of jobs that the last retry dead-letters and of settles in a transaction.
func TestObserver_Settle_DeadAndTx(t *testing.T) {
	t.Parallel()
	ctx, db, q, s := observed(t, &honker.QueueOptions{MaxAttempts: 1})
	testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, testkit.ErrCause))
	testkit.Enqueue(t, q, 2)
	acked := testkit.ClaimOne(t, q)
	testkit.Enqueue(t, q, 3)
	failed := testkit.ClaimOne(t, q)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, acked.AckTx(ctx, tx))
		return failed.RejectTx(ctx, tx, testkit.ErrCause)
	}))
	var outcomes []honker.Outcome
	for _, e := range testkit.Recorded(s, &s.Settled) {
		outcomes = append(outcomes, e.Outcome)
	}
	require.Equal(t, []honker.Outcome{honker.OutcomeDied, honker.OutcomeAcked, honker.OutcomeDied}, outcomes)
}

// The observer hears how Work settled each job.
func TestObserver_Work(t *testing.T) {
	t.Parallel()
	ctx, _, q, s := observed(t, &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
	returns := []error{nil, testkit.ErrCause, honker.Snooze(time.Hour), honker.Reject(testkit.ErrCause)}
	for i := range returns {
		testkit.Enqueue(t, q, i)
	}
	released := testkit.Enqueue(t, q, len(returns))
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
	for _, e := range testkit.Recorded(s, &s.Settled) {
		require.Equal(t, "crew", e.Worker)
		require.Equal(t, 1, e.Attempt)
		outcomes[e.ID] = e.Outcome
		if e.Outcome == honker.OutcomeRetried || e.Outcome == honker.OutcomeDied {
			require.ErrorIs(t, e.Err, testkit.ErrCause)
			require.Positive(t, e.Ran)
		}
	}
	require.Equal(t, map[int64]honker.Outcome{
		1: honker.OutcomeAcked, 2: honker.OutcomeRetried, 3: honker.OutcomeSnoozed, 4: honker.OutcomeDied, 5: honker.OutcomeReleased,
	}, outcomes)
}

// The observer hears which waiter was woken and why.
func TestObserver_Wake(t *testing.T) {
	t.Parallel()
	ctx, db, q, s := observed(t, nil)
	l := testkit.Listen(t, db, "news")
	// A listener that is not asleep yet needs no wake. The messages are repeated until the observer hears
	// of a wake.
	testkit.Eventually(t, testkit.Timeout, "woken by a commit", func() bool {
		heard := make(chan error, 1)
		go func() { _, err := l.Next(ctx); heard <- err }()
		time.AfterFunc(5*time.Millisecond, func() {
			_, _ = db.SQL().Exec(`INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '1')`)
		})
		require.NoError(t, <-heard)
		return len(testkit.Recorded(s, &s.Woke)) > 0
	})
	require.Equal(t, honker.Woke{Cause: "commit", Waiters: 1}, testkit.Recorded(s, &s.Woke)[0])

	testkit.Enqueue(t, q, 1, honker.Delay(2*time.Second)) // causes at least one wake, at the end of a second
	for job, err := range q.Jobs(ctx, "w") {
		require.NoError(t, err)
		require.NoError(t, job.Ack(ctx))
		break
	}
	woke := testkit.Recorded(s, &s.Woke)
	require.Equal(t, honker.Woke{Cause: "deadline", Waiters: 1}, woke[len(woke)-1])
}

// An observer without functions receives nothing.
func TestObserver_Empty(t *testing.T) {
	t.Parallel()
	for _, o := range []*honker.Observer{nil, {}} {
		ctx := testkit.Context(t, testkit.Timeout)
		db := honkertest.Open(t, &honker.Options{Observer: o})
		q := honker.NewQueue[int](db, "jobs", nil)
		l := testkit.Listen(t, db, "news")
		testkit.Enqueue(t, q, 1)
		require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
		testkit.Receive(t, l, testkit.Notify(t, db, "news", 1))
	}
}

// The observer hears of each publish.
func TestObserver_Publish(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []honker.Published
	db := honkertest.Open(t, &honker.Options{Observer: &honker.Observer{Published: func(p honker.Published) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, p)
	}}})
	ctx, s := testkit.Context(t, testkit.Timeout), honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, s, 1)
	testkit.PublishUpTo(t, s, 300)
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.PublishTx(ctx, tx, 1)
		require.NoError(t, err)
		_, _, err = s.PublishManyTx(ctx, tx, []int{1, 2})
		require.NoError(t, err)
		return testkit.ErrCause
	}), testkit.ErrCause)
	_, err := s.Publish(ctx, 1, honker.EventKey("\x00"))
	require.Error(t, err)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []honker.Published{
		{Topic: "orders", First: 1, Last: 1},
		{Topic: "orders", First: 2, Last: 301},
		{Topic: "orders", First: 302, Last: 302, Tx: true},
		{Topic: "orders", First: 303, Last: 304, Tx: true},
	}, told)
}

// Each failed attempt is logged with the time of the next attempt. The death of the job is logged at the
// end.
func TestWorker_Log_Attempts(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, log *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 2, Backoff: honker.Constant(time.Minute)})
		testkit.Enqueue(t, q, 1)
		next := time.Now().Add(time.Minute).Format("next=2006-01-02T15:04:05")
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { return testkit.ErrCause }, nil)
		time.Sleep(time.Second)
		require.Equal(t, 1, log.Times(`level=INFO msg="honker: attempt failed" queue=jobs job=1 attempt=1 `+next))
		require.Equal(t, 1, log.Times(`error="the printer is on fire"`))
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, 1, log.Times(`level=WARN msg="honker: job dead-lettered" queue=jobs job=1 attempt=2 worker=`))
		require.Equal(t, 2, log.Times("level="))
		require.Equal(t, []honker.Outcome{honker.OutcomeRetried, honker.OutcomeDied}, s.Outcomes())
	})
}

// A panic is logged with its stack, once.
func TestWorker_Log_Panic(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
		testkit.Enqueue(t, q, 1)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { panic("no paper") }, nil)
		g := honker.NewStream[int](db, "orders", nil).Group("g", &honker.GroupOptions{MaxAttempts: 1})
		leave := testkit.Background(t, func(ctx context.Context) error {
			return g.Work(ctx, func(context.Context, *honker.Delivery[int]) error { panic("no ink") }, nil)
		})
		testkit.Publish(t, honker.NewStream[int](db, "orders", nil), 1)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.NoError(t, leave())
		require.Equal(t, 1, log.Times(`level=ERROR msg="honker: handler panicked" queue=jobs job=1 attempt=1 panic="no paper" stack="goroutine`))
		require.Equal(t, 1, log.Times(`level=ERROR msg="honker: handler panicked" group=g event=1 attempt=1 panic="no ink" stack="goroutine`))
		require.Equal(t, 2, log.Times("runtime/debug.Stack"), "the deaths are told without it")
		require.Equal(t, 4, log.Times("level="))
	})
}

// The log and the observer report every death, whatever its cause, in the process that finds it.
func TestObserver_Deaths(t *testing.T) {
	const exhausted, expired = "max attempts exceeded", "expired"
	for name, c := range map[string]struct {
		opts  []honker.EnqueueOption
		claim bool // claim the job without settling it
		find  func(*testing.T, *honker.DB, *honker.Queue[int])
		want  honker.Settled
		err   string
	}{
		"lapse, found by a claim": {[]honker.EnqueueOption{honker.MaxAttempts(1)}, true,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) { require.Empty(t, testkit.Claim(t, q, 1)) },
			honker.Settled{Worker: "w", Attempt: 1}, exhausted},
		"lapse, found by Work": {[]honker.EnqueueOption{honker.MaxAttempts(1)}, true,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) { workFor(t, q, time.Second) },
			honker.Settled{Worker: "w", Attempt: 1}, exhausted},
		"lapse, found by Maintain": {[]honker.EnqueueOption{honker.MaxAttempts(1)}, true,
			func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) { maintain(t, db) },
			honker.Settled{Worker: "w", Attempt: 1}, exhausted},
		"expiry of a lapsed claim": {[]honker.EnqueueOption{honker.ExpiresIn(time.Second)}, true,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) { require.Empty(t, testkit.Claim(t, q, 1)) },
			honker.Settled{Worker: "w", Attempt: 1}, expired},
		"expiry, found by Maintain": {[]honker.EnqueueOption{honker.ExpiresIn(time.Second)}, false,
			func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) { maintain(t, db) },
			honker.Settled{}, expired},
		"expiry, found by SweepExpired": {[]honker.EnqueueOption{honker.ExpiresIn(time.Second)}, false,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) {
				_, err := q.SweepExpired(t.Context())
				require.NoError(t, err)
			}, honker.Settled{}, expired},
		"a payload that does not decode": {nil, false,
			func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
				require.Empty(t, testkit.Claim(t, honker.NewQueue[string](db, "jobs", nil), 1))
			}, honker.Settled{Worker: "w", Attempt: 1}, "cannot decode payload: json: cannot unmarshal number into Go value of type string"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, log *testkit.Log) {
				q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: time.Minute})
				id := testkit.Enqueue(t, q, 1, c.opts...)
				if c.claim {
					require.Len(t, testkit.Claim(t, q, 1), 1)
				}
				time.Sleep(time.Hour)
				c.find(t, db, q)
				require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
				require.Equal(t, 1, log.Times(`level=WARN msg="honker: job dead-lettered" queue=jobs job=1 `))
				told := testkit.Recorded(s, &s.Settled)
				require.Len(t, told, 1)
				require.EqualError(t, told[0].Err, c.err)
				told[0].Err, told[0].At = nil, time.Time{}
				c.want.Queue, c.want.ID, c.want.Outcome = "jobs", id, honker.OutcomeDied
				require.Equal(t, c.want, told[0])
			})
		})
	}
}

// workFor runs Work with a handler that does nothing for d.
func workFor(t *testing.T, q *honker.Queue[int], d time.Duration) {
	t.Helper()
	stop := testkit.Work(t, q, testkit.Succeed[int], nil)
	time.Sleep(d)
	require.NoError(t, stop())
}

// The log and the observer also report the death of a group event that was nacked too often, never settled,
// or not decoded.
func TestObserver_GroupDeaths(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, log *testkit.Log) {
		stream := honker.NewStream[int](db, "orders", nil)
		m, err := stream.Group("g", &honker.GroupOptions{MaxAttempts: 1, Lease: time.Minute}).Join(t.Context(), "m")
		require.NoError(t, err)
		testkit.PublishRange(t, stream, 1, 2)
		testkit.Publish(t, honker.NewStream[string](db, "orders", nil), "three")
		ds, err := m.Claim(t.Context(), 3)
		require.NoError(t, err)
		require.Len(t, ds, 2)
		require.NoError(t, ds[0].Nack(t.Context(), testkit.ErrCause))
		time.Sleep(time.Hour)
		_, err = m.Claim(t.Context(), 3)
		require.NoError(t, err)
		told := testkit.Recorded(s, &s.Settled)
		require.Len(t, told, 3)
		for i, want := range []struct {
			offset int64
			err    string
		}{{3, "cannot decode payload"}, {1, testkit.ErrCause.Error()}, {2, "max attempts exceeded"}} {
			require.ErrorContains(t, told[i].Err, want.err)
			told[i].Err = nil
			require.Equal(t, honker.Settled{Topic: "orders", Group: "g", ID: want.offset, Attempt: 1, Outcome: honker.OutcomeDied}, told[i])
		}
		require.Equal(t, 3, log.Times(`level=WARN msg="honker: event dead-lettered" topic=orders group=g event=`))
		require.Equal(t, 3, log.Times("level="))
	})
}

// A handler that continues after its Timeout is logged once. A handler that stops in time is not logged.
func TestWorker_Log_Timeout(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		q := honker.NewQueue[bool](db, "jobs", &honker.QueueOptions{Timeout: 10 * time.Second, MaxAttempts: 1})
		deaf := testkit.Enqueue(t, q, true)
		testkit.Enqueue(t, q, false)
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[bool]) error {
			if job.Args {
				time.Sleep(time.Hour)
			}
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, log.Times("level=WARN msg=\"honker: worker: a handler is still running after its Timeout"))
		require.Equal(t, 1, log.Times(fmt.Sprintf("job=%d attempt=1 timeout=10s", deaf)))
		time.Sleep(2 * time.Hour)
		require.NoError(t, stop())
		require.Equal(t, 1, log.Times("after its Timeout"))
	})
}

// An error that a handler returns after it has settled its job changes nothing and is logged.
func TestWorker_Log_SettledThenError(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, log *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		var told []error
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			return errors.Join(job.Ack(ctx), testkit.ErrCause)
		}, &honker.WorkOptions{OnError: func(_ context.Context, _ *honker.JobInfo, err error) { told = append(told, err) }})
		stream := honker.NewStream[int](db, "orders", nil)
		leave := testkit.Background(t, func(ctx context.Context) error {
			return stream.Group("g", nil).Work(ctx, func(ctx context.Context, d *honker.Delivery[int]) error {
				return errors.Join(d.Ack(ctx), testkit.ErrCause)
			}, nil)
		})
		testkit.Publish(t, stream, 1)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.NoError(t, leave())
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], testkit.ErrCause)
		require.Equal(t, 2, log.Times("returned an error after it settled its"))
		require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, s.Outcomes())
	})
}

// The observer hears of each handler that starts, with the waiting time of its job.
func TestObserver_Started(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, _ *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", nil)
		time.Sleep(300 * time.Millisecond)
		testkit.Enqueue(t, q, 1)
		time.Sleep(5 * time.Second)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}, &honker.WorkOptions{WorkerID: "crew"})
		time.Sleep(time.Minute)
		testkit.Enqueue(t, q, 2) // the worker is idle, so the job is handed over
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		started, settled := testkit.Recorded(s, &s.Started), testkit.Recorded(s, &s.Settled)
		require.Equal(t, []honker.Started{
			{Queue: "jobs", ID: 1, Worker: "crew", Attempt: 1, Wait: 5300 * time.Millisecond}, // counted from the second of the enqueue
			{Queue: "jobs", ID: 2, Worker: "crew", Attempt: 1},
		}, started)
		for i := range settled {
			require.Equal(t, started[i].Wait, settled[i].Wait)
			require.Equal(t, 20*time.Millisecond, settled[i].Ran)
		}
	})
}
