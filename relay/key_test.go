package relay_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// older drops the key columns, which restores the schema of an earlier version.
func older(t testing.TB, db *sql.DB, family string) {
	t.Helper()
	for _, statement := range []string{
		`DROP INDEX _honkerx_relay_deadkeys`,
		`ALTER TABLE _honkerx_relay_messages DROP COLUMN key`,
		`ALTER TABLE _honkerx_relay_dead DROP COLUMN key`,
	} {
		_, err := db.ExecContext(t.Context(), ofFamily(statement, family))
		require.NoError(t, err)
	}
}

// ofFamily returns statement with a family's table names.
func ofFamily(statement, family string) string {
	if family == "" {
		return statement
	}
	return strings.ReplaceAll(statement, "_honkerx_relay_", "_honkerx_relay_"+family+"_")
}

// drainedOf waits until a family has no messages left.
func drainedOf(t testing.TB, db *honker.DB, family string) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "all messages finished", func() bool {
		return testkit.QueryInt(t, db.SQL(), ofFamily(countMessages, family)) == 0
	})
}

// Statements used by the version without keys.
const (
	olderSend = `INSERT INTO _honkerx_relay_messages (queue, created_ms, partition, type, payload) VALUES ('orders', 1, 0, 'text/plain', ?1)`
	olderDie  = `INSERT INTO _honkerx_relay_dead (id, queue, partition, seq, type, payload, created_ms, attempts, last_error, died_ms)
SELECT id, queue, partition, iif(?1 = 'dead', 1, 2), type, payload, created_ms, 1, 'x', 2 FROM _honkerx_relay_messages WHERE payload = ?1`
	olderDelete = `DELETE FROM _honkerx_relay_messages WHERE payload = ?1`
)

func olderExec(t testing.TB, db *sql.DB, family, payload string, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), ofFamily(statement, family), payload)
		require.NoError(t, err)
	}
}

// allDead returns the dead letters that f selects.
func allDead(t testing.TB, q *relay.Queue, f *relay.DeadFilter) (all []*relay.DeadMessage) {
	t.Helper()
	for d, err := range q.Dead(t.Context(), f) {
		require.NoError(t, err)
		all = append(all, d)
	}
	return all
}

// keys returns the messages' keys, in order.
func (s *seen) keys() (all []string) {
	for _, m := range s.list() {
		all = append(all, m.Key)
	}
	return all
}

// Handlers and dead letters have the key that was passed to any of the send methods, and Requeue
// keeps the key.
func TestRelay_Key(t *testing.T) {
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	q := r.Queue("orders", 1)
	send(t, q, relay.Outgoing{Key: "acme"})
	send(t, q, relay.Outgoing{Key: "blau"}, relay.Outgoing{Partition: 0}, relay.Outgoing{Key: "ö"})
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.SendTx(ctx, tx, relay.Outgoing{Key: strings.Repeat("k", 1024)})
		return err
	}))
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error {
		got.add(m)
		if m.Key == "blau" && got.len() <= 5 {
			return relay.Reject(errDown)
		}
		return nil
	})
	stop := start(t, r)
	drained(t, q)
	require.Equal(t, []string{"acme", "blau", "", "ö", strings.Repeat("k", 1024)}, got.keys())

	dead := allDead(t, q, nil)
	require.Len(t, dead, 1)
	require.Equal(t, "blau", dead[0].Key)
	n, err := q.Requeue(t.Context(), dead[0].ID)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	drained(t, q)
	require.NoError(t, stop())
	require.Equal(t, "blau", got.list()[5].Key)
	require.NoError(t, db.Check(t.Context()))
}

// DeadFilter.Key selects the dead letters with that key.
func TestQueue_Dead_Key(t *testing.T) {
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	q := r.Queue("orders", 4)
	for range 3 {
		send(t, q, relay.Outgoing{Key: "acme", Type: "a"}, relay.Outgoing{Key: "blau", Type: "b"}, relay.Outgoing{Partition: 1})
	}
	send(t, q, relay.Outgoing{Key: "acme", Type: "b"})
	q.Handle(func(context.Context, *relay.Message) error { return relay.Reject(errDown) })
	stop := start(t, r)
	drained(t, q)
	require.NoError(t, stop())
	for _, c := range []struct {
		f    relay.DeadFilter
		want int
	}{
		{relay.DeadFilter{}, 10}, {relay.DeadFilter{Key: "acme"}, 4}, {relay.DeadFilter{Key: "blau"}, 3}, {relay.DeadFilter{Key: "cleo"}, 0},
		{relay.DeadFilter{Key: "acme", Type: "b"}, 1}, {relay.DeadFilter{Key: "acme", Limit: 2}, 2},
		{relay.DeadFilter{Key: "acme", State: relay.DeadPending}, 4}, {relay.DeadFilter{Key: "acme", State: relay.DeadReplaying}, 0},
	} {
		all := allDead(t, q, &c.f)
		require.Len(t, all, c.want)
		for _, d := range all {
			require.True(t, c.f.Key == "" || d.Key == c.f.Key)
		}
		n, err := q.CountDead(t.Context(), &c.f)
		require.NoError(t, err)
		require.EqualValues(t, c.want, n)
	}
	taken, err := q.Replay(t.Context(), 10, time.Minute, &relay.DeadFilter{Key: "blau"})
	require.NoError(t, err)
	require.Len(t, taken, 3)
	for _, d := range taken {
		require.Equal(t, "blau", d.Key)
	}
}

// An invalid key results in ErrInvalid and changes nothing.
func TestRelay_Key_Bad(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("orders", 1)
	send(t, q, relay.Outgoing{})
	before := testkit.Dump(t, db.SQL())
	for _, key := range []string{strings.Repeat("k", 1025), "a\x00b", "\xff"} {
		_, err := q.Send(t.Context(), relay.Outgoing{Key: "good"}, relay.Outgoing{Key: key})
		require.ErrorIs(t, err, honker.ErrInvalid)
		require.ErrorContains(t, err, "message 2 of 2")
		err = testkit.LastError(q.Dead(t.Context(), &relay.DeadFilter{Key: key}))
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// A database written by the version without keys can be read as is, and any write upgrades it. Its
// messages have no key. Processes running the earlier version can keep using it.
func TestRelay_Key_OlderFile(t *testing.T) {
	testkit.FileOnly(t)
	for verb, write := range map[string]func(r *relay.Relay, q *relay.Queue, db *honker.DB) error{
		"Send": func(_ *relay.Relay, q *relay.Queue, _ *honker.DB) error {
			_, err := q.Send(t.Context(), relay.Outgoing{Key: "acme"})
			return err
		},
		"SendTx": func(_ *relay.Relay, q *relay.Queue, db *honker.DB) error {
			return db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.SendTx(ctx, tx, relay.Outgoing{Key: "acme"})
				return err
			})
		},
		"Run": func(r *relay.Relay, q *relay.Queue, _ *honker.DB) error {
			stop := start(t, r)
			testkit.Eventually(t, testkit.Timeout, "a message handled", func() bool {
				info, err := q.Info(t.Context())
				return err == nil && info.Partitions[0].Processed > 0
			})
			return stop()
		},
		"Replay": func(_ *relay.Relay, q *relay.Queue, _ *honker.DB) error {
			taken, err := q.Replay(t.Context(), 1, time.Minute, nil)
			if err == nil {
				err = taken[0].Reject(t.Context(), errDown)
			}
			return err
		},
		"Requeue": func(_ *relay.Relay, q *relay.Queue, _ *honker.DB) error {
			_, err := q.Requeue(t.Context(), 2)
			return err
		},
	} {
		t.Run(verb, func(t *testing.T) {
			for _, family := range []string{"", "billing"} {
				db := honkertest.Open(t, nil)
				opts := &relay.Options{Family: family}
				send(t, relay.New(db, opts).Queue("orders", 1), relay.Outgoing{Key: "first"})
				older(t, db.SQL(), family)
				olderExec(t, db.SQL(), family, "dead", olderSend, olderDie, olderDelete)

				r := relay.New(db, opts)
				q := r.Queue("orders", 1)
				var got seen
				q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
				dead := allDead(t, q, nil)
				require.Len(t, dead, 1)
				require.Empty(t, dead[0].Key)
				n, err := q.CountDead(t.Context(), &relay.DeadFilter{Key: "first"})
				require.NoError(t, err)
				require.Zero(t, n)
				_, err = q.Info(t.Context())
				require.NoError(t, err)

				require.NoError(t, write(r, q, db))
				columns := testkit.QueryInt(t, db.SQL(), ofFamily(`SELECT count(*) FROM pragma_table_info('_honkerx_relay_messages') WHERE name = 'key'`, family))
				require.EqualValues(t, 1, columns)
				olderExec(t, db.SQL(), family, "old", olderSend)
				send(t, q, relay.Outgoing{Key: "new"})
				stop := start(t, r)
				drainedOf(t, db, family)
				require.NoError(t, stop())
				require.Contains(t, got.keys(), "new")
				require.Contains(t, got.keys(), "")
				olderExec(t, db.SQL(), family, "later", olderSend, olderDie, olderDelete)
			}
		})
	}
}
