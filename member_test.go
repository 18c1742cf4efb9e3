package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// stocked returns a stream with the numbers 1 to n, which equal their offsets.
func stocked(t testing.TB, db *honker.DB, n int) *honker.Stream[int] {
	t.Helper()
	s := honker.NewStream[int](db, "orders", nil)
	testkit.PublishRange(t, s, 1, n)
	return s
}

func enrol[E any](t testing.TB, g *honker.Group[E], name string) *honker.Member[E] {
	t.Helper()
	m, err := g.Join(context.Background(), name)
	require.NoError(t, err)
	return m
}

// given claims up to n events and returns them.
func given[E any](t testing.TB, m *honker.Member[E], n int) []*honker.Delivery[E] {
	t.Helper()
	ds, err := m.Claim(context.Background(), n)
	require.NoError(t, err)
	return ds
}

func contentsOf[E any](ds []*honker.Delivery[E]) (data []E) {
	for _, d := range ds {
		data = append(data, d.Data)
	}
	return data
}

func ackEach[E any](t testing.TB, ds []*honker.Delivery[E]) {
	t.Helper()
	for _, d := range ds {
		require.NoError(t, d.Ack(context.Background()))
	}
}

// Members lists each member from Join to Leave.
func TestGroup_Members_Listed(t *testing.T) {
	t.Parallel()
	s := stocked(t, honkertest.Open(t, nil), 3)
	ctx := testkit.Context(t, testkit.Timeout)
	g := s.Group("g", nil)
	_, err := g.Info(ctx)
	require.ErrorIs(t, err, honker.ErrNotFound)
	all, err := s.Groups(ctx)
	require.NoError(t, err)
	require.Empty(t, all)

	b, a := enrol(t, g, "b"), enrol(t, g, "a")
	require.Equal(t, []string{"a", "b"}, testkit.GroupInfo(t, g).Members)
	_, err = g.Join(ctx, "a")
	require.ErrorIs(t, err, honker.ErrMemberTaken)
	host, _ := os.Hostname()
	require.ErrorContains(t, err, fmt.Sprintf(`honker: join group "g": member name taken by "%.64s-%d-`, host, os.Getpid()))
	require.Regexp(t, `" until 20\d\d-`, err.Error())
	held := given(t, a, 2)
	require.NoError(t, a.Leave(ctx))
	require.Equal(t, []string{"b"}, testkit.GroupInfo(t, g).Members)
	for _, d := range held {
		require.ErrorIs(t, d.Ack(ctx), honker.ErrClaimLost)
	}
	for _, d := range given(t, b, 9) {
		require.Equal(t, 1, d.Attempts, "as if it had not been given out")
	}
	require.NoError(t, a.Leave(ctx), "again")
	enrol(t, g, "a")
	require.Equal(t, []string{"a", "b"}, testkit.GroupInfo(t, g).Members)
}

// A member that has left cannot claim alongside its successor.
func TestMember_Leave_ClaimsNoMore(t *testing.T) {
	t.Parallel()
	g := stocked(t, honkertest.Open(t, nil), 1).Group("g", nil)
	first := enrol(t, g, "a")
	require.NoError(t, first.Leave(context.Background()))
	enrol(t, g, "a")
	_, err := first.Claim(context.Background(), 1)
	require.ErrorIs(t, err, honker.ErrMemberTaken)
}

// A silent member's name is free after a Lease.
func TestGroup_Join_SilentName(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		g := stocked(t, db, 9).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		first, other := enrol(t, g, "a"), enrol(t, g, "b")
		time.Sleep(4 * time.Second)
		given(t, first, 1) // a claim ends the silence
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"a"}, testkit.GroupInfo(t, g).Members)
		_, err := g.Join(ctx, "a")
		require.ErrorIs(t, err, honker.ErrMemberTaken)
		time.Sleep(time.Millisecond)
		require.Empty(t, testkit.GroupInfo(t, g).Members)
		require.Len(t, given(t, other, 1), 1)
		require.Equal(t, []string{"b"}, testkit.GroupInfo(t, g).Members, "nobody took the name: its claim brings it back")

		second := enrol(t, g, "a")
		_, err = first.Claim(ctx, 1)
		require.ErrorIs(t, err, honker.ErrMemberTaken)
		require.Len(t, given(t, second, 1), 1)
		require.NoError(t, first.Leave(ctx))
		require.Equal(t, []string{"a", "b"}, testkit.GroupInfo(t, g).Members, "who left was the one whose name was taken")
	})
}

// A rejected Join changes nothing.
func TestGroup_Join_Refused(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := stocked(t, db, 5)
	enrol(t, s.Group("g", nil), "a")
	unchanged := testkit.WatchFile(t, path)
	_, err := s.Group("g", &honker.GroupOptions{Filter: honker.KeyIs("none")}).Join(context.Background(), "a")
	require.ErrorIs(t, err, honker.ErrMemberTaken)
	unchanged("a refused join")
	require.EqualValues(t, 5, testkit.GroupInfo(t, s.Group("g", nil)).Lag)
}

// Claim returns up to n events in order.
func TestMember_Claim_InOrder(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	g := stocked(t, db, 10).Group("g", nil)
	m, other := enrol(t, g, "a"), enrol(t, g, "b")
	for _, n := range []int{0, -1, math.MinInt} {
		_, err := m.Claim(context.Background(), n)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	require.Equal(t, []int{1}, contentsOf(given(t, m, 1)))
	require.Equal(t, []int{2, 3, 4}, contentsOf(given(t, other, 3)))
	rest := given(t, m, math.MaxInt)
	require.Equal(t, []int{5, 6, 7, 8, 9, 10}, contentsOf(rest))
	for _, d := range rest {
		require.Equal(t, rest[0].Token, d.Token)
		require.Equal(t, "orders", d.Topic)
		require.WithinDuration(t, time.Now(), d.CreatedAt, testkit.Timeout)
	}
	unchanged := testkit.WatchFile(t, path)
	for range 3 {
		require.Empty(t, given(t, other, 1))
	}
	unchanged("a claim with nothing to do")
}

// A claim returns at most 1,000 events, even for a pattern and for the largest n.
func TestMember_Claim_Bounded(t *testing.T) {
	db := honkertest.Open(t, nil)
	stocked(t, db, 1100)
	for _, topic := range []string{"orders", "*"} {
		m := enrol(t, honker.NewStream[int](db, topic, nil).Group("g", nil), "m")
		require.Equal(t, 1000, len(given(t, m, math.MaxInt)))
		rest := given(t, m, math.MaxInt)
		require.Equal(t, 100, len(rest))
		require.Equal(t, 1100, rest[99].Data)
	}
}

// Members that claim in turn receive each event once.
func TestMember_Claim_RoundRobin(t *testing.T) {
	t.Parallel()
	g := stocked(t, honkertest.Open(t, nil), 20).Group("g", nil)
	var members []*honker.Member[int]
	for i := range 3 {
		members = append(members, enrol(t, g, fmt.Sprint(i)))
	}
	token := int64(0)
	for want := 1; want <= 20; want++ {
		d := given(t, members[want%3], 1)
		require.Equal(t, []int{want}, contentsOf(d))
		require.Greater(t, d[0].Token, token)
		token = d[0].Token
		if want%2 > 0 {
			ackEach(t, d)
		}
	}
	require.Empty(t, given(t, members[0], 9), "those that are not acked are held")
	info := testkit.GroupInfo(t, g)
	require.Equal(t, []int64{20, 0, 10, 0, 1}, []int64{info.Cursor, info.Lag, info.Leased, info.Reclaim, info.LowWater})
}

// Concurrent members handle each event once.
func TestMember_Claim_Concurrent(t *testing.T) {
	t.Parallel()
	events := 15_000
	if testing.Short() {
		events = 1500
	}
	s := stocked(t, honkertest.Open(t, nil), events)
	g := s.Group("g", nil)
	ctx := testkit.Context(t, 3*testkit.Timeout)
	got := make([][]int, 3)
	var wg, begun sync.WaitGroup
	begun.Add(len(got))
	for i := range got {
		m := enrol(t, g, fmt.Sprint(i))
		wg.Go(func() {
			for first := true; ; first = false {
				ds, err := m.Claim(ctx, 1+i*40)
				if first { // no member finishes before all have started
					begun.Done()
					begun.Wait()
				}
				if err != nil || len(ds) == 0 {
					require.NoError(t, err)
					return
				}
				got[i] = append(got[i], contentsOf(ds)...)
				ackEach(t, ds)
			}
		})
	}
	wg.Wait()
	all := slices.Concat(got...)
	slices.Sort(all)
	require.Len(t, all, events)
	require.Len(t, slices.Compact(all), events)
	for i := range got {
		require.NotEmpty(t, got[i], "member %d took no part", i)
		require.True(t, slices.IsSorted(got[i]))
	}
	require.EqualValues(t, events, testkit.GroupInfo(t, g).LowWater)
}

// Events returned within the same millisecond are claimed last in, first out.
func TestMember_Claim_ReturnedLIFO(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) { // in a bubble no time passes between nacks
		g := stocked(t, db, 6).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		m := enrol(t, g, "a")
		ds := given(t, m, 5)
		for _, i := range []int{1, 3, 0} {
			require.NoError(t, ds[i].Nack(context.Background(), testkit.ErrCause))
		}
		require.Equal(t, []int{6, 1}, contentsOf(given(t, m, 2)), "fresh ones first")
		require.Equal(t, []int{4, 2}, contentsOf(given(t, m, 9)))
		time.Sleep(5 * time.Second)
		require.Empty(t, given(t, m, 9))
		require.NoError(t, ds[2].Nack(context.Background(), nil))
		time.Sleep(5001 * time.Millisecond)
		again := given(t, m, 9)
		require.Equal(t, []int{6, 5, 4, 2, 1, 3}, contentsOf(again), "leases that ran out came back after the nack")
		require.Equal(t, []int{2, 2, 3, 3, 3, 2}, []int{again[0].Attempts, again[1].Attempts, again[2].Attempts,
			again[3].Attempts, again[4].Attempts, again[5].Attempts})
	})
}

// A stale delivery cannot change its event.
func TestMember_StaleDelivery(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (n INTEGER)`)
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		d := given(t, enrol(t, g, "a"), 1)[0]
		refused := func(why string) {
			t.Helper()
			require.ErrorIs(t, d.Ack(ctx), honker.ErrClaimLost, why)
			require.ErrorIs(t, d.Nack(ctx, testkit.ErrCause), honker.ErrClaimLost, why)
			require.ErrorIs(t, d.Extend(ctx, time.Hour), honker.ErrClaimLost, why)
			require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`)
				require.NoError(t, err)
				return d.AckTx(ctx, tx)
			}), honker.ErrClaimLost, why)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		refused("the lease has run out")
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).Reclaim, "without a call to clean up")
		heirs := given(t, enrol(t, g, "b"), 2)
		require.Len(t, heirs, 1)
		require.Greater(t, heirs[0].Token, d.Token)
		refused("another member has it")
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return heirs[0].AckTx(ctx, tx) }))
		refused("it is acked")
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).LowWater)
	})
}

// AckTx takes effect if and only if its transaction commits.
func TestMember_AckTx(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	g := stocked(t, db, 1).Group("g", nil)
	d := given(t, enrol(t, g, "a"), 1)[0]
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.ErrorIs(t, d.Ack(ctx), honker.ErrInTx)
		require.NoError(t, d.AckTx(ctx, tx))
		return testkit.ErrCause
	}), testkit.ErrCause)
	require.EqualValues(t, 1, testkit.GroupInfo(t, g).Leased, "rolled back")
	require.NoError(t, d.Ack(ctx))
	require.ErrorIs(t, d.Ack(ctx), honker.ErrClaimLost, "twice")
}

// NackTx returns an event when its transaction commits: to the group after the Backoff, or to the dead events if it
// has no attempts left. It is fenced like Nack.
func TestDelivery_NackTx(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		testkit.Exec(t, db, `CREATE TABLE effects (n INTEGER)`)
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{
			MaxAttempts: 2, Backoff: func(int, error) time.Duration { return time.Minute },
		})
		m := enrol(t, g, "a")
		nackTx := func(d *honker.Delivery[int], end error) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`)
				require.NoError(t, err)
				err = d.Nack(ctx, testkit.ErrCause)
				require.ErrorIs(t, err, honker.ErrInTx)
				require.ErrorContains(t, err, "NackTx")
				if err := d.NackTx(ctx, tx, testkit.ErrCause); err != nil {
					return err
				}
				return end
			})
		}
		began := time.Now()
		d := given(t, m, 1)[0]
		rolledBack := errors.New("rolled back")
		require.ErrorIs(t, nackTx(d, rolledBack), rolledBack)
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).Leased)
		require.NoError(t, nackTx(d, nil))
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).Reclaim)
		err := nackTx(d, nil)
		require.ErrorIs(t, err, honker.ErrClaimLost, "twice")
		require.ErrorContains(t, err, "honker: nack event 1: ")
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))

		d = <-testkit.Deliveries(t, t.Context(), m)
		require.Equal(t, time.Minute, time.Since(began).Round(time.Millisecond), "it wakes a member")
		require.Equal(t, 2, d.Attempts)
		require.NoError(t, nackTx(d, nil))
		dead, _ := deadOf(t, g)
		require.Len(t, dead, 1)
		require.Equal(t, testkit.ErrCause.Error(), dead[0].LastError)
		require.ErrorIs(t, d.NackTx(ctx, nil, nil), honker.ErrInvalid)
	})
}

// Extend lengthens or shortens a lease.
func TestMember_Extend(t *testing.T) {
	for by, holds := range map[time.Duration]time.Duration{
		time.Hour:               time.Hour,
		time.Second:             time.Second,
		time.Nanosecond:         time.Millisecond,
		1500 * time.Microsecond: 2 * time.Millisecond,
	} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
			m := enrol(t, g, "a")
			d := given(t, m, 1)[0]
			require.ErrorIs(t, d.Extend(context.Background(), 0), honker.ErrInvalid)
			require.ErrorIs(t, d.Extend(context.Background(), -by), honker.ErrInvalid)
			require.NoError(t, d.Extend(context.Background(), by))
			time.Sleep(holds)
			require.Empty(t, given(t, m, 1), "%v", by)
			time.Sleep(time.Millisecond)
			require.Len(t, given(t, m, 1), 1, "%v", by)
		})
	}
}

// Unbounded leases and backoffs never expire.
func TestMember_UnboundedSpans(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		s := stocked(t, db, 2)
		g := s.Group("leased", &honker.GroupOptions{Lease: forever})
		require.Len(t, given(t, enrol(t, g, "a"), 2), 2)
		require.EqualValues(t, 2, testkit.GroupInfo(t, g).Leased)
		require.Equal(t, []string{"a"}, testkit.GroupInfo(t, g).Members)

		g = s.Group("extended", &honker.GroupOptions{Backoff: honker.Constant(forever)})
		m := enrol(t, g, "a")
		ds := given(t, m, 2)
		require.NoError(t, ds[0].Extend(ctx, forever))
		require.NoError(t, ds[0].Ack(ctx), "it was extended")
		require.NoError(t, ds[1].Nack(ctx, nil))
		require.Empty(t, given(t, m, 1), "it rests")
	})
}

// Backoff delays the next attempt of a nacked event.
func TestMember_Nack_Backoff(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		var asked []int
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Backoff: func(attempts int, cause error) time.Duration {
			require.Equal(t, testkit.ErrCause, cause)
			asked = append(asked, attempts)
			return time.Duration(attempts-2) * time.Minute // the first is negative, which means no backoff
		}})
		began := time.Now()
		var given []time.Duration
		for d, err := range enrol(t, g, "a").All(ctx) {
			require.NoError(t, err)
			if given = append(given, time.Since(began)); len(given) == 5 {
				require.NoError(t, d.Ack(ctx))
				break
			}
			require.NoError(t, d.Nack(ctx, testkit.ErrCause))
		}
		require.Equal(t, []int{1, 2, 3, 4}, asked)
		require.Equal(t, []time.Duration{0, 0, 0, time.Minute, 3 * time.Minute}, given)
	})
}

// An expired lease counts as an attempt, even if its member leaves.
func TestMember_Leave_LapsedCounts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Lease: time.Second, MaxAttempts: 1})
		m := enrol(t, g, "a")
		given(t, m, 1)
		time.Sleep(2 * time.Second)
		require.NoError(t, m.Leave(context.Background()))
		require.Empty(t, given(t, enrol(t, g, "b"), 1))
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).Dead)
	})
}

// A silent member releases its events when it leaves.
func TestMember_Leave_AfterSilence(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Lease: time.Second})
		m := enrol(t, g, "a")
		require.NoError(t, given(t, m, 1)[0].Extend(context.Background(), time.Hour))
		time.Sleep(2 * time.Second)
		heir := enrol(t, g, "b")
		require.NoError(t, m.Leave(context.Background()))
		require.Len(t, given(t, heir, 1), 1)
	})
}

// An event that doesn't decode is dead-lettered and doesn't stop its member.
func TestMember_Undecodable(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	s := stocked(t, db, 3)
	for _, payload := range []string{`"two"`, `{`, ``} {
		testkit.Exec(t, db, `INSERT INTO _honker_stream (topic, payload) VALUES ('orders', ?)`, payload)
	}
	testkit.PublishRange(t, s, 7, 7)
	g := s.Group("g", nil)
	m := enrol(t, g, "a")
	var got []int
	for d, err := range m.All(ctx) {
		if err != nil {
			require.ErrorContains(t, err, fmt.Sprintf("honker: read event %d: cannot decode payload", d.Offset))
			require.ErrorIs(t, d.Ack(ctx), honker.ErrClaimLost, "it is dead already")
			got = append(got, -int(d.Offset))
			continue
		}
		require.NoError(t, d.Ack(ctx))
		if got = append(got, d.Data); d.Data == 7 {
			break
		}
	}
	require.Equal(t, []int{1, 2, 3, -4, -5, -6, 7}, got)
	dead, errs := deadOf(t, g)
	require.Len(t, dead, 3)
	for i, d := range dead {
		require.Error(t, errs[i])
		require.EqualValues(t, 4+i, d.Offset)
		require.Contains(t, d.LastError, "cannot decode")
		require.Contains(t, d.LastError, fmt.Sprint("read event ", d.Offset))
	}
	testkit.Exec(t, db, `UPDATE _honker_stream SET payload = '4' WHERE offset = 4`)
	_, err := g.Redeliver(ctx, 4)
	require.NoError(t, err)
	require.Equal(t, []int{4}, contentsOf(given(t, m, 9)))
}

func init() { children["nacker"] = nackOnDemand }

// nackOnDemand takes an event and returns it when the parent process tells it to.
func nackOnDemand() {
	a, db := testkit.OpenChild(nil)
	m, err := testkit.MemberGroup(db, a.Span).Join(testkit.ChildContext(), "nacker")
	testkit.Must(err)
	ds, err := m.Claim(testkit.ChildContext(), 1)
	testkit.Must(err)
	testkit.Say(ds[0].Offset)
	testkit.ReadLine()
	testkit.Must(ds[0].Nack(testkit.ChildContext(), errors.New("not here")))
	testkit.Must(db.Close())
}

// All wakes immediately when another process changes the group.
func TestMember_All_WakesAtOnce(t *testing.T) {
	testkit.FileOnly(t)
	path, db := testkit.OpenShared(t)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	s := stocked(t, db, 5)
	nacker := testkit.StartChild(t, "nacker", testkit.Task{Path: path, Span: time.Hour})
	require.Equal(t, "1", nacker.Line(testkit.Timeout))
	other := honkertest.OpenFile(t, path, nil)
	mortal := honker.NewStream[int](other, "orders", nil).Group("members", &honker.GroupOptions{Lease: time.Hour, MaxAttempts: 1})
	require.NoError(t, given(t, enrol(t, mortal, "mortal"), 1)[0].Nack(ctx, testkit.ErrCause)) // dead-letters the second event
	held := given(t, enrol(t, testkit.MemberGroup(other, time.Hour), "holder"), 2)
	leaver := enrol(t, testkit.MemberGroup(other, time.Hour), "leaver")
	require.Equal(t, []int{5}, contentsOf(given(t, leaver, 1)))

	events := testkit.Deliveries(t, ctx, enrol(t, testkit.MemberGroup(db, time.Hour), "waiter"))
	arrives := func(what string, offset int64, cause func()) {
		t.Helper()
		began := time.Now()
		cause()
		select {
		case d := <-events:
			require.Equal(t, offset, d.Offset, what)
			t.Logf("woken by %s after %v", what, time.Since(began))
		case <-ctx.Done():
			t.Fatal("no member woke for " + what)
		}
	}
	arrives("a nack by another process", 1, func() { nacker.Tell("now") })
	arrives("a redelivery", 2, func() {
		found, err := mortal.Redeliver(ctx, 2)
		require.True(t, found && err == nil, err)
	})
	arrives("a nack", 3, func() { require.NoError(t, held[0].Nack(ctx, nil)) })
	arrives("a lease made shorter", 4, func() { require.NoError(t, held[1].Extend(ctx, time.Millisecond)) })
	arrives("a leave", 5, func() { require.NoError(t, leaver.Leave(ctx)) })
	arrives("an event", 6, func() { testkit.PublishRange(t, s, 6, 6) })
	arrives("an event by another handle", 7, func() { testkit.PublishRange(t, honker.NewStream[int](other, "orders", nil), 7, 7) })
	arrives("an event by another binding", 8, func() {
		testkit.ExecAll(t, testkit.OpenPool(t, path), `INSERT INTO _honker_stream (topic, payload) VALUES ('orders', '8')`)
	})
	arrives("an event in a transaction", 9, func() {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := s.PublishTx(ctx, tx, 9)
			return err
		}))
	})
	cancel()
}

// All wakes when a lease expires.
func TestMember_All_LeaseEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		g := stocked(t, db, 2).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		ds := given(t, enrol(t, g, "a"), 2)
		require.NoError(t, ds[0].Extend(ctx, 25*time.Second))
		began := time.Now()
		var woke []time.Duration
		for d, err := range enrol(t, g, "b").All(ctx) {
			require.NoError(t, err)
			require.Equal(t, 2, d.Attempts)
			require.NoError(t, d.Ack(ctx))
			if woke = append(woke, time.Since(began)); len(woke) == 2 {
				break
			}
		}
		require.Equal(t, []time.Duration{10*time.Second + time.Millisecond, 25*time.Second + time.Millisecond}, woke)
	})
}

// While All waits, it writes nothing but its membership.
func TestMember_All_WaitsQuietly(t *testing.T) {
	for lease, writes := range map[time.Duration]bool{72 * time.Hour: false, 30 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "waits.db")
			db := honkertest.OpenFile(t, path, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
			g := testkit.MemberGroup(db, lease)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			var ended error
			m := enrol(t, g, "a")
			go func() { ended = testkit.LastError(m.All(ctx)) }()
			synctest.Wait()
			if !writes {
				unchanged := testkit.WatchFile(t, path)
				time.Sleep(23 * time.Hour)
				unchanged("a member that waits")
			}
			for range 1000 { // the membership is renewed during the wait
				time.Sleep(7 * time.Second)
				require.Equal(t, []string{"a"}, testkit.GroupInfo(t, g).Members)
			}
			cancel(testkit.ErrCause)
			synctest.Wait()
			require.NoError(t, ended, "the loop ends with ctx, silently")
		})
	}
}

// All releases events that its body has not seen, without using up attempts.
func TestMember_All_ReleasesUnseen(t *testing.T) {
	t.Parallel()
	g := stocked(t, honkertest.Open(t, nil), 500).Group("g", nil)
	m := enrol(t, g, "a")
	ctx := testkit.Context(t, testkit.Timeout)
	seen := 0
	var last *honker.Delivery[int]
	for d, err := range m.All(ctx) {
		require.NoError(t, err)
		if seen++; seen == 100 {
			last = d
			require.Greater(t, testkit.GroupInfo(t, g).Leased, int64(1), "it claims ahead")
			break
		}
		require.NoError(t, d.Ack(ctx))
	}
	info := testkit.GroupInfo(t, g)
	require.EqualValues(t, 1, info.Leased, "the one that broke the loop")
	require.NoError(t, last.Ack(ctx))
	rest := given(t, enrol(t, g, "b"), 500)
	require.Len(t, rest, 400)
	for _, d := range rest {
		require.Equal(t, 1, d.Attempts)
	}
}

// When ctx ends, All ends immediately, even with events claimed ahead.
func TestMember_All_EndsWithContext(t *testing.T) {
	t.Parallel()
	g := stocked(t, honkertest.Open(t, nil), 500).Group("g", nil)
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	var got int
	for d, err := range enrol(t, g, "a").All(ctx) {
		require.NoError(t, err)
		require.NoError(t, d.Ack(ctx), "it was yielded after ctx had ended")
		if got++; got == 100 {
			cancel()
		}
	}
	require.ErrorIs(t, ctx.Err(), context.Canceled, "the loop ends with ctx, silently")
	require.Equal(t, 100, got)
	require.Zero(t, testkit.GroupInfo(t, g).Leased)
}

// Close ends All.
func TestMember_All_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "closed.db"), &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		require.NoError(t, err)
		s := stocked(t, db, 1)
		g := s.Group("g", nil)
		m := enrol(t, g, "a")
		var handled atomic.Int64
		var ended error
		go func() {
			for d, err := range m.All(context.Background()) {
				if ended = err; err == nil {
					handled.Add(1)
					require.NoError(t, d.Ack(context.Background()))
				}
			}
		}()
		synctest.Wait()
		require.NoError(t, db.Close())
		synctest.Wait()
		require.EqualValues(t, 1, handled.Load())
		require.ErrorIs(t, ended, honker.ErrClosed)
		_, err = g.Join(context.Background(), "b")
		require.ErrorIs(t, err, honker.ErrClosed)
		_, err = m.Claim(context.Background(), 1)
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorIs(t, m.Leave(context.Background()), honker.ErrClosed)
		_, err = g.Info(context.Background())
		require.ErrorIs(t, err, honker.ErrClosed)
		_, err = s.Groups(context.Background())
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorIs(t, testkit.LastError(g.Dead(context.Background())), honker.ErrClosed)
	})
}

// When the body becomes slow, the events claimed ahead are returned in time. Each event has the group's
// Lease, and no event is lost.
func TestMember_All_SlowBody(t *testing.T) {
	const lease = 10 * time.Second
	for name, takes := range map[string][]time.Duration{
		"a while":                {time.Second},
		"half a lease":           {lease / 2},
		"more than half":         {lease/2 + time.Second},
		"a lease":                {lease - time.Millisecond},
		"less, and then a lease": {lease/2 - time.Second, lease - time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				ctx := context.Background()
				g := stocked(t, db, 300).Group("g", &honker.GroupOptions{Lease: lease})
				n := 0
				for d, err := range enrol(t, g, "a").All(ctx) {
					require.NoError(t, err)
					if n++; n > 200 {
						time.Sleep(takes[(n-201)%len(takes)])
					}
					require.NoError(t, d.Ack(ctx), "event %d", n)
					require.Equal(t, 1, d.Attempts)
					if n == 300 {
						break
					}
				}
			})
		})
	}
}

// If more leases have expired than a single claim settles, several claims settle all of them.
func TestMember_Claim_ManyLapsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const events = 2500
		ctx := testkit.Context(t, time.Hour)
		s := stocked(t, honkertest.Open(t, nil), events)
		g := s.Group("g", &honker.GroupOptions{Lease: time.Minute})
		killed := enrol(t, g, "killed")
		for held := 0; held < events; {
			ds := given(t, killed, events)
			require.NotEmpty(t, ds)
			held += len(ds)
		}
		time.Sleep(2 * time.Minute)
		m := enrol(t, g, "next")
		again := map[int64]bool{}
		for range 10 {
			ds, err := m.Claim(ctx, events)
			require.NoError(t, err)
			for _, d := range ds {
				require.NoError(t, d.Ack(ctx))
				again[d.Offset] = true
			}
		}
		require.Len(t, again, events)
	})
}
