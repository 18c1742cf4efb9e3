//go:build unix

package process_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["cancelled worker"] = workCancelled
	children["cancelled operator"] = cancelRunning
}

// cancelledKeys is the number of keys. It is large because the jobs of killed workers keep their
// keys until their leases end, which is after the test.
const cancelledKeys = 300

// workCancelled handles jobs until it is killed. It locks a file for each key to detect another
// running handler of the key in any process. The system releases the lock when the process dies.
// The handler reacts to the end of its ctx with a delay.
func workCancelled() {
	a, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int](db, "one", nil)
	testkit.Say("ready")
	testkit.Must(q.Work(testkit.ChildContext(), func(ctx context.Context, job *honker.Job[int]) error {
		info, err := q.Get(context.WithoutCancel(ctx), job.ID)
		if err != nil {
			return err // cancelled before the handler started
		}
		f, err := os.OpenFile(filepath.Join(filepath.Dir(a.Path), info.Key), os.O_CREATE|os.O_RDWR, 0o600)
		testkit.Must(err)
		defer f.Close()
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			_, err := db.SQL().Exec(`INSERT INTO faults VALUES ($1)`, fmt.Sprint("two of ", info.Key, " at once: job ", job.ID))
			testkit.Must(err)
		}
		_ = testkit.Within(ctx, nil, time.Duration(job.ID%40)*time.Millisecond)
		_ = testkit.Within(context.Background(), nil, time.Duration(job.ID%30)*time.Millisecond)
		return nil
	}, &honker.WorkOptions{Workers: 67, Lease: time.Minute}))
	testkit.Must(db.Close())
}

// cancelRunning enqueues jobs and cancels some running jobs until it is killed.
func cancelRunning() {
	a, db := testkit.OpenChild(nil)
	draw := testkit.Rand(a.Seed, 0)
	ctx := context.Background()
	q := honker.NewQueue[int](db, "one", nil)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		_, err := q.EnqueueMany(ctx, make([]int, 10), honker.Key(fmt.Sprint("k", draw.IntN(cancelledKeys))))
		testkit.Must(err)
		var id int64
		if db.SQL().QueryRow(testkit.Either(`SELECT id FROM _honker_live WHERE state = 'processing' ORDER BY random() LIMIT 1`,
			`SELECT id FROM job WHERE state = 1 ORDER BY random() LIMIT 1`)).Scan(&id) != nil {
			continue
		}
		n := int64(0)
		if draw.IntN(2) == 0 {
			was, err := q.Cancel(ctx, id)
			testkit.Must(err)
			if was {
				n = 1
			}
		} else {
			report, err := admin.Cancel(ctx, db, admin.JobFilter{IDs: []int64{id}}, &admin.CancelOptions{Running: true})
			testkit.Must(err)
			n = report.Changed
		}
		_, err = db.SQL().Exec(`INSERT INTO cancels VALUES ($1)`, n)
		testkit.Must(err)
	}
	testkit.Must(db.Close())
}

// Workers are killed all the time while running jobs are cancelled at random. Two jobs with the
// same key never run at the same time.
func TestProcess_Limits_Cancels(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, 2*time.Minute)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE faults (what TEXT)`, `CREATE TABLE cancels (n BIGINT)`)
	require.NoError(t, honker.NewQueue[int](db, "one", nil).SetLimits(ctx, honker.Limits{PerKey: 1}))
	kills := killAtRandom(t, path, db, time.Second, "cancelled worker", "cancelled worker", "cancelled worker", "cancelled operator", "cancelled operator")
	requireNoFaults(t, db)
	cancels := testkit.QueryInt(t, db.SQL(), `SELECT CAST(sum(n) AS BIGINT) FROM cancels`)
	t.Logf("%d kills, %d cancels", kills, cancels)
	require.NotZero(t, cancels)
	require.NoError(t, db.Check(ctx))
}
