//go:build unix

package process_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["checkpoint worker"] = workPages }

const pages = 400

// workPages notes each page of its job and saves a checkpoint after it.
func workPages() {
	a, db := testkit.OpenChild(nil)
	note := testkit.ChildLedger(a.Ledger)
	q := honker.NewQueue[int](db, "book", nil)
	testkit.Must(q.Work(testkit.ChildContext(), func(ctx context.Context, job *honker.Job[int]) error {
		page := 0
		if _, err := job.Checkpointed(&page); err != nil {
			return err
		}
		for ; page < job.Args; page++ {
			note("page", int64(page))
			job.SetProgress(int64(page), int64(job.Args), "")
			if err := job.Checkpoint(ctx, page+1); err != nil {
				return err
			}
		}
		note("end", int64(page))
		return nil
	}, &honker.WorkOptions{Workers: 1, Lease: time.Minute}))
	testkit.Must(db.Close())
}

// A worker that is killed repeatedly loses no page. Each kill repeats at most the page in progress.
func TestProcess_Checkpoint_Kills(t *testing.T) {
	path, db := openShared(t)
	q := honker.NewQueue[int](db, "book", nil)
	testkit.Enqueue(t, q, pages, honker.MaxAttempts(1000))
	ledger := filepath.Join(t.TempDir(), "ledger")
	processes := 0
	child := func(i int) testkit.Task {
		processes++
		endLeases(t, db, -time.Second) // the previous process was killed
		return testkit.Task{Path: path, Ledger: fmt.Sprint(ledger, i)}
	}
	noted := func() []int64 { all, _ := testkit.Noted(t, ledger+"*", "page"); return all }
	left := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) }
	killings(t, "checkpoint worker", pages, child, func() int {
		done := len(slices.Compact(noted()))
		if done == pages && left() > 0 { // a kill between the last page and the ack: the job runs once more
			return pages - 1
		}
		return done
	})

	all := noted()
	require.Less(t, len(all), pages+processes, "pages that were done twice")
	require.Len(t, slices.Compact(all), pages)
	ends, _ := testkit.Noted(t, ledger+"*", "end")
	require.Equal(t, []int64{pages}, slices.Compact(ends))
	require.Zero(t, left())
	require.NoError(t, db.Check(t.Context()))
}
