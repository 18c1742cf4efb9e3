package testkit

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// StoredJob is a job as it is stored. Times are Unix seconds.
type StoredJob struct {
	ID          int64  `json:"id"`       // the number of the job if it is 0
	Queue       string `json:"queue"`    // "jobs" if it is ""
	Payload     string `json:"payload"`  // "1" if it is ""
	Priority    int64  `json:"priority"` //
	RunAt       int64  `json:"run_at"`   // now if it is 0
	CreatedAt   int64  `json:"created_at"`
	Attempts    int64  `json:"attempts"`
	MaxAttempts int64  `json:"max_attempts"` // 3 if it is 0
	Error       string `json:"error"`        // of a dead job
	DiedAt      int64  `json:"died_at"`      // of a dead job; now if it is 0
}

// StoreLive stores n jobs that wait, without honker's verbs, which would take long. job gets their numbers from 1 on.
func StoreLive(t testing.TB, db *honker.DB, n int, job func(n int64) StoredJob) {
	t.Helper()
	store(t, db, storeLive, n, job)
}

// StoreDead stores n dead jobs.
func StoreDead(t testing.TB, db *honker.DB, n int, job func(n int64) StoredJob) {
	t.Helper()
	store(t, db, storeDead, n, job)
}

func store(t testing.TB, db *honker.DB, statement string, n int, job func(n int64) StoredJob) {
	t.Helper()
	all, now := make([]StoredJob, n), time.Now().Unix()
	for i := range all {
		j := job(int64(i) + 1)
		for field, value := range map[*int64]int64{&j.ID: int64(i) + 1, &j.RunAt: now, &j.CreatedAt: now, &j.DiedAt: now, &j.MaxAttempts: 3} {
			if *field == 0 {
				*field = value
			}
		}
		for field, value := range map[*string]string{&j.Queue: "jobs", &j.Payload: "1"} {
			if *field == "" {
				*field = value
			}
		}
		all[i] = j
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	Exec(t, db, statement, string(text))
	if !OnFile() { // stored ids count as drawn
		last := slices.MaxFunc(all, func(a, b StoredJob) int { return cmp.Compare(a.ID, b.ID) }).ID
		Exec(t, db, `SELECT setval('job_id_seq', greatest((SELECT last_value FROM job_id_seq), $1))`, last)
	}
}
