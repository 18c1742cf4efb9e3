package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// Problems of a code form a group, with the largest and the oldest problem first.
func TestGroupProblems_Order(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 11, 28, 12, minute, 0, 0, time.UTC) }
	noWorker := func(queue string, n int64, since time.Time) admin.Problem {
		return admin.Problem{Code: admin.ProblemNoWorker, Severity: admin.SeverityError, Queue: queue, N: honker.Count{N: n}, Since: since}
	}
	dead := admin.Problem{Code: admin.ProblemDead, Severity: admin.SeverityWarn, Queue: "a", Text: "a: 9,000 jobs died", N: honker.Count{N: 9000, More: true}}
	all := []admin.Problem{dead, noWorker("a", 1, at(5)), noWorker("b", 1, time.Time{}), noWorker("c", 1, at(4)), noWorker("d", 700, at(9))}
	require.Equal(t, []admin.ProblemGroup{
		{Code: admin.ProblemNoWorker, Severity: admin.SeverityError, Text: "4 queues have ready jobs and no worker", Since: at(4), N: honker.Count{N: 703},
			Problems: []admin.Problem{all[4], all[3], all[1], all[2]}},
		{Code: admin.ProblemDead, Severity: admin.SeverityWarn, Text: "a: 9,000 jobs died", N: dead.N, Problems: []admin.Problem{dead}},
	}, admin.GroupProblems(all))
	require.Equal(t, "a", all[1].Queue, "the argument is unchanged")
	require.Empty(t, admin.GroupProblems(nil))
}
