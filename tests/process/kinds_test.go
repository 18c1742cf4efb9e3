package process_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["kinds producer"] = produceKinds
	children["kinds by priority"] = func() { workKinds(honker.WorkersOptions{Order: honker.ByPriority}) }
	children["kinds strict"] = func() { workKinds(honker.WorkersOptions{Order: honker.Strict}) }
	children["kinds in turns"] = func() {
		workKinds(honker.WorkersOptions{Order: honker.InTurns, Weights: map[string]int{"mails": 3}})
	}
}

// A row of promised is committed together with the enqueue of its jobs, or after it. handled contains a row for
// each attempt that a handler has completed. order and payment handlers insert it in the transaction of the
// ack, and mail handlers before it.
var kindTables = []string{
	`CREATE TABLE numbers (n ` + counted + `)`,
	`CREATE TABLE promised (kind TEXT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (kind, n))`,
	`CREATE TABLE handled (kind TEXT NOT NULL, n BIGINT NOT NULL)`,
	`CREATE INDEX handled_n ON handled (kind, n)`,
}

const newNumber = `INSERT INTO numbers DEFAULT VALUES RETURNING n`

// The queues of kinds have different types, so a job that reached the handler of another kind would die.
type (
	kindOrder   struct{ Number int64 }
	kindPayment []int64
	kindMail    string // a decimal number
)

// kinds holds the queues of all kinds.
type kinds struct {
	db       *honker.DB
	orders   *honker.Queue[kindOrder]
	payments *honker.Queue[kindPayment]
	mails    *honker.Queue[kindMail]
}

func kindsOf(db *honker.DB) kinds {
	again := honker.Constant(0)
	return kinds{
		db:       db,
		orders:   honker.NewQueue[kindOrder](db, "orders", &honker.QueueOptions{MaxAttempts: 1000, Backoff: again}),
		payments: honker.NewQueue[kindPayment](db, "payments", &honker.QueueOptions{MaxAttempts: 1000, Backoff: again, Timeout: time.Minute}),
		mails: honker.NewQueue[kindMail](db, "mails", &honker.QueueOptions{
			Backoff: again, Enqueue: []honker.EnqueueOption{honker.MaxAttempts(1000), honker.Priority(1)}}),
	}
}

func mailOf(n int64) kindMail { return kindMail(strconv.FormatInt(n, 10)) }

// produceKinds enqueues jobs of all kinds until it is killed.
func produceKinds() {
	a, db := testkit.OpenChild(nil)
	k, draw := kindsOf(db), testkit.Rand(a.Seed, 0)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		undo := draw.IntN(4) == 0
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			if err := k.produceTx(ctx, tx, draw.IntN(3)); err != nil {
				return err
			}
			if undo {
				return errUndone
			}
			return nil
		})
		if !errors.Is(err, errUndone) {
			testkit.Must(err)
		}
		if draw.IntN(2) == 0 {
			testkit.Must(k.produce(draw.IntN(3)))
		}
		_ = testkit.Within(testkit.ChildContext(), nil, time.Duration(draw.IntN(8))*time.Millisecond)
	}
	testkit.Must(db.Close())
}

// produceTx enqueues a job of each kind in tx.
func (k kinds) produceTx(ctx context.Context, tx *sql.Tx, priority int) error {
	var n int64
	if err := tx.QueryRowContext(ctx, newNumber).Scan(&n); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO promised VALUES ('orders', $1), ('payments', $1), ('mails', $1)`, n); err != nil {
		return err
	}
	_, one := k.orders.EnqueueTx(ctx, tx, kindOrder{n}, honker.Priority(priority))
	_, two := k.payments.EnqueueManyTx(ctx, tx, []kindPayment{{n}})
	_, three := k.mails.EnqueueTx(ctx, tx, mailOf(n), honker.Priority(priority))
	return errors.Join(one, two, three)
}

// produce enqueues a job of some kind in a commit of its own, which may hand it over to a waiting worker.
func (k kinds) produce(kind int) error {
	ctx := context.Background()
	var n int64
	err := k.db.SQL().QueryRowContext(ctx, newNumber).Scan(&n)
	if err != nil {
		return err
	}
	name := ""
	switch kind {
	case 0:
		name = k.orders.Name()
		_, err = k.orders.Enqueue(ctx, kindOrder{n})
	case 1:
		name = k.payments.Name()
		_, err = k.payments.EnqueueMany(ctx, []kindPayment{{n}})
	default:
		name = k.mails.Name()
		_, err = k.mails.Enqueue(ctx, mailOf(n))
	}
	if err != nil {
		return err
	}
	_, err = k.db.SQL().ExecContext(ctx, `INSERT INTO promised VALUES ($1, $2)`, name, n)
	return err
}

// workKinds handles jobs of all kinds until it is killed. Its process also enqueues, so that some jobs are
// handed over.
func workKinds(o honker.WorkersOptions) {
	_, db := testkit.OpenChild(nil)
	k := kindsOf(db)
	w := k.workers(&o)
	go func() {
		for i := 0; testkit.ChildContext().Err() == nil; i++ {
			testkit.Must(k.produce(i % 3))
			_ = testkit.Within(testkit.ChildContext(), nil, 20*time.Millisecond)
		}
	}()
	testkit.Say("ready")
	testkit.Must(w.Work(testkit.ChildContext(), &honker.WorkOptions{Workers: 4, Lease: time.Second}))
	testkit.Must(db.Close())
}

// workers returns a Workers with a handler for each kind.
func (k kinds) workers(o *honker.WorkersOptions) *honker.Workers {
	w := honker.NewWorkers(k.db, o)
	honker.HandleTx(w, k.orders, func(ctx context.Context, tx *sql.Tx, job *honker.Job[kindOrder]) error {
		return doneTx(ctx, tx, job, job.Args.Number)
	})
	honker.HandleTx(w, k.payments, func(ctx context.Context, tx *sql.Tx, job *honker.Job[kindPayment]) error {
		return doneTx(ctx, tx, job, job.Args[0])
	})
	honker.Handle(w, k.mails, func(ctx context.Context, job *honker.Job[kindMail]) error {
		err := k.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO handled SELECT 'mails', CAST($1 AS BIGINT) WHERE NOT EXISTS (SELECT 1 FROM handled WHERE kind = 'mails' AND n = CAST($1 AS BIGINT))`,
				string(job.Args))
			return err
		})
		_ = testkit.Within(ctx, nil, time.Duration(job.ID%4)*time.Millisecond)
		return err
	})
	return w
}

// doneTx is the part that the transactional handlers share. Some attempts fail after the effect, and some settle
// the job themselves.
func doneTx[T any](ctx context.Context, tx *sql.Tx, job *honker.Job[T], n int64) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO handled VALUES ($1, $2)`, job.Queue, n); err != nil {
		return err
	}
	switch {
	case job.ID%7 == 0 && job.Attempts == 1:
		return honker.RetryAfter(0, errUndone)
	case job.ID%11 == 0:
		return job.AckTx(ctx, tx)
	}
	return nil
}

// Producers and workers are killed all the time, while each worker serves three kinds of jobs in an order of its own.
// Each job that was promised has its effect: exactly once with HandleTx, and at least once with Handle. No job of a
// transaction that was rolled back has run, and none is dead.
func TestProcess_Workers_Kills(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, time.Minute)
	testkit.ExecAll(t, db.SQL(), kindTables...)
	kills := killAtRandom(t, path, db, 100*time.Millisecond, "kinds producer", "kinds by priority", "kinds strict", "kinds in turns")

	k := kindsOf(db)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- k.workers(nil).Work(ctx, nil) }()
	testkit.Eventually(t, testkit.Timeout, "all jobs handled", func() bool {
		all, err := admin.Queues(ctx, db)
		require.NoError(t, err)
		for _, q := range all {
			require.Zero(t, q.Dead.N, q.Queue)
			if q.Ready.N+q.Scheduled.N+q.Running.N+q.Lapsed.N > 0 {
				return false
			}
		}
		return true
	})
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, db.Check(t.Context()))
	counts, err := testkit.Rows(db.SQL(), `SELECT kind, count(*), count(DISTINCT n) FROM handled GROUP BY kind ORDER BY kind`)
	require.NoError(t, err)
	require.Len(t, counts, 3)
	t.Logf("%d kills; kinds, effects, jobs: %q", kills, counts)
	missing, err := testkit.Rows(db.SQL(), `SELECT kind, n FROM promised EXCEPT SELECT kind, n FROM handled`)
	require.NoError(t, err)
	require.Empty(t, missing)
	twice, err := testkit.Rows(db.SQL(), `SELECT kind, n, count(*) FROM handled GROUP BY kind, n HAVING count(*) > 1`)
	require.NoError(t, err)
	require.Empty(t, twice)
	rolledBack, err := testkit.Rows(db.SQL(), `SELECT kind, n FROM handled WHERE n NOT IN (SELECT n FROM numbers)`)
	require.NoError(t, err)
	require.Empty(t, rolledBack)
}
