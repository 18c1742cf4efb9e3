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
	"github.com/honker-go/honker/internal/testkit"
)

func TestUpdatesTicksAfterEachCommitUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := testkit.OpenPool(t, path) // commits of others are commits too
	testkit.ExecAll(t, other, `CREATE TABLE n (n INTEGER)`, `INSERT INTO n VALUES (0)`)
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
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
		testkit.ExecAll(t, pool, fmt.Sprintf(`UPDATE n SET n = %d`, i))
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
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer stop()
	db := honkertest.Open(t, nil)
	go func() { _, _ = db.Notify(ctx, "news", "begin") }() // whether the first tick needs it or not
	ticks, last := 0, int64(0)
	for _, err := range db.Updates(ctx) {
		require.NoError(t, err)
		if ticks++; ticks == 1 {
			for i := range 200 {
				last = testkit.Notify(t, db, "news", i)
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
			testkit.ExecAll(t, other, `CREATE TABLE n (n INTEGER)`, `INSERT INTO n VALUES (0)`)
			ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
			shown := make(chan int, 10*commits)
			ended := testkit.Background(t, func(context.Context) error {
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
					testkit.ExecAll(t, other, `PRAGMA wal_checkpoint(TRUNCATE)`)
				}
				testkit.ExecAll(t, other, fmt.Sprintf(`UPDATE n SET n = %d`, i))
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
			kept, err := testkit.Rows(other, `PRAGMA journal_mode`)
			require.True(t, err == nil && kept[0] == mode, "%v %v", kept, err)
		})
	}
}

// A caller that begins to wait while the hub asks what is new has looked too early, and must
// not be told too late. Each round two begin, for names that no other call waits for, and one
// commit, without a hint, is for both.
func TestNobodyIsForgottenWhoBeginsToWaitWhileTheHubAsks(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, 30*time.Second)
	for round := range 300 {
		names := [2]string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		heard := make(chan error, 4)
		for _, name := range names {
			go func() { heard <- firstEvent(ctx, db, name) }()
			l, err := db.Listen(ctx, name)
			require.NoError(t, err)
			go func() { _, err := l.Next(ctx); heard <- err }()
		}
		time.Sleep(time.Duration(round%40) * 25 * time.Microsecond) // any moment of the two others
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, name := range names {
				if _, err := honker.NewStream[int](db, name, nil).PublishTx(ctx, tx, 1); err != nil {
					return err
				}
				if _, err := db.NotifyTx(ctx, tx, name, 1); err != nil {
					return err
				}
			}
			return nil
		}))
		for range 4 {
			require.NoError(t, testkit.Within(ctx, heard, 5*time.Second), "round %d", round)
		}
	}
}

func firstEvent(ctx context.Context, db *honker.DB, topic string) error {
	for _, err := range honker.NewStream[int](db, topic, nil).Subscribe(ctx, "c", nil) {
		return err
	}
	return nil
}
