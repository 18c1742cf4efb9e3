package honker_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// Verbs that wait for the same writer share a commit. The one that comes first fails when
// half of it is written; those behind it know nothing of that.
func TestFirstOfABatchThatFailsHalfwayLeavesNothingAndTakesNobodyAlong(t *testing.T) {
	const behind = 4
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	path := filepath.Join(t.TempDir(), "file.db")
	for name, db := range map[string]*honker.DB{"opened": honkertest.OpenFile(t, path, nil), "attached": attach(t, path)} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t, patient)
			perform(t, db.SQL(), `DELETE FROM _honker_stream`, `DELETE FROM _honker_live`, `CREATE TRIGGER IF NOT EXISTS refuse
BEFORE INSERT ON _honker_stream WHEN NEW.payload = '13' BEGIN SELECT raise(ABORT, 'no 13'); END`)
			q := honker.NewQueue[int](db, "jobs", nil)
			s := honker.NewStream[int](db, "events", nil)
			data := make([]int, 300) // of several statements
			data[299] = 13
			for range rounds {
				first, others := make(chan error, 1), make(chan error, behind)
				require.NoError(t, db.Tx(ctx, func(context.Context, *sql.Tx) error {
					go func() { _, _, err := s.PublishMany(ctx, data); first <- err }()
					for range 50 {
						runtime.Gosched() // so it leads, most of the time
					}
					for range behind {
						go func() { _, err := q.EnqueueMany(ctx, []int{1, 2}); others <- err }()
					}
					for range 50 {
						runtime.Gosched()
					}
					return nil
				}))
				require.ErrorContains(t, within(ctx, first, patient), "no 13")
				for range behind {
					require.NoError(t, within(ctx, others, patient))
				}
			}
			require.Zero(t, number(t, db.SQL(), `SELECT count(*) FROM _honker_stream`))
			require.EqualValues(t, rounds*behind*2, number(t, db.SQL(), liveAndDead))
		})
	}
}
