package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// ofCode returns db's problems of a code.
func ofCode(t *testing.T, db *honker.DB, code admin.ProblemCode) (found []admin.Problem) {
	t.Helper()
	for _, p := range problems(t, db) {
		if p.Code == code {
			found = append(found, p)
		}
	}
	return found
}

// A queue that fails most of its attempts is a problem, with the commonest error and the time since when. It
// leads the explanation of the queue, until the queue is paused or its attempts succeed again.
func TestProblems_Failing(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		var down bool
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			switch {
			case !down:
				return nil
			case job.Args%5 == 0:
				return honker.Reject(errors.New("no such address"))
			}
			return honker.RetryAfter(time.Hour, fmt.Errorf("dial tcp 10.0.3.%d:587: connection refused\ntrace", job.Args))
		}, nil)
		each := func(n int) {
			for i := range n {
				testkit.Enqueue(t, q, i)
				time.Sleep(2 * time.Second)
			}
			time.Sleep(5 * time.Second)
		}
		each(60)
		require.Empty(t, problems(t, db))
		down = true
		time.Sleep(30 * time.Minute)
		began := time.Now().Truncate(time.Minute)
		each(20)
		require.Empty(t, ofCode(t, db, admin.ProblemFailing), "too few attempts")
		each(100)
		found := problems(t, db)
		p := found[0]
		require.Equal(t, admin.ProblemFailing, p.Code, "before all others: %v", found)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.Equal(t, "jobs", p.Queue)
		require.Equal(t, "jobs: 100 % of 120 attempts failed in the last 10 minutes", p.Text)
		require.Regexp(t, `^dial tcp 10\.0\.3\.\d+:587: connection refused$`, p.Cause)
		require.Equal(t, honker.Count{N: 120}, p.N)
		require.True(t, p.Since.Equal(began), "%v, not %v", p.Since, began)
		ex, err := admin.ExplainQueue(t.Context(), db, "jobs")
		require.NoError(t, err)
		require.Equal(t, admin.ReasonFailing, ex.Reasons[0].Code)
		require.Regexp(t, `^100 % of 120 attempts failed in the last 10 minutes, and most since .*: "dial tcp`, ex.Text)

		_, err = q.Pause(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, ofCode(t, db, admin.ProblemFailing), "it was meant")
		ex, err = admin.ExplainQueue(t.Context(), db, "jobs")
		require.NoError(t, err)
		require.Equal(t, admin.ReasonPaused, ex.Reasons[0].Code)
		_, err = q.Resume(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, ofCode(t, db, admin.ProblemFailing))
		down = false
		each(120)
		require.Empty(t, ofCode(t, db, admin.ProblemFailing))
		require.NoError(t, stop())
	})
}

// Jobs that expire before an attempt are no failed attempts.
func TestProblems_Failing_Expired(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		for n := range 50 {
			testkit.Enqueue(t, q, n, honker.ExpiresIn(time.Second))
		}
		time.Sleep(5 * time.Second)
		swept, err := q.SweepExpired(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 50, swept)
		stop := testkit.Work(t, q, testkit.Succeed[int], nil)
		for n := range 30 {
			testkit.Enqueue(t, q, n)
		}
		time.Sleep(5 * time.Second)
		require.Len(t, ofCode(t, db, admin.ProblemDead), 1)
		require.Empty(t, ofCode(t, db, admin.ProblemFailing))
		require.NoError(t, stop())
	})
}
