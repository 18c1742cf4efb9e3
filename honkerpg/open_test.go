//go:build unix

package honkerpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// open opens a DB in a schema of its own, unless o names a schema.
func open(t *testing.T, o honkerpg.Options) *honker.DB {
	t.Helper()
	if o.Schema == "" {
		o.Schema = pgtest.Schema(t)
	}
	db, err := honkerpg.Open(t.Context(), pgtest.DSN(t), &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newPool returns a pool of the application.
func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// admin runs a statement as the owner of the database.
func admin(t *testing.T, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), statement)
	require.NoError(t, err)
}

// events returns the payloads of a stream.
func events(t *testing.T, s *honker.Stream[int]) (all []int) {
	t.Helper()
	for e, err := range s.Read(t.Context(), 0) {
		require.NoError(t, err)
		all = append(all, e.Data)
	}
	return all
}

// Verbs become part of a transaction of pgx, of database/sql, and of DB.Tx. They take effect if it commits.
func TestWithTx(t *testing.T) {
	db, pool := open(t, honkerpg.Options{}), newPool(t)
	s := honker.NewStream[int](db, "orders", nil)
	publish := func(n int, tx honker.Tx) {
		offset, err := s.PublishTx(t.Context(), tx, n)
		require.NoError(t, err)
		require.Zero(t, offset, "numbers are drawn after the commit")
	}
	for i, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		publish(i, honkerpg.WithTx(tx))
		require.NoError(t, end(tx))
	}
	tx, err := db.SQL().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	publish(2, tx)
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.PublishTx(ctx, tx, 3)
		return err
	}))
	offset, err := s.Publish(t.Context(), 4)
	require.NoError(t, err)
	require.Positive(t, offset)
	require.Equal(t, []int{0, 2, 3, 4}, events(t, s))
}

// A transaction that is nil, has ended, was aborted, or belongs to another database is refused.
func TestWithTx_Refused(t *testing.T) {
	db, pool := open(t, honkerpg.Options{}), newPool(t)
	s := honker.NewStream[int](db, "orders", nil)
	publish := func(tx honker.Tx) error {
		_, err := s.PublishTx(t.Context(), tx, 1)
		return err
	}
	require.ErrorIs(t, publish(honkerpg.WithTx(nil)), honker.ErrInvalid)

	ended, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, ended.Rollback(t.Context()))
	require.ErrorIs(t, publish(honkerpg.WithTx(ended)), honker.ErrInvalid)

	aborted, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = aborted.Exec(t.Context(), `SELECT nothing`)
	require.Error(t, err)
	require.ErrorIs(t, publish(honkerpg.WithTx(aborted)), honker.ErrInvalid)
	require.NoError(t, aborted.Rollback(t.Context()))

	std, err := db.SQL().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = std.ExecContext(t.Context(), `SELECT nothing`)
	require.Error(t, err)
	require.ErrorIs(t, publish(std), honker.ErrInvalid)
	require.NoError(t, std.Rollback())
	require.ErrorIs(t, publish(std), honker.ErrInvalid)

	name := strings.ToLower(pgtest.Schema(t)[:30])
	admin(t, `CREATE DATABASE `+name)
	defer admin(t, `DROP DATABASE `+name)
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t)+" dbname="+name)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	other, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, publish(honkerpg.WithTx(other)), honker.ErrInvalid)
	require.NoError(t, other.Rollback(t.Context()))
	require.Empty(t, events(t, s))
}

// Attach uses the application's pool and leaves it open.
func TestAttach(t *testing.T) {
	pool := newPool(t)
	db, err := honkerpg.Attach(t.Context(), pool, &honkerpg.Options{Schema: pgtest.Schema(t)})
	require.NoError(t, err)
	s := honker.NewStream[int](db, "orders", nil)
	_, err = s.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []int{1}, events(t, s))
	require.NoError(t, db.Close())
	require.NoError(t, pool.Ping(t.Context()))
	_, err = honkerpg.Attach(t.Context(), nil, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// Two schemas of a database are independent of each other, whatever their names.
func TestOptions_Schema(t *testing.T) {
	odd := pgtest.Schema(t)[:20] + ` "odd".name`
	defer admin(t, `DROP SCHEMA `+pgx.Identifier{odd}.Sanitize()+` CASCADE`)
	a, b := open(t, honkerpg.Options{Schema: odd}), open(t, honkerpg.Options{})
	_, err := honker.NewStream[int](a, "orders", nil).Publish(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []int{1}, events(t, honker.NewStream[int](a, "orders", nil)))
	require.Empty(t, events(t, honker.NewStream[int](b, "orders", nil)))
}

// Options that make no sense are refused before anything is created.
func TestOpen_Refuses(t *testing.T) {
	dsn := pgtest.DSN(t)
	refused := func(want error, dsn string, o honkerpg.Options) {
		t.Helper()
		db, err := honkerpg.Open(t.Context(), dsn, &o)
		require.ErrorIs(t, err, want)
		require.Nil(t, db)
	}
	refused(honker.ErrInvalid, "this is no DSN", honkerpg.Options{})
	refused(honker.ErrInvalid, dsn, honkerpg.Options{Schema: "pg_mine"})
	refused(honker.ErrInvalid, dsn, honkerpg.Options{Schema: strings.Repeat("x", 64)})
	refused(honker.ErrInvalid, dsn, honkerpg.Options{ListenDSN: "this is no DSN"})
	refused(honker.ErrInvalid, dsn, honkerpg.Options{ListenDSN: dsn, NoListen: true})
	refused(honker.ErrInvalid, dsn, honkerpg.Options{Options: honker.Options{MaxPayload: -1}})
	refused(honker.ErrUnsupported, dsn, honkerpg.Options{Options: honker.Options{LegacyMessages: true}})
	refused(honker.ErrUnsupported, dsn, honkerpg.Options{Schema: pgtest.Schema(t), NoMigrate: true})
	refused(honker.ErrUnsupported, dsn, honkerpg.Options{Schema: pgtest.Schema(t), Options: honker.Options{ReadOnly: true}})
	synctest.Test(t, func(t *testing.T) { refused(honker.ErrUnsupported, dsn, honkerpg.Options{}) })
}

// A connection string that cannot be parsed is not part of the error, as passwords in it are not always recognizable.
func TestOpen_NoPasswordInError(t *testing.T) {
	for _, bad := range []string{
		"password = s3cret x", "PASSWORD=s3cret x", "passwd=s3cret x", `password=a\ s3cret x`, "password='s3cret", "ann:s3cret@db/app", "postgres://ann:s3cret@db:port/app",
	} {
		for _, c := range []struct {
			dsn string
			o   honkerpg.Options
		}{{dsn: bad}, {pgtest.DSN(t), honkerpg.Options{ListenDSN: bad}}} {
			db, err := honkerpg.Open(t.Context(), c.dsn, &c.o)
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.Nil(t, db)
			require.NotContains(t, err.Error(), "s3cret")
			require.Contains(t, err.Error(), "DSN: ")
		}
	}
}

// An administrator creates the schema with the statements of Schema, and a role that may not create anything uses it.
func TestSchema_ByAdministrator(t *testing.T) {
	schema, role := pgtest.Schema(t), strings.ToLower(pgtest.Schema(t)[:30])
	quoted := pgx.Identifier{schema}.Sanitize()
	text, err := honkerpg.Schema(schema)
	require.NoError(t, err)
	admin(t, text)
	admin(t, fmt.Sprintf(`CREATE ROLE %s LOGIN; GRANT USAGE ON SCHEMA %s TO %[1]s`, role, quoted))
	defer admin(t, `DROP OWNED BY `+role+`; DROP ROLE `+role)
	dsn := strings.Replace(pgtest.DSN(t), "user=honker", "user="+role, 1)
	o := &honkerpg.Options{Schema: schema, NoMigrate: true}
	_, err = honkerpg.Open(t.Context(), dsn, o)
	require.ErrorContains(t, err, "permission denied")
	admin(t, fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s`, quoted, role))
	db, err := honkerpg.Open(t.Context(), dsn, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s := honker.NewStream[int](db, "orders", nil)
	_, err = s.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []int{1}, events(t, s))
	_, err = honkerpg.Schema("pg_mine")
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A DB that is read-only reads, and refuses every verb that may write.
func TestOptions_ReadOnly(t *testing.T) {
	schema := pgtest.Schema(t)
	_, err := honker.NewStream[int](open(t, honkerpg.Options{Schema: schema}), "orders", nil).Publish(t.Context(), 1)
	require.NoError(t, err)
	db := open(t, honkerpg.Options{Schema: schema, Options: honker.Options{ReadOnly: true}})
	s := honker.NewStream[int](db, "orders", nil)
	require.Equal(t, []int{1}, events(t, s))
	_, err = s.Publish(t.Context(), 2)
	require.ErrorIs(t, err, honker.ErrReadOnly)
}

// The example of shards uses both databases.
func TestExamples_Shards(t *testing.T) {
	one, two := newDatabase(t), newDatabase(t)
	t.Setenv("DATABASE_URLS", one+","+two)
	Example_shards()
	for _, dsn := range []string{one, two} {
		require.Less(t, 1, scalar[int](t, dsn, `SELECT last_value FROM honker.job_id_seq`)+scalar[int](t, dsn, `SELECT is_called::int FROM honker.job_id_seq`))
	}
}

// The examples of the documentation work on an empty database.
func TestExamples(t *testing.T) {
	name := strings.ToLower(pgtest.Schema(t)[:30])
	admin(t, `CREATE DATABASE `+name)
	defer admin(t, `DROP DATABASE `+name+` WITH (FORCE)`)
	t.Setenv("DATABASE_URL", pgtest.DSN(t)+" dbname="+name)
	t.Chdir(t.TempDir())
	conn, err := pgx.Connect(t.Context(), os.Getenv("DATABASE_URL"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `CREATE TABLE orders (item text, customer text)`)
	require.NoError(t, err)
	for _, example := range []func(){ExampleOpen, ExampleWithTx, ExampleAttach, ExampleSchema} {
		example()
	}
	count := func(query string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	require.Equal(t, 1, count(`SELECT count(*) FROM orders`))
	require.Equal(t, 1, count(`SELECT count(*) FROM honker.job`), "the job of ExampleOpen has run")
	require.Equal(t, 1, count(`SELECT count(*) FROM jobs.event`))
	text, err := os.ReadFile("honker.sql")
	require.NoError(t, err)
	require.Contains(t, string(text), `CREATE SCHEMA IF NOT EXISTS "jobs"`)
}

// Everything works through a pooler that gives each transaction another connection: with Open and with Attach, in
// transactions of pgx, of database/sql and of DB.Tx, and for jobs, events and locks.
func TestOptions_Pooler(t *testing.T) {
	dsn := pgtest.Bouncer(t)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	for name, connect := range map[string]func(o *honkerpg.Options) (*honker.DB, error){
		"Open":   func(o *honkerpg.Options) (*honker.DB, error) { return honkerpg.Open(t.Context(), dsn, o) },
		"Attach": func(o *honkerpg.Options) (*honker.DB, error) { return honkerpg.Attach(t.Context(), pool, o) },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := connect(&honkerpg.Options{Schema: pgtest.Schema(t), Pooler: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			q, s := honker.NewQueue[int](db, "q", nil), honker.NewStream[int](db, "s", nil)
			both := func(ctx context.Context, tx honker.Tx, n int) error {
				if _, err := s.PublishTx(ctx, tx, n); err != nil {
					return err
				}
				_, err := q.EnqueueTx(ctx, tx, n, honker.Unique(fmt.Sprint(n), nil), honker.Headers(map[string]string{"a": "b"}))
				return err
			}
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return both(t.Context(), honkerpg.WithTx(tx), 1) }))
			require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return both(ctx, tx, 2) }))
			tx, err := db.SQL().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, both(t.Context(), tx, 3))
			require.NoError(t, tx.Commit())
			_, _, err = s.PublishMany(t.Context(), []int{4, 5})
			require.NoError(t, err)
			require.Equal(t, []int{1, 2, 3, 4, 5}, events(t, s))
			var done []int
			n, err := q.WorkDueTx(t.Context(), func(_ context.Context, _ *sql.Tx, j *honker.Job[int]) error {
				done = append(done, j.Args)
				return nil
			}, nil)
			require.NoError(t, err)
			require.Equal(t, 3, n)
			require.ElementsMatch(t, []int{1, 2, 3}, done)

			l, err := db.TryLock(t.Context(), "l", nil)
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
			require.NoError(t, db.Check(t.Context()))
		})
	}
}

// A handler of WorkTx that ends its transaction by a statement is not acked: its job fails with the reason.
func TestWorkTx_EndedByText(t *testing.T) {
	for _, text := range []string{"ROLLBACK", "COMMIT"} {
		db := open(t, honkerpg.Options{})
		q := honker.NewQueue[int](db, "once", &honker.QueueOptions{MaxAttempts: 1})
		id, err := q.Enqueue(t.Context(), 1)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		worked := make(chan error, 1)
		go func() {
			worked <- q.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, _ *honker.Job[int]) error {
				_, err := tx.ExecContext(ctx, text)
				return err
			}, nil)
		}()
		_, err = honker.WaitResult[int](t.Context(), db, id)
		var failed *honker.JobFailedError
		require.ErrorAs(t, err, &failed)
		stop()
		<-worked
		info, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, honker.StateDead, info.State)
		require.Contains(t, info.LastError, "COMMIT or ROLLBACK as text")
	}
}

// A statement of honker gives up a lock of the server after BusyTimeout.
func TestOpen_BusyTimeout(t *testing.T) {
	schema := pgtest.Schema(t)
	db, err := honkerpg.Open(t.Context(), pgtest.DSN(t), &honkerpg.Options{Schema: schema, Options: honker.Options{BusyTimeout: 50 * time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	tx, err := db.SQL().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec(`LOCK TABLE ` + pgx.Identifier{schema, "job"}.Sanitize() + ` IN EXCLUSIVE MODE`)
	require.NoError(t, err)
	_, err = honker.NewQueue[int](db, "q", nil).Enqueue(t.Context(), 1)
	require.ErrorIs(t, err, honker.ErrBusy)
	require.NoError(t, tx.Rollback())
	_, err = honker.NewQueue[int](db, "q", nil).Enqueue(t.Context(), 1)
	require.NoError(t, err)
}
