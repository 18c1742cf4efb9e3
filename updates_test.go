package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

func TestUpdatesTicksAfterEachCommitUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	other := plain(t, path) // commits of others are commits too
	perform(t, other, `CREATE TABLE n (n INTEGER)`, `INSERT INTO n VALUES (0)`)
	ctx, stop := context.WithCancel(bounded(t, patient))
	seen := make(chan int64, 1000)
	ended := make(chan error, 1)
	go func() {
		for _, err := range db.Updates(ctx) {
			if err != nil {
				ended <- err
				return
			}
			var n int64
			if err := db.SQL().QueryRow(`SELECT n FROM n`).Scan(&n); err != nil {
				ended <- err
				return
			}
			seen <- n
		}
		ended <- nil
	}()
	for i := int64(1); i <= 40; i++ {
		pool := []*sql.DB{other, db.SQL()}[i%2]
		perform(t, pool, fmt.Sprintf(`UPDATE n SET n = %d`, i))
		for n := int64(-1); n < i; {
			select {
			case n = <-seen:
			case <-ctx.Done():
				t.Fatalf("no tick showed commit %d", i)
			}
		}
	}
	stop()
	require.NoError(t, <-ended)
}

func TestUpdatesCoalescesWhatComesWhileItsBodyRuns(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(bounded(t, patient))
	defer stop()
	db := honkertest.Open(t, nil)
	go func() { _, _ = db.Notify(ctx, "news", "begin") }() // whether the first tick needs it or not
	ticks, last := 0, int64(0)
	for _, err := range db.Updates(ctx) {
		require.NoError(t, err)
		if ticks++; ticks == 1 {
			for i := range 200 {
				last = tell(t, db, "news", i)
			}
			time.AfterFunc(100*time.Millisecond, stop)
		}
	}
	require.NotZero(t, last)
	require.GreaterOrEqual(t, ticks, 2, "one must follow the commits")
	require.Less(t, ticks, 50)
}

// However the journal is kept, each commit of another connection is one tick. There may
// be one more at the beginning, when the watcher begins, and for the checkpoint.
func TestEachCommitIsSeenInEveryJournalMode(t *testing.T) {
	t.Parallel()
	const commits = 30
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			open := func() *sql.DB {
				pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode("+mode+")")
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, pool.Close()) })
				return pool
			}
			db, err := honker.Attach(context.Background(), open(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			other := open()
			perform(t, other, `CREATE TABLE n (n INTEGER)`, `INSERT INTO n VALUES (0)`)
			ctx, stop := context.WithCancel(bounded(t, patient))
			shown := make(chan int, 10*commits)
			ended := background(t, func(context.Context) error {
				for _, err := range db.Updates(ctx) {
					if err != nil {
						return err
					}
					n := 0
					if err := db.SQL().QueryRow(`SELECT n FROM n`).Scan(&n); err != nil {
						return err
					}
					shown <- n
				}
				return nil
			})
			require.Zero(t, <-shown)
			ticks := 1
			for i := 1; i <= commits; i++ {
				if i == commits/2 {
					perform(t, other, `PRAGMA wal_checkpoint(TRUNCATE)`)
				}
				perform(t, other, fmt.Sprintf(`UPDATE n SET n = %d`, i))
				for n := -1; n < i; ticks++ {
					select {
					case n = <-shown:
					case <-ctx.Done():
						t.Fatalf("commit %d was not seen", i)
					}
				}
			}
			stop()
			require.NoError(t, ended())
			require.LessOrEqual(t, ticks+len(shown), commits+3)
			kept, err := rowsOf(other, `PRAGMA journal_mode`)
			require.True(t, err == nil && kept[0] == mode, "%v %v", kept, err)
		})
	}
}
