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
)

// Jobs that wait for another attempt are grouped by the kind of their last error. Jobs that have not failed are left out.
func TestRetryGroups(t *testing.T) {
	ctx, db, q, _ := open(t)
	_, err := q.EnqueueMany(ctx, []int{0, 1, 2, 3, 4, 5})
	require.NoError(t, err)
	_, err = q.WorkDue(ctx, func(_ context.Context, j *honker.Job[int]) error {
		switch {
		case j.Args == 0:
			return honker.Reject(fmt.Errorf("dial tcp 10.0.0.%d:80: refused", j.ID))
		case j.Args < 5:
			return honker.RetryAfter(time.Hour, fmt.Errorf("dial tcp 10.0.0.%d:80: refused", j.ID))
		}
		return honker.RetryAfter(time.Minute, errors.New("out of paper"))
	}, nil)
	require.NoError(t, err)
	_, err = q.EnqueueMany(ctx, []int{6, 7})
	require.NoError(t, err)

	r, err := admin.RetryGroups(ctx, db, admin.JobFilter{}, 100, time.Second)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 5}, r.Looked)
	require.Len(t, r.Groups, 2)
	g := r.Groups[0]
	require.Equal(t, []any{"jobs", int64(4), []int64{5, 4, 3, 2}}, []any{g.Queue, g.N, g.IDs})
	require.Equal(t, "dial tcp 10.0.0.5:80: refused", g.Sample)
	dead, err := admin.DeadGroups(ctx, db, admin.JobFilter{})
	require.NoError(t, err)
	require.Equal(t, dead.Groups[0].Fingerprint, g.Fingerprint, "the kind of dead letters")

	r, err = admin.RetryGroups(ctx, db, admin.JobFilter{}, 3, 0)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 3, More: true}, r.Looked)
	r, err = admin.RetryGroups(ctx, db, admin.JobFilter{Queues: []string{"other"}}, 3, 0)
	require.NoError(t, err)
	require.Empty(t, r.Groups)
	for _, f := range []admin.JobFilter{{Phases: []honker.Phase{honker.PhaseReady}}, {MinAttempts: 2}, {Fingerprint: "x"}, {Queues: []string{""}}} {
		_, err = admin.RetryGroups(ctx, db, f, 3, 0)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err = admin.RetryGroups(ctx, db, admin.JobFilter{}, 0, 0)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.RetryGroups(ctx, nil, admin.JobFilter{}, 1, 0)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
