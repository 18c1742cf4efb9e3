package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// open returns a new DB, a queue, and a record of the events reported to the DB's observer.
func open(t *testing.T) (context.Context, *honker.DB, *honker.Queue[int], *told) {
	t.Helper()
	told := new(told)
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{
		Requeued:  func(e observe.Requeued) { told.add("requeued", e.Queue, e.IDs, e.Actor, e.Tx) },
		Discarded: func(e observe.Discarded) { told.add("discarded", e.Queue, e.IDs, e.Actor, false) },
		Cancelled: func(e observe.Cancelled) { told.add("cancelled", e.Queue, e.IDs, e.Actor, false) },
	}})
	return testkit.Context(t, 3*testkit.Timeout), db, honker.NewQueue[int](db, "jobs", nil), told
}

// told records events reported to an observer, which is called on the goroutine of the operation.
type told struct{ lines []string }

func (o *told) add(what, queue string, ids []int64, actor string, tx bool) {
	o.lines = append(o.lines, fmt.Sprint(what, " ", queue, " ", ids, " ", actor, " ", tx))
}

// bury enqueues a job and dead-letters it with cause.
func bury(t *testing.T, q *honker.Queue[int], args int, cause string, opts ...honker.EnqueueOption) int64 {
	t.Helper()
	id := testkit.Enqueue(t, q, args, opts...)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, id, job.ID)
	require.NoError(t, job.Reject(context.Background(), errors.New(cause)))
	return id
}

func rows(t *testing.T, db *honker.DB, query string, args ...any) []string {
	t.Helper()
	lines, err := testkit.Rows(db.SQL(), query, args...)
	require.NoError(t, err, query)
	return lines
}

var all = admin.JobFilter{All: true}
