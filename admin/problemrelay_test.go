package admin_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// A partition that does not get past a message is a problem until the message is handled or dies. Messages that
// died are a problem for an hour.
func TestProblems_Relay(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
		var gone atomic.Bool
		r := relay.New(db, &relay.Options{Family: "billing"})
		q := r.Queue("hooks", 2)
		q.Handle(func(context.Context, *relay.Message) error {
			if gone.Load() {
				return relay.Reject(errors.New("no such hook"))
			}
			return errors.New("hook.example.com: 503\nbody")
		})
		began := time.Now()
		for range 3 {
			_, err := q.Send(t.Context(), relay.Outgoing{Partition: 1})
			require.NoError(t, err)
		}
		stop := testkit.Background(t, r.Run)
		time.Sleep(30 * time.Second)
		require.Empty(t, problems(t, db))
		time.Sleep(time.Minute)
		p := only(t, db)
		require.Equal(t, admin.ProblemRelayStuck, p.Code)
		require.Equal(t, admin.SeverityError, p.Severity)
		require.Equal(t, "billing/hooks", p.Name)
		require.Equal(t, honker.Count{N: 3}, p.N)
		require.Equal(t, "hook.example.com: 503", p.Cause)
		require.Equal(t, []string{"look at relay billing/hooks"}, p.Do)
		require.WithinDuration(t, began, p.Since, time.Second)
		require.Regexp(t, `^relay billing/hooks: partition 1 has failed \d+ attempts of a message, and 2 messages wait behind it$`, p.Text)

		gone.Store(true)
		time.Sleep(30 * time.Minute)
		p = only(t, db)
		require.Equal(t, admin.ProblemRelayDead, p.Code)
		require.Equal(t, admin.SeverityWarn, p.Severity)
		require.Equal(t, honker.Count{N: 3}, p.N)
		require.Equal(t, "no such hook", p.Cause)
		require.Regexp(t, `^relay billing/hooks: 3 messages died in the last hour, the last after 1 attempt in partition 1$`, p.Text)
		time.Sleep(time.Hour)
		require.Empty(t, problems(t, db))
		require.NoError(t, stop())
	})
}
