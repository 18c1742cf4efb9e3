//go:build unix

package jobs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

// late are workers that often hold jobs for longer than their leases. Some share a name. Their clock is moved by those
// that oversleep.
type late struct {
	base
	ack     func(ctx context.Context, j *row.Job, now time.Time) (bool, error)
	seconds atomic.Int64

	mu      sync.Mutex
	newest  map[int64]int64   // the last attempt of each job
	acked   map[int64][]int64 // the attempts that were acked
	lost    int
	failure error
}

func (l *late) now() time.Time { return start.Add(time.Duration(l.seconds.Load()) * time.Second) }

const lateLease = 10 * time.Second

// work claims and acks jobs until n jobs were acked, or the worker has had its rounds.
func (l *late) work(ctx context.Context, name string, n int) error {
	for range 400 {
		claim := &row.ClaimRequest{Lanes: row.InOrder("q"), Worker: name, N: 3, Lease: lateLease}
		c, err := l.jobs.Step(ctx, l.DB, row.Step{Claim: claim}, l.now())
		if err != nil {
			return err
		}
		l.mu.Lock()
		for _, j := range c.Jobs {
			l.newest[j.ID] = max(l.newest[j.ID], j.Attempts)
		}
		l.mu.Unlock()
		if rand.IntN(3) == 0 {
			l.seconds.Add(11)
		}
		for _, j := range c.Jobs {
			ok, err := l.ack(ctx, j, l.now())
			if err != nil {
				return err
			}
			l.mu.Lock()
			if ok {
				l.acked[j.ID] = append(l.acked[j.ID], j.Attempts)
			} else {
				l.lost++
			}
			l.mu.Unlock()
		}
		l.mu.Lock()
		done := len(l.acked) == n
		l.mu.Unlock()
		if done {
			return nil
		}
	}
	return nil
}

// faults returns what went wrong with the jobs: an ack of an attempt that another has followed, or a second ack.
func (l *late) faults(ids []int64) (all []string) {
	for _, id := range ids {
		if a := l.acked[id]; len(a) != 1 || a[0] != l.newest[id] {
			all = append(all, fmt.Sprintf("job %d: attempts %v were acked, the last is %d", id, a, l.newest[id]))
		}
	}
	return all
}

// run lets eight workers share jobs.
func (l *late) run(t *testing.T, jobs int) (ids []int64) {
	t.Helper()
	in := row.Insert{Queue: "q", MaxAttempts: 1 << 30, Payloads: make([]string, jobs)}
	for i := range in.Payloads {
		in.Payloads[i] = `{}`
	}
	out, err := l.jobs.Insert(t.Context(), l.DB, &in, start)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := l.work(t.Context(), fmt.Sprint("w", i%3), jobs); err != nil {
				l.mu.Lock()
				l.failure = err
				l.mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.failure)
	return out.IDs
}

// A worker that settles after its lease has no effect on the job, even if the job was claimed again, and even by a worker
// of the same name. Each job is acked once, by its last attempt.
func TestFencing(t *testing.T) {
	l := &late{base: open(t), newest: map[int64]int64{}, acked: map[int64][]int64{}}
	l.ack = func(ctx context.Context, j *row.Job, now time.Time) (bool, error) {
		s := &row.Settlement{Claim: row.Claim{ID: j.ID, Worker: j.WorkerID, Attempt: j.Attempts}, Queue: "q", Outcome: row.Acked}
		_, err := l.jobs.Step(ctx, l.DB, row.Step{Settle: []*row.Settlement{s}}, now)
		return s.Became == row.Acked, err
	}
	ids := l.run(t, 300)
	require.Empty(t, l.faults(ids))
	require.NotZero(t, l.lost, "workers were late")
}

// An ack that only looks whether the job is claimed ends the attempts of others, so the test above can fail.
func TestFencing_Naive(t *testing.T) {
	l := &late{base: open(t), newest: map[int64]int64{}, acked: map[int64][]int64{}}
	l.ack = func(_ context.Context, j *row.Job, _ time.Time) (bool, error) {
		n, err := l.exec(l.DB, `DELETE FROM honker.job WHERE id = $1 AND state = 1`, j.ID)
		return n > 0, err
	}
	require.NotEmpty(t, l.faults(l.run(t, 300)))
}
