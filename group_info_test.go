package honker_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

func TestDeletedGroupEndsItsMembers(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		ctx := context.Background()
		g := stocked(t, db, 3).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		m, waits := enrol(t, g, "a"), enrol(t, g, "b")
		d := given(t, m, 3)[0]
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- lastError(waits.All(ctx)) }()
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
		require.ErrorIs(t, lastError(g.Dead(ctx)), honker.ErrNotFound)

		heir := enrol(t, g, "a") // a new group of that name
		for _, deleted := range []string{"and made again", "and made again, with events held"} {
			_, err = m.Claim(ctx, 1)
			require.ErrorIs(t, err, honker.ErrNotFound, deleted)
			require.ErrorIs(t, d.Ack(ctx), honker.ErrClaimLost, deleted)
			require.ErrorIs(t, d.Nack(ctx, nil), honker.ErrClaimLost, deleted)
			require.ErrorIs(t, d.Extend(ctx, time.Hour), honker.ErrClaimLost, deleted)
			require.NoError(t, m.Leave(ctx), deleted)
			given(t, heir, 3)
		}
		require.EqualValues(t, 3, infoOf(t, g).Leased)
	})
}

func TestSparseGroupGetsPastLongRunsOfOthersEvents(t *testing.T) {
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
		stock(t, noise, 1, 3000)
		stock(t, s, 1, 5000, honker.EventKey("other"))
		stock(t, s, n, n, honker.EventKey("wanted"))
		want = append(want, n)
	}
	stock(t, noise, 1, 3000)
	head, err := noise.Head(context.Background())
	require.NoError(t, err)
	wanted := honker.Or(honker.KeyIs("wanted"), honker.And(honker.KeyPrefix("w"), honker.KeyPrefix("wa")))
	for _, topic := range []string{"orders:a", "orders:*", "*"} {
		g := honker.NewStream[int](db, topic, nil).Group("g", &honker.GroupOptions{Filter: wanted})
		m := enrol(t, g, "a")
		require.EqualValues(t, runs, infoOf(t, g).Lag, topic)
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
			require.Equal(t, head, infoOf(t, g).Cursor, topic)
		}
	}
}

func TestGroupBeginsWhereItsFirstMemberSaid(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		began := time.Now()
		s := stocked(t, db, 3)
		time.Sleep(time.Minute)
		stock(t, s, 4, 6)
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
			info := infoOf(t, g)
			require.Equal(t, honker.GroupInfo{Name: name, Topic: "orders", Cursor: c.first - 1, LowWater: c.first - 1,
				Lag: 7 - c.first, Members: []string{"a"}}, info, name)
			enrol(t, s.Group(name, &honker.GroupOptions{From: honker.Offset(5)}), "b")
			require.Equal(t, info.Cursor, infoOf(t, g).Cursor, "there was one already: %s", name)
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

func TestGroupRefusesBadInput(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
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
	calls := map[string]refusal{}
	for what, name := range badNames {
		bad["name "+what] = s.Group(name, nil)
		calls["member "+what] = func(c context.Context) error { _, err := good.Join(c, name); return err }
	}
	for what, g := range bad {
		maps(calls, what+": ", map[string]refusal{
			"Join":      func(c context.Context) error { _, err := g.Join(c, "a"); return err },
			"Info":      func(c context.Context) error { _, err := g.Info(c); return err },
			"Dead":      func(c context.Context) error { return lastError(g.Dead(c)) },
			"Delete":    func(c context.Context) error { _, err := g.Delete(c); return err },
			"Redeliver": func(c context.Context) error { _, err := g.Redeliver(c, 1); return err },
			"Discard":   func(c context.Context) error { _, err := g.Discard(c, 1); return err },
		})
	}
	refuses(t, path, calls)
}
