package inbox_test

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/inbox"
	"github.com/honker-go/honker/internal/testkit"
)

func nothing(context.Context, *sql.Tx, *inbox.Message) error { return nil }

// If the transaction is rolled back, the message does not count as received.
func TestInbox_ReceiveTx(t *testing.T) {
	db := honkertest.Open(t, nil)
	in := newInbox(t, db, inbox.Options{})
	receive := func(outcome error) (first bool) {
		err := db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
			first, err = in.ReceiveTx(ctx, tx, &inbox.Message{ID: "1"})
			require.NoError(t, err)
			return outcome
		})
		require.ErrorIs(t, err, outcome)
		return first
	}
	require.True(t, receive(testkit.ErrCause))
	require.True(t, receive(nil))
	require.False(t, receive(nil))
	tx, err := db.SQL().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	first, err := in.ReceiveTx(t.Context(), tx, &inbox.Message{ID: "2"})
	require.NoError(t, err)
	require.True(t, first)
}

// Receive and ReceiveTx refuse invalid arguments, and Receive refuses a transaction's ctx. Neither
// changes anything in these cases.
func TestInbox_Receive_Invalid(t *testing.T) {
	db := honkertest.Open(t, nil)
	in := newInbox(t, db, inbox.Options{})
	ctx := t.Context()
	_, err := in.Receive(ctx, &inbox.Message{ID: "1"}, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = in.Receive(ctx, nil, nothing)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = in.ReceiveTx(ctx, nil, &inbox.Message{ID: "1"})
	require.ErrorIs(t, err, honker.ErrInvalid)
	for _, id := range []string{"", "a.b", "a b", "ä"} {
		_, err = in.Receive(ctx, &inbox.Message{ID: id}, nothing)
		require.ErrorIs(t, err, inbox.ErrID)
	}
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := in.Receive(ctx, &inbox.Message{ID: "1"}, nothing)
		require.ErrorIs(t, err, honker.ErrInTx)
		_, err = in.ReceiveTx(ctx, tx, nil)
		require.ErrorIs(t, err, honker.ErrInvalid)
		return nil
	}))
	require.Zero(t, rows(t, db))
}

// If an application trigger drops a message's row, the message isn't treated as a duplicate.
func TestInbox_Receive_NotInserted(t *testing.T) {
	db := honkertest.Open(t, nil)
	in := newInbox(t, db, inbox.Options{})
	first, err := in.Receive(t.Context(), &inbox.Message{ID: "1"}, nothing)
	require.NoError(t, err)
	require.True(t, first)
	testkit.Exec(t, db, testkit.DropReceived)
	_, err = in.Receive(t.Context(), &inbox.Message{ID: "2"}, nothing)
	require.ErrorIs(t, err, honker.ErrNotInserted)
	first, err = in.Receive(t.Context(), &inbox.Message{ID: "1"}, nothing)
	require.NoError(t, err)
	require.False(t, first)
}

// Maintain deletes any number of IDs, each once its own retention has passed.
func TestMaintain_Inbox(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Second})
		maintain := func() { require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true})) }
		maintain() // the table does not exist yet
		receive := func(in *inbox.Inbox, id string) bool {
			first, err := in.Receive(t.Context(), &inbox.Message{ID: id}, nothing)
			require.NoError(t, err)
			return first
		}
		short, long := newInbox(t, db, inbox.Options{Retention: time.Hour}), newInbox(t, db, inbox.Options{})
		require.True(t, receive(short, "1"))
		require.True(t, receive(long, "2"))
		testkit.Exec(t, db, testkit.Numbers(3000)+`INSERT INTO _honkerx_inbox_received SELECT 'other', n, 0, 1 FROM some`)
		time.Sleep(time.Hour - time.Minute)
		maintain()
		require.EqualValues(t, 2, rows(t, db))
		require.False(t, receive(short, "1"))
		time.Sleep(2 * time.Minute)
		maintain()
		require.EqualValues(t, 1, rows(t, db))
		require.True(t, receive(short, "1"), "it is forgotten")
		time.Sleep(14*24*time.Hour - 2*time.Hour)
		maintain()
		require.False(t, receive(long, "2"))
		time.Sleep(time.Hour)
		maintain()
		require.Zero(t, rows(t, db))
	})
}

// Check reports a row that violates the table's rules.
func TestCheck_Inbox(t *testing.T) {
	testkit.FileOnly(t)
	path, db := testkit.OpenShared(t)
	_, err := newInbox(t, db, inbox.Options{}).Receive(t.Context(), &inbox.Message{ID: "1"}, nothing)
	require.NoError(t, err)
	require.NoError(t, db.Check(t.Context()))
	other, err := honker.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer other.Close()
	testkit.Exec(t, other, `UPDATE _honkerx_inbox_received SET expires_ms = 1`)
	require.ErrorContains(t, other.Check(t.Context()), "an expiry after its receipt")
	testkit.Exec(t, other, `UPDATE _honkerx_inbox_received SET expires_ms = received_ms`)
}

// The observer is also called for ReceiveTx, and its panics have no effect.
func TestObserver_Contained(t *testing.T) {
	db := honkertest.Open(t, nil)
	var all []inbox.Received
	in := newInbox(t, db, inbox.Options{Observer: &inbox.Observer{Received: func(r inbox.Received) {
		all = append(all, r)
		panic("oh")
	}}})
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := in.ReceiveTx(ctx, tx, &inbox.Message{ID: "1"})
		return err
	}))
	_, err := in.Receive(t.Context(), &inbox.Message{ID: "2"}, nothing)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, inbox.Received{Source: "shop", ID: "1", Tx: true}, all[0])
	require.Equal(t, "2", all[1].ID)
}
