package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
)

// A rate limit is listed with only its last window.
func TestRateLimits_LastWindow(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		all, err := admin.RateLimits(ctx, db)
		require.NoError(t, err)
		require.Empty(t, all)
		mails, sms := db.RateLimit("mails", 5, time.Minute), db.RateLimit("sms", 5, time.Second)
		for range 3 {
			for _, limit := range []*honker.RateLimit{mails, mails, sms} {
				ok, err := limit.Allow(ctx)
				require.NoError(t, err)
				require.True(t, ok)
			}
			time.Sleep(time.Minute)
		}
		all, err = admin.RateLimits(ctx, db)
		require.NoError(t, err)
		last := time.Now().Add(-time.Minute).Truncate(time.Second)
		require.Len(t, all, 2)
		require.Equal(t, "mails", all[0].Name)
		require.True(t, all[0].Start.Equal(last.Truncate(time.Minute)), all[0].Start)
		require.EqualValues(t, 2, all[0].Count)
		require.Equal(t, "sms", all[1].Name)
		require.EqualValues(t, 1, all[1].Count)
		require.True(t, all[1].Start.Equal(last), all[1].Start)
	})
}
