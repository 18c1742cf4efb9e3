package honker_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Deleting a group ends its members.
func TestGroup_Delete_EndsMembers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		g := stocked(t, db, 3).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		m, waits := enrol(t, g, "a"), enrol(t, g, "b")
		d := given(t, m, 3)[0]
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- testkit.LastError(waits.All(ctx)) }()
		synctest.Wait()
		deleted, err := g.Delete(ctx)
		require.True(t, deleted && err == nil, err)
		require.ErrorIs(t, <-ended, honker.ErrNotFound, "who waits need not wait for ever")
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		deleted, err = g.Delete(ctx)
		require.True(t, !deleted && err == nil, err)
		_, err = g.Info(ctx)
		require.ErrorIs(t, err, honker.ErrNotFound)
		_, err = g.Redeliver(ctx, 1)
		require.ErrorIs(t, err, honker.ErrNotFound)
		require.ErrorIs(t, testkit.LastError(g.Dead(ctx)), honker.ErrNotFound)

		heir := enrol(t, g, "a") // a new group with the same name
		for _, deleted := range []string{"and made again", "and made again, with events held"} {
			_, err = m.Claim(ctx, 1)
			require.ErrorIs(t, err, honker.ErrNotFound, deleted)
			require.ErrorIs(t, d.Ack(ctx), honker.ErrClaimLost, deleted)
			require.ErrorIs(t, d.Nack(ctx, nil), honker.ErrClaimLost, deleted)
			require.ErrorIs(t, d.Extend(ctx, time.Hour), honker.ErrClaimLost, deleted)
			require.NoError(t, m.Leave(ctx), deleted)
			given(t, heir, 3)
		}
		require.EqualValues(t, 3, testkit.GroupInfo(t, g).Leased)
	})
}

// A group with a sparse filter gets past long runs of excluded events.
func TestGroup_Sparse(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	noise := honker.NewStream[int](db, "noise", nil)
	s := honker.NewStream[int](db, "orders:a", nil)
	var want []int
	runs := 4
	if testing.Short() {
		runs = 2
	}
	for n := 1; n <= runs; n++ {
		testkit.PublishRange(t, noise, 1, 3000)
		testkit.PublishRange(t, s, 1, 5000, honker.EventKey("other"))
		testkit.PublishRange(t, s, n, n, honker.EventKey("wanted"))
		want = append(want, n)
	}
	testkit.PublishRange(t, noise, 1, 3000)
	head, err := noise.Head(context.Background())
	require.NoError(t, err)
	wanted := honker.Or(honker.KeyIs("wanted"), honker.And(honker.KeyPrefix("w"), honker.KeyPrefix("wa")))
	for _, topic := range []string{"orders:a", "orders:*", "*"} {
		g := honker.NewStream[int](db, topic, nil).Group("g", &honker.GroupOptions{Filter: wanted})
		m := enrol(t, g, "a")
		require.EqualValues(t, runs, testkit.GroupInfo(t, g).Lag, topic)
		first := given(t, m, 1)
		require.Equal(t, want[:1], contentsOf(first), topic)
		require.Equal(t, "wanted", first[0].Key)
		got := contentsOf(first)
		for len(got) < runs {
			ds := given(t, m, 9)
			require.NotEmpty(t, ds, topic)
			got = append(got, contentsOf(ds)...)
		}
		require.Equal(t, want, got, topic)
		require.Empty(t, given(t, m, 9))
		require.NoError(t, first[0].Nack(context.Background(), nil))
		require.Equal(t, want[:1], contentsOf(given(t, m, 9)), "nothing fresh is left, however far that is")
		if topic != "orders:a" {
			require.Equal(t, head, testkit.GroupInfo(t, g).Cursor, topic)
		}
	}
}

// A group begins at the start set by its first member.
func TestGroup_Join_Start(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now()
		s := stocked(t, db, 3)
		time.Sleep(time.Minute)
		testkit.PublishRange(t, s, 4, 6)
		for name, c := range map[string]struct {
			from  honker.From
			first int64
		}{
			"default":            {honker.From{}, 1},
			"beginning":          {honker.Beginning, 1},
			"end":                {honker.End, 7},
			"offset":             {honker.Offset(2), 3},
			"beyond":             {honker.Offset(6), 7},
			"since":              {honker.Since(began.Add(time.Second)), 4},
			"since all":          {honker.Since(began), 1},
			"since nobody knows": {honker.Since(began.Add(time.Hour)), 7},
		} {
			g := s.Group(name, &honker.GroupOptions{From: c.from})
			enrol(t, g, "a")
			info := testkit.GroupInfo(t, g)
			require.Equal(t, honker.GroupInfo{Name: name, Topic: "orders", Cursor: c.first - 1, LowWater: c.first - 1,
				Lag: 7 - c.first, Members: []string{"a"}}, info, name)
			enrol(t, s.Group(name, &honker.GroupOptions{From: honker.Offset(5)}), "b")
			require.Equal(t, info.Cursor, testkit.GroupInfo(t, g).Cursor, "there was one already: %s", name)
		}
		all, err := s.Groups(context.Background())
		require.NoError(t, err)
		require.Len(t, all, 8)
		require.True(t, slices.IsSortedFunc(all, func(a, b honker.GroupInfo) int { return cmp.Compare(a.Name, b.Name) }))
		all, err = honker.NewStream[int](db, "orders*", nil).Groups(context.Background())
		require.NoError(t, err)
		require.Empty(t, all, "of the pattern itself")
		consumers, err := s.Consumers(context.Background())
		require.NoError(t, err)
		require.Empty(t, consumers)
	})
}

// A group rejects bad input.
func TestGroup_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := stocked(t, db, 1)
	deep := honker.KeyIs("x")
	for range 40 {
		deep = honker.And(deep)
	}
	bad := map[string]*honker.Group[int]{
		"Lease":       s.Group("g", &honker.GroupOptions{Lease: -1}),
		"MaxAttempts": s.Group("g", &honker.GroupOptions{MaxAttempts: -1}),
		"From":        s.Group("g", &honker.GroupOptions{From: honker.Offset(-1)}),
		"Filter":      s.Group("g", &honker.GroupOptions{Filter: deep}),
		"topic":       honker.NewStream[int](db, "", nil).Group("g", nil),
	}
	good := s.Group("good", nil)
	enrol(t, good, "a")
	calls := map[string]testkit.Refusal{}
	for what, name := range badNames {
		bad["name "+what] = s.Group(name, nil)
		calls["member "+what] = func(c context.Context) error { _, err := good.Join(c, name); return err }
	}
	for what, g := range bad {
		maps(calls, what+": ", map[string]testkit.Refusal{
			"Join":      func(c context.Context) error { _, err := g.Join(c, "a"); return err },
			"Info":      func(c context.Context) error { _, err := g.Info(c); return err },
			"Dead":      func(c context.Context) error { return testkit.LastError(g.Dead(c)) },
			"Delete":    func(c context.Context) error { _, err := g.Delete(c); return err },
			"Redeliver": func(c context.Context) error { _, err := g.Redeliver(c, 1); return err },
			"Discard":   func(c context.Context) error { _, err := g.Discard(c, 1); return err },
		})
	}
	testkit.RequireRefused(t, path, calls)
}

// New events are claimed first. Returned events are claimed last in, first out.
func TestMember_Claim_FreshFirst(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	_, _, err := s.PublishMany(ctx, []int{1, 2, 3, 4, 5})
	require.NoError(t, err)
	m, err := s.Group("workers", nil).Join(ctx, "worker-1")
	require.NoError(t, err)
	var order []int
	nacked := map[int]bool{}
	for {
		ds, err := m.Claim(ctx, 1)
		require.NoError(t, err)
		if len(ds) == 0 {
			break
		}
		d := ds[0]
		order = append(order, d.Data)
		if d.Data <= 2 && !nacked[d.Data] {
			nacked[d.Data] = true
			require.NoError(t, d.Nack(ctx, errors.New("not now")))
			continue
		}
		require.NoError(t, d.Ack(ctx))
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 2, 1}, order)
}

// A returned event that another program has deleted from the stream is left out, and the others are claimed.
func TestMember_Claim_DeletedEvent(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	offsets := testkit.PublishUpTo(t, s, 3)
	m, err := s.Group("workers", nil).Join(ctx, "worker-1")
	require.NoError(t, err)
	ds, err := m.Claim(ctx, 3)
	require.NoError(t, err)
	require.Len(t, ds, 3)
	for _, d := range ds {
		require.NoError(t, d.Nack(ctx, nil))
	}
	testkit.Exec(t, db, `DELETE FROM _honker_stream WHERE "offset" = $1`, offsets[1])
	ds, err = m.Claim(ctx, 3)
	require.NoError(t, err)
	require.Len(t, ds, 2)
	for _, d := range ds {
		require.NotEqual(t, 1, d.Data)
		require.NoError(t, d.Ack(ctx))
	}
}

// A pipe publishes a successor for each event.
func TestPipe_Successors(t *testing.T) {
	db := honkertest.Open(t, nil)
	numbers, doubled := honker.NewStream[int](db, "numbers", nil), honker.NewStream[int](db, "doubled", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	_, _, err := numbers.PublishMany(ctx, []int{1, 2, 3}, honker.EventKey("k"))
	require.NoError(t, err)
	stop := errors.New("stop")
	err = honker.Pipe(ctx, numbers, "doubler", doubled, func(_ context.Context, e *honker.Event[int]) (int, error) {
		switch e.Data {
		case 2:
			return 0, honker.ErrSkip
		case 3:
			return 0, stop
		}
		return 2 * e.Data, nil
	})
	require.ErrorIs(t, err, stop)
	var got []int
	for e, err := range doubled.Read(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, "k", e.Key)
		got = append(got, e.Data)
	}
	require.Equal(t, []int{2}, got)
	offset, err := numbers.Offset(ctx, "doubler")
	require.NoError(t, err)
	require.EqualValues(t, 2, offset)
}

// Compact keeps events that a consumer hasn't seen.
func TestRetention_Compact_Consumer(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	_, _, err := s.PublishMany(ctx, make([]int, 1000))
	require.NoError(t, err)
	require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxCount: 10}))
	_, err = s.SaveOffset(ctx, "slow", 400)
	require.NoError(t, err)
	stats, err := s.Compact(ctx)
	require.NoError(t, err)
	require.Equal(t, honker.CompactStats{Deleted: 400, Policy: 990, Cutoff: 400, PinnedBy: `consumer "slow"`}, stats)
	_, err = s.DeleteConsumer(ctx, "slow")
	require.NoError(t, err)
	stats, err = s.Compact(ctx)
	require.NoError(t, err)
	require.Equal(t, honker.CompactStats{Deleted: 590, Policy: 990, Cutoff: 990}, stats)
}

// deadOf returns a group's dead events.
func deadOf[E any](t testing.TB, g *honker.Group[E]) (dead []honker.DeadEvent[E], errs []error) {
	t.Helper()
	for d, err := range g.Dead(context.Background()) {
		require.NotNil(t, d, "%v", err)
		dead, errs = append(dead, *d), append(errs, err)
	}
	return dead, errs
}

// Events are dead-lettered when they have no attempts left.
func TestMember_Nack_AttemptsSpent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		g := stocked(t, db, 3).Group("g", &honker.GroupOptions{MaxAttempts: 2, Lease: 10 * time.Second})
		m := enrol(t, g, "a")
		for attempt := range 2 {
			ds := given(t, m, 3)
			require.Len(t, ds, 3, "attempt %d", attempt)
			slices.SortFunc(ds, func(a, b *honker.Delivery[int]) int { return cmp.Compare(a.Data, b.Data) })
			require.NoError(t, ds[0].Nack(ctx, testkit.ErrCause))
			require.NoError(t, ds[2].Nack(ctx, nil))
			time.Sleep(10*time.Second + time.Millisecond) // lets the lease of the second event expire
		}
		require.Empty(t, given(t, m, 3))
		info := testkit.GroupInfo(t, g)
		require.Equal(t, []int64{3, 0, 0, 3}, []int64{info.Dead, info.Leased, info.Reclaim, info.LowWater})
		dead, _ := deadOf(t, g)
		for i, why := range []string{testkit.ErrCause.Error(), "max attempts exceeded", ""} {
			require.Equal(t, i+1, dead[i].Data)
			require.Equal(t, 2, dead[i].Attempts)
			require.Equal(t, why, dead[i].LastError)
		}
		require.Equal(t, 10*time.Second+time.Millisecond, time.Since(dead[0].DiedAt))
		require.Zero(t, time.Since(dead[1].DiedAt))

		for _, verb := range []func(context.Context, int64) (bool, error){g.Redeliver, g.Discard} {
			_, err := verb(ctx, -1)
			require.ErrorIs(t, err, honker.ErrInvalid)
			found, err := verb(ctx, 9)
			require.NoError(t, err)
			require.False(t, found)
		}
		found, err := g.Discard(ctx, 1)
		require.True(t, found && err == nil, err)
		found, err = g.Redeliver(ctx, 2)
		require.True(t, found && err == nil, err)
		found, err = g.Redeliver(ctx, 2)
		require.True(t, !found && err == nil, "it is not dead any more")
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).LowWater)
		for attempt := range 2 { // uses up all attempts
			ds := given(t, m, 3)
			require.Equal(t, []int{2}, contentsOf(ds))
			require.Equal(t, attempt+1, ds[0].Attempts)
			require.NoError(t, ds[0].Nack(ctx, errors.New("again")))
		}
		dead, _ = deadOf(t, g)
		require.Len(t, dead, 2)
		require.Equal(t, "again", dead[0].LastError)
	})
}

// A large group's rows are deleted in transactions of a few rows. If the deletion is interrupted, the
// group is already gone, and Maintain deletes the remaining rows.
func TestGroup_Delete_Chunks(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		const left = `SELECT count(*) FROM _honkerx_group_claims`
		s := stocked(t, db, 3)
		g, other := s.Group("g", nil), s.Group("other", nil)
		enrol(t, g, "a")
		given(t, enrol(t, other, "b"), 3)
		testkit.Exec(t, db, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
			INSERT INTO _honkerx_group_claims SELECT 1, i, 2, '', 0, 0, 1, NULL FROM n`)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Microsecond) // ends in the second pause
		defer cancel()
		_, err := g.Delete(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Greater(t, testkit.QueryInt(t, db.SQL(), left), int64(3))
		_, err = g.Info(t.Context())
		require.ErrorIs(t, err, honker.ErrNotFound)

		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		synctest.Wait()
		time.Sleep(time.Second)
		require.EqualValues(t, 3, testkit.QueryInt(t, db.SQL(), left), "those of the other group stay")
		require.NoError(t, stop())
		require.NoError(t, db.Check(t.Context()))
	})
}
