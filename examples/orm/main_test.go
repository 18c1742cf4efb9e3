package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"gorm.io/gorm"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// README.md shows the output of the program.
func TestORM_Run(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(readme), "```\nGORM")
	want, _, _ := strings.Cut("GORM"+block, "```")

	var out bytes.Buffer
	require.NoError(t, run(bounded(t), &out))
	require.Equal(t, want, out.String())
}

// Only a single SQLite library is linked. Two libraries on the same file would drop each other's
// locks.
func TestORM_OneEngine(t *testing.T) {
	require.Equal(t, []string{"sqlite"}, sql.Drivers())
}

// orm is an ORM under test.
type orm struct {
	shop
	inTx func(ctx context.Context, fn func(txn) error) error
}

// txn is a transaction started by the ORM.
type txn struct {
	tx     honker.Tx                                                            // to be passed to honker's Tx methods
	text   func(ctx context.Context, query string, args ...any) (string, error) // raw ORM query for a single value
	nested func(ctx context.Context, fn func() error) error                     // runs fn in a savepoint
}

var orms = map[string]func(*testing.T, *sql.DB, *honker.Queue[Receipt]) orm{
	"GORM": func(t *testing.T, pool *sql.DB, receipts *honker.Queue[Receipt]) orm {
		s, err := newGORM(pool, receipts)
		require.NoError(t, err)
		return ofGORM(s)
	},
	"GORM with PrepareStmt": func(t *testing.T, pool *sql.DB, receipts *honker.Queue[Receipt]) orm {
		s, err := newGORM(pool, receipts)
		require.NoError(t, err)
		s.db = s.db.Session(&gorm.Session{PrepareStmt: true})
		return ofGORM(s)
	},
	"sqlx": func(_ *testing.T, pool *sql.DB, receipts *honker.Queue[Receipt]) orm {
		s := newSqlx(pool, receipts)
		return orm{s, func(ctx context.Context, fn func(txn) error) error {
			tx, err := s.db.BeginTxx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := fn(ofSqlx(tx)); err != nil {
				return err
			}
			return tx.Commit()
		}}
	},
	"bun": func(_ *testing.T, pool *sql.DB, receipts *honker.Queue[Receipt]) orm {
		s := newBun(pool, receipts)
		return orm{s, func(ctx context.Context, fn func(txn) error) error {
			return s.db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return fn(ofBun(tx)) })
		}}
	},
}

func ofGORM(s *gormShop) orm {
	return orm{s, func(ctx context.Context, fn func(txn) error) error {
		return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			return fn(txn{
				tx: tx.Statement.ConnPool,
				text: func(ctx context.Context, query string, args ...any) (text string, err error) {
					err = tx.WithContext(ctx).Raw(query, args...).Scan(&text).Error
					return text, err
				},
				nested: func(ctx context.Context, fn func() error) error {
					return tx.WithContext(ctx).Transaction(func(*gorm.DB) error { return fn() })
				},
			})
		})
	}}
}

func ofSqlx(tx *sqlx.Tx) txn {
	return txn{
		tx: tx,
		text: func(ctx context.Context, query string, args ...any) (text string, err error) {
			err = tx.GetContext(ctx, &text, query, args...)
			return text, err
		},
		nested: func(ctx context.Context, fn func() error) error {
			tx.MustExecContext(ctx, `SAVEPOINT inner_tx`)
			if err := fn(); err != nil {
				tx.MustExecContext(ctx, `ROLLBACK TO inner_tx`)
				return err
			}
			_, err := tx.ExecContext(ctx, `RELEASE inner_tx`)
			return err
		},
	}
}

func ofBun(tx bun.Tx) txn {
	return txn{
		tx: tx.Tx,
		text: func(ctx context.Context, query string, args ...any) (text string, err error) {
			err = tx.NewRaw(query, args...).Scan(ctx, &text)
			return text, err
		},
		nested: func(ctx context.Context, fn func() error) error {
			return tx.RunInTx(ctx, nil, func(context.Context, bun.Tx) error { return fn() })
		},
	}
}

// each runs a test with every ORM, both on a DB's pool and on a pool from honker.Connector.
func each(t *testing.T, test func(*testing.T, *honker.DB, orm)) {
	for name, open := range orms {
		t.Run(name, func(t *testing.T) {
			db, receipts := shopFile(t)
			test(t, db, open(t, db.SQL(), receipts))
		})
		t.Run(name+" by Connector", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "shop.db")
			home, err := honker.Connector(path, nil)
			require.NoError(t, err)
			pool := sql.OpenDB(home)
			defer pool.Close()
			db := honkertest.OpenFile(t, path, nil)
			perform(t, db, schema)
			test(t, db, open(t, pool, honker.NewQueue[Receipt](db, "receipts", nil)))
		})
	}
}

// An order and its job are committed together or not at all, whichever way they are written.
func TestORM_CommitAndRollback(t *testing.T) {
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		ctx := bounded(t)
		for i, place := range []func(context.Context, *Order) (int64, error){o.byVerb, o.bySQL} {
			dear := Order{Item: "caviar", Cents: 9900}
			_, err := place(ctx, &dear)
			require.ErrorIs(t, err, errDeclined)
			require.Equal(t, i, count(t, db, "orders"))
			require.Equal(t, i, count(t, db, "_honker_live"))

			cheap := Order{Item: "tea", Cents: 450}
			job, err := place(ctx, &cheap)
			require.NoError(t, err)
			require.EqualValues(t, i+1, cheap.ID)
			require.EqualValues(t, i+1, job)
			require.Equal(t, i+1, count(t, db, "orders"))
			require.Equal(t, i+1, count(t, db, "_honker_live"))
		}
		var alike bool
		require.NoError(t, db.SQL().QueryRow(`SELECT count(DISTINCT payload) = 2 AND min(typeof(payload)) = 'text' AND max(typeof(payload)) = 'text'
			AND min(priority = 0 AND max_attempts = 25 AND expires_at IS NULL AND run_at <= created_at) FROM _honker_live`).Scan(&alike))
		require.True(t, alike, "a job by SQL is a job by the verb")
	})
}

// A commit by the ORM wakes an idle worker, which in turn writes through the ORM.
func TestORM_WakesWorker(t *testing.T) {
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		ctx := bounded(t)
		receipts := honker.NewQueue[Receipt](db, "receipts", nil)
		stop := worker(t, o, receipts)
		time.Sleep(50 * time.Millisecond) // let the worker go idle
		for _, place := range []func(context.Context, *Order) (int64, error){o.byVerb, o.bySQL} {
			order := Order{Item: "tea", Cents: 450}
			job, err := place(ctx, &order)
			require.NoError(t, err)
			result, err := honker.WaitResult[string](ctx, db, job)
			require.NoError(t, err)
			require.Equal(t, "printed", result)
		}
		stop()
		require.Equal(t, 2, count(t, db, "orders WHERE printed"))
		require.Zero(t, count(t, db, "_honker_live"))
		_, err := o.byVerb(ctx, &Order{Item: "tea"}) // outside the worker's transactions
		require.NoError(t, err)
	})
}

// The SQL functions work in an ORM transaction, and a rollback undoes their writes.
func TestORM_Functions(t *testing.T) {
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		ctx := bounded(t)
		tables := []string{"_honker_live", "_honker_dead", "_honker_notifications", "_honker_stream", "_honker_locks", "_honker_rate_limits",
			"_honker_results", "_honker_scheduler_tasks"}
		err := o.inTx(ctx, func(tx txn) error {
			for _, call := range []struct{ query, want string }{
				{`SELECT honker_enqueue('q', '{"quoted": "it''s ?"}', NULL, NULL, 0, 3, NULL)`, "1"},
				{`SELECT json_extract(honker_claim_batch('q', 'w', 1, 60), '$[0].payload')`, `{"quoted": "it's ?"}`},
				{`SELECT honker_heartbeat(1, 'w', 60)`, "1"},
				{`SELECT honker_retry(1, 'w', 0, 'no paper')`, "1"},
				{`SELECT json_array_length(honker_claim_batch('q', 'w', 1, 60))`, "1"},
				{`SELECT honker_result_save(1, '"done"', 60)`, "1"},
				{`SELECT honker_ack(1, 'w')`, "1"},
				{`SELECT honker_get_job(1)`, ""},
				{`SELECT honker_result_get(1)`, `"done"`},
				{`SELECT notify('news', '"hello"')`, "1"},
				{`SELECT honker_stream_publish('topic', 'key', '{"n": 1}')`, "1"},
				{`SELECT json_extract(honker_stream_read_since('topic', 0, 10), '$[0].payload')`, `{"n": 1}`},
				{`SELECT honker_stream_save_offset('consumer', 'topic', 1)`, "1"},
				{`SELECT honker_stream_get_offset('consumer', 'topic')`, "1"},
				{`SELECT honker_lock_acquire('lock', 'me', 60)`, "1"},
				{`SELECT honker_lock_acquire('lock', 'you', 60)`, "0"},
				{`SELECT honker_rate_limit_try('limit', 1, 60)`, "1"},
				{`SELECT honker_rate_limit_try('limit', 1, 60)`, "0"},
				{`SELECT honker_cron_next_after('@every 60s', 100)`, "160"},
				{`SELECT honker_enqueue('q', '1', NULL, NULL, 0, 3, NULL)`, "2"},
			} {
				got, err := tx.text(ctx, call.query)
				require.NoError(t, err, call.query)
				require.Equal(t, call.want, got, call.query)
			}
			return errDeclined
		})
		require.ErrorIs(t, err, errDeclined)
		for _, table := range tables {
			require.Zero(t, count(t, db, table), table)
		}
	})
}

// A trigger on an ORM table can enqueue a job.
func TestORM_Trigger(t *testing.T) {
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		perform(t, db, `CREATE TRIGGER pack AFTER INSERT ON orders BEGIN
			SELECT honker_enqueue('packing', json_object('item', new.item), NULL, NULL, 0, 3, NULL); END`)
		ctx := bounded(t)
		_, err := o.bySQL(ctx, &Order{Item: "tea", Cents: 450})
		require.NoError(t, err)
		_, err = o.bySQL(ctx, &Order{Item: "caviar", Cents: 9900})
		require.ErrorIs(t, err, errDeclined)
		require.Equal(t, 1, count(t, db, `_honker_live WHERE queue = 'packing' AND payload = '{"item":"tea"}'`))
		require.Equal(t, 2, count(t, db, "_honker_live"))
	})
}

// If a SQL function fails, the ORM's query returns the error and the transaction stays usable.
func TestORM_FunctionFails(t *testing.T) {
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		ctx := bounded(t)
		require.NoError(t, o.inTx(ctx, func(tx txn) error {
			_, err := tx.text(ctx, enqueue, 1)
			require.NoError(t, err)
			_, err = tx.text(ctx, `SELECT honker_enqueue('q', NULL, NULL, NULL, 0, 3, NULL)`)
			require.ErrorContains(t, err, "honker_enqueue")
			_, err = tx.text(ctx, enqueue, 2)
			return err
		}))
		require.Equal(t, 2, count(t, db, "_honker_live"))
	})
}

// The Tx methods accept an ORM transaction, and rolling back to a savepoint undoes their writes.
func TestORM_Verbs(t *testing.T) {
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		ctx := bounded(t)
		q := honker.NewQueue[string](db, "q", nil)
		events := honker.NewStream[string](db, "events", nil)
		held, err := q.Enqueue(ctx, "held")
		require.NoError(t, err)
		jobs, err := q.Claim(ctx, "w", 1)
		require.NoError(t, err)

		verbs := func(tx txn) {
			require.NoError(t, jobs[0].AckTx(ctx, tx.tx))
			require.NoError(t, q.SaveResultTx(ctx, tx.tx, held, "done", 0))
			ids, err := q.EnqueueManyTx(ctx, tx.tx, []string{"it's ?", "?0 ?1", `\?`})
			require.NoError(t, err)
			gone, err := q.CancelTx(ctx, tx.tx, ids[1])
			require.NoError(t, err)
			require.True(t, gone)
			_, err = db.NotifyTx(ctx, tx.tx, "news", "hello")
			require.NoError(t, err)
			_, err = events.PublishTx(ctx, tx.tx, "created", honker.EventKey("k"))
			require.NoError(t, err)
			allowed, err := db.RateLimit("limit", 1, time.Minute).AllowTx(ctx, tx.tx)
			require.NoError(t, err)
			require.True(t, allowed)
		}
		require.NoError(t, o.inTx(ctx, func(tx txn) error {
			err := tx.nested(ctx, func() error { verbs(tx); return errDeclined })
			require.ErrorIs(t, err, errDeclined)
			return tx.nested(ctx, func() error { _, err := q.EnqueueTx(ctx, tx.tx, "kept"); return err })
		}))
		require.Equal(t, 2, count(t, db, "_honker_live"), "the held one and the kept one")
		require.Zero(t, count(t, db, "_honker_notifications"))
		require.Zero(t, count(t, db, "_honker_stream"))
		require.NoError(t, o.inTx(ctx, func(tx txn) error { verbs(tx); return nil }))

		var got []string
		honkertest.Drain(t, q, func(_ context.Context, job *honker.Job[string]) error {
			got = append(got, job.Args)
			return nil
		})
		require.Equal(t, []string{"kept", "it's ?", `\?`}, got)
		result, err := honker.Result[string](ctx, db, held)
		require.NoError(t, err)
		require.Equal(t, "done", result)
		require.Equal(t, 1, count(t, db, "_honker_notifications"))
		require.Equal(t, 1, count(t, db, "_honker_stream"))
	})
}

// A bun.Tx is rejected, because it rewrites numbered parameters. Whether the DB was opened or
// attached, nothing is written in such a transaction.
func TestORM_Bun_Refused(t *testing.T) {
	opened, _ := shopFile(t)
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	defer pool.Close()
	attached, err := honker.Attach(bounded(t), pool, nil)
	require.NoError(t, err)
	defer attached.Close()
	for name, db := range map[string]*honker.DB{"opened": opened, "attached": attached} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			q := honker.NewQueue[string](db, "q", nil)
			require.NoError(t, bun.NewDB(db.SQL(), sqlitedialect.New()).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				for verb, call := range map[string]func(honker.Tx) error{
					"enqueue": func(tx honker.Tx) error { _, err := q.EnqueueTx(ctx, tx, "job"); return err },
					"notify":  func(tx honker.Tx) error { _, err := db.NotifyTx(ctx, tx, "news", "hello"); return err },
					"publish": func(tx honker.Tx) error {
						_, err := honker.NewStream[string](db, "events", nil).PublishTx(ctx, tx, "created")
						return err
					},
				} {
					err := call(tx)
					require.ErrorIs(t, err, honker.ErrInvalid, verb)
					require.ErrorContains(t, err, "pass the *sql.Tx that it wraps", verb)
				}
				_, err := q.EnqueueTx(ctx, tx.Tx, "kept")
				return err
			}))
			require.Equal(t, 1, count(t, db, "_honker_live WHERE payload = '\"kept\"'"))
			require.Equal(t, 1, count(t, db, "_honker_live"))
			require.Zero(t, count(t, db, "_honker_notifications"))
			require.Zero(t, count(t, db, "_honker_stream"))
		})
	}
}

// Concurrent writers and a worker never get SQLITE_BUSY.
func TestORM_NeverBusy(t *testing.T) {
	goroutines, rounds := 4, 25
	if testing.Short() {
		rounds = 5
	}
	orders := goroutines * rounds * 2
	each(t, func(t *testing.T, db *honker.DB, o orm) {
		ctx := bounded(t)
		stop := worker(t, o, honker.NewQueue[Receipt](db, "receipts", nil))
		var all sync.WaitGroup
		errs := make(chan error, goroutines*rounds*3)
		for range goroutines {
			all.Go(func() {
				for i := range rounds {
					for _, place := range []func(context.Context, *Order) (int64, error){o.byVerb, o.bySQL} {
						if _, err := place(ctx, &Order{Item: "tea", Cents: i}); err != nil {
							errs <- err
						}
					}
					if _, err := o.byVerb(ctx, &Order{Item: "caviar", Cents: 9900}); err != errDeclined {
						errs <- fmt.Errorf("not declined: %v", err)
					}
				}
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			t.Error(err)
		}
		require.Eventually(t, func() bool { return count(t, db, "orders WHERE printed") == orders }, time.Minute, 5*time.Millisecond)
		stop()
		require.Equal(t, orders, count(t, db, "orders"))
		require.Zero(t, count(t, db, "_honker_live"))
		require.Zero(t, count(t, db, "_honker_dead"))
	})
}

// The ORMs can create and migrate tables on honker's connections.
func TestORM_Migrations(t *testing.T) {
	ctx := bounded(t)
	type Line struct {
		ID    int64 `bun:",pk,autoincrement"`
		Order int64 `gorm:"index"`
		Text  string
	}
	t.Run("GORM", func(t *testing.T) {
		db, receipts := shopFile(t)
		s, err := newGORM(db.SQL(), receipts)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, s.db.AutoMigrate(&Line{}))
		}
		type Line struct {
			ID    int64
			Order int64
			Text  int `gorm:"not null;default:1"`
		}
		require.NoError(t, s.db.AutoMigrate(&Line{}), "which copies the table")
		require.NoError(t, s.db.Create(&Line{}).Error)
	})
	t.Run("bun", func(t *testing.T) {
		db, receipts := shopFile(t)
		s := newBun(db.SQL(), receipts)
		_, err := s.db.NewCreateTable().Model((*Line)(nil)).Exec(ctx)
		require.NoError(t, err)
		_, err = s.db.NewInsert().Model(&Line{Order: 1, Text: "tea"}).Exec(ctx)
		require.NoError(t, err)
	})
}

func shopFile(t *testing.T) (*honker.DB, *honker.Queue[Receipt]) {
	db := honkertest.Open(t, nil)
	perform(t, db, schema)
	return db, honker.NewQueue[Receipt](db, "receipts", nil)
}

// worker runs work until stop is called or the test ends.
func worker(t *testing.T, s shop, receipts *honker.Queue[Receipt]) (stop func()) {
	ctx, cancel := context.WithCancel(bounded(t))
	done := make(chan error, 1)
	go func() { done <- work(ctx, s, receipts) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func perform(t *testing.T, db *honker.DB, statement string) {
	t.Helper()
	_, err := db.SQL().ExecContext(bounded(t), statement)
	require.NoError(t, err)
}

func count(t *testing.T, db *honker.DB, of string) (n int) {
	t.Helper()
	require.NoError(t, db.SQL().QueryRow(`SELECT count(*) FROM `+of).Scan(&n))
	return n
}

// bounded returns a context that is cancelled at the end of the test or after two minutes.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
