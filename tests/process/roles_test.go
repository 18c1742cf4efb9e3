package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

func init() {
	children["producer"] = produce
	children["worker"] = workAndReport
	children["batch worker"] = workInBatches
	children["tx writer"] = writeInTxs
	children["hog"] = hogTheWriter
}

// produce enqueues jobs, half of them in batches, and prints their ids.
func produce() {
	a, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int64](db, "jobs", nil)
	last := int64(0)
	for made := 0; made < a.Jobs; {
		ids := []int64{0}
		var err error
		if made%100 < 50 {
			ids[0], err = q.Enqueue(testkit.ChildContext(), 0)
		} else {
			ids, err = q.EnqueueMany(testkit.ChildContext(), make([]int64, min(50, a.Jobs-made)))
		}
		testkit.Must(err)
		made += len(ids)
		for _, id := range ids {
			if id <= last {
				testkit.Must(fmt.Errorf("id %d after %d", id, last))
			}
			last = id
			testkit.Say(id)
		}
	}
	testkit.Must(db.Close())
}

// workAndReport runs Work on the queue "jobs". It prints a line when a handler starts, and notes
// each start and each outcome. Handlers of negative numbers block until their ctx is cancelled.
func workAndReport() {
	note := testkit.ChildLedger(testkit.ChildArgs[testkit.Task]().Ledger)
	a, db := testkit.OpenChild(&observe.Observer{Settled: func(s observe.Settled) { note(s.Outcome, s.ID) }})
	q := honker.NewQueue[int64](db, "jobs", nil)
	handle := func(ctx context.Context, job *honker.Job[int64]) error {
		note("ran", job.ID)
		if !a.Quiet {
			testkit.Say("ran", job.ID, job.Attempts, job.Args, time.Now().UnixNano())
		}
		if job.Args < 0 {
			<-ctx.Done()
			testkit.Say("cancelled", job.ID, errors.Is(context.Cause(ctx), honker.ErrClaimLost))
		}
		return nil
	}
	testkit.Must(q.Work(testkit.ChildContext(), handle, &honker.WorkOptions{
		Workers: 4, Lease: a.Span,
		OnError: func(_ context.Context, job *honker.JobInfo, err error) {
			testkit.Say("failed", job.ID, errors.Is(err, honker.ErrClaimLost))
		},
	}))
	testkit.Must(db.Close())
}

// run is a line printed by workAndReport when a handler starts.
type run struct {
	id, attempts, args int64
	at                 time.Time
}

func nextRun(t testing.TB, p *testkit.Child) run {
	t.Helper()
	var r run
	var nano int64
	line := p.Line(testkit.Timeout)
	_, err := fmt.Sscanf(line, "ran %d %d %d %d", &r.id, &r.attempts, &r.args, &nano)
	require.NoError(t, err, line)
	r.at = time.Unix(0, nano)
	return r
}

// endLeases makes all claims expire after by. Tests do not wait for real leases, because leases
// short enough for that could also expire while a child is merely slow.
func endLeases(t testing.TB, db *honker.DB, by time.Duration) {
	t.Helper()
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_live SET claim_expires_at = unixepoch() + $1 WHERE state = 'processing'`,
		`UPDATE job SET lease_until = clock_timestamp() + CAST($1 AS BIGINT) * interval '1 second' WHERE state = 1`), int64(by/time.Second))
}

// workInBatches claims several jobs at a time. It acknowledges the first job alone and the others
// together.
func workInBatches() {
	a, db := testkit.OpenChild(nil)
	note := testkit.ChildLedger(a.Ledger)
	ctx := context.Background() // claimed jobs are settled even during shutdown
	q := honker.NewQueue[int64](db, "jobs", nil)
	for testkit.ChildContext().Err() == nil {
		jobs, err := q.Claim(ctx, a.Ledger, 7)
		testkit.Must(err)
		ids := make([]int64, len(jobs))
		for i, job := range jobs {
			note("ran", job.ID)
			ids[i] = job.ID
		}
		if len(jobs) == 0 {
			continue
		}
		testkit.Must(jobs[0].Ack(ctx))
		n, err := q.AckMany(ctx, a.Ledger, ids[1:])
		testkit.Must(err)
		if n != len(ids)-1 {
			testkit.Must(fmt.Errorf("%d of %d acked", n, len(ids)-1))
		}
		for _, id := range ids {
			note(honker.OutcomeAcked, id)
		}
	}
	testkit.Must(db.Close())
}

// writeInTxs enqueues jobs in separate transactions and prints the longest duration.
func writeInTxs() {
	a, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int64](db, "jobs", nil)
	var worst time.Duration
	for range a.Jobs {
		began := time.Now()
		testkit.Must(db.Tx(testkit.ChildContext(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, 0)
			return err
		}))
		worst = max(worst, time.Since(began))
	}
	testkit.Must(db.Close())
	testkit.Say(worst)
}

// hogTheWriter repeatedly holds the write lock for the span of its task.
func hogTheWriter() {
	a := testkit.ChildArgs[testkit.Task]()
	pool, err := sql.Open("sqlite", a.Path+"?_pragma=busy_timeout(5000)")
	testkit.Must(err)
	conn, err := pool.Conn(context.Background())
	testkit.Must(err)
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-testkit.ChildContext().Done():
		}
	}
	for testkit.ChildContext().Err() == nil {
		_, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
		testkit.Must(err)
		testkit.Say("held")
		pause(a.Span)
		_, err = conn.ExecContext(context.Background(), "COMMIT")
		testkit.Must(err)
		pause(5 * time.Millisecond)
	}
	testkit.Must(errors.Join(conn.Close(), pool.Close()))
}
