//go:build unix

package jobs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// naiveClaim claims jobs of queue "q" without a lock, and holds those of keys that it finds full.
const naiveClaim = `WITH c AS MATERIALIZED (
  SELECT j.id, j.key, j.priority, j.run_at FROM honker.job j WHERE j.queue = 'q' AND j.state = 0 AND j.run_at <= $2
  ORDER BY j.priority DESC, j.run_at, j.id LIMIT $3 FOR UPDATE SKIP LOCKED),
runs AS (SELECT j.key, count(*) AS n FROM honker.job j WHERE j.queue = 'q' AND j.state = 1 AND j.key IN (SELECT c.key FROM c) GROUP BY j.key),
judged AS (SELECT c.id, row_number() OVER (PARTITION BY c.key ORDER BY c.priority DESC, c.run_at, c.id) + coalesce(r.n, 0)
  <= (SELECT per_key FROM honker.queue WHERE queue = 'q') AS ok FROM c LEFT JOIN runs r ON r.key = c.key),
up AS (UPDATE honker.job j SET state = CASE WHEN v.ok THEN 1 ELSE 2 END, worker = CASE WHEN v.ok THEN $1 END, attempts = j.attempts + v.ok::int,
  lease_until = CASE WHEN v.ok THEN $2::timestamptz + interval '1 minute' END FROM judged v WHERE j.id = v.id RETURNING j.id, j.key, j.attempts, v.ok)
SELECT id, key, attempts FROM up WHERE ok`

// naiveAck ends a job, and lets the next job of its key go that it finds.
const naiveAck = `WITH gone AS (DELETE FROM honker.job WHERE id = $1 RETURNING key)
UPDATE honker.job SET state = 0 WHERE id = (SELECT j.id FROM honker.job j, gone g WHERE j.queue = 'q' AND j.key = g.key AND j.state = 2
  ORDER BY j.priority DESC, j.run_at, j.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED)`

// limitsBook records which jobs run in a stress test, and the rules that they break.
type limitsBook struct {
	sync.Mutex
	keys             map[string]int   // how many jobs of a key run
	last             map[string]int64 // the last job of a key that has started
	ended            map[int64]bool
	running          int
	over, disordered int
	starts           int
}

func (k *limitsBook) started(all []*row.Job, perKey, running int, inOrder bool) {
	k.Lock()
	defer k.Unlock()
	for _, j := range all {
		k.starts++
		k.keys[j.Key]++
		k.running++
		if k.keys[j.Key] > perKey || k.running > running {
			k.over++
		}
		if last := k.last[j.Key]; inOrder && (j.ID < last || j.ID > last && last != 0 && !k.ended[last]) {
			k.disordered++
		}
		k.last[j.Key] = j.ID
	}
}

// stopped records the end of an attempt. It must be called before the commit.
func (k *limitsBook) stopped(j *row.Job, ended bool) {
	k.Lock()
	defer k.Unlock()
	k.keys[j.Key]--
	k.running--
	if ended {
		k.ended[j.ID] = true
	}
}

// stressed is a stress test of limits: enqueues, claims, settlements and cancels in many transactions at once.
type stressed struct {
	base
	limitsBook
	naive  bool
	limits row.QueueLimits
	left   atomic.Int64 // jobs that are yet to end
	failed atomic.Pointer[error]
}

// fail records an error of a goroutine.
func (s *stressed) fail(err error) {
	if err != nil {
		s.failed.CompareAndSwap(nil, &err)
	}
}

func (s *stressed) enqueue(r *rand.Rand, jobs int) error {
	for n := 0; n < jobs; {
		tx, err := s.Begin()
		if err != nil {
			return err
		}
		some := min(1+r.IntN(3), jobs-n)
		in := row.Insert{Queue: "q", Payloads: make([]string, some), MaxAttempts: 1000, Key: fmt.Sprint("k", r.IntN(4)), Priority: r.Int64N(2)}
		_, err = s.jobs.Insert(context.Background(), tx, &in, time.Now())
		time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond) // the rest of the application's transaction
		if err != nil || r.IntN(6) == 0 {
			if err := errors.Join(err, tx.Rollback()); err != nil {
				return err
			}
			continue
		}
		s.left.Add(int64(some))
		n += some
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// claim claims some jobs. Its commit takes a moment, as on a server with a disk.
func (s *stressed) claim(r *rand.Rand, worker string, n int) (all []*row.Job, err error) {
	tx, err := s.Begin()
	if err != nil {
		return nil, err
	}
	if !s.naive {
		all, err = s.claimed(context.Background(), tx, worker, n, time.Now())
	} else {
		err = pgsql.Each(context.Background(), tx, s.schema.SQL(naiveClaim), func(r *sql.Rows) error {
			j := &row.Job{Queue: "q", WorkerID: worker}
			all = append(all, j)
			return r.Scan(&j.ID, &j.Key, &j.Attempts)
		}, worker, time.Now(), n)
	}
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
	return all, tx.Commit()
}

// settle ends an attempt in a transaction of the application that may roll back.
func (s *stressed) settle(r *rand.Rand, j *row.Job) error {
	settle := &row.Settlement{Claim: row.Claim{ID: j.ID, Worker: j.WorkerID, Attempt: j.Attempts}, Queue: "q", Outcome: row.Acked}
	if !s.naive && r.IntN(8) == 0 {
		settle.Outcome, settle.Delay = row.Retried, time.Duration(r.IntN(3))*time.Millisecond
	}
	for {
		tx, err := s.Begin()
		if err != nil {
			return err
		}
		if s.naive {
			_, err = s.exec(tx, naiveAck, j.ID)
		} else if _, err = s.jobs.Step(context.Background(), tx, row.Step{Settle: []*row.Settlement{settle}}, time.Now()); err == nil && settle.Became == row.Lost {
			err = fmt.Errorf("job %d: the claim is lost", j.ID)
		}
		time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
		if err != nil || r.IntN(5) == 0 {
			if err := errors.Join(err, tx.Rollback()); err != nil {
				return err
			}
			continue
		}
		s.stopped(j, settle.Outcome == row.Acked)
		if err := tx.Commit(); err != nil {
			return err
		}
		if settle.Outcome == row.Acked {
			s.left.Add(-1)
		}
		return nil
	}
}

// cancel cancels a held job in a transaction that often rolls back.
func (s *stressed) cancel(r *rand.Rand) error {
	tx, err := s.Begin()
	if err != nil {
		return err
	}
	var id int64
	found, err := pgsql.One(context.Background(), tx, s.schema.SQL(`SELECT id FROM honker.job WHERE state = 2 ORDER BY id LIMIT 1`), nil, &id)
	var gone bool
	if err == nil && found {
		// A job that is claimed in the meantime is not cancelled: its end would be counted twice.
		n := 0
		if _, err = pgsql.One(context.Background(), tx, s.schema.SQL(`SELECT count(*) FROM (SELECT FROM honker.job WHERE id = $1 AND state = 2 FOR UPDATE) j`),
			[]any{id}, &n); err == nil && n == 1 {
			gone, err = s.jobs.Cancel(context.Background(), tx, "q", id, time.Now())
		}
	}
	time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
	if err != nil || r.IntN(2) == 0 {
		return errors.Join(err, tx.Rollback())
	}
	if gone {
		s.Lock()
		s.ended[id] = true
		s.Unlock()
		s.left.Add(-1)
	}
	return tx.Commit()
}

// run enqueues jobs and works until they have ended, or until nothing has started for a while.
func (s *stressed) run(t *testing.T, jobs int) (stuck int64) {
	s.keys, s.last, s.ended = make(map[string]int), make(map[string]int64), make(map[int64]bool)
	perKey, running := 1<<30, 1<<30
	if s.limits.PerKey > 0 {
		perKey = int(s.limits.PerKey)
	}
	if s.limits.InOrder {
		perKey = 1
	}
	if s.limits.Running > 0 {
		running = int(s.limits.Running)
	}
	var enqueuers, workers sync.WaitGroup
	var stop atomic.Bool
	for i := range 3 {
		enqueuers.Go(func() { s.fail(s.enqueue(rand.New(rand.NewPCG(uint64(i), 1)), jobs/3)) })
	}
	if !s.naive {
		workers.Go(func() {
			for r := rand.New(rand.NewPCG(1, 3)); !stop.Load() && s.failed.Load() == nil; {
				s.fail(s.cancel(r))
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	for i := range 6 {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			var handlers sync.WaitGroup
			defer handlers.Wait()
			for !stop.Load() && s.failed.Load() == nil {
				all, err := s.claim(r, fmt.Sprint("w", i), 1+r.IntN(4))
				s.fail(err)
				s.started(all, perKey, running, s.limits.InOrder)
				if len(all) == 0 {
					time.Sleep(2 * time.Millisecond)
				} else {
					last.Store(time.Now().UnixNano())
				}
				for _, j := range all {
					seed := r.Uint64()
					handlers.Go(func() { s.fail(s.settle(rand.New(rand.NewPCG(seed, 4)), j)) })
				}
			}
		})
	}
	enqueuers.Wait()
	for s.failed.Load() == nil && s.left.Load() > 0 && time.Since(time.Unix(0, last.Load())) < s.patience() {
		time.Sleep(5 * time.Millisecond)
	}
	stop.Store(true)
	workers.Wait()
	if err := s.failed.Load(); err != nil {
		require.NoError(t, *err)
	}
	return s.left.Load()
}

// patience is how long no job may start before the rest count as stuck. A machine may stand still for seconds.
func (s *stressed) patience() time.Duration {
	if s.naive {
		return 500 * time.Millisecond
	}
	return 20 * time.Second
}

// Limits hold with claims on many connections, with settlements and enqueues in transactions that may roll back, and with
// cancels: no more jobs run than they allow, in-order jobs keep their order, and none is stuck. The naive form, whose
// settlements release the next job themselves, breaks this.
func TestLimits_Stress(t *testing.T) {
	for name, c := range map[string]struct {
		limits row.QueueLimits
		naive  bool
	}{
		"PerKey 1":  {row.QueueLimits{PerKey: 1}, false},
		"PerKey 3":  {row.QueueLimits{PerKey: 3}, false},
		"InOrder":   {row.QueueLimits{InOrder: true}, false},
		"Running 3": {row.QueueLimits{Running: 3, PerKey: 2}, false},
		"naive":     {row.QueueLimits{PerKey: 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stressed{base: open(t), limits: c.limits, naive: c.naive}
			s.SetMaxOpenConns(30)
			s.limit(t, s.base, c.limits)
			stuck := s.run(t, 240)
			t.Logf("starts %d, over the limit %d, out of order %d, stuck %d", s.starts, s.over, s.disordered, stuck)
			if c.naive {
				require.NotZero(t, s.over+int(stuck))
				return
			}
			require.Zero(t, s.over)
			require.Zero(t, s.disordered)
			require.Zero(t, stuck)
		})
	}
}
