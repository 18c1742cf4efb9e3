//go:build unix

package honker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["nobody"] = openAsNobody }

// Open creates the file under exactly the given name, readable only by its owner.
func TestDB_Open_NameAndMode(t *testing.T) {
	testkit.FileOnly(t)
	for _, name := range []string{"plain.db", "a?mode=memory#b%41 c.db", "it's\n\"quoted\".db", "ü;--.db", "empty"} {
		dir := t.TempDir()
		if name == "empty" { // an empty file becomes a database
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		db, err := honker.Open(context.Background(), filepath.Join(dir, name), nil)
		require.NoError(t, err)
		_, err = honker.NewQueue[int](db, "jobs", nil).Enqueue(context.Background(), 1)
		require.NoError(t, err)
		require.Equal(t, map[string]fs.FileMode{name: 0o600, name + "-wal": 0o600, name + "-shm": 0o600}, testkit.ListDir(t, dir))
		require.NoError(t, db.Close())
		require.Equal(t, map[string]fs.FileMode{name: 0o600}, testkit.ListDir(t, dir))
	}
}

// Open rejects paths that do not name an SQLite database file.
func TestDB_Open_RefusesOtherFiles(t *testing.T) {
	testkit.FileOnly(t)
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("dir", 0o700))
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	require.NoError(t, os.Symlink("nowhere", "dangling"))
	require.NoError(t, os.WriteFile("text", []byte("this is not a database, but it is longer than a header of one would be, and more than that"), 0o600))
	require.NoError(t, os.WriteFile("header", append([]byte("SQLite format 3\x00"), make([]byte, 5000)...), 0o600))
	before := testkit.ListDir(t, ".")
	text, header := testkit.FileSum(t, "text"), testkit.FileSum(t, "header")
	for path, want := range map[string]error{
		"":                            honker.ErrInvalid,
		"a\x00b":                      honker.ErrInvalid,
		"file:a.db":                   honker.ErrInvalid,
		":memory:":                    honker.ErrUnsupported,
		"file::memory:":               honker.ErrUnsupported,
		"file:a.db?mode=memory":       honker.ErrUnsupported,
		"dir":                         honker.ErrUnsupported,
		"pipe":                        honker.ErrUnsupported,
		"text":                        honker.ErrUnsupported,
		"header":                      honker.ErrUnsupported,
		"dangling":                    fs.ErrNotExist,
		filepath.Join("no", "parent"): fs.ErrNotExist,
	} {
		_, err := honker.Open(context.Background(), path, nil)
		require.ErrorIs(t, err, want, "%q", path)
		require.ErrorContains(t, err, "honker: open")
	}
	require.Equal(t, before, testkit.ListDir(t, "."))
	require.Equal(t, text, testkit.FileSum(t, "text"))
	require.Equal(t, header, testkit.FileSum(t, "header"))
}

// openAsNobody drops root privileges, because nothing is read-only to root, and opens the given file.
func openAsNobody() {
	if os.Getuid() == 0 {
		testkit.Must(errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)))
	}
	for path, ok := testkit.ReadLine(); ok; path, ok = testkit.ReadLine() {
		db, err := honker.Open(context.Background(), path, nil)
		if err == nil {
			_ = db.Close()
		}
		testkit.Say(errors.Is(err, honker.ErrUnsupported), err)
	}
}

// A read-only file is rejected.
func TestDB_Open_ReadOnly(t *testing.T) {
	testkit.FileOnly(t)
	root, err := os.MkdirTemp("", "honker") // t.TempDir is in a directory closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	nobody := testkit.StartChild(t, "nobody", nil)
	for _, dirMode := range []fs.FileMode{0o777, 0o555} {
		for _, make := range []func(testing.TB, string){testkit.MakeApplication, testkit.MakeFile} {
			dir, err := os.MkdirTemp(root, "dir")
			require.NoError(t, err)
			path := filepath.Join(dir, "file.db")
			make(t, path)
			require.NoError(t, os.Chmod(path, 0o444))
			require.NoError(t, os.Chmod(dir, dirMode))
			nobody.Tell(path)
			require.Regexp(t, "^true ", nobody.Line(testkit.Timeout))
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
	nobody.End()
}

// Open names the file or directory that SQLite needs to write to but can't.
func TestDB_Open_NoAccess(t *testing.T) {
	testkit.FileOnly(t)
	root, err := os.MkdirTemp("", "honker") // t.TempDir is in a directory closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	nobody := testkit.StartChild(t, "nobody", nil)
	place := func(name string, mode fs.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path+name, nil, 0o600), os.Chmod(path+name, mode))
		}
	}
	for what, c := range map[string]struct {
		prepare func(path string) error
		want    string
	}{
		"mode 000":     {func(path string) error { return os.Chmod(path, 0) }, `^false .*file\.db: permission denied`},
		"log":          {place("-wal", 0o444), `^true .*file\.db-wal is read-only to this process`},
		"index":        {place("-shm", 0o444), `^true .*file\.db-shm is read-only to this process`},
		"a folder":     {func(path string) error { return os.Mkdir(path+"-shm", 0o777) }, `^true .*file\.db-shm is a directory, not a file`},
		"no place":     {func(path string) error { return os.Chmod(filepath.Dir(path), 0o555) }, `^true .*no place is read-only to this process`},
		"closed place": {func(path string) error { return os.Chmod(filepath.Dir(path), 0) }, `^false .*permission denied`},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(root, what, "file.db")
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o777))
			testkit.MakeFile(t, path)
			require.NoError(t, errors.Join(os.Chmod(filepath.Dir(path), 0o777), os.Chmod(path, 0o666), c.prepare(path)))
			nobody.Tell(path)
			require.Regexp(t, c.want, nobody.Line(testkit.Timeout))
			require.NoError(t, os.Chmod(filepath.Dir(path), 0o755))
		})
	}
	nobody.End()
}

// A newer version's file is rejected and left unchanged.
func TestDB_Open_NewerVersion(t *testing.T) {
	testkit.FileOnly(t)
	for _, journal := range []string{"WAL", "DELETE"} {
		path := filepath.Join(t.TempDir(), "newer.db")
		testkit.MakeFile(t, path)
		pool, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		testkit.ExecAll(t, pool, `UPDATE _honkerx_meta SET value = '1000' WHERE key = 'schema_version'`, `PRAGMA journal_mode=`+journal)
		require.NoError(t, pool.Close())
		before := testkit.FileSum(t, path)

		_, err = honker.Open(context.Background(), path, nil)
		require.ErrorIs(t, err, honker.ErrSchemaTooNew)
		require.Equal(t, before, testkit.FileSum(t, path), "%s: opened", journal)
		pool, err = sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = honker.Attach(context.Background(), pool, nil)
		require.ErrorIs(t, err, honker.ErrSchemaTooNew)
		require.NoError(t, pool.Close())
		require.Equal(t, before, testkit.FileSum(t, path), "%s: attached", journal)
	}
}

// Opening an application's database keeps its contents.
func TestDB_Open_ApplicationFile(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeApplication(t, path)
	db := honkertest.OpenFile(t, path, nil)
	_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(context.Background(), 1)
	require.NoError(t, err)
	for query, want := range map[string]int64{
		`PRAGMA page_size`:                               8192,
		`PRAGMA user_version`:                            7,
		`PRAGMA application_id`:                          99,
		`SELECT count(*) FROM orders WHERE item = 'tea'`: 1,
	} {
		require.Equal(t, want, testkit.QueryInt(t, db.SQL(), query), query)
	}
}

// A symlinked file is the same file under both names.
func TestDB_Open_Symlink(t *testing.T) {
	testkit.FileOnly(t)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	target, link := filepath.Join(dir, "real", "file.db"), filepath.Join(dir, "link.db")
	testkit.MakeFile(t, target)
	require.NoError(t, os.Symlink(target, link))
	a, b := honkertest.OpenFile(t, target, nil), honkertest.OpenFile(t, link, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	l, err := a.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, b.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.NotifyTx(ctx, tx, "news", 1) // b's transaction is also a's
		return err
	}))
	_, err = l.Next(ctx)
	require.NoError(t, err)
	require.Len(t, testkit.ListDir(t, dir), 2, "the -wal lies beside the target")
}

// Every verb notices that the file was replaced or deleted.
func TestDB_FileReplaced(t *testing.T) {
	testkit.FileOnly(t)
	open := map[string]func(testing.TB, string) *honker.DB{
		"opened": func(t testing.TB, path string) *honker.DB {
			db, err := honker.Open(context.Background(), path, nil)
			require.NoError(t, err)
			return db
		},
		"attached": func(t testing.TB, path string) *honker.DB {
			testkit.MakeFile(t, path)
			return testkit.Attach(t, path, nil)
		},
	}
	strike := map[string]func(testing.TB, string){
		"replaced": func(t testing.TB, path string) {
			testkit.MakeFile(t, path+".new")
			require.NoError(t, os.Rename(path+".new", path))
		},
		"deleted": func(t testing.TB, path string) { require.NoError(t, os.Remove(path)) },
	}
	for how, open := range open {
		for what, strike := range strike {
			t.Run(how+" "+what, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "file.db")
				db := open(t, path)
				defer db.Close()
				waits := everyWait(t, db)
				strike(t, path)
				struck := time.Now()
				for name, wait := range waits {
					assert.ErrorIs(t, <-wait, honker.ErrDatabaseReplaced, name)
					require.Less(t, time.Since(struck), testkit.Timeout, name)
				}
				_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(context.Background(), 1)
				assert.ErrorIs(t, err, honker.ErrDatabaseReplaced, "a later Enqueue")
				err = db.Tx(context.Background(), func(context.Context, *sql.Tx) error { return nil })
				assert.ErrorIs(t, err, honker.ErrDatabaseReplaced, "a later Tx")
				if how == "opened" { // an attached pool's driver may have created an empty file
					_, err = os.Stat(path)
					assert.Equal(t, what == "deleted", errors.Is(err, fs.ErrNotExist), "a file that was deleted stays so")
				}
				_, err = honker.WaitResult[int](testkit.Context(t, testkit.Timeout), db, 1)
				assert.ErrorIs(t, err, honker.ErrDatabaseReplaced, "a later wait")
			})
		}
	}
}

// Readers don't wait for a writer in the same process.
func TestDB_ReadersDoNotWait(t *testing.T) {
	_, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	require.NoError(t, db.Tx(context.Background(), func(context.Context, *sql.Tx) error {
		for range 4 { // more readers than idle connections, so new connections are opened
			conn, err := db.SQL().Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
		}
		return nil
	}))
}

// A transaction on a different file is rejected, and nothing is written.
func TestTx_OtherFile(t *testing.T) {
	testkit.FileOnly(t)
	ctx := context.Background()
	path1, db1 := testkit.OpenShared(t)
	path2, db2 := testkit.OpenShared(t)
	attached := testkit.Attach(t, path1, nil)
	for _, db := range []*honker.DB{db1, attached} {
		q := honker.NewQueue[int](db, "jobs", nil)
		begin := func(pool *sql.DB) *sql.Tx {
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			return tx
		}
		for _, foreign := range []*sql.DB{db2.SQL(), testkit.OpenPool(t, path2)} {
			tx := begin(foreign)
			_, err := q.EnqueueTx(ctx, tx, 1)
			require.ErrorIs(t, err, honker.ErrInvalid)
			_, err = q.EnqueueManyTx(ctx, tx, []int{1, 2})
			require.ErrorIs(t, err, honker.ErrInvalid)
			_, err = db.NotifyTx(ctx, tx, "news", 1)
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.NoError(t, tx.Commit())
		}
		for _, own := range []*sql.DB{db1.SQL(), testkit.OpenPool(t, path1)} {
			tx := begin(own)
			_, err := q.EnqueueTx(ctx, tx, 1)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			_, err = q.EnqueueTx(ctx, tx, 1)
			require.ErrorIs(t, err, sql.ErrTxDone)
		}
		_, err := q.EnqueueTx(ctx, nil, 1)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	for _, db := range []*honker.DB{db1, db2} {
		require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
	}
}

// OnConnect sets up each connection of the application's pools and of honker's own pools. This test sets
// a pragma, a temporary table and a driver hook.
func TestOptions_OnConnect(t *testing.T) {
	testkit.FileOnly(t)
	var commits atomic.Int64
	opts := &honker.Options{OnConnect: func(ctx context.Context, conn driver.Conn) error {
		conn.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 { commits.Add(1); return 0 })
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, `PRAGMA recursive_triggers = ON; CREATE TEMP TABLE mine (a)`, nil)
		return err
	}}
	path := filepath.Join(t.TempDir(), "a.db")
	db := honkertest.OpenFile(t, path, opts)
	connector, err := honker.Connector(path, opts)
	require.NoError(t, err)
	fed := sql.OpenDB(connector)
	defer fed.Close()
	ctx := testkit.Context(t, testkit.Timeout)
	for name, pool := range map[string]*sql.DB{"SQL": db.SQL(), "Connector": fed} {
		for range 2 { // two connections at the same time
			conn, err := pool.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
			var on int
			require.NoError(t, conn.QueryRowContext(ctx, `PRAGMA recursive_triggers`).Scan(&on), name)
			require.Equal(t, 1, on, name)
			_, err = conn.ExecContext(ctx, `INSERT INTO mine VALUES (1)`)
			require.NoError(t, err, name)
		}
	}
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT a FROM mine`)
		return err
	}))
	before := commits.Load()
	_, err = honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, 1)
	require.NoError(t, err)
	require.Greater(t, commits.Load(), before)
}

func TestOptions_OnConnect_Error(t *testing.T) {
	testkit.FileOnly(t)
	refused := errors.New("refused")
	opts := &honker.Options{OnConnect: func(context.Context, driver.Conn) error { return refused }}
	path := filepath.Join(t.TempDir(), "a.db")
	_, err := honker.Open(testkit.Context(t, testkit.Timeout), path, opts)
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "OnConnect")
	connector, err := honker.Connector(path, opts)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	defer pool.Close()
	require.ErrorIs(t, pool.Ping(), refused)
}

// Goroutines that run a query for each row of another query don't wait for each other's connections.
func TestDB_SQL_NestedQueries(t *testing.T) {
	testkit.Differs(t, "db.SQL() opens")
	_, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	var outer, done sync.WaitGroup
	failed := make(chan error, 40)
	outer.Add(cap(failed))
	for range cap(failed) {
		done.Go(func() {
			rows, err := db.SQL().QueryContext(ctx, `VALUES (1), (2)`)
			outer.Done()
			if err != nil {
				failed <- err
				return
			}
			defer rows.Close()
			outer.Wait() // all goroutines have an open query
			for rows.Next() {
				failed <- db.SQL().QueryRowContext(ctx, `SELECT 1`).Scan(new(int))
				return
			}
			failed <- rows.Err()
		})
	}
	done.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
}

// A transaction that has held the writer for more than a second is logged once, with the source line
// responsible. A quick transaction, or a transaction that waited for its turn, is not logged.
func TestDB_LateTransaction(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *honker.Options) *honker.DB{
		"opened": func(t *testing.T, o *honker.Options) *honker.DB { return honkertest.Open(t, o) },
		"attached": func(t *testing.T, o *honker.Options) *honker.DB {
			path := filepath.Join(t.TempDir(), "app.db")
			testkit.MakeFile(t, path)
			db, err := honker.Attach(t.Context(), testkit.OpenPool(t, path), o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return db
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(testkit.Log)
				db := open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
				hold := func(d time.Duration) error {
					return db.Tx(t.Context(), func(context.Context, *sql.Tx) error { time.Sleep(d); return nil })
				}
				require.NoError(t, hold(time.Second))
				require.Zero(t, log.Times("WARN"))
				_, _, line, _ := runtime.Caller(0)
				require.NoError(t, db.Tx(t.Context(), func(context.Context, *sql.Tx) error { time.Sleep(2500 * time.Millisecond); return nil }))
				require.Equal(t, 1, log.Times("WARN"))
				require.Equal(t, 1, log.Times(fmt.Sprintf("held=2.5s where=%s:%d", thisFile(), line+1)))
				if name == "attached" {
					return // the application's own transactions cannot be attributed
				}
				for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
					tx, err := db.SQL().BeginTx(t.Context(), nil)
					require.NoError(t, err)
					time.Sleep(time.Minute)
					require.NoError(t, end(tx))
				}
				require.Equal(t, 2, log.Times("held=1m0s where="+thisFile()))
				tx, err := db.SQL().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				require.NoError(t, tx.Commit())
				require.Equal(t, 3, log.Times("WARN"), "it held up no other")
				require.NoError(t, db.Tx(t.Context(), func(context.Context, *sql.Tx) error {
					for range 2 {
						stop := testkit.Background(t, func(ctx context.Context) error { _, err := db.Notify(ctx, "news", 1); return err })
						time.Sleep(2 * time.Second)
						require.Error(t, stop())
					}
					require.Equal(t, 1, log.Times("other writers are waiting"), "once, while it runs")
					return nil
				}))
			})
		})
	}
}

func thisFile() string {
	_, file, _, _ := runtime.Caller(0)
	return file
}

func init() { children["looker"] = lookAsNobody }

// lookAsNobody drops root privileges, because nothing is read-only to root, and reads the given files.
func lookAsNobody() {
	if os.Getuid() == 0 {
		testkit.Must(errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)))
	}
	for path, ok := testkit.ReadLine(); ok; path, ok = testkit.ReadLine() {
		testkit.Say(lookAt(path))
	}
}

// A file on read-only media can be read if its log was checkpointed. Otherwise Open explains why it can't.
func TestReadOnly_Medium(t *testing.T) {
	testkit.FileOnly(t)
	root, err := os.MkdirTemp("", "honker") // t.TempDir is in a directory closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	nobody := testkit.StartChild(t, "looker", nil)
	place := func(name string, files map[string]string) string {
		dir := filepath.Join(root, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		for to, from := range files {
			b, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, to), b, 0o444))
		}
		require.NoError(t, os.Chmod(dir, 0o555))
		t.Cleanup(func() { require.NoError(t, os.Chmod(dir, 0o755)) })
		return filepath.Join(dir, "app.db")
	}
	checkpointed := stockedFile(t)
	nobody.Tell(place("whole", map[string]string{"app.db": checkpointed}))
	require.Equal(t, "ready", nobody.Line(testkit.Timeout))

	live, db := testkit.OpenShared(t)
	stockUp(t, db)
	nobody.Tell(place("with a log", map[string]string{"app.db": live, "app.db-wal": live + "-wal"}))
	require.Regexp(t, "^true .*has a write-ahead log with commits", nobody.Line(testkit.Timeout))
	nobody.Tell(place("with an index", map[string]string{"app.db": live, "app.db-wal": live + "-wal", "app.db-shm": live + "-shm"}))
	require.Equal(t, "ready", nobody.Line(testkit.Timeout))
	nobody.End()
}
