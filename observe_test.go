package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// observed returns a queue on a DB and a record of the observer's calls.
func observed(t testing.TB, opts *honker.QueueOptions) (context.Context, *honker.DB, *honker.Queue[int], *testkit.Recorder) {
	t.Helper()
	s := new(testkit.Recorder)
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{
		Enqueued: func(e observe.Enqueued) { testkit.Record(s, &s.Enqueued, e) },
		Claimed:  func(e observe.Claimed) { testkit.Record(s, &s.Claimed, e) },
		Settled:  func(e observe.Settled) { testkit.Record(s, &s.Settled, e) },
		Woke:     func(e observe.Woke) { testkit.Record(s, &s.Woke, e) },
	}})
	return testkit.Context(t, testkit.Timeout), db, honker.NewQueue[int](db, "jobs", opts), s
}

// The observer is told about each enqueue.
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
	require.Equal(t, []observe.Enqueued{
		{Queue: "jobs", IDs: []int64{one}},
		{Queue: "jobs", IDs: many},
		{Queue: "jobs", IDs: []int64{inTx}, Tx: true},
	}, testkit.Recorded(s, &s.Enqueued))
}

// The observer is told about claims that returned jobs.
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
		require.Equal(t, observe.Claimed{Queue: "jobs", Worker: "w", Jobs: jobs}, got[i])
	}
}

// The observer is told how each claim ended.
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
			require.Equal(t, []observe.Settled{
				{Queue: "jobs", ID: id, Worker: "w", Attempt: 1, Outcome: outcome, Err: c.err},
			}, got)
		})
	}
}

// The observer is told about jobs that the last retry dead-letters and about settles in a transaction.
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

// The observer is told how Work settled each job.
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
			<-ctx.Done() // cancelled when the drain is over
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

// The observer is told which waiter was woken and why.
func TestObserver_Wake(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q, s := observed(t, nil)
	l := testkit.Listen(t, db, "news")
	// A listener that isn't asleep yet needs no wake-up. The messages are repeated until the observer is told about a
	// wake-up.
	testkit.Eventually(t, testkit.Timeout, "woken by a commit", func() bool {
		heard := make(chan error, 1)
		go func() { _, err := l.Next(ctx); heard <- err }()
		time.AfterFunc(5*time.Millisecond, func() {
			_, _ = db.SQL().Exec(`INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '1')`)
		})
		require.NoError(t, <-heard)
		return len(testkit.Recorded(s, &s.Woke)) > 0
	})
	require.Equal(t, observe.Woke{Cause: "commit", Waiters: 1}, testkit.Recorded(s, &s.Woke)[0])

	testkit.Enqueue(t, q, 1, honker.Delay(2*time.Second)) // causes at least one wake-up, at the end of a second
	for job, err := range q.Jobs(ctx, "w") {
		require.NoError(t, err)
		require.NoError(t, job.Ack(ctx))
		break
	}
	woke := testkit.Recorded(s, &s.Woke)
	require.Equal(t, observe.Woke{Cause: "deadline", Waiters: 1}, woke[len(woke)-1])
}

// An observer without functions receives nothing.
func TestObserver_Empty(t *testing.T) {
	t.Parallel()
	for _, o := range []*observe.Observer{nil, {}} {
		ctx := testkit.Context(t, testkit.Timeout)
		db := honkertest.Open(t, &honker.Options{Observer: o})
		q := honker.NewQueue[int](db, "jobs", nil)
		l := testkit.Listen(t, db, "news")
		testkit.Enqueue(t, q, 1)
		require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
		testkit.Receive(t, l, testkit.Notify(t, db, "news", 1))
	}
}

// The observer is told about each publish.
func TestObserver_Publish(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []observe.Published
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Published: func(p observe.Published) {
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
	want := []observe.Published{
		{Topic: "orders", First: 1, Last: 1},
		{Topic: "orders", First: 2, Last: 301},
		{Topic: "orders", First: 302, Last: 302, Tx: true},
		{Topic: "orders", First: 303, Last: 304, Tx: true},
	}
	if !testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
		want[2].First, want[2].Last, want[3].First, want[3].Last = 0, 0, 0, 0
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, want, told)
}

// Each failed attempt is logged with the time of the next attempt. The job's death is logged at the end.
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

// A panic is logged once, with its stack trace.
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

// The log and the observer report every death, regardless of its cause, in the process that finds it.
func TestObserver_Deaths(t *testing.T) {
	const exhausted, expired = "max attempts exceeded", "expired"
	for name, c := range map[string]struct {
		opts  []honker.EnqueueOption
		claim bool // claim the job without settling it
		find  func(*testing.T, *honker.DB, *honker.Queue[int])
		want  observe.Settled
		err   string
	}{
		"lapse, found by a claim": {[]honker.EnqueueOption{honker.MaxAttempts(1)}, true,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) { require.Empty(t, testkit.Claim(t, q, 1)) },
			observe.Settled{Worker: "w", Attempt: 1}, exhausted},
		"lapse, found by Work": {[]honker.EnqueueOption{honker.MaxAttempts(1)}, true,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) { workFor(t, q, time.Second) },
			observe.Settled{Worker: "w", Attempt: 1}, exhausted},
		"lapse, found by Maintain": {[]honker.EnqueueOption{honker.MaxAttempts(1)}, true,
			func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) { maintain(t, db) },
			observe.Settled{Worker: "w", Attempt: 1}, exhausted},
		"expiry of a lapsed claim": {[]honker.EnqueueOption{honker.ExpiresIn(time.Second)}, true,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) { require.Empty(t, testkit.Claim(t, q, 1)) },
			observe.Settled{Worker: "w", Attempt: 1}, expired},
		"expiry, found by Maintain": {[]honker.EnqueueOption{honker.ExpiresIn(time.Second)}, false,
			func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) { maintain(t, db) },
			observe.Settled{}, expired},
		"expiry, found by SweepExpired": {[]honker.EnqueueOption{honker.ExpiresIn(time.Second)}, false,
			func(t *testing.T, _ *honker.DB, q *honker.Queue[int]) {
				_, err := q.SweepExpired(t.Context())
				require.NoError(t, err)
			}, observe.Settled{}, expired},
		"a payload that does not decode": {nil, false,
			func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
				require.Empty(t, testkit.Claim(t, honker.NewQueue[string](db, "jobs", nil), 1))
			}, observe.Settled{Worker: "w", Attempt: 1}, "cannot decode payload: json: cannot unmarshal number into Go value of type string"},
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
			require.Equal(t, observe.Settled{Topic: "orders", Group: "g", ID: want.offset, Attempt: 1, Outcome: honker.OutcomeDied}, told[i])
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

// The observer is told about each handler that starts, with its job's waiting time.
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
		require.Equal(t, []observe.Started{
			{Queue: "jobs", ID: 1, Worker: "crew", Attempt: 1, Wait: 5300 * time.Millisecond}, // counted from the second of the enqueue
			{Queue: "jobs", ID: 2, Worker: "crew", Attempt: 1},
		}, started)
		for i := range settled {
			require.Equal(t, started[i].Wait, settled[i].Wait)
			require.Equal(t, 20*time.Millisecond, settled[i].Ran)
		}
	})
}

// events collects events of a single kind that an observer received.
type events[E any] struct {
	mu   sync.Mutex
	told []E
}

func (e *events[E]) add(one E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, one)
}

func (e *events[E]) take() (told []E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	told, e.told = e.told, nil
	return told
}

func watched(t *testing.T, o *observe.Observer) *honker.DB {
	t.Helper()
	return honkertest.Open(t, &honker.Options{Observer: o, NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
}

// The observer is told about each transaction that held the writer, with its waiting time and run time.
func TestObserver_Tx(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		var ended events[observe.TxEnded]
		db := watched(t, &observe.Observer{Tx: ended.add})
		ctx, q := t.Context(), honker.NewQueue[int](db, "jobs", nil)
		tx := func(result error) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				time.Sleep(500 * time.Millisecond)
				_, err := q.EnqueueTx(ctx, tx, 1)
				require.NoError(t, err)
				return result
			})
		}
		ended.take()
		testkit.Enqueue(t, q, 1)
		require.Equal(t, []observe.TxEnded{{Committed: true}}, ended.take())
		_, err := q.EnqueueMany(ctx, make([]int, 300))
		require.NoError(t, err)
		require.Equal(t, []observe.TxEnded{{Committed: true}}, ended.take())
		_, err = db.SQL().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
		require.NoError(t, err)
		require.Equal(t, []observe.TxEnded{{Committed: true}}, ended.take())
		require.NoError(t, tx(nil))
		require.Equal(t, []observe.TxEnded{{Ran: 500 * time.Millisecond, Committed: true}}, ended.take())
		require.ErrorIs(t, tx(testkit.ErrCause), testkit.ErrCause)
		require.Equal(t, []observe.TxEnded{{Ran: 500 * time.Millisecond}}, ended.take())
		_, err = db.SQL().ExecContext(ctx, `INSERT INTO orders VALUES ('no number')`)
		require.Error(t, err)
		require.Equal(t, []observe.TxEnded{{}}, ended.take())
		_, err = admitted(ctx, db)
		require.NoError(t, err)
		require.Empty(t, ended.take(), "a read holds no writer")

		waits := testkit.Background(t, func(context.Context) error { return tx(nil) })
		synctest.Wait() // the goroutine is sleeping in its transaction
		time.Sleep(100 * time.Millisecond)
		testkit.Enqueue(t, q, 1)
		require.NoError(t, waits())
		require.ElementsMatch(t, []observe.TxEnded{
			{Ran: 500 * time.Millisecond, Committed: true}, {Wait: 400 * time.Millisecond, Committed: true},
		}, ended.take())
	})
}

// admitted counts the jobs through the application's own pool.
func admitted(ctx context.Context, db *honker.DB) (n int, err error) {
	err = db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM _honker_live`).Scan(&n)
	return n, err
}

// The observer is told about the start and end of each Work, and about each handler that returns, no matter how.
func TestObserver_WorkingAndReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working events[observe.Working]
		var started events[observe.Started]
		var returned events[observe.Returned]
		db := watched(t, &observe.Observer{Working: working.add, Started: started.add, Returned: returned.add})
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
		ends := []func() error{
			func() error { return nil },
			func() error { return testkit.ErrCause },
			func() error { panic("no") },
			func() error { runtime.Goexit(); return nil },
		}
		for i := range ends {
			testkit.Enqueue(t, q, i)
		}
		testkit.Enqueue(t, honker.NewQueue[string](db, "jobs", nil), "does not decode")
		handle := func(_ context.Context, job *honker.Job[int]) error {
			time.Sleep(20 * time.Millisecond)
			return ends[job.Args]()
		}
		stop := testkit.Work(t, q, handle, &honker.WorkOptions{WorkerID: "crew", Workers: 3})
		time.Sleep(time.Minute)
		require.Equal(t, []observe.Working{{Queues: []string{"jobs"}, Worker: "crew", Slots: 3}}, working.take())
		require.NoError(t, stop())
		require.Equal(t, []observe.Working{{Queues: []string{"jobs"}, Worker: "crew", Slots: 3, Ended: true}}, working.take())
		told := returned.take()
		require.Len(t, told, len(started.take()))
		require.Len(t, told, 5)
		for _, r := range told {
			ran := 20 * time.Millisecond
			if r.ID == 5 {
				ran = 0
			}
			require.Equal(t, observe.Returned{Queue: "jobs", ID: r.ID, Worker: "crew", Attempt: 1, Ran: ran}, r)
		}

		testkit.Enqueue(t, q, 0)
		_, err := q.WorkDue(t.Context(), handle, &honker.WorkOptions{WorkerID: "once"})
		require.NoError(t, err)
		require.Equal(t, []observe.Working{
			{Queues: []string{"jobs"}, Worker: "once", Slots: 1}, {Queues: []string{"jobs"}, Worker: "once", Slots: 1, Ended: true},
		}, working.take())
		w := testkit.Workers(db, nil, []string{"jobs", "mails"}, handle)
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 0)
		returned.take()
		stop = testkit.Background(t, func(ctx context.Context) error {
			return w.Work(ctx, &honker.WorkOptions{WorkerID: "both", Workers: 2})
		})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, observe.Working{Queues: []string{"jobs", "mails"}, Worker: "both", Slots: 2}, working.take()[0])
		require.Equal(t, "mails", returned.take()[0].Queue)
	})
}

// The observer is told about the pauses that this process begins and ends, with the operator.
func TestObserver_Paused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused events[observe.Paused]
		db := watched(t, &observe.Observer{Paused: paused.add})
		ctx, q := honker.WithActor(t.Context(), "ada"), honker.NewQueue[int](db, "jobs", nil)
		until := time.Now().Add(time.Hour)
		_, err := q.Pause(ctx, &honker.PauseOptions{Until: until})
		require.NoError(t, err)
		_, err = q.Pause(t.Context(), &honker.PauseOptions{Key: "acme"})
		require.NoError(t, err)
		_, err = q.ResumeKey(t.Context(), "acme")
		require.NoError(t, err)
		_, err = q.Resume(ctx)
		require.NoError(t, err)
		_, err = q.Resume(ctx) // the queue was not paused
		require.NoError(t, err)
		_, err = q.Pause(ctx, &honker.PauseOptions{Until: time.Now()})
		require.ErrorIs(t, err, honker.ErrInvalid)
		told := paused.take()
		require.True(t, told[0].Until.Equal(until))
		told[0].Until = time.Time{}
		require.Equal(t, []observe.Paused{
			{Queue: "jobs", Actor: "ada"}, {Queue: "jobs", Key: "acme"},
			{Queue: "jobs", Key: "acme", Resumed: true}, {Queue: "jobs", Actor: "ada", Resumed: true},
		}, told)
	})
}

// The observer is told about each round of Maintain and its failed tasks.
func TestObserver_Maintained(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		var rounds events[observe.Maintained]
		db := watched(t, &observe.Observer{Maintained: rounds.add})
		testkit.Exec(t, db, `CREATE TRIGGER no BEFORE DELETE ON _honker_results BEGIN SELECT RAISE(ABORT, 'no'); END`)
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		time.Sleep(90 * time.Second)
		require.Equal(t, []observe.Maintained{{}, {}}, rounds.take())
		require.NoError(t, honker.NewQueue[int](db, "jobs", nil).SaveResult(t.Context(), 1, 1, time.Second))
		time.Sleep(time.Minute)
		require.Equal(t, []observe.Maintained{{Failed: []string{"results"}}}, rounds.take())
		require.NoError(t, stop())
	})
}

type beganKey struct{}

// Begin is called at the start of each verb that adds jobs or events. The verb continues with the returned
// ctx and calls the returned function at its end.
func TestObserver_Begin(t *testing.T) {
	type told struct {
		op  observe.Operation
		end observe.OperationEnd
	}
	var ops events[told]
	began := 0
	db := honkertest.Open(t, &honker.Options{
		Observer: &observe.Observer{Begin: func(ctx context.Context, op observe.Operation) (context.Context, func(observe.OperationEnd)) {
			began++
			return context.WithValue(ctx, beganKey{}, fmt.Sprint(began)), func(e observe.OperationEnd) { ops.add(told{op, e}) }
		}},
		Headers: func(ctx context.Context) map[string]string {
			began, ok := ctx.Value(beganKey{}).(string)
			if !ok { // for a batch without jobs
				return nil
			}
			return map[string]string{"began": began}
		},
	})
	ctx, q, s := t.Context(), honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	one := testkit.Enqueue(t, q, 1)
	_, err := q.EnqueueMany(ctx, []int{2, 3})
	require.NoError(t, err)
	_, err = q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	_, err = q.Enqueue(ctx, 4, honker.MaxAttempts(0))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 5)
		require.NoError(t, err)
		_, err = q.EnqueueManyTx(ctx, tx, []int{6, 7})
		require.NoError(t, err)
		_, err = s.PublishTx(ctx, tx, 1)
		return err
	}))
	_, _, err = s.PublishMany(ctx, []int{2, 3})
	require.NoError(t, err)
	all := ops.take()
	require.ErrorIs(t, all[2].end.Err, honker.ErrInvalid)
	all[2].end.Err = nil
	published := observe.OperationEnd{First: 1, Last: 1}
	if !testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
		published = observe.OperationEnd{}
	}
	require.Equal(t, []told{
		{observe.Operation{Verb: "enqueue", Name: "jobs", N: 1}, observe.OperationEnd{First: one, Last: one}},
		{observe.Operation{Verb: "enqueue", Name: "jobs", N: 2}, observe.OperationEnd{First: 2, Last: 3}},
		{op: observe.Operation{Verb: "enqueue", Name: "jobs", N: 1}},
		{observe.Operation{Verb: "enqueue", Name: "jobs", N: 1, Tx: true}, observe.OperationEnd{First: 4, Last: 4}},
		{observe.Operation{Verb: "enqueue", Name: "jobs", N: 2, Tx: true}, observe.OperationEnd{First: 5, Last: 6}},
		{observe.Operation{Verb: "publish", Name: "orders", N: 1, Tx: true}, published},
		{observe.Operation{Verb: "publish", Name: "orders", N: 2}, observe.OperationEnd{First: 2, Last: 3}},
	}, all)
	for id, header := range map[int64]string{one: "1", 2: "2", 3: "2", 4: "4", 6: "5"} {
		job, err := q.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, header, job.Headers["began"])
	}
}

// A Begin that panics or returns nil doesn't affect the verb.
func TestObserver_Begin_Contained(t *testing.T) {
	log := new(testkit.Log)
	begin := func(context.Context, observe.Operation) (context.Context, func(observe.OperationEnd)) {
		return nil, nil
	}
	db := honkertest.Open(t, &honker.Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Observer: &observe.Observer{Begin: func(ctx context.Context, op observe.Operation) (context.Context, func(observe.OperationEnd)) {
			return begin(ctx, op)
		}},
	})
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, q, 1)
	begin = func(context.Context, observe.Operation) (context.Context, func(observe.OperationEnd)) {
		panic("in Begin")
	}
	testkit.Enqueue(t, q, 1)
	begin = func(ctx context.Context, _ observe.Operation) (context.Context, func(observe.OperationEnd)) {
		return ctx, func(observe.OperationEnd) { panic("at the end") }
	}
	testkit.Enqueue(t, q, 1)
	var none context.Context // the verb rejects it without calling Begin
	_, err := q.Enqueue(none, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, 2, log.Times("Observer.Begin panicked"))
}

// Observers calls the observers in order. Each field is called only for the observers that set it, and a field that
// no observer sets is nil.
func TestObservers_Order(t *testing.T) {
	var told []string
	note := func(who string) *observe.Observer {
		return &observe.Observer{Enqueued: func(observe.Enqueued) { told = append(told, who) }}
	}
	all := observe.Observers(note("first"), nil, &observe.Observer{Tx: func(observe.TxEnded) { told = append(told, "tx") }}, note("last"))
	all.Enqueued(observe.Enqueued{})
	all.Tx(observe.TxEnded{})
	require.Equal(t, []string{"first", "last", "tx"}, told)
	require.Nil(t, all.Settled)
	require.Nil(t, all.Begin)

	nested := func(name string) *observe.Observer {
		return &observe.Observer{Begin: func(ctx context.Context, _ observe.Operation) (context.Context, func(observe.OperationEnd)) {
			outer, _ := ctx.Value(beganKey{}).(string)
			return context.WithValue(ctx, beganKey{}, outer+name), func(observe.OperationEnd) { told = append(told, "end "+name) }
		}}
	}
	told = nil
	ctx, end := observe.Observers(nested("a"), note("first"), nested("b")).Begin(t.Context(), observe.Operation{})
	require.Equal(t, "ab", ctx.Value(beganKey{}))
	end(observe.OperationEnd{})
	require.Equal(t, []string{"end b", "end a"}, told)
	require.Nil(t, observe.Observers().Tx)
}

// Observers forwards every field. A new Observer field that Observers does not forward would never be
// called.
func TestObservers_EachField(t *testing.T) {
	one, fields := new(observe.Observer), reflect.TypeFor[observe.Observer]()
	for i := range fields.NumField() {
		none := func([]reflect.Value) []reflect.Value { return nil }
		reflect.ValueOf(one).Elem().Field(i).Set(reflect.MakeFunc(fields.Field(i).Type, none))
	}
	all := reflect.ValueOf(observe.Observers(one)).Elem()
	for i := range fields.NumField() {
		require.False(t, all.Field(i).IsNil(), fields.Field(i).Name)
	}
}

// Claims and settles carry their jobs' headers, no matter how the jobs were enqueued, and settles also carry their
// time. A claim of jobs without headers has no headers, and a death found by a sweep has neither.
func TestObserver_Headers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, q, s := observed(t, nil)
		want := map[string]string{"traceparent": "00-1"}
		testkit.Enqueue(t, q, 1, honker.Headers(want))
		testkit.Enqueue(t, q, 2)
		for _, job := range testkit.Claim(t, q, 2) {
			require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return job.AckTx(ctx, tx) }))
		}
		began := time.Now()
		w := testkit.Workers(db, nil, []string{"jobs", "others"}, testkit.Succeed[int])
		stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, nil) })
		synctest.Wait()
		testkit.Enqueue(t, q, 3, honker.Headers(want)) // handed to an idle worker
		synctest.Wait()
		require.NoError(t, stop())
		testkit.Enqueue(t, q, 4, honker.MaxAttempts(1), honker.Headers(want))
		testkit.ClaimOne(t, q)
		time.Sleep(time.Hour)
		require.Empty(t, testkit.Claim(t, q, 1), "the last attempt has lapsed")

		var claimed [][]map[string]string
		for _, e := range testkit.Recorded(s, &s.Claimed) {
			claimed = append(claimed, e.Headers())
		}
		require.Equal(t, [][]map[string]string{{want}, {want}, {want}}, claimed)
		settled := testkit.Recorded(s, &s.Settled)
		require.Len(t, settled, 4)
		for i, headers := range []map[string]string{want, nil, want, nil} {
			require.Equal(t, headers, settled[i].Headers())
			require.Equal(t, i == 3, settled[i].At.IsZero())
		}
		require.Equal(t, began, settled[2].At)
	})
}
