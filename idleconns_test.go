package honker_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/sqlite/backend"
	"github.com/honker-go/honker/internal/testkit"
)

// tenant is an open file on which a worker and a listener wait.
type tenant struct {
	db     *honker.DB
	path   string
	worked chan int
	heard  chan string
}

// openTenants opens n files, and waits until their workers have handled a job.
func openTenants(t *testing.T, n int, opts honker.Options) []*tenant {
	t.Helper()
	dir := t.TempDir()
	tenants := make([]*tenant, n)
	for i := range tenants {
		tenants[i] = openTenant(t, filepath.Join(dir, strconv.Itoa(i)+".db"), opts)
	}
	for i, tn := range tenants {
		_, err := honker.NewQueue[int](tn.db, "jobs", nil).Enqueue(t.Context(), i)
		require.NoError(t, err)
		require.Equal(t, i, <-tn.worked)
	}
	return tenants
}

func openTenant(t *testing.T, path string, opts honker.Options) *tenant {
	t.Helper()
	db, err := honker.Open(t.Context(), path, &opts)
	require.NoError(t, err)
	tn := &tenant{db: db, path: path, worked: make(chan int, 1), heard: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	var loops sync.WaitGroup
	loops.Go(func() {
		_ = honker.NewQueue[int](db, "jobs", nil).Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			tn.worked <- job.Args
			return nil
		}, &honker.WorkOptions{Workers: 1, Lease: time.Second})
	})
	loops.Go(func() {
		for n := range listener.All(ctx) {
			tn.heard <- string(n.Payload)
		}
	})
	t.Cleanup(func() {
		cancel()
		loops.Wait()
		require.NoError(t, db.Close())
	})
	return tn
}

// descriptors counts the open descriptors of files in dir by the end of their names.
func descriptors(t *testing.T, dir string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, path := range listDescriptors(t) {
		if strings.HasPrefix(path, dir) {
			_, kind, _ := strings.Cut(filepath.Base(path), ".db")
			counts[kind]++
		}
	}
	return counts
}

// sweepUntil sweeps until ok.
func sweepUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, what, func() bool { backend.Sweep(); return ok() })
}

// A file at rest has the watcher's connection only, and two goroutines besides those of the callers of Work and Next.
// Commits of another connection wake both, as before. The test is not parallel because it counts goroutines.
func TestOptions_IdleConns_ClosesTheConnectionsOfQuietFiles(t *testing.T) {
	testkit.FileOnly(t)
	const files = 50
	before := runtime.NumGoroutine()
	tenants := openTenants(t, files, honker.Options{IdleConns: 1, NoTraffic: true})
	dir := filepath.Dir(tenants[0].path)
	require.Greater(t, descriptors(t, dir)["-wal"], files+1, "connections are open before the rest")
	sweepUntil(t, "a connection for each file", func() bool { return descriptors(t, dir)["-wal"] <= files+1 })
	at := descriptors(t, dir)
	require.GreaterOrEqual(t, at["-wal"], files)
	require.Equal(t, files, at["-shm"])
	testkit.Eventually(t, testkit.Timeout, "two goroutines for each file, and two callers", func() bool {
		return runtime.NumGoroutine()-before <= files*4+5
	})
	for i, tn := range tenants {
		other, err := honker.Open(t.Context(), tn.path, &honker.Options{NoTraffic: true})
		require.NoError(t, err)
		_, err = honker.NewQueue[int](other, "jobs", nil).Enqueue(t.Context(), i)
		require.NoError(t, err)
		_, err = other.Notify(t.Context(), "news", "late")
		require.NoError(t, err)
		require.Equal(t, i, <-tn.worked)
		require.Equal(t, `"late"`, <-tn.heard)
		require.NoError(t, other.Close())
	}
}

// A process whose files have fewer connections than IdleConns keeps all of them.
func TestOptions_IdleConns_KeepsTheConnectionsOfFewFiles(t *testing.T) {
	testkit.FileOnly(t)
	tenants := openTenants(t, 10, honker.Options{NoTraffic: true})
	dir := filepath.Dir(tenants[0].path)
	var before int
	testkit.Eventually(t, testkit.Timeout, "the loops wait", func() bool {
		last := before
		before = descriptors(t, dir)["-wal"]
		return last == before
	})
	for range 5 {
		backend.Sweep()
	}
	require.GreaterOrEqual(t, descriptors(t, dir)["-wal"], before)
}

// The files that were used last keep their connections.
func TestOptions_IdleConns_BeginsWithTheLongestUnused(t *testing.T) {
	testkit.FileOnly(t)
	const files = 4
	dir := t.TempDir()
	dbs := make([]*honker.DB, files)
	for i := range dbs {
		db, err := honker.Open(t.Context(), filepath.Join(dir, strconv.Itoa(i)+".db"), &honker.Options{IdleConns: 2, NoTraffic: true})
		require.NoError(t, err)
		defer db.Close()
		dbs[i] = db
	}
	use := func(db *honker.DB) { // on two connections
		require.NoError(t, db.Tx(t.Context(), func(context.Context, *sql.Tx) error { return nil }))
		_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(t.Context(), 1)
		require.NoError(t, err)
	}
	open := func(i int) (n int) {
		for _, e := range listDescriptors(t) {
			if e == filepath.Join(dir, strconv.Itoa(i)+".db-wal") {
				n++
			}
		}
		return n
	}
	for _, db := range dbs {
		use(db)
		use(db)
	}
	backend.Sweep() // sees the uses
	use(dbs[1])
	backend.Sweep() // closes the connections of the three others
	require.Equal(t, []int{1, 2, 1, 1}, []int{open(0), open(1), open(2), open(3)})
	backend.Sweep()
	require.Equal(t, 2, open(1), "two connections are within the limit")
}

func listDescriptors(t *testing.T) (paths []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lists a process's descriptors")
	}
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// Transactions, rows and prepared statements of the application survive sweeps. So does its pool, whose unused
// connections close.
func TestOptions_IdleConns_LeavesConnectionsInUse(t *testing.T) {
	testkit.FileOnly(t)
	tn := openTenants(t, 1, honker.Options{IdleConns: 1, NoTraffic: true})[0]
	_, err := tn.db.SQL().ExecContext(t.Context(), "CREATE TABLE kept (n INTEGER)")
	require.NoError(t, err)
	prepared, err := tn.db.SQL().Prepare("SELECT count(*) FROM kept")
	require.NoError(t, err)
	rows, err := tn.db.SQL().Query("SELECT 1 UNION ALL SELECT 2")
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, tn.db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO kept VALUES (1)"); err != nil {
			return err
		}
		for range 3 {
			backend.Sweep()
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO kept VALUES (2)")
		return err
	}))
	require.EqualValues(t, 2, testkit.QueryInt(t, tn.db.SQL(), "SELECT count(*) FROM kept"))
	require.True(t, rows.Next())
	require.NoError(t, rows.Close())
	var n int
	require.NoError(t, prepared.QueryRow().Scan(&n))
	require.Equal(t, 2, n)
	require.NoError(t, prepared.Close())
	dir := filepath.Dir(tn.path)
	require.NoError(t, tn.db.SQL().Ping())
	sweepUntil(t, "the watcher's connection, and one within the limit", func() bool { return descriptors(t, dir)["-wal"] <= 2 })
	require.EqualValues(t, 2, testkit.QueryInt(t, tn.db.SQL(), "SELECT count(*) FROM kept"))
}

// Writers, sweeps and Close can meet in any order. Close leaves no log behind, also after a rest.
func TestOptions_IdleConns_Close(t *testing.T) {
	testkit.FileOnly(t)
	for round := range 10 {
		path := filepath.Join(t.TempDir(), "app.db")
		db, err := honker.Open(t.Context(), path, &honker.Options{IdleConns: 1, NoTraffic: true})
		require.NoError(t, err)
		q := honker.NewQueue[int](db, "jobs", nil)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for n := range 20 + round {
					_, err := q.Enqueue(t.Context(), n)
					require.NoError(t, err)
				}
			})
		}
		written := make(chan struct{})
		all.Go(func() {
			for {
				backend.Sweep()
				select {
				case <-written:
					return
				default:
				}
			}
		})
		for range 20 {
			require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, 1)
				return err
			}))
		}
		testkit.Eventually(t, testkit.Timeout, "all jobs", func() bool {
			return testkit.QueryInt(t, db.SQL(), "SELECT count(*) FROM _honker_live") == int64(2*(20+round)+20)
		})
		closed := make(chan error, 1)
		go func() { closed <- db.Close() }()
		require.NoError(t, <-closed)
		close(written)
		all.Wait()
		require.NoFileExists(t, path+"-wal")
	}
}

// A file on which nothing waits keeps a connection. The log would otherwise be copied and deleted at each rest.
func TestOptions_IdleConns_KeepsTheLog(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(t.Context(), path, &honker.Options{IdleConns: 1, NoTraffic: true})
	require.NoError(t, err)
	_, err = honker.NewQueue[int](db, "jobs", nil).Enqueue(t.Context(), 1)
	require.NoError(t, err)
	for range 3 {
		backend.Sweep()
	}
	require.FileExists(t, path+"-wal")
	require.NoError(t, db.Close())
	require.NoFileExists(t, path+"-wal")
}
