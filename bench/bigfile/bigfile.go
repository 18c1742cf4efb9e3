// Package bigfile creates a large database, for benchmarks of the worst case.
package bigfile

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// The database has a million live jobs and a hundred thousand dead jobs in 500 queues. Every tenth
// queue has three priorities. A tenth of the jobs is scheduled for later, and a thousand are
// running.
const (
	live = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO _honker_live (queue, priority, run_at, payload, state, worker_id, claim_expires_at, attempts, max_attempts)
SELECT printf('queue-%03d', i % 500), iif(i % 10 = 0, i / 500 % 3, 0), 1700000000 + i % 1000 + iif(i / 500 % 10 = 0, 2000000000, 0),
  '{"order":' || i || ',"to":"someone@example.org","subject":"Your order has been shipped","body":"it is on its way"}',
  iif(i % 1009 = 1, 'processing', 'pending'), iif(i % 1009 = 1, 'w', NULL), iif(i % 1009 = 1, 4000000000, NULL), i % 2, 25 FROM n`
	dead = `WITH RECURSIVE n(i) AS (SELECT ?1 + 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 + ?1 / 10)
INSERT INTO _honker_dead (id, queue, payload, attempts, max_attempts, last_error, died_at)
SELECT i, printf('queue-%03d', i % 500), '{"order":' || i || ',"to":"someone@example.org"}', 3, 3, 'no route to host ' || i,
  1700000000 + i * 7919 % 100000 FROM n`
)

// Open creates the database and opens it. It is closed at the end of b.
func Open(b *testing.B) (*honker.DB, string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "big.db")
	db, err := honker.Open(b.Context(), path, nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	for _, fill := range []string{live, dead} {
		_, err := db.SQL().Exec(fill, Jobs())
		require.NoError(b, err)
	}
	return db, path
}

// Jobs returns the number of live jobs. Dead jobs have higher ids.
func Jobs() int {
	if testing.Short() {
		return 10_000
	}
	return 1_000_000
}
