package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

func text(s string) relay.Outgoing { return relay.Outgoing{Payload: []byte(s)} }

const countMessages = `SELECT count(*) FROM _honkerx_relay_messages`

// partition returns the progress of a partition.
func partition(t testing.TB, q *relay.Queue, n int) relay.PartitionInfo {
	t.Helper()
	info, err := q.Info(context.Background())
	require.NoError(t, err)
	return info.Partitions[n]
}

// processed returns the number of finished messages of partition 0.
func processed(t testing.TB, q *relay.Queue) int64 {
	t.Helper()
	return partition(t, q, 0).Processed
}

// waiting returns the total number of unfinished messages in the given queues.
func waiting(t testing.TB, queues ...*relay.Queue) (n int64) {
	t.Helper()
	for _, q := range queues {
		info, err := q.Info(context.Background())
		require.NoError(t, err)
		for _, p := range info.Partitions {
			n += p.Waiting
		}
	}
	return n
}

// Messages are in the database when Send returns, or after the commit for SendTx.
func TestRelay_Send(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("orders", 4)
	ids, err := q.Send(ctx, text("a"), relay.Outgoing{Partition: 3, Type: "text/plain", Payload: nil})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, ids)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		ids, err = q.SendTx(ctx, tx, text("b"))
		return err
	}))
	if testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
		require.Equal(t, []int64{3}, ids)
	}
	got, err := testkit.Rows(db.SQL(), testkit.ListMessages)
	require.NoError(t, err)
	require.Equal(t, []string{
		"1|orders|0|application/json|a",
		"2|orders|3|text/plain|",
		"3|orders|0|application/json|b",
	}, got)
	ids, err = q.Send(ctx)
	require.NoError(t, err)
	require.Empty(t, ids, "no messages")
}

// Many messages sent by a single call, to several partitions, keep their order and are sent
// together or not at all.
func TestRelay_Send_Many(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("orders", 4)
	all := make([]relay.Outgoing, 2500)
	for i := range all {
		all[i] = relay.Outgoing{Partition: i % 4, Payload: fmt.Append(nil, i)}
	}
	ids := send(t, q, all...)
	require.Len(t, ids, len(all))
	rows, err := testkit.Rows(db.SQL(), testkit.ListMessages)
	require.NoError(t, err)
	require.Len(t, rows, len(all))
	for i, row := range rows {
		require.Equal(t, fmt.Sprintf("%d|orders|%d|application/json|%d", ids[i], i%4, i), row)
	}
	all[2499].Type = "\n"
	_, err = q.Send(t.Context(), all...)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.EqualValues(t, 2500, waiting(t, q))
}

// A rollback also undoes the creation of the tables, and the next transaction creates them again.
func TestRelay_SendTx_Rollback(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("orders", 2)
	undo := errors.New("undo")
	for range 2 {
		require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for range 2 {
				_, err := q.SendTx(ctx, tx, text("a"))
				require.NoError(t, err)
			}
			return undo
		}), undo)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountRelays))
	}
	for n := range int64(2) {
		tx, err := db.SQL().BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = q.SendTx(ctx, tx, text("a"))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		send(t, q, text("b")) // on a server, the message of the transaction is numbered now
		require.Equal(t, 2*(n+1), waiting(t, q))
	}
}

// If one of a hundred messages is invalid, none of them is written.
func TestRelay_Send_BadMessage(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	q := relay.New(db, &relay.Options{MaxPayload: 10}).Queue("orders", 4)
	_, err := q.Send(ctx, text("first"))
	require.NoError(t, err)
	for want, bad := range map[string]relay.Outgoing{
		"the payload has 11 bytes": text(strings.Repeat("x", 11)),
		"between 0 and 3, got 4":   {Partition: 4},
		"between 0 and 3, got -1":  {Partition: -1},
		"contains the byte 0x0a":   {Type: "a\nb"},
		"contains the byte 0xc3":   {Type: "größe"},
		"Type has 1025 bytes":      {Type: strings.Repeat("t", 1025)},
		"message 57 of 100":        {Partition: 64},
		"maximum is 10 (Options.":  text(strings.Repeat("x", 1000)),
	} {
		all := make([]relay.Outgoing, 100)
		all[56] = bad
		_, err := q.Send(ctx, all...)
		require.ErrorIs(t, err, honker.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `honker: relay send "orders": `)
		require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.SendTx(ctx, tx, all...)
			return err
		}), honker.ErrInvalid)
	}
	require.EqualValues(t, 1, waiting(t, q))
}

// The first method called returns an error for an invalid name, number of partitions or option.
func TestRelay_Queue_Invalid(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	bad := []*relay.Queue{r.Queue("", 1), r.Queue("a\x00b", 1), r.Queue("\xff", 1), r.Queue(strings.Repeat("n", 1025), 1)}
	for _, n := range []int{-1, 0, 3, 5, 63, 65, 128} {
		bad = append(bad, r.Queue("orders", n))
	}
	for _, o := range []relay.Options{
		{Processors: -1}, {Batch: -1}, {MaxPayload: -1}, {RetryBase: -1}, {RetryMax: -1}, {VacuumEvery: -1},
		{RetryBase: 2, RetryMax: 1}, {Profile: -1}, {Profile: 4},
		{Family: "9"}, {Family: "A"}, {Family: "a-b"}, {Family: "a b"}, {Family: `a"`}, {Family: strings.Repeat("f", 33)},
	} {
		bad = append(bad, relay.New(db, &o).Queue("orders", 1))
		require.ErrorIs(t, relay.New(db, &o).Run(ctx), honker.ErrInvalid, "%+v", o)
	}
	for _, q := range bad {
		_, err := q.Send(ctx, text("a"))
		require.ErrorIs(t, err, honker.ErrInvalid, q.Name())
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountRelays))
}

// The number of partitions is fixed, and the error for a different number contains both.
func TestRelay_Queue_Partitions(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	var queues []*relay.Queue
	for n := 1; n <= 64; n *= 2 {
		name := strings.Repeat("q", n)
		queues = append(queues, r.Queue(name, n))
		for range 2 {
			_, err := r.Queue(name, n).Send(ctx, relay.Outgoing{Partition: n - 1})
			require.NoError(t, err)
		}
		for _, other := range []*relay.Relay{r, relay.New(db, nil)} {
			_, err := other.Queue(name, 3-min(n, 2)).Send(ctx, text("a"))
			require.ErrorIs(t, err, relay.ErrPartitions)
			require.ErrorContains(t, err, "the file has ")
		}
	}
	require.EqualValues(t, 14, waiting(t, queues...))
}

// The partition of a key is the same in every program and version.
func TestRelay_Queue_Partition_Vectors(t *testing.T) {
	r := relay.New(honkertest.Open(t, nil), nil)
	for key, want := range map[string]int{"": 5, "a": 44, "foobar": 40} {
		for n := 1; n <= 64; n *= 2 {
			require.Equal(t, want%n, r.Queue("q", n).Partition(key), key)
		}
	}
}

// Relays in different families share nothing.
func TestRelay_Family(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	var queues []*relay.Queue
	for i, f := range []string{"", "billing", "messages", "billing_messages"} {
		q := relay.New(db, &relay.Options{Family: f}).Queue("orders", 1<<i)
		queues = append(queues, q)
		for range 5 {
			_, err := q.Send(ctx, text("a"), text("b"))
			require.NoError(t, err)
		}
	}
	for _, q := range queues {
		require.EqualValues(t, 10, waiting(t, q))
	}
}

// Send is refused within the caller's transaction, and SendTx is refused with another database's
// transaction.
func TestRelay_Send_Refused(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db, other := honkertest.Open(t, nil), honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("orders", 2)
	err := db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error { _, err := q.Send(ctx, text("a")); return err })
	require.ErrorIs(t, err, honker.ErrInTx)
	require.ErrorContains(t, err, "SendTx")
	var none context.Context
	_, err = q.Send(none, text("a"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = q.SendTx(ctx, nil, text("a"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = q.SendTx(ctx, db.SQL(), text("a"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorIs(t, other.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.SendTx(ctx, tx, text("a"))
		return err
	}), honker.ErrInvalid)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = q.Send(ended, text("a"))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountRelays))
}

// A queue is looked up in the database until it is found in committed data, by Send or by SendTx.
func TestRelay_SendTx_LookedUpOnce(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	for name, inTx := range map[string]func(f func(context.Context, honker.Tx) error) error{
		"DB.Tx": func(f func(context.Context, honker.Tx) error) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return f(ctx, tx) })
		},
		"DB.SQL": func(f func(context.Context, honker.Tx) error) error {
			tx, err := db.SQL().BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, f(ctx, tx))
			return tx.Commit()
		},
	} {
		q := relay.New(db, nil).Queue(name, 2)
		send := func() error {
			return inTx(func(ctx context.Context, tx honker.Tx) error {
				_, err := q.SendTx(ctx, tx, text("a"))
				return err
			})
		}
		for range 3 { // registers it, finds it in the caller's transaction, and then knows it
			require.NoError(t, send())
		}
		// On a server, a transaction of the application's own does not show the relay what is committed, but an op does.
		_, err := q.Send(ctx, text("a"))
		require.NoError(t, err)
		testkit.Exec(t, db, testkit.SetPartitions, 4, name)
		require.NoError(t, send(), "not looked up again")
		_, err = relay.New(db, nil).Queue(name, 2).Send(ctx, text("a"))
		require.ErrorIs(t, err, relay.ErrPartitions, "another relay looks")
		testkit.Exec(t, db, testkit.SetPartitions, 2, name)
	}
}

// If a queue is first used in a savepoint that is rolled back, it is missing after the commit. The
// next use registers it.
func TestRelay_SendTx_Savepoint(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	q := r.Queue("orders", 2)
	inTx := func(end string) {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `SAVEPOINT part`)
			require.NoError(t, err)
			for range 2 {
				_, err = q.SendTx(ctx, tx, text("a"))
				require.NoError(t, err)
			}
			_, err = tx.ExecContext(ctx, end)
			return err
		}))
	}
	inTx(`ROLLBACK TO part`)
	info, err := q.Info(ctx)
	require.NoError(t, err)
	require.Zero(t, info.Partitions[0].Waiting)
	inTx(`ROLLBACK TO part`)
	inTx(`RELEASE part`)
	send(t, q, text("b"))
	require.EqualValues(t, 3, waiting(t, q))
	require.NoError(t, db.Check(ctx))
}
