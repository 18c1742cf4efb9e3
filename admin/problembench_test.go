package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// A file of 509 queues with 230,000 jobs, of which one queue fails, 50,000 dead jobs, and a day of traffic of a
// hundred queues.
func BenchmarkProblems_ManyQueues(b *testing.B) {
	_, db := testkit.OpenShared(b)
	now := time.Now().Unix()
	for _, fill := range []string{
		`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 209999)
INSERT INTO _honker_live (queue, payload, run_at, created_at) SELECT 'tenant-' || (i % 508), '{"n":1}', ?1 - 1800 + i % 900, ?1 - 1800 FROM n`,
		`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999)
INSERT INTO _honker_live (queue, payload, run_at, created_at, attempts) SELECT 'emails', '{"n":1}', ?1 - 600 + i, ?1 - 1800, 3 FROM n`,
		`INSERT INTO _honkerx_job (job_id, last_error) SELECT id, 'dial tcp 10.0.3.' || id || ':587: connection refused' FROM _honker_live WHERE queue = 'emails' AND ?1 > 0`,
		`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49999)
INSERT INTO _honker_dead (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at)
  SELECT 1000000 + i, iif(i % 2, 'emails', 'tenant-' || (i % 40)), '{"n":1}', 0, ?1, 25, 25, 'mailbox ' || i || ' is full', ?1, ?1 - i FROM n`,
		`WITH RECURSIVE m(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM m WHERE i < 1439), q(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM q WHERE i < 98)
INSERT INTO _honkerx_minutes (minute, queue, claimed, acked, retried)
  SELECT ?1 / 60 - m.i, iif(q.i, 'tenant-' || q.i, 'emails'), 100, iif(q.i, 100, 2), iif(q.i, 0, 98) FROM m, q`,
		`INSERT INTO _honkerx_minutes (minute, queue, claimed, acked, retried)
  SELECT minute, '', sum(claimed), sum(acked), sum(retried) FROM _honkerx_minutes WHERE ?1 > 0 GROUP BY minute`,
	} {
		testkit.Exec(b, db, fill, now)
	}
	var found []admin.Problem
	fastest := time.Hour // of all, as other processes of the machine disturb the mean
	for b.Loop() {
		began := time.Now()
		var err error
		found, err = admin.Problems(b.Context(), db)
		require.NoError(b, err)
		fastest = min(fastest, time.Since(began))
	}
	b.ReportMetric(float64(fastest.Microseconds())/1000, "ms-fastest")
	require.Equal(b, admin.ProblemFailing, found[0].Code)
	require.NotEmpty(b, found[0].Cause)
	require.Less(b, len(admin.GroupProblems(found)), 8)
	b.ReportMetric(float64(len(found)), "problems")
}
