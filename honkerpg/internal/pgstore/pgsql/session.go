package pgsql

import (
	"context"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Session is the Querier of an op that the backend runs alone or in a transaction of its own. The Querier of an
// application's transaction is no Session, and neither is the transaction of a DB.Tx, which the application may keep
// open for as long as it likes.
type Session interface {
	row.Querier

	// After requests work for the time after the commit. The backend has done it before it reports the commit.
	After(Work)
}

// Work is a set of kinds of work that must wait for a commit. Resolve and Number take a lock that no two transactions
// of the schema hold at the same time. So an application's transaction, which may last, leaves rows for it.
type Work uint8

// The kinds of work.
const (
	Resolve Work = 1 << iota // release the jobs that waited for the jobs named by the table token
	Number                   // move the rows of the table pending to their logs and number them
	Ended                    // wake the goroutines that wait for jobs, some of which have ended
	Planned                  // wake the scheduler, because schedules have changed
	Room                     // wake the goroutines that wait for queues, some of which have room for jobs
)

// Leave requests work for the time after the commit of q's transaction. It does nothing in an application's
// transaction, whose commit is not seen: the processes that it wakes do the work.
func Leave(q row.Querier, w Work) {
	if s, ok := q.(Session); ok {
		s.After(w)
	}
}

// Released are the signals of jobs that the resolver may release or end, in any queue.
var Released = wake.KindSignals(wake.QueueReady) | wake.KindSignals(wake.JobDone)

const sqlWake = `SELECT honker.wake($1, '')`

// LeaveTokens requests the resolver for the time after the commit of q's transaction. An application's transaction tells the
// processes that wait for any queue or job, at its commit: jobs that wait for those of the caller may be in other queues.
func (s Schema) LeaveTokens(ctx context.Context, q row.Querier) error {
	if own, ok := q.(Session); ok {
		own.After(Resolve)
		return nil
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlWake), int64(Released))
	return err
}
