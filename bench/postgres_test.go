package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The ledger of jobs accepts each job once, and jobs that have run and are not finished. It refuses a job that has run
// twice, a job that was never added, and a finished job that has not run.
func TestPostgres_Ledger(t *testing.T) {
	verify := func(added, unfinished int, lines ...string) error {
		l := jobLedger{}
		for _, line := range lines {
			require.NoError(t, l.readJobs(line))
		}
		return l.verify(added, unfinished)
	}
	require.NoError(t, verify(4, 0, `[1,4]`, `[]`, `[3,2]`))
	require.NoError(t, verify(4, 2, `[1]`, `[2,3]`))
	require.ErrorContains(t, verify(4, 0, `[1,4]`, `[3,2,1]`), "job 1 of 4 has run 2 times")
	require.ErrorContains(t, verify(4, 0, `[1,2,3,5]`), "job 5 of 4")
	require.ErrorContains(t, verify(4, 0, `[0,1,2,3]`), "job 0 of 4")
	require.ErrorContains(t, verify(4, 0, `[1,2,3]`), "of 4 jobs 3 have run, and 0 are not finished")
	require.ErrorContains(t, jobLedger{}.readJobs("ERROR no such table"), "no such table")
}
