package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// The usual wait is cached for a given oldest job. If the oldest job changes, it's looked up again
// for a different day.
func TestProblems_Late_UsualOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		const minute = `INSERT INTO _honkerx_minutes (minute, queue, claimed, wait_ms) VALUES `
		since := time.Now().Unix()/60 - 10
		for _, queue := range []string{"jobs", ""} {
			testkit.Exec(t, db, minute+`(?, ?, 2, 120000)`, since, queue)
		}
		id := testkit.Enqueue(t, q, 1)
		testkit.Exec(t, db, `UPDATE _honker_live SET run_at = ? WHERE id = ?`, since*60+300, id)
		require.Empty(t, problems(t, db), "a minute was usual, and this one waits for five")
		testkit.Exec(t, db, `UPDATE _honkerx_minutes SET wait_ms = 2`)
		require.Empty(t, problems(t, db))
		testkit.Exec(t, db, `UPDATE _honker_live SET run_at = run_at + 60`)
		p := only(t, db)
		require.Equal(t, admin.ProblemNoWorker, p.Code)
		require.Equal(t, honker.Count{N: 1}, p.N)
	})
}
