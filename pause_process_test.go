//go:build unix

package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/proc"
)

func init() {
	children["stale member"] = settleEventLate
	children["slow mailer"] = deliverOnDemand
}

// settleEventLate claims an event, and each time it is told to, tries all verbs on it.
func settleEventLate() {
	a, db := openChild(nil)
	ctx := context.Background()
	m, err := ofMembers(db, a.Span).Join(ctx, "stale")
	proc.Must(err)
	ds, err := m.Claim(ctx, 1)
	proc.Must(err)
	d := ds[0]
	for proc.Say("ready"); ; proc.Say("ready") {
		if _, ok := proc.Hear(); !ok {
			return
		}
		for verb, err := range map[string]error{
			"Ack":    d.Ack(ctx),
			"Nack":   d.Nack(ctx, errors.New("late")),
			"Extend": d.Extend(ctx, time.Minute),
			"AckTx": db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, d.Offset)
				return errors.Join(err, d.AckTx(ctx, tx))
			}),
		} {
			if !errors.Is(err, honker.ErrClaimLost) {
				proc.Must(fmt.Errorf("%s: %w", verb, err))
			}
		}
	}
}

func TestMemberStoppedBeyondItsLeaseCanSettleNothing(t *testing.T) {
	const lease = 200 * time.Millisecond
	path, db := shared(t)
	ctx := bounded(t, patient)
	perform(t, db.SQL(), `CREATE TABLE effects (event INTEGER)`)
	stock(t, honker.NewStream[int](db, "orders", nil), 1, 1)
	stale := proc.Start(t, "stale member", task{Path: path, Span: lease})
	require.Equal(t, "ready", stale.Line(patient))
	stale.Stop()
	m, err := ofMembers(db, lease).Join(ctx, "second")
	require.NoError(t, err)
	for d, err := range m.All(ctx) {
		require.NoError(t, err)
		require.NoError(t, d.Extend(ctx, time.Minute))
		stale.Cont()
		stale.Tell("settle what somebody else holds")
		require.Equal(t, "ready", stale.Line(patient))
		require.NoError(t, d.Ack(ctx))
		break
	}
	stale.Tell("settle what is done")
	require.Equal(t, "ready", stale.Line(patient))
	require.Zero(t, number(t, db.SQL(), `SELECT count(*) FROM effects`))
	info := infoOf(t, ofMembers(db, lease))
	require.Equal(t, []int64{1, 0, 0, 0}, []int64{info.LowWater, info.Leased, info.Reclaim, info.Dead})
}

// mailbox is the outbox of the tests below, with a lease of a second.
func mailbox(db *honker.DB, deliver func(context.Context, int) error) (run func(context.Context, *honker.WorkOptions) error, send func(context.Context, int, ...honker.EnqueueOption) (int64, error)) {
	o := honker.NewOutbox(db, "mail", deliver, &honker.OutboxOptions{Visibility: time.Second})
	return o.Run, o.Send
}

// deliverOnDemand delivers when it is told to, and says what became of that.
func deliverOnDemand() {
	_, db := openChild(nil)
	run, _ := mailbox(db, func(context.Context, int) error {
		proc.Say("delivering")
		proc.Hear()
		return nil
	})
	proc.Must(run(proc.Context(), &honker.WorkOptions{Workers: 1, OnError: func(_ context.Context, _ *honker.JobInfo, err error) {
		proc.Say("lost", errors.Is(err, honker.ErrClaimLost))
	}}))
	proc.Must(db.Close())
}

func TestMailerStoppedBeyondItsLeaseMakesOneDuplicateAndSettlesNothing(t *testing.T) {
	path, db := shared(t)
	ctx, stop := context.WithCancel(bounded(t, patient))
	stale := proc.Start(t, "slow mailer", task{Path: path})
	again := 0
	run, send := mailbox(db, func(context.Context, int) error {
		again++
		stale.Cont()
		stale.Tell("go on")
		require.Equal(t, "lost true", stale.Line(patient))
		stop()
		return nil
	})
	_, err := send(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, "delivering", stale.Line(patient))
	stale.Stop()
	require.NoError(t, run(ctx, &honker.WorkOptions{Workers: 1}))
	require.Equal(t, 1, again)
	require.Empty(t, stale.End())
	require.Zero(t, number(t, db.SQL(), liveAndDead))
}
