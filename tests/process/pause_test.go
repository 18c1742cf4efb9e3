//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["stale member"] = settleEventLate
	children["slow mailer"] = deliverOnDemand
}

// settleEventLate claims an event. For each line that it reads, it tries all methods that settle
// the event.
func settleEventLate() {
	a, db := testkit.OpenChild(nil)
	ctx := context.Background()
	m, err := testkit.MemberGroup(db, a.Span).Join(ctx, "stale")
	testkit.Must(err)
	ds, err := m.Claim(ctx, 1)
	testkit.Must(err)
	d := ds[0]
	for testkit.Say("ready"); ; testkit.Say("ready") {
		if _, ok := testkit.ReadLine(); !ok {
			return
		}
		for verb, err := range map[string]error{
			"Ack":    d.Ack(ctx),
			"Nack":   d.Nack(ctx, errors.New("late")),
			"Extend": d.Extend(ctx, time.Minute),
			"AckTx": db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, d.Offset)
				return errors.Join(err, d.AckTx(ctx, tx))
			}),
		} {
			if !errors.Is(err, honker.ErrClaimLost) {
				testkit.Must(fmt.Errorf("%s: %w", verb, err))
			}
		}
	}
}

// A member that is suspended beyond its lease cannot settle its event.
func TestMember_Process_Stopped(t *testing.T) {
	const lease = 200 * time.Millisecond
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (event BIGINT)`)
	testkit.PublishRange(t, honker.NewStream[int](db, "orders", nil), 1, 1)
	stale := testkit.StartChild(t, "stale member", testkit.Task{Path: path, Span: lease})
	require.Equal(t, "ready", stale.Line(testkit.Timeout))
	stopBesideWrites(t, path, stale)
	m, err := testkit.MemberGroup(db, time.Minute).Join(ctx, "second")
	require.NoError(t, err)
	for d, err := range m.All(ctx) {
		require.NoError(t, err)
		require.NoError(t, d.Extend(ctx, time.Minute))
		stale.Cont()
		stale.Tell("settle what another holds")
		require.Equal(t, "ready", stale.Line(testkit.Timeout))
		require.NoError(t, d.Ack(ctx))
		break
	}
	stale.Tell("settle what is done")
	require.Equal(t, "ready", stale.Line(testkit.Timeout))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
	info := testkit.GroupInfo(t, testkit.MemberGroup(db, lease))
	require.Equal(t, []int64{1, 0, 0, 0}, []int64{info.LowWater, info.Leased, info.Reclaim, info.Dead})
}

// mailbox returns the Run and Send methods of the outbox "mail".
func mailbox(db *honker.DB, deliver func(context.Context, int) error) (run func(context.Context, *honker.WorkOptions) error, send func(context.Context, int, ...honker.EnqueueOption) (int64, error)) {
	o := honker.NewOutbox(db, "mail", deliver, nil)
	return o.Run, o.Send
}

// deliverOnDemand delivers a mail for each line that it reads, and reports errors.
func deliverOnDemand() {
	_, db := testkit.OpenChild(nil)
	run, _ := mailbox(db, func(context.Context, int) error {
		testkit.Say("delivering")
		testkit.ReadLine()
		return nil
	})
	testkit.Must(run(testkit.ChildContext(), &honker.WorkOptions{Workers: 1, OnError: func(_ context.Context, _ *honker.JobInfo, err error) {
		testkit.Say("lost", errors.Is(err, honker.ErrClaimLost))
	}}))
	testkit.Must(db.Close())
}

// If the process of an outbox is suspended beyond its lease, the mail is delivered twice, and the
// late settlement fails.
func TestOutbox_Process_Stopped(t *testing.T) {
	path, db := openShared(t)
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
	stale := testkit.StartChild(t, "slow mailer", testkit.Task{Path: path})
	again := 0
	run, send := mailbox(db, func(context.Context, int) error {
		again++
		stale.Cont()
		stale.Tell("go on")
		require.Equal(t, "lost true", stale.Line(testkit.Timeout))
		stop()
		return nil
	})
	_, err := send(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, "delivering", stale.Line(testkit.Timeout))
	stopBesideWrites(t, path, stale)
	endLeases(t, db, -time.Second)
	require.NoError(t, run(ctx, &honker.WorkOptions{Workers: 1}))
	require.Equal(t, 1, again)
	require.Empty(t, stale.End())
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}
