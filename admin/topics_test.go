package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// A topic is listed while it has events or a retention.
func TestTopics_EventsOrRetention(t *testing.T) {
	ctx, db, _, _ := open(t)
	none, err := admin.Topics(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none)

	orders := honker.NewStream[int](db, "orders", nil)
	mails := honker.NewStream[int](db, "mails", nil)
	first := testkit.Publish(t, orders, 1)
	testkit.Publish(t, mails, 1)
	head := testkit.Publish(t, orders, 2)
	require.NoError(t, orders.SetRetention(ctx, honker.Retention{MaxCount: 10, MaxAge: time.Hour}))
	require.NoError(t, honker.NewStream[int](db, "quiet", nil).SetRetention(ctx, honker.Retention{MaxCount: 1}))

	all, err := admin.Topics(ctx, db)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, []string{"mails", "orders", "quiet"}, []string{all[0].Name, all[1].Name, all[2].Name})
	require.Equal(t, honker.Retention{}, all[0].Retention)
	o := all[1]
	require.WithinDuration(t, time.Now(), o.LastAt, time.Minute)
	require.WithinDuration(t, time.Now(), o.FirstAt, time.Minute)
	o.FirstAt, o.LastAt = time.Time{}, time.Time{}
	require.InDelta(t, 2.0/600, o.Published, 1e-9)
	o.Published = 0
	require.Equal(t, admin.TopicInfo{Name: "orders", Events: honker.Count{N: 2}, First: first, Head: head,
		Retention: honker.Retention{MaxCount: 10, MaxAge: time.Hour}}, o)
	require.Equal(t, admin.TopicInfo{Name: "quiet", Retention: honker.Retention{MaxCount: 1}}, all[2])
}

// Deleted events are not counted, although they leave gaps in the offsets.
func TestTopics_DeletedEvents(t *testing.T) {
	ctx, db, _, _ := open(t)
	s := honker.NewStream[int](db, "orders", nil)
	testkit.PublishUpTo(t, s, 10)
	require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxCount: 3}))
	_, err := s.Compact(ctx)
	require.NoError(t, err)
	testkit.Exec(t, db, testkit.Either(`DELETE FROM _honker_stream WHERE offset = 9`, `DELETE FROM event WHERE "offset" = 9`))
	all, err := admin.Topics(ctx, db)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 2}, all[0].Events)
	require.EqualValues(t, 8, all[0].First)
	require.EqualValues(t, 10, all[0].Head)
}

// The count has a bound shared by all topics. More is set if the bound is reached, and the next call goes on.
func TestTopics_CountIsBounded(t *testing.T) {
	ctx, db, _, _ := open(t)
	storeEvents(t, db, "big", 201_500)
	all, err := admin.Topics(ctx, db)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 201_000, More: true}, all[0].Events)
	testkit.Exec(t, db, testkit.Either(testkit.Numbers(200)+`INSERT INTO _honkerx_retention (topic, max_count, max_age_ms) SELECT 'small ' || n, 1, 0 FROM some`,
		`INSERT INTO retention (topic, max_count) SELECT 'small ' || n, 1 FROM generate_series(1, 200) AS n`))
	storeEvents(t, db, "exact", 1000)
	all, err = admin.Topics(ctx, db)
	require.NoError(t, err)
	require.Len(t, all, 202)
	require.Equal(t, honker.Count{N: 201_500}, all[0].Events, "the count goes on")
	require.Equal(t, honker.Count{N: 1000}, all[1].Events)
}

// The error from a failed read names the operation.
func TestLooks_Errors(t *testing.T) {
	_, db, _, _ := open(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for what, look := range map[string]func(context.Context, *honker.DB) error{
		"list topics":      func(ctx context.Context, db *honker.DB) error { _, err := admin.Topics(ctx, db); return err },
		"list consumers":   func(ctx context.Context, db *honker.DB) error { _, err := admin.Consumers(ctx, db); return err },
		"list groups":      func(ctx context.Context, db *honker.DB) error { _, err := admin.Groups(ctx, db); return err },
		"describe file":    func(ctx context.Context, db *honker.DB) error { _, err := admin.File(ctx, db); return err },
		"list rate limits": func(ctx context.Context, db *honker.DB) error { _, err := admin.RateLimits(ctx, db); return err },
		"list leaders":     func(ctx context.Context, db *honker.DB) error { _, err := admin.Leaders(ctx, db); return err },
		"list audit":       func(ctx context.Context, db *honker.DB) error { _, err := admin.Audit(ctx, db, nil); return err },
		"traffic": func(ctx context.Context, db *honker.DB) error {
			_, err := admin.Traffic(ctx, db, "", time.Time{})
			return err
		},
	} {
		err := look(context.Background(), nil)
		require.ErrorIs(t, err, honker.ErrInvalid, what)
		require.ErrorContains(t, err, what)
		if what == "describe file" && !admin.IsFile(db) {
			continue
		}
		require.ErrorIs(t, look(ended, db), context.Canceled, what)
		var none context.Context
		require.ErrorIs(t, look(none, db), honker.ErrInvalid, what)
	}
}
