package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["member"] = handleAsMember
}

// handleAsMember handles events until it is killed, with All, or with Claim if the task is quiet.
// It inserts a row for each event in the transaction of the ack, and notes each claim with its
// token.
func handleAsMember() {
	a, db := testkit.OpenChild(nil)
	note := testkit.ChildLedger(a.Ledger)
	m, err := testkit.MemberGroup(db, a.Span).Join(testkit.ChildContext(), filepath.Base(a.Ledger))
	for patience := time.NewTicker(10 * time.Millisecond); errors.Is(err, honker.ErrMemberTaken); <-patience.C {
		m, err = testkit.MemberGroup(db, a.Span).Join(testkit.ChildContext(), filepath.Base(a.Ledger)) // the predecessor was killed, but its name is still taken
	}
	if testkit.ChildContext().Err() != nil {
		return
	}
	testkit.Must(err)
	take := func(d *honker.Delivery[int]) {
		note("given", d.Offset<<20|d.Token)
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO started VALUES ($1, $2)`, d.Offset, d.Token)
			return err
		})
		testkit.Must(err)
		err = db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1, $2,
  (SELECT count(*) FROM started WHERE event = $1 AND token > $2))`, d.Offset, d.Token)
			return errors.Join(err, d.AckTx(ctx, tx))
		})
		if !errors.Is(err, honker.ErrClaimLost) { // the handler was too slow
			testkit.Must(err)
		}
	}
	for d, err := range m.All(testkit.ChildContext()) {
		if testkit.ChildContext().Err() != nil {
			return
		}
		testkit.Must(err)
		take(d)
		for more := a.Quiet; more; { // claims several events together
			ds, err := m.Claim(context.Background(), 5)
			testkit.Must(err)
			for _, d := range ds {
				take(d)
			}
			more = len(ds) > 0
		}
	}
}

// No event is lost or handled twice when members are killed.
func TestGroup_Process_Killed(t *testing.T) {
	const lease = 250 * time.Millisecond
	kills := 15
	if testing.Short() {
		kills = 4
	}
	path, db := openShared(t)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE started (event BIGINT, token BIGINT)`, `CREATE INDEX started_event ON started(event, token)`,
		`CREATE TABLE effects (event BIGINT PRIMARY KEY, token BIGINT, later BIGINT)`)
	s := honker.NewStream[int](db, "orders", nil)
	dir := filepath.Dir(path)
	var members [3]*testkit.Child
	start := func(i int) {
		members[i] = testkit.StartChild(t, "member", testkit.Task{Path: path, Ledger: filepath.Join(dir, fmt.Sprint("member-", i)), Span: lease, Quiet: i == 0})
	}
	for i := range members {
		start(i)
	}
	done := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`) }
	published := 0
	for i := range kills {
		before := done()
		testkit.PublishRange(t, s, published+1, published+200)
		published += 200
		testkit.Eventually(t, testkit.Timeout, "some more events handled", func() bool { return done() >= before+int64(20+7*i) })
		members[i%3].Kill() // while the other members are busy
		start(i % 3)
	}
	g := testkit.MemberGroup(db, lease)
	testkit.Eventually(t, testkit.Timeout, "all events handled", func() bool { return testkit.GroupInfo(t, g).LowWater == int64(published) })
	for _, m := range members {
		require.Empty(t, m.End())
	}

	require.EqualValues(t, published, done(), "each event has one effect: there is no gap")
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects WHERE later > 0`), "nobody had it meanwhile")
	info := testkit.GroupInfo(t, g)
	require.Equal(t, []int64{int64(published), 0, 0, 0, 0}, []int64{info.Cursor, info.Lag, info.Leased, info.Reclaim, info.Dead})
	claims, by := testkit.Noted(t, filepath.Join(dir, "member-*"), "given")
	require.Equal(t, 3, by)
	require.Len(t, slices.Compact(slices.Clone(claims)), len(claims), "each claim has one holder")
	require.GreaterOrEqual(t, len(claims), published)
	t.Logf("%d events, %d claims", published, len(claims))
}
