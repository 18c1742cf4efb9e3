//go:build unix

package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/proc"
)

func init() { children["nobody"] = openAsNobody }

func TestFileHasExactlyTheNameAskedForAndIsItsOwnersAlone(t *testing.T) {
	for _, name := range []string{"plain.db", "a?mode=memory#b%41 c.db", "it's\n\"quoted\".db", "ü;--.db", "empty"} {
		dir := t.TempDir()
		if name == "empty" { // a file of no bytes becomes a database
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		db, err := honker.Open(context.Background(), filepath.Join(dir, name), nil)
		require.NoError(t, err)
		_, err = honker.NewQueue[int](db, "jobs", nil).Enqueue(context.Background(), 1)
		require.NoError(t, err)
		require.Equal(t, map[string]fs.FileMode{name: 0o600, name + "-wal": 0o600, name + "-shm": 0o600}, list(t, dir))
		require.NoError(t, db.Close())
		require.Equal(t, map[string]fs.FileMode{name: 0o600}, list(t, dir))
	}
}

func TestOpenRefusesWhatIsNoFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("dir", 0o700))
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	require.NoError(t, os.Symlink("nowhere", "dangling"))
	require.NoError(t, os.WriteFile("text", []byte("this is not a database, but it is longer than a header of one would be, and more than that"), 0o600))
	require.NoError(t, os.WriteFile("header", append([]byte("SQLite format 3\x00"), make([]byte, 5000)...), 0o600))
	before := list(t, ".")
	text, header := sum(t, "text"), sum(t, "header")
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
	require.Equal(t, before, list(t, "."))
	require.Equal(t, text, sum(t, "text"))
	require.Equal(t, header, sum(t, "header"))
}

// openAsNobody gives up root, for whom nothing is read-only, and opens what it is
// told to.
func openAsNobody() {
	if os.Getuid() == 0 {
		proc.Must(errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)))
	}
	for path, ok := proc.Hear(); ok; path, ok = proc.Hear() {
		db, err := honker.Open(context.Background(), path, nil)
		if err == nil {
			_ = db.Close()
		}
		proc.Say(errors.Is(err, honker.ErrUnsupported), err)
	}
}

func TestReadOnlyFileIsRefused(t *testing.T) {
	root, err := os.MkdirTemp("", "honker") // t.TempDir lies in a directory closed to others
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	nobody := proc.Start(t, "nobody", nil)
	for _, dirMode := range []fs.FileMode{0o777, 0o555} {
		for _, make := range []func(testing.TB, string){application, honkers} {
			dir, err := os.MkdirTemp(root, "dir")
			require.NoError(t, err)
			path := filepath.Join(dir, "file.db")
			make(t, path)
			require.NoError(t, os.Chmod(path, 0o444))
			require.NoError(t, os.Chmod(dir, dirMode))
			nobody.Tell(path)
			require.Regexp(t, "^true ", nobody.Line(patient))
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
	nobody.End()
}

func TestFileOfANewerVersionIsRefusedUnchanged(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		path := filepath.Join(t.TempDir(), "newer.db")
		honkers(t, path)
		pool, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		perform(t, pool, `UPDATE _honkerx_meta SET value = '1000' WHERE key = 'schema_version'`, `PRAGMA journal_mode=`+journal)
		require.NoError(t, pool.Close())
		before := sum(t, path)

		_, err = honker.Open(context.Background(), path, nil)
		require.ErrorIs(t, err, honker.ErrSchemaTooNew)
		require.Equal(t, before, sum(t, path), "%s: opened", journal)
		pool, err = sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = honker.Attach(context.Background(), pool, nil)
		require.ErrorIs(t, err, honker.ErrSchemaTooNew)
		require.NoError(t, pool.Close())
		require.Equal(t, before, sum(t, path), "%s: attached", journal)
	}
}

func TestApplicationsDatabaseKeepsWhatIsInIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	application(t, path)
	db := honkertest.OpenFile(t, path, nil)
	_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(context.Background(), 1)
	require.NoError(t, err)
	for query, want := range map[string]int64{
		`PRAGMA page_size`:                               8192,
		`PRAGMA user_version`:                            7,
		`PRAGMA application_id`:                          99,
		`SELECT count(*) FROM orders WHERE item = 'tea'`: 1,
	} {
		require.Equal(t, want, number(t, db.SQL(), query), query)
	}
}

func TestLinkedFileIsOneFileUnderBothNames(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	target, link := filepath.Join(dir, "real", "file.db"), filepath.Join(dir, "link.db")
	honkers(t, target)
	require.NoError(t, os.Symlink(target, link))
	a, b := honkertest.OpenFile(t, target, nil), honkertest.OpenFile(t, link, nil)
	ctx := bounded(t, patient)
	l, err := a.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, b.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.NotifyTx(ctx, tx, "news", 1) // its transaction is a's as well
		return err
	}))
	_, err = l.Next(ctx)
	require.NoError(t, err)
	require.Len(t, list(t, dir), 2, "the -wal lies beside the target")
}

func TestFileThatIsReplacedOrDeletedIsNoticedByAll(t *testing.T) {
	open := map[string]func(testing.TB, string) *honker.DB{
		"opened": func(t testing.TB, path string) *honker.DB {
			db, err := honker.Open(context.Background(), path, nil)
			require.NoError(t, err)
			return db
		},
		"attached": func(t testing.TB, path string) *honker.DB {
			honkers(t, path)
			return attach(t, path)
		},
	}
	strike := map[string]func(testing.TB, string){
		"replaced": func(t testing.TB, path string) {
			honkers(t, path+".new")
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
					require.Less(t, time.Since(struck), 2*time.Second, name)
				}
				_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(context.Background(), 1)
				assert.ErrorIs(t, err, honker.ErrDatabaseReplaced, "a later Enqueue")
				err = db.Tx(context.Background(), func(context.Context, *sql.Tx) error { return nil })
				assert.ErrorIs(t, err, honker.ErrDatabaseReplaced, "a later Tx")
				if how == "opened" { // an attached pool's driver may have made an empty one
					_, err = os.Stat(path)
					assert.Equal(t, what == "deleted", errors.Is(err, fs.ErrNotExist), "a file that was deleted stays so")
				}
				_, err = honker.WaitResult[int](bounded(t, 5*time.Second), db, 1)
				assert.ErrorIs(t, err, honker.ErrDatabaseReplaced, "a later wait")
			})
		}
	}
}

func TestAttachedPoolDoesAllThatAnOpenedFileDoes(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		for _, conns := range []int{1, 2, 0} {
			t.Run(fmt.Sprint(journal, conns), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "app.db")
				application(t, path)
				pool := plain(t, path)
				pool.SetMaxOpenConns(conns)
				perform(t, pool, `PRAGMA journal_mode=`+journal)
				db, err := honker.Attach(context.Background(), pool, nil)
				require.NoError(t, err)
				useAll(t, db, plain(t, path))
				require.NoError(t, db.Check(context.Background()))
				require.NoError(t, db.Close())
				require.EqualValues(t, 1, number(t, pool, `SELECT count(*) FROM orders`), "the pool is still open")
			})
		}
	}
}

// useAll takes jobs and messages through db, from other as well, which is a pool on
// the same file that db knows nothing of.
func useAll(t *testing.T, db *honker.DB, other *sql.DB) {
	ctx := bounded(t, patient)
	q := honker.NewQueue[int](db, "jobs", nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2})
	require.NoError(t, err)
	require.NoError(t, claimOne(t, q, "w").Ack(ctx))
	require.NoError(t, claimOne(t, q, "w").Retry(ctx, 0, errors.New("again")))
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()

	work, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(work, func(_ context.Context, j *honker.Job[int]) error { return j.SetResult(-j.Args) }, nil)
	}()
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	id, err := q.EnqueueTx(ctx, tx, 3)
	require.NoError(t, err)
	_, err = db.NotifyTx(ctx, tx, "news", "from a transaction")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	perform(t, other, `INSERT INTO _honker_live (queue, payload) VALUES ('jobs', '4')`,
		`INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '"from elsewhere"')`)
	for n := range int64(2) {
		got, err := honker.WaitResult[int](ctx, db, id+n)
		require.NoError(t, err)
		require.EqualValues(t, -3-n, got)
	}
	for _, want := range []string{"from a transaction", "from elsewhere"} {
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.JSONEq(t, `"`+want+`"`, string(n.Payload))
	}
	eventually(t, patient, "all jobs handled", func() bool { return number(t, other, liveAndDead) == 0 })
	stop()
	require.NoError(t, <-worked)
}

func TestTransactionsOnAnAttachedPoolWaitForEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	honkers(t, path)                      // in WAL mode
	pool, err := sql.Open("sqlite", path) // with the driver's defaults: nobody waits
	require.NoError(t, err)
	defer pool.Close()
	db, err := honker.Attach(context.Background(), pool, nil)
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[int](db, "jobs", nil)
	ended := make(chan error, 20)
	for range cap(ended) {
		go func() {
			ended <- db.Tx(bounded(t, patient), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, 1)
				return err
			})
		}()
	}
	for range cap(ended) {
		assert.NoError(t, <-ended)
	}
}

func TestReadersDoNotWaitForAWriterOfTheirProcess(t *testing.T) {
	_, db := shared(t)
	ctx := bounded(t, time.Second)
	require.NoError(t, db.Tx(context.Background(), func(context.Context, *sql.Tx) error {
		for range 4 { // more than there are idle ones, so some are opened now
			conn, err := db.SQL().Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
		}
		return nil
	}))
}

func TestTransactionOfAnotherFileIsRefusedAndNothingWritten(t *testing.T) {
	ctx := context.Background()
	path1, db1 := shared(t)
	path2, db2 := shared(t)
	attached := attach(t, path1)
	for _, db := range []*honker.DB{db1, attached} {
		q := honker.NewQueue[int](db, "jobs", nil)
		begin := func(pool *sql.DB) *sql.Tx {
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			return tx
		}
		for _, foreign := range []*sql.DB{db2.SQL(), plain(t, path2)} {
			tx := begin(foreign)
			_, err := q.EnqueueTx(ctx, tx, 1)
			require.ErrorIs(t, err, honker.ErrInvalid)
			_, err = q.EnqueueManyTx(ctx, tx, []int{1, 2})
			require.ErrorIs(t, err, honker.ErrInvalid)
			_, err = db.NotifyTx(ctx, tx, "news", 1)
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.NoError(t, tx.Commit())
		}
		for _, own := range []*sql.DB{db1.SQL(), plain(t, path1)} {
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
		require.Zero(t, number(t, db.SQL(), liveAndDead))
		require.Zero(t, number(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
	}
}

func TestClosedDBAnswersEveryVerbWithErrClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	opened, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	attached := attach(t, path)
	for name, db := range map[string]*honker.DB{"opened": opened, "attached": attached} {
		tx, err := plain(t, path).BeginTx(context.Background(), nil)
		require.NoError(t, err)
		verbs := everyVerb(t, db, tx)
		require.NoError(t, db.Close())
		for verb, call := range verbs {
			t.Run(name+" "+verb, func(t *testing.T) {
				require.ErrorIs(t, call(bounded(t, patient)), honker.ErrClosed)
			})
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, db.Close(), "again")
	}
}

func TestVerbWhoseContextHasEndedDoesNothing(t *testing.T) {
	_, db := shared(t)
	tx, err := db.SQL().BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	verbs := everyVerb(t, db, tx)
	ended, end := context.WithCancel(context.Background())
	end()
	for _, loop := range []string{"Jobs", "Work", "WorkTx", "Run", "Updates"} {
		require.NoError(t, verbs[loop](ended), "%s ends with its ctx", loop)
		delete(verbs, loop)
	}
	require.NoError(t, verbs["Unlock"](ended), "what ends is not left half done")
	delete(verbs, "Unlock")
	for verb, call := range verbs {
		require.ErrorIs(t, call(ended), context.Canceled, verb)
	}
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 1, number(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'processing'`))
	require.EqualValues(t, 1, number(t, db.SQL(), liveAndDead))
}
