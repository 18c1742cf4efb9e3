package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

type letter struct {
	To   string
	Body string `json:",omitempty"`
}

// SendTx writes the same row as the outboxes of honker's other bindings.
func TestOutbox_Row_AsHonker(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	o := honker.NewOutbox[letter](db, "mail", nil, nil)
	require.Equal(t, "mail", o.Name())
	require.Equal(t, "_outbox:mail", o.Queue().Name())
	id, err := o.Send(context.Background(), letter{To: "a"})
	require.NoError(t, err)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE id = ? AND queue = '_outbox:mail'
AND payload = '{"To":"a"}' AND max_attempts = 5 AND attempts = 0 AND priority = 0 AND run_at = created_at AND expires_at IS NULL`, id))
	raw, err := honker.NewOutbox[json.RawMessage](db, "mail", nil, nil).Send(context.Background(), json.RawMessage(`"bare"`),
		honker.Priority(3), honker.MaxAttempts(2))
	require.NoError(t, err)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE id = ? AND payload = '"bare"'
AND max_attempts = 2 AND priority = 3`, raw))
}

// A message is delivered only if its transaction commits.
func TestOutbox_SendTx_AtCommit(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	got := make(chan letter, 10)
	o := honker.NewOutbox(db, "mail", func(_ context.Context, l letter) error { got <- l; return nil }, nil)
	stop := testkit.Background(t, func(ctx context.Context) error { return o.Run(ctx, nil) })
	for _, l := range []letter{{To: "nobody"}, {To: "a"}} {
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := o.Send(ctx, l)
			require.ErrorIs(t, err, honker.ErrInTx)
			require.ErrorContains(t, err, "SendTx")
			_, err = o.SendTx(ctx, tx, l)
			require.NoError(t, err)
			if l.To == "nobody" {
				return testkit.ErrCause
			}
			return nil
		})
		require.Equal(t, l.To == "nobody", err != nil)
	}
	select {
	case l := <-got:
		require.Equal(t, letter{To: "a"}, l)
	case <-time.After(testkit.Timeout):
		t.Fatal("not delivered")
	}
	require.NoError(t, stop())
	require.Empty(t, got)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// tries makes a message's delivery fail with err until the message is dead. It returns the times of the
// attempts.
func tries(t *testing.T, opts *honker.OutboxOptions, deliver func() error) (at []time.Duration, left *honker.JobInfo) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now()
		o := honker.NewOutbox(db, "mail", func(context.Context, letter) error {
			at = append(at, time.Since(began))
			return deliver()
		}, opts)
		stop := testkit.Background(t, func(ctx context.Context) error { return o.Run(ctx, nil) })
		id, err := o.Send(context.Background(), letter{To: "a"})
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		require.NoError(t, stop())
		left, err = o.Queue().Get(context.Background(), id)
		require.NoError(t, err)
	})
	return at, left
}

// Failed deliveries are retried at doubling intervals.
func TestOutbox_Retry_Doubling(t *testing.T) {
	for name, deliver := range map[string]func() error{
		"error": func() error { return testkit.ErrCause },
		"panic": func() error { panic(testkit.ErrCause) },
	} {
		t.Run(name, func(t *testing.T) {
			at, left := tries(t, nil, deliver)
			require.Equal(t, secs(0, 5, 15, 35, 75), at)
			require.Equal(t, honker.StateDead, left.State)
			require.Equal(t, 5, left.Attempts)
			require.Contains(t, left.LastError, testkit.ErrCause.Error())
		})
	}
	at, _ := tries(t, &honker.OutboxOptions{MaxAttempts: 3, BaseBackoff: 1500 * time.Millisecond}, func() error { return testkit.ErrCause })
	require.Equal(t, secs(0, 2, 5), at, "in whole seconds, rounded up")
	at, left := tries(t, &honker.OutboxOptions{MaxAttempts: 70, BaseBackoff: time.Nanosecond}, func() error { return testkit.ErrCause })
	require.Len(t, at, 47, "2^46 ns are 19 hours") // and no delay has overflowed
	require.Equal(t, honker.StatePending, left.State)
}

// The error that deliver returns determines what happens to its message.
func TestOutbox_Deliver_Outcomes(t *testing.T) {
	at, left := tries(t, nil, func() error { return honker.Reject(testkit.ErrCause) })
	require.Equal(t, secs(0), at)
	require.Equal(t, honker.StateDead, left.State)
	first := true
	at, _ = tries(t, nil, func() error {
		if !first {
			return honker.Reject(testkit.ErrCause)
		}
		first = false
		return honker.RetryAfter(time.Hour, testkit.ErrCause)
	})
	require.Equal(t, secs(0, 3600), at)
}

// Run leases a message for the outbox's Lease unless the options say otherwise.
func TestOutbox_Run_Lease(t *testing.T) {
	testkit.FileOnly(t)
	for name, c := range map[string]struct {
		opts *honker.OutboxOptions
		work *honker.WorkOptions
		want time.Duration
	}{
		"default":    {nil, nil, time.Minute},
		"visibility": {&honker.OutboxOptions{Lease: time.Hour}, &honker.WorkOptions{Workers: 1}, time.Hour},
		"lease":      {nil, &honker.WorkOptions{Lease: 7 * time.Second}, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				var hold time.Duration
				o := honker.NewOutbox(db, "mail", func(context.Context, letter) error {
					until := testkit.QueryInt(t, db.SQL(), `SELECT claim_expires_at FROM _honker_live`)
					hold = time.Until(time.Unix(until, 0))
					return nil
				}, c.opts)
				_, err := o.Send(context.Background(), letter{})
				require.NoError(t, err)
				stop := testkit.Background(t, func(ctx context.Context) error { return o.Run(ctx, c.work) })
				time.Sleep(time.Second)
				require.NoError(t, stop())
				require.Equal(t, c.want, hold)
			})
		})
	}
}

// An outbox can be shared with another binding. A Python worker claims, fails and acks messages with
// honker's own statements.
func TestOutbox_Foreign(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db, b := testkit.OpenWithBinding(t)
	got := make(chan letter, 1)
	o := honker.NewOutbox(db, "mail", func(_ context.Context, l letter) error { got <- l; return nil }, nil)
	ours, err := o.Send(context.Background(), letter{To: "them"})
	require.NoError(t, err)
	jobs := b.Claim("_outbox:mail", "python", 1, 60)
	require.Equal(t, []testkit.BindingJob{{ID: ours, Attempts: 1, Payload: `{"To":"them"}`}}, jobs)
	require.EqualValues(t, 1, b.Ack(ours, "python"))

	b.Enqueue("_outbox:mail", `{"To": "us"}`)
	stop := testkit.Background(t, func(ctx context.Context) error { return o.Run(ctx, nil) })
	select {
	case l := <-got:
		require.Equal(t, letter{To: "us"}, l)
	case <-time.After(testkit.Timeout):
		t.Fatal("not delivered")
	}
	require.NoError(t, stop())
}

// Every verb rejects an invalid outbox.
func TestOutbox_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	calls := map[string]testkit.Refusal{}
	deliver := func(context.Context, int) error { return nil }
	bad := func(what, name string, opts *honker.OutboxOptions) {
		addOutboxCalls(calls, what, db, honker.NewOutbox(db, name, deliver, opts))
	}
	for kind, name := range badNames {
		bad(kind, name, nil)
	}
	bad("too long with its prefix", strings.Repeat("x", 1017), nil)
	bad("MaxAttempts", "mail", &honker.OutboxOptions{MaxAttempts: -1})
	bad("BaseBackoff", "mail", &honker.OutboxOptions{BaseBackoff: -1})
	bad("Visibility", "mail", &honker.OutboxOptions{Lease: math.MinInt64})
	addOutboxCalls(calls, "bytes", db, honker.NewOutbox(db, "mail", func(context.Context, []byte) error { return nil }, nil))
	calls["Run without deliver"] = func(ctx context.Context) error { return honker.NewOutbox[int](db, "mail", nil, nil).Run(ctx, nil) }
	calls["Run with bad options"] = func(ctx context.Context) error {
		return honker.NewOutbox(db, "mail", deliver, nil).Run(ctx, &honker.WorkOptions{Workers: -1})
	}
	testkit.RequireRefused(t, path, calls)
	_, err := honker.NewOutbox(db, strings.Repeat("x", 1016), deliver, nil).Send(context.Background(), 1)
	require.NoError(t, err)
}

func addOutboxCalls[T any](calls map[string]testkit.Refusal, what string, db *honker.DB, o *honker.Outbox[T]) {
	var zero T
	calls["Send "+what] = func(ctx context.Context) error { _, err := o.Send(ctx, zero); return err }
	calls["SendTx "+what] = inOwnTx(db, func(ctx context.Context, tx *sql.Tx) error { _, err := o.SendTx(ctx, tx, zero); return err })
	calls["Run "+what] = func(ctx context.Context) error { return o.Run(ctx, nil) }
}

// An outbox's errors contain its name.
func TestOutbox_ErrorsNameIt(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	o := honker.NewOutbox[any](db, "mail", nil, nil)
	_, err := o.Send(context.Background(), make(chan int))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.True(t, strings.HasPrefix(err.Error(), `honker: send "mail": `), err.Error())
	var unsupported *json.UnsupportedTypeError
	require.True(t, errors.As(err, &unsupported))
}
