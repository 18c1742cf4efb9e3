package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// buryRelayed sends n messages to a relay queue with 4 partitions and lets all of them die.
func buryRelayed(t *testing.T, db *honker.DB, family string, n int) *relay.Queue {
	t.Helper()
	r := relay.New(db, &relay.Options{Family: family})
	q := r.Queue("hooks", 4)
	q.Handle(func(_ context.Context, m *relay.Message) error {
		return relay.Reject(fmt.Errorf("no such hook: %s", m.Payload))
	})
	all := make([]relay.Outgoing, n)
	for i := range all {
		all[i] = relay.Outgoing{Partition: i % 4, Payload: fmt.Append(nil, i)}
	}
	_, err := q.Send(t.Context(), all...)
	require.NoError(t, err)
	stop := testkit.Background(t, r.Run)
	testkit.Eventually(t, testkit.Timeout, "dead", func() bool {
		info, err := q.Info(t.Context())
		return err == nil && info.Dead == int64(n)
	})
	require.NoError(t, stop())
	return q
}

func relayDead(t *testing.T, db *honker.DB, f admin.RelayDeadFilter) (ids []int64) {
	t.Helper()
	for d, err := range admin.EachRelayDead(t.Context(), db, f) {
		require.NoError(t, err)
		ids = append(ids, d.ID)
	}
	return ids
}

// Dead letters are listed in order and by filter, across pages.
func TestEachRelayDead_Filter(t *testing.T) {
	db := honkertest.Open(t, nil)
	buryRelayed(t, db, "billing", 250)
	of := admin.RelayDeadFilter{Family: "billing", Queue: "hooks"}
	all := relayDead(t, db, of)
	require.Len(t, all, 250)
	require.IsIncreasing(t, all)
	for d, err := range admin.EachRelayDead(t.Context(), db, of) {
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), d.DiedAt, time.Minute)
		require.WithinDuration(t, d.DiedAt, d.CreatedAt, time.Minute)
		d.DiedAt, d.CreatedAt = time.Time{}, time.Time{}
		require.Equal(t, admin.RelayDead{
			ID: all[0], Seq: 1, Type: "application/json", Payload: []byte("0"), Attempts: 1, LastError: "no such hook: 0", State: "pending",
		}, d)
		break
	}
	of.After = all[248]
	require.Equal(t, all[249:], relayDead(t, db, of))
	of = admin.RelayDeadFilter{Family: "billing", Queue: "hooks", Partition: new(1)}
	require.Len(t, relayDead(t, db, of), 63)
	of = admin.RelayDeadFilter{Family: "billing", Queue: "hooks", State: "discarded"}
	require.Empty(t, relayDead(t, db, of))
	of = admin.RelayDeadFilter{Family: "billing", Queue: "hooks", Since: time.Now().Add(time.Hour)}
	require.Empty(t, relayDead(t, db, of))
}

// Requeued dead letters are handled again, discarded dead letters remain, and both are audited. Dead letters of other
// queues and dead letters that are held are skipped.
func TestRelayDead_Verbs(t *testing.T) {
	for _, family := range []string{"", "billing"} {
		t.Run(family, func(t *testing.T) {
			db := honkertest.Open(t, nil)
			ctx := honker.WithActor(t.Context(), "anna")
			q := buryRelayed(t, db, family, 5)
			all := relayDead(t, db, admin.RelayDeadFilter{Family: family, Queue: "hooks"})
			held, err := q.Replay(ctx, 1, time.Hour, nil)
			require.NoError(t, err)
			require.Len(t, held, 1)
			require.Equal(t, all[0], held[0].ID)

			n, err := admin.DiscardRelayDead(ctx, db, family, "hooks", all[4], all[0], 1<<40)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = admin.RequeueRelayDead(ctx, db, family, "hooks", all[3], all[2], all[0], all[4], 1<<40)
			require.NoError(t, err)
			require.Equal(t, 2, n)
			n, err = admin.RequeueRelayDead(ctx, db, family, "hooks", all[3])
			require.NoError(t, err)
			require.Zero(t, n)
			require.Equal(t, []int64{all[0], all[1], all[4]}, relayDead(t, db, admin.RelayDeadFilter{Family: family, Queue: "hooks"}))
			require.Equal(t, all[4:], relayDead(t, db, admin.RelayDeadFilter{Family: family, Queue: "hooks", State: "discarded"}))
			infos, err := admin.Relays(ctx, db)
			require.NoError(t, err)
			require.EqualValues(t, 2, infos[0].Waiting)
			require.EqualValues(t, 2, infos[0].Dead)
			of := ""
			if family != "" {
				of = `"family":"billing",`
			}
			require.Equal(t, []string{
				fmt.Sprintf(`requeue relay dead letter "anna" "" {"dead letters":"%d %d %d %d %d",%s"relay queue":"hooks"} 2`, all[0], all[2], all[3], all[4], int64(1)<<40, of),
				fmt.Sprintf(`discard relay dead letter "anna" "" {"dead letters":"%d %d %d",%s"relay queue":"hooks"} 1`, all[0], all[4], int64(1)<<40, of),
			}, audit(t, db))
			require.NoError(t, db.Check(ctx))
		})
	}
}

// More dead letters than fit into a transaction are requeued, in order, and recorded in a single audit entry.
func TestRequeueRelayDead_Many(t *testing.T) {
	db := honkertest.Open(t, nil)
	buryRelayed(t, db, "", 600)
	n, err := admin.RequeueRelayDead(t.Context(), db, "", "hooks", relayDead(t, db, admin.RelayDeadFilter{Queue: "hooks"})...)
	require.NoError(t, err)
	require.Equal(t, 600, n)
	entries, err := admin.Audit(t.Context(), db, nil)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.EqualValues(t, 600, entries[0].N)

	var handled []string
	r := relay.New(db, nil)
	r.Queue("hooks", 4).Handle(func(_ context.Context, m *relay.Message) error {
		if m.Partition == 0 {
			handled = append(handled, string(m.Payload))
		}
		return nil
	})
	stop := testkit.Background(t, r.Run)
	testkit.Eventually(t, testkit.Timeout, "handled", func() bool {
		all, err := admin.Relays(t.Context(), db)
		return err == nil && all[0].Waiting == 0
	})
	require.NoError(t, stop())
	require.Len(t, handled, 150)
	for i, payload := range handled {
		require.Equal(t, fmt.Sprint(4*i), payload)
	}
}

// Invalid input and an unknown queue are errors, and change nothing.
func TestRelayDead_Errors(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := t.Context()
	_, err := relay.New(db, nil).Queue("hooks", 1).Send(ctx, relay.Outgoing{})
	require.NoError(t, err)
	before := testkit.Dump(t, db.SQL())
	list := func(db *honker.DB, f admin.RelayDeadFilter) error {
		return testkit.LastError(admin.EachRelayDead(ctx, db, f))
	}
	for _, f := range []admin.RelayDeadFilter{
		{}, {Queue: "a\x00"}, {Queue: "hooks", State: "gone"}, {Queue: "hooks", Partition: new(-1)}, {Queue: "hooks", Key: "a\x00"},
	} {
		require.ErrorIs(t, list(db, f), honker.ErrInvalid, "%+v", f)
	}
	require.NoError(t, list(db, admin.RelayDeadFilter{Queue: "hooks"}))
	require.ErrorIs(t, list(nil, admin.RelayDeadFilter{Queue: "hooks"}), honker.ErrInvalid)
	for _, of := range [][2]string{{"", "none"}, {"billing", "hooks"}, {"x; DROP TABLE _honker_live", "hooks"}, {"x' OR 1=1", "hooks"}} {
		require.ErrorIs(t, list(db, admin.RelayDeadFilter{Family: of[0], Queue: of[1]}), honker.ErrNotFound, of)
		_, err := admin.RequeueRelayDead(ctx, db, of[0], of[1], 1)
		require.ErrorIs(t, err, honker.ErrNotFound, of)
		_, err = admin.DiscardRelayDead(ctx, db, of[0], of[1], 1)
		require.ErrorIs(t, err, honker.ErrNotFound, of)
	}
	for _, verb := range []func(context.Context, *honker.DB, string, string, ...int64) (int, error){admin.RequeueRelayDead, admin.DiscardRelayDead} {
		_, err := verb(ctx, nil, "", "hooks", 1)
		require.ErrorIs(t, err, honker.ErrInvalid)
		_, err = verb(ctx, db, "", "", 1)
		require.ErrorIs(t, err, honker.ErrInvalid)
		n, err := verb(ctx, db, "", "hooks")
		require.NoError(t, err)
		require.Zero(t, n)
		ended, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("over"))
		_, err = verb(ended, db, "", "hooks", 1)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}
