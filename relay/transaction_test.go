package relay_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

type txHandler = func(ctx context.Context, tx *sql.Tx, m *relay.Message) error

// effect is the write made by the handlers in these tests.
func effect(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1, $2)`, m.Seq, m.Attempt)
	return err
}

// effectsOf runs h for an hour on five messages in a partition and returns "seq/attempt" for each
// effect.
func effectsOf(t *testing.T, h txHandler, opts ...relay.HandleOption) (effects, dead []string, log *testkit.Log) {
	t.Helper()
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, l *testkit.Log) {
		testkit.Exec(t, db, `CREATE TABLE effects (seq INTEGER, attempt INTEGER)`)
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		q.HandleTx(h, opts...)
		sendN(t, q, 0, 5)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		var err error
		effects, err = testkit.Rows(db.SQL(), `SELECT seq || '/' || attempt FROM effects`)
		require.NoError(t, err)
		dead, log = deadLetters(t, q), l
		require.Zero(t, waiting(t, q))
		require.EqualValues(t, 5, processed(t, q))
	})
	return effects, dead, log
}

// Each message takes effect exactly once. The effects of an attempt that fails with an error or a
// panic are undone without affecting earlier messages.
func TestRelay_HandleTx_Once(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errDown },
		"panic": func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			effects, dead, _ := effectsOf(t, func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
				require.NoError(t, effect(ctx, tx, m))
				if m.Seq == 3 && m.Attempt < 2 {
					return fail()
				}
				return nil
			})
			require.Equal(t, []string{"1/0", "2/0", "3/2", "4/0", "5/0"}, effects)
			require.Empty(t, dead)
		})
	}
}

// A reject undoes only the effects of its own message, which becomes a dead letter in the same commit.
func TestRelay_HandleTx_Reject(t *testing.T) {
	effects, dead, _ := effectsOf(t, func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		require.NoError(t, effect(ctx, tx, m))
		if m.Seq == 3 {
			return relay.Reject(errDown)
		}
		return nil
	})
	require.Equal(t, []string{"1/0", "2/0", "4/0", "5/0"}, effects)
	require.Equal(t, []string{"0/3 1 " + errDown.Error() + " 2"}, dead)
}

// A handler that ends its transaction or its goroutine fails, and no message of its batch is
// finished.
func TestRelay_HandleTx_Ended(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, tx *sql.Tx){
		"rollback":         func(_ context.Context, tx *sql.Tx) { _ = tx.Rollback() },
		"rollback as text": func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, "ROLLBACK") },
		"commit as text":   func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, "COMMIT") },
		"savepoint":        func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, "RELEASE honker_message") },
	} {
		t.Run(name, func(t *testing.T) {
			broke := false
			effects, _, log := effectsOf(t, func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
				if err := effect(ctx, tx, m); err != nil {
					return err
				}
				if m.Seq == 3 && !broke {
					broke = true
					end(ctx, tx)
				}
				return nil
			})
			require.Equal(t, []string{"1/1", "2/0", "3/0", "4/0", "5/0"}, effects)
			require.Equal(t, 1, log.Times("the batch was rolled back"))
		})
	}
}

// TxTimeout ends the handler's ctx, and a later transaction continues the batch. A handler that
// returns nil after the timeout keeps its effects.
func TestRelay_HandleTx_Timeout(t *testing.T) {
	slow := true
	effects, _, log := effectsOf(t, func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		if m.Seq == 2 && slow {
			slow = false
			<-ctx.Done()
			return ctx.Err()
		}
		time.Sleep(400 * time.Millisecond)
		return effect(ctx, tx, m)
	}, relay.TxTimeout(time.Second))
	require.Equal(t, []string{"1/0", "2/1", "3/0", "4/0", "5/0"}, effects)
	require.Equal(t, 1, log.Times("TxTimeout has passed"))
}

// Messages and jobs that a handler adds within its transaction commit with its effects and wake waiters.
func TestRelay_HandleTx_Sends(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		from, to := r.Queue("from", 1), r.Queue("to", 1)
		var got seen
		from.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
			_, err := to.SendTx(ctx, tx, relay.Outgoing{Payload: m.Payload})
			if m.Attempt == 0 {
				return errDown
			}
			return err
		})
		to.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
		stop := start(t, r)
		sendN(t, from, 0, 5)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, got.payloads())
	})
}

// If another process has taken the lease, the batch has no effects at all.
func TestRelay_HandleTx_LeaseLost(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE effects (seq INTEGER, attempt INTEGER)`)
		var lost events[relay.LeaseLost]
		r := relay.New(db, &relay.Options{Observer: &relay.Observer{LeaseLost: lost.add}})
		q := r.Queue("orders", 1)
		stolen := false
		q.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
			if !stolen {
				stolen = true
				_, err := tx.ExecContext(ctx, `UPDATE _honkerx_relay_partitions SET epoch = epoch + 1`)
				require.NoError(t, err)
			}
			return effect(ctx, tx, m)
		}, relay.Lease(500*time.Millisecond, 100*time.Millisecond))
		sendN(t, q, 0, 3)
		stop := start(t, r)
		drained(t, q)
		require.NoError(t, stop())
		require.Len(t, lost.list(), 1)
		effects, err := testkit.Rows(db.SQL(), `SELECT seq FROM effects`)
		require.NoError(t, err)
		require.Equal(t, []string{"1", "2", "3"}, effects, "once")
	})
}

// A relay works on an attached application pool. There, too, it detects a handler that ends its
// transaction.
func TestRelay_Attached(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeFile(t, path)
	db := testkit.Attach(t, path, nil)
	testkit.Exec(t, db, `CREATE TABLE effects (seq INTEGER, attempt INTEGER)`)
	r := relay.New(db, &relay.Options{Profile: relay.LowLatency})
	q, plain := r.Queue("orders", 2), r.Queue("plain", 2)
	var got seen
	plain.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	q.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		if m.Seq == 2 && m.Attempt == 0 {
			_, err := tx.ExecContext(ctx, "ROLLBACK")
			return err
		}
		return effect(ctx, tx, m)
	})
	stop := start(t, r)
	for range 3 {
		tx, err := db.SQL().BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = q.SendTx(ctx, tx, text("a"))
		require.NoError(t, err)
		_, err = plain.SendTx(ctx, tx, text("a"), text("b"))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
	}
	// On a server, messages of applications' transactions do not count as waiting before they are numbered.
	testkit.Eventually(t, testkit.Timeout, "delivered", func() bool {
		return got.len() == 6 && testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`) == 3
	})
	drained(t, q, plain)
	require.NoError(t, stop())
	effects, err := testkit.Rows(db.SQL(), `SELECT seq FROM effects ORDER BY seq`)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "3"}, effects)
	require.Equal(t, 6, got.len())
}

// While another transaction holds the writer, no message is lost and no attempt is counted.
func TestRelay_Busy(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE effects (seq INTEGER, attempt INTEGER)`)
		r := relay.New(db, nil)
		one, tx := r.Queue("one", 1), r.Queue("tx", 1)
		var got seen
		hold := make(chan struct{}, 1)
		one.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			hold <- struct{}{}
			time.Sleep(time.Second)
			return nil
		}, relay.MaxAttempts(1))
		tx.HandleTx(effect, relay.MaxAttempts(1))
		stop := start(t, r)
		send(t, one, text("a"))
		<-hold
		require.NoError(t, db.Tx(context.Background(), func(ctx context.Context, sqlTx *sql.Tx) error {
			_, err := tx.SendTx(ctx, sqlTx, text("b"))
			time.Sleep(20 * time.Second) // four times BusyTimeout
			return err
		}))
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/0"}, got.seqs())
		effects, err := testkit.Rows(db.SQL(), `SELECT seq || '/' || attempt FROM effects`)
		require.NoError(t, err)
		require.Equal(t, []string{"1/0"}, effects)
		require.Empty(t, append(deadLetters(t, one), deadLetters(t, tx)...))
	})
}

// If a write violates a deferred constraint, the failure appears only at commit and counts against
// the message. Smaller batches isolate the message, its pauses increase, and MaxAttempts applies.
func TestRelay_HandleTx_CommitRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE parents (id INTEGER PRIMARY KEY)`)
		testkit.Exec(t, db, `CREATE TABLE children (parent INTEGER REFERENCES parents(id) DEFERRABLE INITIALLY DEFERRED)`)
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		q.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
			if got.add(m); m.Seq != 3 {
				return nil
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO children VALUES (1)`)
			return err
		}, relay.MaxAttempts(3))
		sendN(t, q, 0, 5)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		dead := deadLetters(t, q)
		require.Len(t, dead, 1)
		require.Regexp(t, "^0/3 3 .*FOREIGN KEY constraint failed.* 2$", dead[0])
		require.Zero(t, waiting(t, q))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM children`))
	})
}

// A batch does not start if its lease ends before it gets the writer. No attempt is counted, and
// its handler is not reported as stuck.
func TestRelay_Busy_LeaseOver(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		hold := func() {
			held := make(chan struct{})
			go db.Tx(context.Background(), func(context.Context, *sql.Tx) error {
				close(held)
				time.Sleep(4 * time.Second)
				return nil
			})
			<-held
		}
		first := sync.OnceFunc(hold)
		r := relay.New(db, &relay.Options{Observer: &relay.Observer{Taken: func(relay.Taken) { first() }}})
		q := r.Queue("orders", 1)
		var got seen
		q.HandleTx(func(_ context.Context, _ *sql.Tx, m *relay.Message) error { got.add(m); return nil },
			relay.Lease(6*time.Second, 4*time.Second), relay.MaxAttempts(1))
		stop := start(t, r)
		send(t, q, text("a"))
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Zero(t, log.Times("still running after"))
		require.Equal(t, []string{"0/1/0"}, got.seqs())
	})
}

// The progress is saved even if the next partition cannot be taken, here because of an application
// trigger.
func TestRelay_Save_NothingCanBeTaken(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{Processors: 1})
		q := r.Queue("orders", 2)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			testkit.Exec(t, db, `CREATE TRIGGER refuse BEFORE UPDATE OF owner ON _honkerx_relay_partitions
				WHEN NEW.owner <> '' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
			return nil
		})
		send(t, q, relay.Outgoing{Partition: 0}, relay.Outgoing{Partition: 1})
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/0"}, got.seqs())
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), countMessages))
	})
}
