//go:build unix

package honker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/proc"
)

func init() { children["SQL caller"] = callFunctions }

// callFunctions claims, retries and fails by SQL alone, each in a transaction that it
// does not ask for.
func callFunctions() {
	_, db := openChild(nil)
	for proc.Context().Err() == nil {
		ids, err := rowsOf(db.SQL(), `SELECT json_extract(value, '$.id') FROM json_each(honker_claim_batch('jobs', 'w', 4, 600))`)
		proc.Must(err)
		for k, id := range ids {
			settle := `SELECT honker_retry(CAST(? AS INTEGER), 'w', 0, 'again')`
			if k == 0 {
				settle = `SELECT honker_fail(CAST(? AS INTEGER), 'w', 'enough')`
			}
			done, err := rowsOf(db.SQL(), settle, id)
			proc.Must(err)
			if done[0] != "1" {
				proc.Must(errors.New("the claim did not hold"))
			}
		}
		proc.Say("settled", len(ids))
	}
	proc.Must(db.Close())
}

func TestNoJobIsLostByACallThatIsKilled(t *testing.T) {
	const jobs = 20000
	kills := 30
	if testing.Short() {
		kills = 6
	}
	path, db := shared(t)
	luck := luckOf(seedOf(t), 0)
	perform(t, db.SQL(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
SELECT honker_enqueue('jobs', '' || i, NULL, NULL, 0, 2 + i % 3, NULL) FROM n`)
	for range kills {
		victim := proc.Start(t, "SQL caller", task{Path: path})
		require.Equal(t, "settled 4", victim.Line(patient))
		time.Sleep(time.Duration(luck.IntN(30)) * time.Millisecond)
		victim.Kill()
		require.NoError(t, db.Check(context.Background()))
		require.EqualValues(t, jobs, number(t, db.SQL(), liveAndDead))
	}
	require.Positive(t, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	require.Positive(t, number(t, db.SQL(), `SELECT count(*) FROM _honkerx_job WHERE last_error = 'again'`))
}
