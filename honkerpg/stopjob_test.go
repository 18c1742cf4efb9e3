//go:build unix

package honkerpg_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/dispatch"
)

// A StopJob that deadlocks with another transaction runs again.
func TestStopJob_RunsAgainAfterADeadlock(t *testing.T) {
	db, f := newForeign(t)
	d := dispatch.New(db, nil)
	id, err := d.Send(t.Context(), dispatch.Target{Type: "printer"}, 1)
	require.NoError(t, err)
	other, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(t.Context()) }()
	lock := func(query string) {
		_, err := other.Exec(t.Context(), f.text(query), id)
		require.NoError(t, err)
	}
	lock(`SELECT FROM honker.sent_job WHERE job_id = $1 FOR UPDATE`)
	stopped := make(chan error, 1)
	go func() {
		ok, err := d.StopJob(t.Context(), id)
		if err == nil && !ok {
			t.Error("the job was not stopped")
		}
		stopped <- err
	}()
	// It holds the job and waits for the other row.
	require.Eventually(t, func() bool { return f.isAwaited(other) }, 30*time.Second, time.Millisecond)
	lock(`SELECT FROM honker.job WHERE id = $1 FOR UPDATE`)
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, <-stopped)
}
