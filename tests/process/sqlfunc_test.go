//go:build unix

package process_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["SQL caller"] = callFunctions }

// callFunctions claims, retries and fails jobs by SQL functions, each in an implicit transaction.
func callFunctions() {
	_, db := testkit.OpenChild(nil)
	for testkit.ChildContext().Err() == nil {
		ids, err := testkit.Rows(db.SQL(), `SELECT json_extract(value, '$.id') FROM json_each(honker_claim_batch('jobs', 'w', 4, 600))`)
		testkit.Must(err)
		for k, id := range ids {
			settle := `SELECT honker_retry(CAST(? AS INTEGER), 'w', 0, 'again')`
			if k == 0 {
				settle = `SELECT honker_fail(CAST(? AS INTEGER), 'w', 'enough')`
			}
			done, err := testkit.Rows(db.SQL(), settle, id)
			testkit.Must(err)
			if done[0] != "1" {
				testkit.Must(errors.New("the claim did not hold"))
			}
		}
		testkit.Say("settled", len(ids))
	}
	testkit.Must(db.Close())
}

// A process killed during a function call loses no job.
func TestSQL_Process_Killed(t *testing.T) {
	testkit.FileOnly(t) // the functions of a file
	const jobs = 20000
	kills := 30
	if testing.Short() {
		kills = 6
	}
	path, db := testkit.OpenShared(t)
	luck := testkit.Rand(testkit.Seed(t), 0)
	testkit.ExecAll(t, db.SQL(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
SELECT honker_enqueue('jobs', '' || i, NULL, NULL, 0, 2 + i % 3, NULL) FROM n`)
	for range kills {
		victim := testkit.StartChild(t, "SQL caller", testkit.Task{Path: path})
		require.Equal(t, "settled 4", victim.Line(testkit.Timeout))
		time.Sleep(time.Duration(luck.IntN(30)) * time.Millisecond)
		victim.Kill()
		require.NoError(t, db.Check(context.Background()))
		require.EqualValues(t, jobs, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	}
	require.Positive(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	require.Positive(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job WHERE last_error = 'again'`))
}
