package faults_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// signatures lists the parameters of honker's functions: T is TEXT, I is INTEGER, S is a schedule
// and O is a JSON object of options. A lower-case letter also accepts NULL. An overloaded name is
// followed by its number of arguments.
var signatures = map[string]string{
	"notify":                     "TT",
	"honker_bootstrap":           "",
	"honker_enqueue":             "TTiiIIi",
	"honkerx_enqueue":            "TTo",
	"honker_claim_batch":         "TTII",
	"honker_ack":                 "IT",
	"honker_ack_batch":           "TT",
	"honker_retry":               "ITIT",
	"honker_fail":                "ITT",
	"honker_heartbeat":           "ITI",
	"honker_cancel":              "I",
	"honker_get_job":             "I",
	"honker_sweep_expired":       "T",
	"honker_queue_next_claim_at": "T",
	"honker_result_save":         "ITI",
	"honker_result_get":          "I",
	"honker_result_sweep":        "",
	"honker_stream_publish":      "TtT",
	"honker_stream_read_since":   "TII",
	"honker_stream_save_offset":  "TTI",
	"honker_stream_get_offset":   "TT",

	"honker_lock_acquire":         "TTI",
	"honker_lock_renew":           "TTI",
	"honker_lock_release":         "TT",
	"honker_rate_limit_try":       "TII",
	"honker_rate_limit_sweep":     "I",
	"honker_scheduler_register/6": "TTSTIi",
	"honker_scheduler_register/7": "TTSTIiI",
	"honker_scheduler_unregister": "T",
	"honker_scheduler_tick":       "I",
	"honker_scheduler_soonest":    "",
	"honker_scheduler_pause":      "T",
	"honker_scheduler_resume":     "T",
	"honker_scheduler_list":       "",
	"honker_scheduler_update/6":   "TstiiI",
	"honker_scheduler_update/8":   "TstiiIiI",
	"honker_cron_next_after":      "SI",
}

// bare returns name without its number of arguments.
func bare(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}

func callOf(name string, args []string) string {
	return `SELECT ` + bare(name) + `(` + strings.Join(args, ", ") + `)`
}

// good returns valid arguments for name.
func good(name string) []string {
	var args []string
	for _, class := range signatures[name] {
		args = append(args, map[rune]string{'T': `'[]'`, 'I': `7`, 'S': `'* * * * *'`, 'O': `'{}'`}[class&^0x20])
	}
	return args
}

// Each function rejects a wrong number of arguments.
func TestSQL_Arguments_Count(t *testing.T) {
	db := honkertest.Open(t, nil)
	for name := range signatures {
		args := good(name)
		_, err := testkit.Rows(db.SQL(), callOf(name, args))
		require.NoError(t, err, name)
		before := testkit.Dump(t, db.SQL())
		wrong := [][]string{slices.Concat(args, []string{`7`, `7`, `7`})}
		if len(args) > 0 && !strings.HasSuffix(name, "/7") {
			wrong = append(wrong, args[1:])
		}
		for _, w := range wrong {
			_, err := testkit.Rows(db.SQL(), callOf(name, w))
			require.ErrorContains(t, err, "wrong number of arguments to function "+bare(name)+"()")
		}
		require.Equal(t, before, testkit.Dump(t, db.SQL()), name)
	}
}

var classes = map[string]string{`NULL`: "Null", `7`: "Integer", `7.5`: "Real", `'7'`: "Text", `x'37'`: "Blob"}

// Each argument must have the declared storage class. Text such as '3' is not converted to an
// integer, nor a BLOB to text. A REAL without a fraction is accepted as an integer, because some
// drivers bind every number as a REAL.
func TestSQL_Arguments_StorageClass(t *testing.T) {
	db := honkertest.Open(t, nil)
	before := testkit.Dump(t, db.SQL())
	for name, signature := range signatures {
		for i, want := range signature {
			for literal, class := range classes {
				if class == map[rune]string{'T': "Text", 'I': "Integer", 'S': "Text", 'O': "Text"}[want&^0x20] || class == "Null" && want >= 'a' {
					continue
				}
				args := good(name)
				args[i] = literal
				refusal := "invalid function parameter type " + class
				if class == "Real" && want&^0x20 == 'I' {
					refusal = "7.5 is not a whole number"
				}
				_, err := testkit.Rows(db.SQL(), callOf(name, args))
				require.ErrorContains(t, err, fmt.Sprintf("%s: %s at index %d", bare(name), refusal, i), callOf(name, args))
			}
		}
	}
	_, err := testkit.Rows(db.SQL(), `SELECT honker_enqueue('q', CAST(x'ff' AS TEXT), NULL, NULL, 0, 3, NULL)`)
	require.ErrorContains(t, err, "invalid UTF-8 at index 1 (payload)")
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// The functions accept NULL for the same parameters as honker's.
func TestSQL_Arguments_Null(t *testing.T) {
	db := honkertest.Open(t, nil)
	for name, signature := range signatures {
		args := good(name)
		for i, want := range signature {
			if want >= 'a' {
				args[i] = `NULL`
			}
		}
		_, err := testkit.Rows(db.SQL(), callOf(name, args))
		require.NoError(t, err, name)
	}
}

// TestSQL_StoppedHalfway checks that a failed function call has no effect. A trigger fails the
// second statement of each function that runs several.
func TestSQL_StoppedHalfway(t *testing.T) {
	for name, c := range map[string]struct{ trigger, call string }{
		"fail":           {`BEFORE DELETE ON _honker_live`, `SELECT honker_fail(1, 'w', 'e')`},
		"the last retry": {`BEFORE DELETE ON _honker_live`, `SELECT honker_retry(1, 'w', 0, 'e')`},
		"retry":          {`BEFORE INSERT ON _honkerx_job`, `SELECT honker_retry(2, 'w', 0, 'e')`},
		"claim":          {`BEFORE UPDATE OF worker_id ON _honker_live`, `SELECT honker_claim_batch('exhausted', 'w', 1, 60)`},
		"burying":        {`BEFORE DELETE ON _honker_live`, `SELECT honker_claim_batch('exhausted', 'w', 1, 60)`},
		"burying a BLOB": {`BEFORE DELETE ON _honker_live`, `SELECT honker_claim_batch('blob', 'w', 1, 60)`},
		"sweep":          {`BEFORE DELETE ON _honker_live`, `SELECT honker_sweep_expired('expired')`},
		"save offset":    {`BEFORE INSERT ON _honkerx_consumers`, `SELECT honker_stream_save_offset('c', 't', 9)`},
		"the second call": {`BEFORE INSERT ON _honker_live WHEN NEW.queue = 'b'`,
			`SELECT honker_enqueue(column1, '1', NULL, NULL, 0, 3, NULL) FROM (VALUES ('a'), ('b'))`},
		"a call in a statement that writes": {`BEFORE DELETE ON _honker_live`, `INSERT INTO app SELECT honker_fail(1, 'w', 'e')`},
	} {
		t.Run(name, func(t *testing.T) {
			db := honkertest.Open(t, nil)
			testkit.ExecAll(t, db.SQL(), `CREATE TABLE app (v)`, `INSERT INTO _honker_live (id, queue, payload, state, worker_id, claim_expires_at, attempts, max_attempts, expires_at, run_at) VALUES
  (1, 'q', '1', 'processing', 'w', 1 << 40, 3, 3, NULL, 1), (2, 'q', '2', 'processing', 'w', 1 << 40, 1, 3, NULL, 1),
  (3, 'exhausted', '3', 'pending', NULL, NULL, 3, 3, NULL, 1), (4, 'exhausted', '4', 'pending', NULL, NULL, 0, 3, NULL, 1),
  (5, 'blob', x'05', 'pending', NULL, NULL, 0, 3, NULL, 1), (6, 'expired', '6', 'pending', NULL, NULL, 0, 3, 1, 1)`,
				`CREATE TRIGGER stop `+c.trigger+` BEGIN SELECT RAISE(ABORT, 'stopped'); END`)
			before := testkit.Dump(t, db.SQL())
			for _, run := range []func() error{
				func() error { _, err := testkit.Rows(db.SQL(), c.call); return err },
				func() error { _, err := db.SQL().Exec(c.call); return err },
			} {
				require.ErrorContains(t, run(), "stopped")
				require.Equal(t, before, testkit.Dump(t, db.SQL()))
			}
			stoppedInTx(t, db, c.call, before)
			testkit.ExecAll(t, db.SQL(), `DROP TRIGGER stop`, c.call)
			require.NotEqual(t, before, testkit.Dump(t, db.SQL()), "it would have done something")
		})
	}
}

// stoppedInTx checks a failed call in a transaction. Either the call has no effect and the other
// writes are committed, or the whole transaction fails.
func stoppedInTx(t *testing.T, db *honker.DB, call string, before []string) {
	t.Helper()
	tx, err := db.SQL().Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec(`INSERT INTO app VALUES (1)`)
	require.NoError(t, err)
	_, err = testkit.Rows(tx, call)
	require.ErrorContains(t, err, "stopped")
	if strings.HasPrefix(call, "SELECT honker_enqueue") {
		return // calls of a statement are independent in this case
	}
	if err := tx.Commit(); err == nil {
		testkit.ExecAll(t, db.SQL(), `DELETE FROM app`)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// Functions that write return an error in a read-only transaction.
func TestSQL_ReadOnly_Refused(t *testing.T) {
	db := honkertest.Open(t, nil)
	before := testkit.Dump(t, db.SQL())
	reading := []string{"honker_get_job", "honker_queue_next_claim_at", "honker_result_get", "honker_stream_read_since", "honker_stream_get_offset",
		"honker_scheduler_soonest", "honker_scheduler_list", "honker_cron_next_after"}
	for name := range signatures {
		tx, err := db.SQL().BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		_, err = testkit.Rows(tx, callOf(name, good(name)))
		if slices.Contains(reading, name) {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, honker.ErrInvalid, name)
		}
		require.NoError(t, tx.Rollback())
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// Enqueueing by SQL from many goroutines never fails with SQLITE_BUSY.
func TestSQL_Enqueue_NeverBusy(t *testing.T) {
	path, db := testkit.OpenShared(t)
	other := testkit.OpenPool(t, path)
	const goroutines, each = 8, 50
	ids := make([][]int64, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				var id int64
				// The read comes first, so a commit on another connection invalidates its snapshot.
				err := db.SQL().QueryRow(`SELECT honker_enqueue('q', count(*), NULL, NULL, 0, 3, NULL) FROM _honker_live`).Scan(&id)
				if err == nil {
					t.Error("count(*) is no text")
				}
				err = db.SQL().QueryRow(`SELECT honker_enqueue('q', '' || count(*), NULL, NULL, 0, 3, NULL) FROM _honker_live`).Scan(&id)
				if err != nil {
					t.Error(err)
				}
				ids[g] = append(ids[g], id)
			}
		})
	}
	wg.Go(func() {
		for range each {
			_, err := other.Exec(`INSERT INTO _honker_live (queue, payload) VALUES ('q', '1')`)
			if err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	all := slices.Concat(ids...)
	for _, mine := range ids {
		require.True(t, slices.IsSorted(mine))
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), goroutines*each, "each call has its own id")
	require.EqualValues(t, (goroutines+1)*each, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
}

// Workers and listeners wake when a SQL function is called, directly or in a trigger.
func TestSQL_WakesWaiters(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE orders (id INTEGER PRIMARY KEY)`,
		`CREATE TRIGGER shipped AFTER INSERT ON orders BEGIN
  SELECT honker_enqueue('orders', '' || NEW.id, NULL, NULL, 0, 3, NULL), notify('orders', '' || NEW.id);
END`)
	news, err := db.Listen(ctx, "orders")
	require.NoError(t, err)
	defer news.Close()
	handled := make(chan int)
	q := honker.NewQueue[int](db, "orders", nil)
	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error { handled <- job.Args; return nil }, nil)
	for i, query := range []string{
		`INSERT INTO orders VALUES (0)`,
		`SELECT honker_enqueue('orders', '1', NULL, NULL, 0, 3, NULL), notify('orders', '1')`,
	} {
		time.Sleep(20 * time.Millisecond) // the waiters are most likely asleep by now
		sent := time.Now()
		testkit.ExecAll(t, db.SQL(), query)
		n, err := news.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(n.Payload))
		select {
		case got := <-handled:
			require.Equal(t, i, got)
		case <-ctx.Done():
			t.Fatal("no waiter woke")
		}
		require.Less(t, time.Since(sent), testkit.Timeout/2)
	}
	require.NoError(t, stop())
}

// A pool opened with Connector has the SQL functions, even without a DB. An attached pool has only
// the functions of its driver.
func TestSQL_Connector(t *testing.T) {
	path, db := testkit.OpenShared(t)
	connector, err := honker.Connector(path, nil)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	defer pool.Close()
	got, err := testkit.Rows(pool, `SELECT honker_enqueue('q', '1', NULL, NULL, 0, 3, NULL)`)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, got)
	job, err := honker.NewQueue[int](db, "q", nil).Get(context.Background(), 1)
	require.NoError(t, err)
	require.Equal(t, honker.StatePending, job.State)
	_, err = testkit.Rows(testkit.Attach(t, path, nil).SQL(), `SELECT honker_enqueue('q', '1', NULL, NULL, 0, 3, NULL)`)
	require.ErrorContains(t, err, "no such function")
}

// Go methods can claim and settle jobs of the SQL functions, and vice versa.
func TestSQL_ShareJobs(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[string](db, "q", nil)
	_, err := q.Enqueue(ctx, "from Go")
	require.NoError(t, err)
	_, err = testkit.Rows(db.SQL(), `SELECT honker_enqueue('q', '"from SQL"', NULL, NULL, 0, 3, NULL)`)
	require.NoError(t, err)
	got, err := testkit.Rows(db.SQL(), `SELECT json_extract(value, '$.payload') FROM json_each(honker_claim_batch('q', 'w', 1, 60))`)
	require.NoError(t, err)
	require.Equal(t, []string{`"from Go"`}, got)
	jobs, err := q.Claim(ctx, "w", 9)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, "from SQL", jobs[0].Args)
	got, err = testkit.Rows(db.SQL(), `SELECT honker_ack_batch(?, 'w')`, fmt.Sprintf("[1, %d]", jobs[0].ID))
	require.NoError(t, err)
	require.Equal(t, []string{"2"}, got)
	require.ErrorIs(t, jobs[0].Ack(ctx), honker.ErrClaimLost)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// honker_bootstrap recreates missing tables.
func TestSQL_Bootstrap_Repairs(t *testing.T) {
	for _, inTx := range []bool{false, true} {
		db := honkertest.Open(t, nil)
		tables := func() []string {
			got, err := testkit.Rows(db.SQL(), `SELECT type, name FROM sqlite_schema ORDER BY 1, 2`)
			require.NoError(t, err)
			return got
		}
		whole := tables()
		testkit.ExecAll(t, db.SQL(), `DROP TABLE _honker_results`, `DROP INDEX _honkerx_live_pending`, `DELETE FROM _honkerx_meta`)
		if inTx {
			require.NoError(t, db.Tx(context.Background(), func(_ context.Context, tx *sql.Tx) error {
				_, err := testkit.Rows(tx, `SELECT honker_bootstrap()`)
				return err
			}))
		} else {
			testkit.ExecAll(t, db.SQL(), `SELECT honker_bootstrap()`)
		}
		require.Equal(t, whole, tables())
		testkit.ExecAll(t, db.SQL(), `UPDATE _honkerx_meta SET value = '999' WHERE key = 'schema_version'`)
		_, err := testkit.Rows(db.SQL(), `SELECT honker_bootstrap()`)
		require.ErrorIs(t, err, honker.ErrSchemaTooNew)
		testkit.ExecAll(t, db.SQL(), `DELETE FROM _honkerx_meta`, `SELECT honker_bootstrap()`)
	}
}
