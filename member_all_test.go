package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["nacker"] = nackOnDemand }

// nackOnDemand takes an event and returns it when the parent process asks for it.
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

// All wakes at once when another process changes the group.
func TestMember_All_WakesAtOnce(t *testing.T) {
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

// All releases events that its body has not seen, with their attempts unspent.
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

// The end of ctx ends All at once, even with events claimed ahead.
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
