package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// The jobs that wait for another attempt are grouped by kind of error.
func TestJobsGroups(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		db := open(t, "app.db")
		q := honker.NewQueue[int](db, "retried", nil)
		_, err := q.EnqueueMany(t.Context(), []int{1, 2, 3})
		require.NoError(t, err)
		_, err = q.WorkDue(t.Context(), func(_ context.Context, j *honker.Job[int]) error {
			if j.Args == 3 {
				return honker.RetryAfter(time.Hour, errors.New("out of paper"))
			}
			return honker.RetryAfter(time.Hour, errors.New("dial tcp 10.0.0.1:80: refused"))
		}, nil)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		got := s.do("jobs", "groups", "--queue", "retried", "-o", "tsv", "--columns", "n,sample")
		require.Equal(t, "n\tsample\n2\tdial tcp 10.0.0.1:80: refused\n1\tout of paper\n", got.out)
	})
}
